"""What a release costs now, beside what it cost at an earlier commit, both in one run.

    python tests/benchmarks/speed.py --before COMMIT [PART ...]

Earlier commits are checked out as git worktrees in bench-out/; every measurement is a process of its own, run
once to warm up and then in turn in both trees, with OMP_NUM_THREADS unset. Seconds are CPU seconds of the process and
its children, the least of some turns; memory is the peak of the process. What must not have changed is compared. Writes
speed.jsonl and speed.md here; with names of parts, or PART:ARGUMENT, only these are measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = Path(os.environ.get("SYNTH_BENCH_DATA", ROOT.parent / "shared" / "data"))
TREES = ROOT / "bench-out"
ALONE = "–"
"""What stands for an earlier commit where it would take too long."""
TABLES = ("nltcs", "acs", "adult", "br2000")
THREADS = ("unset", "1", "64")

Figures = dict[str, Any]


def direction(argument: str) -> Figures:
    """Quasi-Newton directions from 40 pairs of so many numbers, in one thread: seconds of one, and where it leads."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    from synth_core.models import maximum_entropy as engine

    size, rng = int(argument), np.random.default_rng(0)
    curvature, gradient = rng.random(size) + 0.5, rng.standard_normal(size)
    inverse = 1 / (curvature + 0.3 * rng.random(size))
    steps = rng.standard_normal((40, size))
    changes = steps * curvature + 0.05 * rng.standard_normal((40, size))
    if hasattr(engine, "_Pairs"):
        pairs = engine._Pairs(gradient)
        for step, change in zip(steps, changes, strict=True):
            pairs.append(step, change)
            pairs.direction(gradient, inverse)
        work = lambda: pairs.direction(gradient, inverse)  # noqa: E731
    else:
        from collections import deque
        from types import SimpleNamespace

        known = deque((s, y, 1 / float(s @ y)) for s, y in zip(steps, changes, strict=True))
        point = SimpleNamespace(gradient=gradient, residual=gradient, multipliers=gradient, marginals=gradient)
        problem = SimpleNamespace(curvature=lambda _: 1 / inverse - 1e-9)
        work = lambda: engine._direction(point, known, problem, 1e-9)  # noqa: E731
    found = work()
    turns = max(5, 2_000_000 // size)
    begin = time.process_time()
    for _ in range(turns):
        work()
    return {"cpu_s": (time.process_time() - begin) / turns, "same": f"{np.linalg.norm(found):.9g}"}


def fit(argument: str) -> Figures:
    """A fit to fixed noisy pairs of columns with up to 501 codes, while other processes keep all cores busy."""
    from itertools import combinations

    from synth_core.domain import Domain
    from synth_core.measurement import Measurement
    from synth_core.models.maximum_entropy import estimate

    domain, rng = Domain.of({"a": 501, "b": 60, "c": 24, "d": 5}), np.random.default_rng(0)
    shared = rng.random(60_000)
    rows = [((0.6 * shared + 0.4 * rng.random(60_000)) * size).astype(int) for size in domain.sizes]
    measurements = []
    for i, j in combinations(range(len(domain)), 2):
        shape = domain.sizes[i], domain.sizes[j]
        counts = np.bincount(rows[i] * shape[1] + rows[j], minlength=shape[0] * shape[1]).reshape(shape)
        clique = domain.attributes[i], domain.attributes[j]
        measurements.append(Measurement(clique, counts + rng.normal(0, 10, shape), 10.0))
    estimate(domain, measurements, max_passes=2)
    with clock() as figures:
        estimate(domain, measurements, gain=0.02, max_passes=int(argument))
    return figures


def svm(argument: str) -> Figures:
    """SVM errors, trained twice for each target as an evaluation does: how far from a converged LinearSVC's."""
    import warnings

    from sklearn.svm import LinearSVC

    from synth_core.cluster import Cluster
    from synth_core.domain import Domain
    from synth_core.evaluation.classification import split_rows, target_errors, usual_targets

    domain = Domain.of(json.loads((DATA / f"{argument}-domain.json").read_text()))
    rows = np.loadtxt(DATA / f"{argument}.csv", delimiter=",", skiprows=1, dtype=np.int64)
    parts, targets = split_rows(rows, rows), usual_targets(domain)
    given = {"domain": domain, "cluster": Cluster()}
    target_errors(parts, targets=targets[:1], **given)
    with clock() as figures:
        errors = np.array([one.real for one in target_errors(parts, targets=targets, **given)])

    def indicators(codes: np.ndarray, at: int) -> np.ndarray:
        others = [k for k in range(len(domain)) if k != at]
        return np.column_stack([codes[:, [k]] == np.arange(domain.sizes[k]) for k in others]).astype(np.float64)

    truth = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at in map(domain.position, targets):
            machine = LinearSVC(dual=False, tol=1e-4).fit(indicators(parts.real, at), parts.real[:, at])
            truth.append(np.mean(machine.predict(indicators(parts.held_out, at)) != parts.held_out[:, at]))
    far = np.abs(errors - truth).max()
    return figures | {"note": f"mean error {errors.mean():.4f} (LinearSVC {np.mean(truth):.4f}), furthest {far:.4f}"}


def evaluate(argument: str) -> Figures:
    """All true errors of two generated tables in partitions; what follows from counts must not have changed."""
    import hashlib

    from synth_core.bench.scale_tasks import census_blocks, census_schema
    from synth_core.evaluation import CodedTable, compare_codes, compare_tables, numeric_levels
    from synth_core.storage.ingest import write_codes

    rows, columns = map(int, argument.split(" x "))
    schema = census_schema(columns)
    few = next(census_blocks(300, columns))
    compare_codes(few, few, schema.domain)
    with tempfile.TemporaryDirectory(dir=ROOT / "bench-out") as folder:
        tables = []
        for side in ("real", "synthetic"):
            paths = []
            for number, block in enumerate(census_blocks(rows, columns)):
                if side == "synthetic":
                    block[np.random.default_rng(number).random(block.shape) < 0.05] = 0
                paths.append(Path(folder) / f"{side}-{number}.parquet")
                codes = dict(zip(schema.domain, np.ascontiguousarray(block.T), strict=True))
                write_codes(codes, paths[-1])
            tables.append(CodedTable([str(path) for path in paths], schema.domain))
        with clock() as figures:
            found = compare_tables(*tables, levels=numeric_levels(schema))
    values = json.loads(found.to_json())
    targets = values.pop("targets")
    mean = np.mean([[target["real"], target["synthetic"]] for target in targets])
    counted = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
    return figures | {"same": counted, "note": f"mean SVM error {mean:.4f}"}


def release(argument: str) -> Figures:
    """A whole release of a generated CSV file by absyn as it is by default: what each step takes."""
    from synth_core.bench.scale_tasks import STEPS, census_schema, write_source
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import Account
    from synth_core.steps import prepare, run_step

    rows, columns = map(int, argument.split(" x "))
    with tempfile.TemporaryDirectory(dir=TREES) as site:
        workspace, declared, source = Path(site) / "workspace", Path(site) / "schema.yaml", Path(site) / "source.csv"
        workspace.mkdir()
        census_schema(columns).save(declared)
        write_source(source, rows, columns)
        account = Account(dataset="bench", delta=1e-9, cap_epsilon=1.0, largest_n=100_000_000)
        open_ledger(workspace, create=True).declare(account, actor="bench")
        spec = {"release": "bench", "dataset": "bench", "source": str(source), "schema": str(declared)}
        spec |= {"method": "absyn", "epsilon": 1.0, "delta": 1e-9, "shards": max(1, rows // 1_000_000)}
        address, told = prepare(spec, workspace=workspace), []
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        with clock() as figures:
            for step in STEPS:
                begin = time.process_time()
                run_step(step, address)
                told.append(f"{step} {time.process_time() - begin:.1f}")
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return figures | {"peak_mb": peak, "note": ", ".join(told)}


def first(argument: str) -> Figures:
    """The first table after an installation, with nothing compiled, and the same call in the next process."""
    source = (
        "import numpy as np, pandas as pd\n"
        "from synth_core import synthesize\n"
        "from synth_core.schema import Schema\n"
        "sizes, rng = {'a': 5, 'b': 3, 'c': 2, 'd': 7}, np.random.default_rng(0)\n"
        "rows = pd.DataFrame({name: rng.integers(0, size, 2000) for name, size in sizes.items()})\n"
        f"synthesize(rows, Schema.from_sizes(sizes), method={argument!r}, epsilon=1.0, delta=1e-6)\n"
    )
    with tempfile.TemporaryDirectory(dir=ROOT / "bench-out") as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        seconds = []
        for _ in range(2):
            with clock() as figures:
                subprocess.run([sys.executable, "-c", source], env=environment, check=True, capture_output=True)
            seconds.append(figures["cpu_s"])
    compiling = f"{seconds[0] - seconds[1]:.1f} s of it to compile"
    return {"cpu_s": seconds[0], "note": compiling, "peak_mb": children_mb()}


def method(argument: str) -> Figures:
    """A method's whole conversation at epsilon 0.8 with the same noise in both trees: what it measured, its errors."""
    import hashlib

    from support import seeding

    from synth_core.domain import Domain
    from synth_core.evaluation import CodedTable
    from synth_core.evaluation.marginals import marginal_errors
    from synth_core.ledger.memory import MemoryLedger
    from synth_core.privacy.accounts import Account
    from synth_core.privacy.budget import mu2_of
    from synth_core.privacy.curator import Curator, Spending
    from synth_core.storage.counting import TableCounts
    from synth_core.synthesizers.base import Tools, run_phases
    from synth_core.synthesizers.methods import synthesizer

    name, table = argument.split()
    domain = Domain.of(json.loads((DATA / f"{table}-domain.json").read_text()))
    rows = np.loadtxt(DATA / f"{table}.csv", delimiter=",", skiprows=1, dtype=np.int64)
    counts = TableCounts(dict(zip(domain, rows.T, strict=True)), domain)
    ledger = MemoryLedger()
    ledger.declare(Account(dataset=table, delta=1e-5, cap_epsilon=0.8), actor="benchmark")
    asked = {"dataset": table, "snapshot": "s", "release": "r"}
    seeding.install()
    built = synthesizer(name, "default", {})
    plan = built.plan(domain, mu2_of(0.8, 1e-5))

    def curator(step: str) -> Curator:
        return Curator(counts=counts, ledger=ledger, spending=Spending(**asked, step=step))

    with seeding.noise_of(argument), clock() as figures:
        model = run_phases(built, plan, curator, Tools()).model
    drawn = CodedTable.of(model.sample(len(rows), np.random.default_rng(0)), domain)
    real = CodedTable.of(rows, domain)
    errors = [marginal_errors(real, drawn, alpha=alpha).tvd.mean for alpha in (2, 3, 4)]
    told = ", ".join(f"{error:.4f}" for error in errors)
    cliques = hashlib.sha256(repr(sorted(model.cliques)).encode()).hexdigest()[:12]
    return figures | {"same": f"{len(model.cliques)} tables, {cliques}", "note": f"TVD of 2, 3, 4 columns {told}"}


def parquet(argument: str) -> Figures:
    """Ingest of a generated Parquet file of 15 columns, most of them text; the snapshot must be the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from synth_core.bench.scale_tasks import census_blocks, census_schema
    from synth_core.schema.codec import decode_table
    from synth_core.storage.ingest import ingest_partitions

    schema, rng = census_schema(15), np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=ROOT / "bench-out") as folder:
        path = Path(folder) / "source.parquet"
        tables = [decode_table(block, schema, rng) for block in census_blocks(int(argument), 15)]
        plain = pa.schema(
            [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in tables[0].schema]
        )
        pq.write_table(pa.concat_tables(table.cast(plain) for table in tables), path, row_group_size=250_000)
        ingest_partitions([path], schema, Path(folder) / "first", key=bytes(32))
        with clock() as figures:
            found = ingest_partitions([path], schema, Path(folder) / "encoded", key=bytes(32))
    rate = f"{int(argument) / figures['cpu_s'] / 1e6:.2f} M rows/s of a core"
    return figures | {"same": found.digest[:12], "note": rate}


def select(argument: str) -> Figures:
    """absyn's selection among all pairs of a generated table with noisy scores; the pairs must be the same."""
    import hashlib
    from itertools import combinations

    from synth_core.bench.scale_tasks import census_blocks, census_schema
    from synth_core.storage.counting import count_codes
    from synth_core.synthesizers import correlation

    domain, rng = census_schema(int(argument)).domain, np.random.default_rng(0)
    rows, pairs = next(census_blocks(100_000, len(domain))), list(combinations(domain, 2))
    scores = []
    tables = count_codes(dict(zip(domain, np.ascontiguousarray(rows.T), strict=True)), domain, pairs)
    for (a, b), table in zip(pairs, tables, strict=True):
        apart = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(rows)
        scores.append((a, b, float(np.abs(table - apart).sum() / 2 + rng.normal(0, 200))))
    loads = correlation.pair_loads(domain, interactions=True)
    limits = {"largest_clique": 1e6, "largest_graph": 4e6, "fill_measured": False}
    terms = correlation.Terms(total=len(rows), mu2=0.02, loads=loads, **limits)
    strengths = correlation.normalise_scores(domain, scores, total=len(rows))
    few = correlation.Terms(total=len(rows), mu2=0.02, loads=loads[:5, :5], **limits)
    correlation.select_pairs(domain.project(domain.attributes[:5]), strengths[:5, :5], few)
    with clock() as figures:
        found = correlation.select_pairs(domain, strengths, terms)
    return figures | {"same": f"{len(found)} pairs, {hashlib.sha256(repr(found).encode()).hexdigest()[:12]}"}


PARTS: dict[str, tuple[Callable[[str], Figures], tuple[str, ...], int]] = {
    "direction": (direction, ("2000", "20000", "250000"), 3),
    "fit": (fit, ("300",), 1),
    "first": (first, ("privmrf",), 2),
    "method": (method, ("aim acs", "mwem acs"), 1),
    "parquet": (parquet, ("1000000",), 2),
    "select": (select, ("15", "30", "60"), 1),
    "svm": (svm, TABLES, 1),
    "release": (release, ("100000 x 60", "1000000 x 15", "1000000 x 30", "10000000 x 15"), 1),
    "evaluate": (evaluate, ("100000 x 15", "100000 x 60", "1000000 x 15", "1000000 x 30", "10000000 x 15"), 1),
}
"""By name: what is measured, with which arguments, and how often."""
BUSY = ("fit",)
"""Parts that run on busy cores, with each number of threads that the environment may name."""


@contextmanager
def clock() -> Iterator[Figures]:
    """CPU seconds of the block, children included."""
    figures: Figures = {}
    begin = time.process_time() + children()
    yield figures
    figures["cpu_s"] = time.process_time() + children() - begin


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def children_mb() -> float:
    """Peak memory of the largest child."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


@contextmanager
def busy_cores() -> Iterator[None]:
    """Two processes that do nothing but keep two cores busy."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def measured(tree: Path, part: str, argument: str, *, threads: str = "unset") -> Figures:
    """One measurement in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment |= {"PYTHONPATH": f"{tree}:{tree / 'plugins'}:{ROOT / 'tests'}"}
    environment |= {} if threads == "unset" else {"OMP_NUM_THREADS": threads}
    command = [sys.executable, __file__, "--measure", part, argument]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else "failed"}
    return json.loads(done.stdout.splitlines()[-1])


def compare(part: str, argument: str, threads: str, *, earlier: Path | None) -> dict[str, Any]:
    """The least figures of both trees, taken in turn; without an earlier one, those of this tree."""
    turns = PARTS[part][2]
    found: dict[str, list[Figures]] = {"before": [], "after": []}
    for _ in range(turns):
        for name, tree in (("before", earlier), ("after", ROOT)):
            found[name].append(measured(tree, part, argument, threads=threads) if tree else {})
    row = {"part": part, "argument": argument, "threads": threads}
    return row | {name: min(each, key=lambda f: f.get("cpu_s", np.inf)) for name, each in found.items()}


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["# What a release costs, before and after", ""]
    lines += ["Written by `speed.py`; each row compares with the commit it names, both in the same run. Seconds of a"]
    lines += ["busy machine are larger than those of a quiet one: compare within a row. `load` is how many processes"]
    lines += ["wanted one of the two cores when the run began. It is not known of rows that are older than"]
    lines += ["the others; what they measure has not changed. Rows without an earlier commit show this one alone. An"]
    lines += ["evaluation has parts now that a2477c5 has not, so that its digest is another; beside 89c86e8, which"]
    lines += ["has them, it is the same. Whole releases, with their replicates, are in `scale.md`.", ""]
    lines += [
        "| part | of | threads asked for | load | before | before, CPU s | after, CPU s | ratio | before, MB "
        "| after, MB | the same |"
    ]
    lines += ["|---|---|---|---:|---|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        old, new = row["before"], row["after"]
        ratio = f"{old['cpu_s'] / new['cpu_s']:.1f}x" if "cpu_s" in old and "cpu_s" in new else "–"
        same = old.get("same"), new.get("same")
        told = f"{same[1]}" if same[0] in (same[1], None) else f"{same[0]}, now {same[1]}"
        words = [] if same == (None, None) else [told]
        words += [f"{name}: {row[name]['note']}" for name in ("before", "after") if "note" in row[name]]
        verdict = "; ".join(words) or "–"
        cells = [number(old.get("cpu_s")), number(new.get("cpu_s")), ratio, whole(old), whole(new), verdict]
        about = [row["part"], row["argument"], row["threads"], row.get("load", "–"), row["commit"]]
        lines.append(f"| {' | '.join(map(str, [*about, *cells]))} |")
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def whole(figures: Figures) -> str:
    return f"{figures['peak_mb']:.0f}" if "peak_mb" in figures else "–"


def equal_threads(rows: list[dict[str, Any]]) -> None:
    """Refuse a fit whose CPU time depends on the threads that the environment names."""
    for argument in PARTS["fit"][1]:
        seconds = [r["after"]["cpu_s"] for r in rows if r["part"] == "fit" and r["argument"] == argument]
        if len(seconds) == len(THREADS) and max(seconds) > 1.15 * min(seconds):
            raise SystemExit(f"fit, {argument}: {seconds} CPU seconds with OMP_NUM_THREADS {THREADS}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--before", help=f"the commit to compare with, or {ALONE}", default="a2477c5")
    parser.add_argument("--measure", nargs=2, help="internal: one measurement in this process")
    asked = parser.parse_args()
    if asked.measure:
        figures = PARTS[asked.measure[0]][0](asked.measure[1])
        figures.setdefault("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(json.dumps(figures))
        return
    before, load = asked.before, os.getloadavg()[0]
    earlier = TREES / f"before-{before}" if before != ALONE else None
    if earlier and not earlier.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(earlier), before], cwd=ROOT, check=True)
        warming = {**os.environ, "PYTHONPATH": str(earlier)}
        subprocess.run([sys.executable, "-m", "synth_core.warm"], cwd=earlier, env=warming, check=True)
    table = HERE / "speed.jsonl"
    given = [part.partition(":") for part in asked.parts or PARTS]
    jobs = [(part, argument) for part, _, only in given for argument in ([only] if only else PARTS[part][1])]
    kept = [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []
    rows = [row for row in kept if row["commit"] != before or (row["part"], row["argument"]) not in jobs]
    for part, argument in jobs:
        for threads in THREADS if part in BUSY else THREADS[:1]:
            with busy_cores() if part in BUSY else nullcontext():
                row = compare(part, argument, threads, earlier=earlier) | {"commit": before, "load": round(load)}
            rows.append(row)
            print(json.dumps(row), flush=True)
            rows.sort(key=lambda row: list(PARTS).index(row["part"]))
            table.write_text("".join(json.dumps(row) + "\n" for row in rows))
            (HERE / "speed.md").write_text(markdown(rows))
    equal_threads([row for row in rows if row["commit"] == before])


if __name__ == "__main__":
    main()
