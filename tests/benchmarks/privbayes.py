"""Judge PrivBayes and PrivMN: against independence and dpmm, options off, NIST size; write privbayes.md.

Run as `python tests/benchmarks/privbayes.py [PART …] [--runs N] [--peers FOLDER]` with parts `methods`, `dpmm`,
`ablation`, `size` and `privmn` (all of them without one). Each result is kept in privbayes.jsonl and is not computed
again, so that a long series can be done in parts. Tables of the runner and of the largest data are made in processes of
their own; the peak of the others is that of the whole benchmark.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from contest.execution import execute
from contest.jobs import OURS, Contestant, DataSet, Job, load
from kept import keep_result, read_results
from yardstick import mean_tvd

from synth_core import Schema, synthesize
from synth_core.domain import Domain

HERE = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("nltcs", "acs", "adult", "br2000")
EPSILON, DELTA, LIMIT = 0.8, 1e-5, 3600.0
METHODS = {
    "PrivBayes default (PB-PGM)": ("privbayes", "default", {}),
    "PrivBayes default, network": ("privbayes", "default", {"pgm": False}),
    "PrivBayes paper, PGM": ("privbayes", "pgm", {}),
    "PrivBayes paper": ("privbayes", "paper", {}),
    "independent": ("independent", "default", {}),
    "PrivMN default": ("privmn", "default", {}),
    "PrivMN paper": ("privmn", "paper", {}),
}
ABLATION = {
    "all": {"pgm": False},
    "no consistency": {"pgm": False, "consistency": False},
    "with replacement": {"pgm": False, "generation": "with replacement"},
    "without replacement": {"pgm": False, "generation": "without replacement"},
}
LARGE = {
    "all": {"pgm": False},
    "no hierarchies": {"pgm": False, "g": 0},
}


def generated(name: str) -> DataSet:
    """Tables that no data set provides: `nist` (98 attributes, 660,000 rows), `large` (a smaller one), `retail`."""
    if name == "retail":
        return _baskets(rows=27_000, width=50)
    rows, sizes = (660_000, [1000] * 6 + [250] * 8 + [40] * 14 + [9] * 30 + [2] * 40)
    if name == "large":
        rows, sizes = 200_000, [1000, 500, 250, 40, 40, 9, 9, 2, 2, 2]
    rng = np.random.default_rng(98)
    levels = rng.normal(size=(rows, 3))
    codes = np.empty((rows, len(sizes)), dtype=np.int32)
    for k, size in enumerate(sizes):
        weights = rng.dirichlet(np.ones(3)) * rng.choice([-1, 1], 3)
        value = levels @ weights + 0.3 * rng.normal(size=rows)
        rank = np.clip((value / np.sqrt((weights**2).sum() + 0.09) + 3) / 6, 0, 1 - 1e-9)
        codes[:, k] = (rank ** rng.uniform(0.7, 1.5) * size).astype(np.int32)
    return DataSet(name, Domain.of({f"x{k}": size for k, size in enumerate(sizes)}), codes)


def _baskets(*, rows: int, width: int) -> DataSet:
    """Yes or no for each of many items, bought together in a few kinds of baskets: the shape of market data."""
    rng = np.random.default_rng(50)
    kinds = rng.random((8, width)) ** 4
    codes = (rng.random((rows, width)) < kinds[rng.choice(8, rows, p=rng.dirichlet(np.ones(8)))]).astype(np.int32)
    return DataSet("retail", Domain.of({f"item{k}": 2 for k in range(width)}), codes)


def dataset(name: str) -> DataSet:
    return load(name, DATA) if name in NAMES else generated(name)


def made(data: DataSet, title: str, method: str, preset: str, options: dict, *, epsilon: float) -> dict:
    """One table of ours, judged."""
    with TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", data.codes)
        sizes = dict(zip(data.domain.attributes, data.domain.sizes, strict=True))
        order = {"folder": folder, "sizes": sizes, "method": method, "preset": preset, "options": options}
        order |= {"epsilon": epsilon}
        if data.name in ("nist", "large"):
            command = [sys.executable, __file__, "--make", json.dumps(order)]
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        else:
            told = make(order)
        table = np.load(Path(folder) / "table.npy")
    few = 40 if len(data.domain) > 60 else 300
    errors = [mean_tvd(data.codes, table, data.domain.sizes, k, number=few) for k in (2, 3, 4)]
    return {"data": data.name, "title": title, "epsilon": epsilon, "tvd": errors, **told}


def make(order: dict) -> dict:
    """Synthesize, write the rows, tell what it took and how propagation ended."""
    folder = Path(order.pop("folder"))
    sizes = order.pop("sizes")
    frame = pd.DataFrame(np.load(folder / "rows.npy"), columns=list(sizes))
    lines: list[str] = []
    started, cpu = time.monotonic(), time.process_time()
    release = synthesize(frame, Schema.from_sizes(sizes), delta=DELTA, progress=lines.append, **order)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    np.save(folder / "table.npy", release.table.to_numpy(dtype=np.int32))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = [line for line in lines if "propagation" in line]
    return {"cpu": cpu, "seconds": seconds, "mib": round(peak), "told": told}


def peer(data: DataSet, run: int, library: str, *, cache: Path) -> dict:
    """One table of dpmm or of ours through the same runner, imports and compilation included."""
    contestant = Contestant(library, "privbayes")
    outcome = execute(Job(data.name, contestant, EPSILON, run), data, delta=DELTA, limit=LIMIT, cache=cache)
    result = {
        "data": data.name,
        "title": f"runner: {library}",
        "epsilon": EPSILON,
        "cpu": outcome.cpu_seconds,
    }
    result |= {"mib": round(outcome.peak_mb), "note": outcome.note, "tvd": None}
    if outcome.table is not None:
        errors = [mean_tvd(data.codes, outcome.table, data.domain.sizes, k) for k in (2, 3, 4)]
        result["tvd"] = errors
    return result


def series(part: str, runs: int) -> Iterator[tuple[str, str, float, int]]:
    """Data set, title, epsilon and number of runs of each configuration of a part."""
    if part == "methods":
        yield from ((n, title, EPSILON, runs) for title in METHODS for n in NAMES)
    if part == "dpmm":
        yield from ((n, f"runner: {lib}", EPSILON, 1) for n in ("nltcs", "adult", "br2000") for lib in (OURS, "dpmm"))
    if part == "ablation":
        yield from ((n, f"ablation: {option}", EPSILON, runs) for n in NAMES for option in ABLATION)
        yield from (("large", f"ablation: {option}", EPSILON, 1) for option in LARGE)
    if part == "size":
        yield from (("nist", title, EPSILON, 1) for title in ("PrivBayes default", "independent"))
    if part == "privmn":
        yield from ((n, "PrivMN default", e, 1) for n in ("retail", "adult") for e in (0.2, 0.5, 0.8, 1.0))


def result_of(data: DataSet, title: str, epsilon: float, run: int, *, cache: Path) -> dict:
    kind, _, rest = title.partition(": ")
    if kind == "runner":
        return peer(data, run, rest, cache=cache)
    if kind == "ablation":
        return made(data, title, "privbayes", "default", (ABLATION | LARGE)[rest], epsilon=epsilon)
    if title == "PrivBayes default":
        return made(data, title, "privbayes", "default", {}, epsilon=epsilon)
    method, preset, options = METHODS[title]
    return made(data, title, method, preset, options, epsilon=epsilon)


def figures(values: list[float] | None) -> str:
    return "–" if values is None else " / ".join(f"{v:.4f}".lstrip("0") for v in values)


def table(results: list[dict], keys: list[tuple[str, str, float]]) -> list[str]:
    """One line for each configuration: means over its runs."""
    lines = [
        "| data | method | epsilon | 2 / 3 / 4-way | CPU s | peak MiB | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for data, title, epsilon in keys:
        own = [r for r in results if (r["data"], r["title"], r["epsilon"]) == (data, title, epsilon)]
        if own:
            known = [r["tvd"] for r in own if r["tvd"]]
            errors = np.mean(known, axis=0).tolist() if known else None
            cpu, mib = np.mean([r["cpu"] for r in own]), max(r["mib"] for r in own)
            told = "; ".join(own[-1].get("told", [])) or own[-1].get("note", "")
            name = f"{title} ({told})" if told else title
            lines.append(f"| {data} | {name} | {epsilon} | {figures(errors)} | {cpu:.1f} | {mib} | {len(own)} |")
    return lines


HEADINGS = {
    "methods": "Ours at epsilon 0.8\n\nCPU seconds of `synthesize` alone.",
    "dpmm": "Ours and dpmm's PrivBayes through one runner\n\nCPU of the whole process, imports included.",
    "ablation": "Options off\n\nThe network without a graphical model; `large` is generated (sizes up to 1,000).",
    "size": "NIST size\n\n98 attributes of up to 1,000 codes, 660,000 rows, generated.",
    "privmn": "PrivMN\n\n`retail` is generated: 50 yes-or-no attributes, 27,000 rows. These runs and those above "
    "still calibrated\nby loopy propagation, which changed nothing (docs/privmn.md).",
}


def report(results: list[dict]) -> str:
    lines = [
        "# PrivBayes and PrivMN: figures\n",
        "Written by `tests/benchmarks/privbayes.py`. Mean total variation distance of fixed random marginals (300, at",
        "NIST size 40), delta 1e-5, one core. Measured on 16 November 2026 (1b48996, d2a9819), before the tables",
        "of `default` grew more slowly than the budget: [newer",
        "figures](../../docs/papers/privbayes.md#marginals-by-epsilon).",
    ]
    for part, heading in HEADINGS.items():
        keys = [key[:3] for key in series(part, 1)]
        if any((r["data"], r["title"], r["epsilon"]) in keys for r in results):
            lines += [f"\n## {heading}\n", *table(results, keys)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the report after each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(HEADINGS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", type=Path, default=Path("bench-out/peers"))
    parser.add_argument("--make")
    arguments = parser.parse_args()
    if arguments.make:
        print(json.dumps(make(json.loads(arguments.make))))
        return
    if not DATA.exists():
        raise SystemExit("the benchmark's data sets are not installed")
    kept = HERE / "privbayes.jsonl"
    for part in arguments.parts:
        for name, title, epsilon, runs in series(part, arguments.runs):
            results = read_results(kept)
            done = sum((r["data"], r["title"], r["epsilon"]) == (name, title, epsilon) for r in results)
            for run in range(done, runs):
                result = result_of(dataset(name), title, epsilon, run, cache=arguments.peers)
                results.append(result)
                keep_result(kept, result)
                (HERE / "privbayes.md").write_text(report(results))
                print(name, title, epsilon, figures(result["tvd"]), f"{result['cpu']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
