"""How often published intervals hold the true value, for tables that were measured and tables that were modelled.

Run as `python tests/benchmarks/intervals.py [--only DATA] [--epsilon E] [--runs N] [--method M]`; without arguments
every cell of the table is brought to 20 runs. A run is one release with fresh noise; it is judged on all one-way cells,
all cells of measured pairs and all cells of modelled pairs with at least 50 true records, and apart from them on the
smaller ones. Each run is kept in intervals.jsonl and not made again; intervals.md is written from it. The data are
public tables and the fictional population, so that the truth is known.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from synth_core import Schema, synthesize
from synth_core.example.population import EXAMPLE_ROWS, EXAMPLE_SEED, generate, population_schema
from synth_core.inference.many import uncertain_tables
from synth_core.schema.codec import encode

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "intervals.jsonl", HERE / "intervals.md"
DATA = HERE.parents[2] / "shared" / "data"
NAMES = ("nltcs", "acs", "adult", "br2000", "population")
EPSILONS, DELTA, RUNS = (0.4, 0.8, 3.2), 1e-5, 20
LEVEL, LARGE = 0.9, 50
KINDS = ("one-way", "measured pair", "modelled pair")


def table(name: str) -> tuple[pd.DataFrame, Schema]:
    """A table and its public schema."""
    if name == "population":
        return generate(EXAMPLE_ROWS, EXAMPLE_SEED), population_schema()
    sizes = json.loads((DATA / f"{name}-domain.json").read_text())
    return pd.read_csv(DATA / f"{name}.csv")[list(sizes)], Schema.from_sizes(sizes)


def judged(name: str, method: str, epsilon: float, run: int) -> dict:
    """One release: how many cells of each kind there are, and how many of their intervals hold the true count."""
    frame, schema = table(name)
    codes = encode(frame, schema, source=name)
    begun = time.process_time()
    release = synthesize(frame, schema, method=method, epsilon=epsilon, delta=DELTA, rows=100, progress=print_nothing)
    fitted = time.process_time()
    uncertain = release.uncertain()
    made = time.process_time()
    domain = schema.domain
    cliques = [clique for size in (1, 2) for clique in itertools.combinations(domain, size)]
    cells, held, squares = Counter(), Counter(), Counter()
    for found in uncertain_tables(uncertain, cliques):
        kind = KINDS[0] if len(found.attributes) == 1 else KINDS[1 if found.measured else 2]
        shape = domain.shape(found.attributes)
        index = np.ravel_multi_index([codes[a].astype(int) for a in found.attributes], shape)
        true = np.bincount(index, minlength=int(np.prod(shape))).reshape(shape)
        low, high = found.interval(LEVEL)
        for size, chosen in (("large", true >= LARGE), ("small", (true < LARGE) & (true + found.values >= 0.5))):
            cells[f"{kind} {size}"] += int(chosen.sum())
            held[f"{kind} {size}"] += int(((low <= true) & (true <= high))[chosen].sum())
            squares[f"{kind} {size}"] += float(((high - low)[chosen] / 2).sum())
    key = {"data": name, "method": method, "epsilon": epsilon, "run": run}
    seconds = {"fit_cpu": fitted - begun, "replicates_cpu": made - fitted}
    return {**key, **seconds, "cells": dict(cells), "held": dict(held), "half_widths": dict(squares)}


def print_nothing(message: str) -> None:
    """Discard a progress message."""


def share(results: list[dict], kind: str) -> str:
    cells = sum(r["cells"].get(kind, 0) for r in results)
    return f"{sum(r['held'].get(kind, 0) for r in results) / cells:.1%}" if cells else "–"


def width(results: list[dict], kind: str) -> str:
    cells = sum(r["cells"].get(kind, 0) for r in results)
    return f"{sum(r['half_widths'].get(kind, 0) for r in results) / cells:,.0f}" if cells else "–"


def together(results: list[dict]) -> list[float]:
    """What intervals held in all of these runs of privmrf: large cells of each kind, in whole percent, rounded down."""
    own = [r for r in results if r["method"] == "privmrf"]
    sums = [[sum(r[what].get(f"{kind} large", 0) for r in own) for what in ("held", "cells")] for kind in KINDS]
    return [100 * held // cells / 100 for held, cells in sums]


def page(results: list[dict]) -> str:
    """The table."""
    lines = [
        "# Coverage of intervals\n",
        f"Written by `tests/benchmarks/intervals.py`: delta {DELTA:g}, {LEVEL:.0%} intervals, 12 replicates. Each",
        "figure is the share of cells whose interval holds the true count, over all cells and runs; in brackets the",
        f"mean half width in records. Large cells have at least {LARGE} true records. *Modelled pairs* were not",
        "measured together; all of them carry the flag. CPU seconds are of a busy machine: the fit with its",
        "measuring, and its replicates.\n",
        "| data | method | epsilon | runs | one-way, large | measured pairs, large | modelled pairs, large | "
        "one-way, small | measured pairs, small | modelled pairs, small | fit, CPU s | replicates, CPU s |",
        "|---|---|---:|---:|---|---|---|---|---|---|---:|---:|",
    ]
    keys = dict.fromkeys((r["data"], r["method"], r["epsilon"]) for r in results)
    for key in sorted(keys, key=lambda k: (NAMES.index(k[0]), k[1], k[2])):
        own = [r for r in results if (r["data"], r["method"], r["epsilon"]) == key]
        figures = [
            f"{share(own, f'{kind} {size}')} (± {width(own, f'{kind} {size}')})"
            for size in ("large", "small")
            for kind in KINDS
        ]
        seconds = [f"{np.mean([r[name] for r in own]):.1f}" for name in ("fit_cpu", "replicates_cpu")]
        lines.append(f"| {' | '.join([key[0], key[1], str(key[2]), str(len(own)), *figures, *seconds])} |")
    shares = (f"{share:.0%} of {kind} cells" for share, kind in zip(together(results), KINDS, strict=True))
    lines.append(f"\nAll runs together, large cells, rounded down: {', '.join(shares)}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, one run of every cell before the next, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--method", default="privmrf")
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    results = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {(r["data"], r["method"], r["epsilon"], r["run"]) for r in results}
    names = [asked.only] if asked.only else NAMES
    epsilons = [asked.epsilon] if asked.epsilon else EPSILONS
    for run, name, epsilon in itertools.product(range(asked.runs), names, epsilons):
        if (name, asked.method, epsilon, run) not in done:
            results.append(judged(name, asked.method, epsilon, run))
            with RESULTS.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            PAGE.write_text(page(results))
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
