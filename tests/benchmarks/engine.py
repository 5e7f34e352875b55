"""Measure the estimation engine beside mbi, its authors' library, in the same run, and write engine.md.

Run as `python tests/benchmarks/engine.py [--cache DIRECTORY] [PART ...]`; mbi gets an environment of its own in the
cache directory (by default bench-out/). With names of parts (passes, threads, estimation, chain, sampling) only these
are measured again and the rest of engine.md stays; `threads` takes half a minute. Figures are CPU time of one process,
which a busy machine distorts least; those of two threads are the clock's and need a quiet machine.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import threading
import time
import venv
from dataclasses import replace
from pathlib import Path

import numpy as np

from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.calibration import split_tables
from synth_core.models.inference import SHARED_CELLS, marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.losses import Problem, SquaredLoss
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mirror_descent import accelerate_descent, descend_mirror
from synth_core.models.sampling import sample_rows

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "shared" / "data"
PEER = HERE / "peers" / "engine_mbi.py"
TURNS = 4
PEER_ESTIMATORS = ["mirror descent", "dual averaging", "interior gradient", "accelerated", "L-BFGS"]


def random_cliques(domain, *, count, most_ways, limit, seed):
    rng = np.random.default_rng(seed)
    cliques = []
    while len(cliques) < count:
        clique = domain.clique(rng.choice(domain.attributes, rng.integers(2, most_ways + 1), replace=False))
        fits = domain.cells(clique) <= 5000 and junction_tree(domain, [*cliques, clique]).cells <= limit
        if clique not in cliques and fits:
            cliques.append(clique)
    return cliques


def structures():
    """Names, domains and measured cliques of the inference cases."""
    adult = Domain.of(dict(zip("abcdefghijklmno", (16, 7, 16, 16, 16, 7, 14, 6, 5, 2, 8, 15, 16, 41, 2), strict=True)))
    binary = Domain.of({f"b{k}": 2 for k in range(23)})
    large = Domain.of({**dict(zip("abcdef", (16, 16, 16, 16, 8, 8), strict=True)), **{f"e{k}": 10 for k in range(6)}})
    small = [("a", "e0"), ("e0", "e1"), ("e1", "e2"), ("c", "e3"), ("e3", "e4"), ("e4", "e5")]
    return {
        "(a) adult-like": (adult, random_cliques(adult, count=27, most_ways=3, limit=1_300_000, seed=1)),
        "(b) 23 binary": (binary, random_cliques(binary, count=60, most_ways=5, limit=330_000, seed=2)),
        "(c) chain of triples": chain(100),
        "(d) 4M-cell clique": (large, [*itertools.combinations("abcdef", 2), ("a", "b", "c"), *small]),
    }


def chain(attributes):
    domain = Domain.of({f"x{k}": 10 for k in range(attributes)})
    return domain, [domain.attributes[k : k + 3] for k in range(attributes - 2)]


def counts(rows, domain, clique):
    columns = rows[:, [domain.position(a) for a in clique]].T
    return np.bincount(np.ravel_multi_index(columns, domain.shape(clique)), minlength=domain.cells(clique))


def measurement_set(name, *, count, most_cells, most_ways, limit, sigma):
    """Noisy marginals a good selection might take: dependent and small, greedily within a tree limit."""
    domain = Domain.of(json.loads((DATA / f"{name}-domain.json").read_text()))
    rows = np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=1, dtype=np.int64)
    single = {a: counts(rows, domain, (a,)) / len(rows) for a in domain}
    pairs = {}
    for a, b in itertools.combinations(domain.attributes, 2):
        table = counts(rows, domain, (a, b)).reshape(domain.shape((a, b))) / len(rows)
        pairs[a, b] = np.abs(table - np.outer(single[a], single[b])).sum()
    scored = []
    for ways in range(2, most_ways + 1):
        for clique in itertools.combinations(domain.attributes, ways):
            dependence = sum(pairs[p] for p in itertools.combinations(clique, 2)) / ways
            scored += [(dependence, clique)] if domain.cells(clique) <= most_cells else []
    cliques = [(a,) for a in domain]
    for _, clique in sorted(scored, reverse=True):
        if len(cliques) == len(domain) + count:
            break
        if junction_tree(domain, [*cliques, clique]).cells <= limit:
            cliques.append(clique)
    rng = np.random.default_rng(0)
    noisy = [counts(rows, domain, c) + rng.normal(size=domain.cells(c)) * sigma for c in cliques]
    return domain, cliques, np.concatenate(noisy), sigma, len(rows)


def measurement_sets():
    if not DATA.exists():
        return {}
    return {
        "adult": measurement_set("adult", count=30, most_cells=400, most_ways=3, limit=1_300_000, sigma=26.7),
        "nltcs": measurement_set("nltcs", count=40, most_cells=64, most_ways=5, limit=300_000, sigma=15.0),
    }


def best_of(work, *, clock=time.process_time, rounds=15):
    seconds = []
    for _ in range(rounds):
        begin = clock()
        work()
        seconds.append(clock() - begin)
    return min(seconds)


def write_case(path, domain, cliques, values, **more):
    names = np.array(["|".join(c) for c in cliques])
    np.savez(
        path,
        attributes=np.array(domain.attributes),
        sizes=np.array(domain.sizes),
        cliques=names,
        values=values,
        **more,
    )


def peer_python(cache):
    """The peer's interpreter, installed on first use; None where it cannot be."""
    home = cache / "mbi"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", "mbi"], check=False)
        if done.returncode:
            return None
    return python


def peer(python, *arguments):
    if python is None:
        return None
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, PEER, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def ours(*arguments):
    """Run one measurement of this script in a fresh process, for its memory and its start-up."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def least(found):
    """The least value of each figure over several processes, or nothing if one of them failed."""
    return None if None in found else {name: min(each[name] for each in found) for name in found[0]}


def load_case(path):
    with np.load(path, allow_pickle=False) as case:
        domain = Domain(tuple(case["attributes"].tolist()), tuple(case["sizes"].tolist()))
        cliques = [tuple(c.split("|")) for c in case["cliques"].tolist()]
        return domain, cliques, {name: case[name] for name in case.files}


def measure_pass(path):
    domain, cliques, case = load_case(path)
    tree = junction_tree(domain, cliques)
    found = {"cells": tree.cells, "cliques": len(tree.cliques)}
    begin = time.process_time()
    oracle = marginal_oracle(tree, cliques, NUMPY)
    oracle(case["values"])
    found["first"] = time.process_time() - begin
    found["seconds"] = best_of(lambda: oracle(case["values"]))
    return found


def repeated(oracle, values, count):
    begin = time.perf_counter()
    for _ in range(count):
        oracle(values)
    return time.perf_counter() - begin


def measure_threads(path, blocks=12, passes=20):
    """For each block the machine's own limit, and median seconds of a pass on one thread and on two, in turn.

    The limit is how much sooner two passes of two oracles are done at once than one after the other.
    """
    domain, cliques, case = load_case(path)
    tree, values = junction_tree(domain, cliques), case["values"]
    one, other = (marginal_oracle(tree, cliques, NUMPY) for _ in range(2))
    two = marginal_oracle(tree, cliques, replace(NUMPY, threads=2))

    def limit():
        alone = repeated(one, values, 10)
        beside = threading.Thread(target=repeated, args=(other, values, 10))
        begin = time.perf_counter()
        beside.start()
        repeated(one, values, 10)
        beside.join()
        return 2 * alone / (time.perf_counter() - begin)

    for oracle in (one, other, two):
        oracle(values)
    found = []
    for _ in range(blocks):
        before = limit()
        turns = [(repeated(one, values, 1), repeated(two, values, 1)) for _ in range(passes)]
        found.append((min(before, limit()), *np.median(turns, axis=0).tolist()))
    return found


def measure_fit(path, method):
    domain, cliques, case = load_case(path)
    sigma, total = float(case["sigma"]), float(case["total"])
    tables = [Measurement(t.clique, t.values, sigma) for t in split_tables(domain, cliques, case["values"])]
    target = case["values"].size / 2
    begin = time.process_time()
    seen = []
    if method == "ours":
        estimate(domain, tables, total=total, progress=lambda p: seen.append((p.passes, p.loss)))
    else:
        loss = SquaredLoss(Problem.of(domain, tables, total=total, arrays=NUMPY))
        oracle = marginal_oracle(junction_tree(domain, cliques), cliques, NUMPY)
        zeros = np.zeros(case["values"].size)
        constant = loss.smoothness
        steps = (
            descend_mirror(oracle, loss, zeros, total=total)
            if method == "algorithm 1"
            else accelerate_descent(oracle, loss, zeros, total=total, smoothness=constant)
        )
        for step in steps:
            seen.append((step.passes, step.loss))
            if step.loss <= target or step.passes >= 1500:
                break
    return {
        "seconds": time.process_time() - begin,
        "passes": seen[-1][0],
        "loss": seen[-1][1] / target,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def distance(codes, domain, model, cliques):
    shares = [counts(codes.astype(np.int64), domain, c) / len(codes) for c in cliques]
    tables = model.marginals(cliques)
    return np.mean([np.abs(s - t.ravel() / model.total).sum() / 2 for s, t in zip(shares, tables, strict=True)])


def measure_sampling(path):
    domain, cliques, case = load_case(path)
    sigma, total = float(case["sigma"]), float(case["total"])
    tables = [Measurement(t.clique, t.values, sigma) for t in split_tables(domain, cliques, case["values"])]
    model = estimate(domain, tables, total=total)
    rng = np.random.default_rng(0)
    found = {}
    for name, independent in (("low", False), ("iid", True)):
        draw = lambda rows, independent=independent: sample_rows(  # noqa: E731
            domain, model.beliefs, rows, rng=rng, independent=independent
        )
        draw(1000)
        found[f"{name}_rate"] = 2_000_000 / best_of(lambda draw=draw: draw(2_000_000), rounds=3)
        distances = [distance(draw(int(total)), domain, model, cliques) for _ in range(5)]
        found[f"{name}_tvd"] = float(np.mean(distances))
    return found


def measure_chain(attributes):
    domain, cliques = chain(attributes)
    potentials = np.random.default_rng(0).normal(size=sum(map(domain.cells, cliques)))
    begin = time.process_time()
    oracle = marginal_oracle(junction_tree(domain, cliques), cliques, NUMPY)
    planned = time.process_time() - begin
    oracle(potentials)
    return {"plan": planned, "seconds": best_of(lambda: oracle(potentials))}


def ratio(peer_value, own_value):
    return "" if peer_value is None else f"{peer_value / own_value:.1f}x"


def shown(result, key, form):
    return "–" if result is None else format(result[key], form)


def pass_case(cache, name, domain, cliques):
    path = cache / f"pass-{name[1]}.npz"
    write_case(path, domain, cliques, np.random.default_rng(0).normal(size=sum(map(domain.cells, cliques))))
    return path


def pass_table(cache, python):
    lines = [
        "## One pass of belief propagation, steady state, one thread (CPU ms)",
        "",
        f"Best of {TURNS} processes each, ours and mbi's in turn, because the processor's speed changes with time.",
        "",
        "| structure | tree cliques | cells | mbi | ours | ratio | mbi's first s | our first s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (domain, cliques) in structures().items():
        path = pass_case(cache, name, domain, cliques)
        turns = [(ours("--measure", "pass", str(path)), peer(python, "pass", str(path))) for _ in range(TURNS)]
        own, other = (least(found) for found in zip(*turns, strict=True))

        milliseconds = None if other is None else {"ms": other["seconds"] * 1e3}
        lines.append(
            f"| {name} | {own['cliques']} | {own['cells']:,} | {shown(milliseconds, 'ms', '.2f')} "
            f"| {own['seconds'] * 1e3:.2f} | {ratio(other and other['seconds'], own['seconds'])} "
            f"| {shown(other, 'first', '.1f')} | {own['first']:.2f} |"
        )
    return lines


def threads_table(cache):
    name, (domain, cliques) = list(structures().items())[-1]
    path = pass_case(cache, name, domain, cliques)
    blocks = np.array([block for _ in range(TURNS) for block in ours("--measure", "threads", str(path))])
    lines = [
        "## Two threads on one pass (clock ms)",
        "",
        f"Structure {name}; the others have no clique of {SHARED_CELLS:,} cells, the least that is shared.",
        "One thread and two in turn, in blocks of 20 passes; medians over blocks, also of ratios. The processors",
        "of a virtual machine may for a while be two threads of one core: before and after each block two passes of",
        "two oracles are run at once and one after the other; the lower gain is what the machine allows at that time.",
        "",
        "| the machine allows | blocks | one thread | two threads | ratio | best quarter of blocks |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for label, least_allowed in (("anything", 0.0), ("at least 1.5x", 1.5), ("at least 1.8x", 1.8)):
        limits, one, two = blocks[blocks[:, 0] >= least_allowed].T
        if limits.size:
            lines.append(
                f"| {label} | {limits.size} | {np.median(one) * 1e3:.2f} | {np.median(two) * 1e3:.2f} "
                f"| {np.median(one / two):.2f}x | {np.percentile(one / two, 75):.2f}x |"
            )
    return lines


def fit_table(cache, python):
    lines = [
        "## Estimation down to the loss expected from noise alone",
        "",
        "CPU seconds of a fresh process from measurements to potentials, compilation included (ours is cached).",
        "mbi checks its loss every 50 steps and is stopped after 30 CPU seconds; its averaging methods are not",
        "charged for recovering potentials unless they ran out of steps (3,000).",
        "",
        "| data | tree cells | answers | method | passes or steps | CPU s | loss / target | peak MB |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for name, (domain, cliques, values, sigma, total) in measurement_sets().items():
        path = cache / f"fit-{name}.npz"
        write_case(path, domain, cliques, values, sigma=sigma, total=total)
        cells = junction_tree(domain, cliques).cells
        head = f"| {name} | {cells:,} | {values.size:,} "
        for method in ("ours", "algorithm 1", "algorithm 2"):
            own = ours("--measure", "fit", str(path), method)
            label = "maximum entropy (`estimate`)" if method == "ours" else f"ours, the paper's {method}"
            lines.append(
                f"{head}| {label} | {own['passes']} | {own['seconds']:.2f} | {own['loss']:.2f} | {own['peak_mb']:.0f} |"
            )
        for method in PEER_ESTIMATORS:
            other = peer(python, "fit", str(path), method)
            lines.append(
                f"{head}| mbi {method} | {shown(other, 'steps', 'd')} | {shown(other, 'seconds', '.2f')} "
                f"| {shown(other, 'loss', '.2f')} | {shown(other, 'peak_mb', '.0f')} |"
            )
    return lines


def chain_table():
    lines = [
        "## Chain of triples of size 10 (Figure 2b)",
        "",
        "| attributes | plan CPU s | pass CPU ms |",
        "|---:|---:|---:|",
    ]
    for attributes in (100, 200, 500, 1000):
        found = measure_chain(attributes)
        lines.append(f"| {attributes} | {found['plan']:.2f} | {found['seconds'] * 1e3:.2f} |")
    return lines


def sampling_table(cache):
    lines = [
        "## Sampling from the adult model, one core",
        "",
        "| way | million rows/s | mean TVD to the model's measured marginals at n = 45,222 |",
        "|---|---:|---:|",
    ]
    if (cache / "fit-adult.npz").exists():
        found = ours("--measure", "sampling", str(cache / "fit-adult.npz"))
        for name, label in (("low", "low variance"), ("iid", "independent")):
            lines.append(f"| {label} | {found[f'{name}_rate'] / 1e6:.1f} | {found[f'{name}_tvd']:.5f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these parts")
    parser.add_argument("--cache", type=Path, default=HERE.parents[1] / "bench-out")
    parser.add_argument("--measure", nargs="+", help="internal: one measurement in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        kind, path, *rest = arguments.measure
        work = {
            "pass": measure_pass,
            "threads": measure_threads,
            "fit": measure_fit,
            "sampling": measure_sampling,
        }[kind]
        print(json.dumps(work(Path(path), *rest)))
        return
    cache = arguments.cache
    cache.mkdir(parents=True, exist_ok=True)
    parts = {
        "passes": lambda: pass_table(cache, peer_python(cache)),
        "threads": lambda: threads_table(cache),
        "estimation": lambda: fit_table(cache, peer_python(cache)),
        "chain": chain_table,
        "sampling": lambda: sampling_table(cache),
    }
    written = HERE / "engine.md"
    head = "# The estimation engine beside mbi\n\nWritten by `engine.py`; best of 15 rounds, float64."
    kept = dict.fromkeys(parts, "")
    if arguments.parts:
        head, *sections = written.read_text().rstrip().split("\n\n## ")
        kept = dict(zip(parts, (f"## {section}" for section in sections), strict=True))
    for name in arguments.parts or parts:
        load = os.getloadavg()[0]
        kept[name] = "\n".join([*parts[name](), "", f"Load at the start: {load:.1f}."])
        print(kept[name], flush=True)
    written.write_text("\n\n".join([head, *kept.values()]) + "\n")


if __name__ == "__main__":
    main()
