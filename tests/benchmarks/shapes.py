"""Judge the default beside all other methods on generated tables of every shape, and write shapes.md.

Run as `PYTHONPATH=tests python tests/benchmarks/shapes.py [--first N] [--count N] [--runs N] [--methods A,B]`. A shape
is a number: rows, columns, sizes, how columns depend on each other and the epsilon are drawn from it. Each result is
kept in shapes.jsonl and one that is there is not made again, so that a long series can be done in parts; take out the
lines of a method that changed. Noise is seeded by shape, method and run.
"""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from kept import keep_result, read_results
from support import seeding
from yardstick import mean_tvd

from synth_core import Schema, synthesize

HERE = Path(__file__).parent
DELTA = 1e-5
ALPHAS = (2, 3, 4, 5)
MARGINALS = 60
"""Marginals of each order that a table is judged on."""
DEFAULT = "privmrf"
METHODS = ("privmrf", "independent", "mst", "swift", "absyn", "privbayes", "aim", "mwem", "privmn", "hdmm")
SLOW = {"aim": 12, "mwem": 12, "privmn": 16, "hdmm": 8}
"""Most columns of a table that a method is run on; beyond, a run takes longer than its result is worth."""
DEPENDENCES = ("none", "weak classes", "classes", "chain", "network", "copies")
PROFILES = ("binary", "small", "mixed", "large")


@dataclass(frozen=True)
class Shape:
    """What a table is drawn from."""

    number: int
    rows: int
    sizes: tuple[int, ...]
    dependence: str
    epsilon: float

    @classmethod
    def numbered(cls, number: int) -> "Shape":
        """The shape of a number; dependence and sizes take turns, all else is random."""
        rng = np.random.default_rng([24, number])
        rows = round(10 ** rng.uniform(math.log10(500), 5.3))
        width = round(3 * 20 ** rng.beta(1.2, 2.0))
        profile = PROFILES[number // len(DEPENDENCES) % len(PROFILES)]
        if profile == "binary":
            sizes = rng.integers(2, 4, width)
        elif profile == "small":
            sizes = rng.integers(2, 9, width)
        elif profile == "mixed":
            sizes = np.exp(rng.uniform(math.log(2), math.log(40), width))
        else:
            sizes = np.exp(rng.uniform(math.log(4), math.log(500), width))
        epsilon = round(10 ** rng.uniform(-1, 0.7), 2)
        return cls(number, rows, tuple(int(size) for size in sizes), DEPENDENCES[number % len(DEPENDENCES)], epsilon)

    def table(self) -> np.ndarray:
        """The rows, as codes."""
        rng = np.random.default_rng([24, self.number, 1])
        columns: list[np.ndarray] = []
        classes = rng.choice(6, self.rows, p=rng.dirichlet(np.full(6, 2.0)))
        for k, size in enumerate(self.sizes):
            before = [columns[j] for j in self._parents(k, rng)]
            if self.dependence.endswith("classes"):
                before = [classes]
            own = rng.dirichlet(np.full(size, 0.8))
            columns.append(self._column(own, before, rng))
        return np.stack(columns, axis=1)

    def _parents(self, k: int, rng: np.random.Generator) -> list[int]:
        wanted = {"chain": 1, "network": int(rng.integers(1, 4)), "copies": 1}.get(self.dependence, 0)
        if self.dependence == "chain":
            return [k - 1] if k else []
        return rng.choice(k, min(k, wanted), replace=False).tolist()

    def _column(self, own: np.ndarray, before: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """A column of codes that follow `own`, but for what the columns before it say."""
        free = rng.choice(len(own), self.rows, p=own)
        if not before:
            return free
        key = np.zeros(self.rows, dtype=np.int64)
        for column in before:
            key = key * (int(column.max()) + 1) + column
        _, key = np.unique(key % 128 if self.dependence != "copies" else key, return_inverse=True)
        if self.dependence == "copies":
            said = rng.choice(len(own), key.max() + 1, p=own)[key]
            follows = 0.98 if rng.random() < 0.7 else 1.0
        else:
            strength = {"weak classes": 20.0, "classes": 2.0, "chain": 1.5, "network": 1.0}[self.dependence]
            tables = rng.dirichlet(np.maximum(own * strength * len(own) / 4, 1e-3), key.max() + 1)
            ends = np.cumsum(tables, axis=1)
            said = np.minimum((rng.random(self.rows)[:, None] > ends[key]).sum(axis=1), len(own) - 1)
            follows = 1.0
        return np.where(rng.random(self.rows) < follows, said, free)


def judged(shape: Shape, method: str, run: int, options: dict | None = None) -> dict:
    """One run through the public contract, with noise of its own."""
    table = shape.table()
    names = [f"x{k:02d}" for k in range(len(shape.sizes))]
    schema = Schema.from_sizes(dict(zip(names, shape.sizes, strict=True)))
    frame = pd.DataFrame(table, columns=names)
    with seeding.noise_of(f"{shape.number}/{method}/{run}"):
        start = time.process_time()
        release = synthesize(
            frame, schema, method=method, epsilon=shape.epsilon, delta=DELTA, options=options, seed=run
        )
        seconds = time.process_time() - start
    made = release.table[names].astype("int64").to_numpy()
    orders = [alpha for alpha in ALPHAS if alpha <= len(names)]
    errors = [mean_tvd(table, made, shape.sizes, alpha, number=MARGINALS) for alpha in orders]
    return {"shape": shape.number, "method": method, "run": run, "tvd": errors, "cpu": round(seconds, 2)}


def error(results: list[dict], number: int, method: str) -> float | None:
    """Geometric mean over the orders of the mean errors of a method on a shape."""
    own = [r["tvd"] for r in results if r["shape"] == number and r["method"] == method]
    return float(np.exp(np.log(np.mean(own, axis=0)).mean())) if own else None


def regrets(results: list[dict]) -> list[tuple[Shape, float, str, float]]:
    """For each shape the default's error, and the best of the others with its error."""
    found = []
    for number in sorted({r["shape"] for r in results}):
        errors = {method: error(results, number, method) for method in METHODS}
        own = errors.pop(DEFAULT)
        others = {method: value for method, value in errors.items() if value is not None}
        if own is not None and others:
            best = min(others, key=others.__getitem__)
            found.append((Shape.numbered(number), own, best, others[best]))
    return found


def report(results: list[dict]) -> str:
    """The table."""
    found = regrets(results)
    ratios = np.array([own / best for _, own, _, best in found])
    run_on = {m: len({r["shape"] for r in results if r["method"] == m}) for m in METHODS if m != DEFAULT}
    lines = [
        "# The default on every shape\n",
        "Written by `tests/benchmarks/shapes.py`: generated tables, delta 1e-5. The error is the geometric mean over",
        f"2- to 5-way marginals ({MARGINALS} of each) of the mean total variation distance; regret is the default's",
        "error relative to the best other method's, chosen after the fact, which favours the others by their luck.",
        "Noise is seeded. Other methods and the shapes they were run on: "
        + ", ".join(f"{method} {number}" for method, number in run_on.items() if number)
        + ".\n",
        f"{len(found)} shapes: regret {np.exp(np.log(ratios).mean()):.3f} in the geometric mean, "
        f"{np.median(ratios):.3f} in the median, {ratios.max():.3f} at worst; "
        f"above 1.03 on {int((ratios > 1.03).sum())}.\n",
        "| shape | rows | columns | sizes | dependence | epsilon | default | best other | its error | regret | runs |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for shape, own, method, best in found:
        runs = sum(r["shape"] == shape.number and r["method"] == DEFAULT for r in results)
        lines.append(
            f"| {shape.number} | {shape.rows:,} | {len(shape.sizes)} | {min(shape.sizes)}–{max(shape.sizes)} "
            f"| {shape.dependence} | {shape.epsilon} | {own:.4f} | {method} | {best:.4f} | {own / best:.2f} | {runs} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the report after each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    seeding.install()
    kept = HERE / "shapes.jsonl"
    results = read_results(kept)
    done = {(r["shape"], r["method"], r["run"]) for r in results}
    for number in range(arguments.first, arguments.first + arguments.count):
        shape = Shape.numbered(number)
        for run in range(arguments.runs):
            for method in arguments.methods.split(","):
                if (number, method, run) in done or len(shape.sizes) > SLOW.get(method, math.inf):
                    continue
                results.append(judged(shape, method, run))
                print(results[-1], flush=True)
                keep_result(kept, results[-1])
        (HERE / "shapes.md").write_text(report(results))


if __name__ == "__main__":
    main()
