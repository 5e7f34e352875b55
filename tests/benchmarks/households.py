"""Judge two linked tables beside a flat table of people and beside people who are drawn into households.

Run as `PYTHONPATH=tests python tests/benchmarks/households.py [--data DATA] [--epsilon E] [--runs N]`. The data are a
public travel survey of 27,980 households with 59,762 people, and 20,000 and 200,000 households of the fictional
population, which have couples, children and rules across people. Each result is kept in households.jsonl, and runs that
are there are not made again; `--report` writes households.md alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kept import keep_result, read_results

from synth_core import LinkedSchema, Schema, synthesize
from synth_core.evaluation.linked import NUMBERS, compare_households
from synth_core.example.households import generate_households, households_schema
from synth_core.models.tuples import Households
from synth_core.storage.households import encode_households

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
"""Where the survey lies, beside this checkout unless the environment says where."""
DELTA, EPSILONS = 1e-5, (0.8, 1.6, 3.2)
HALF = 0.5
"""Share of epsilon of each of two separate tables; mu adds up in squares, so a little more would be allowed."""
DATA = {"survey": 0, "fictional 20,000": 20_000, "fictional 200,000": 200_000}
"""Households of each data set that is generated."""


@cache
def real(data: str) -> tuple[dict[str, pd.DataFrame], LinkedSchema, Households]:
    """The tables, their declaration, and their codes."""
    if DATA[data]:
        frames, schema = generate_households(DATA[data], 1), households_schema()
    else:
        folder = SHARED / "households"
        sizes = json.loads((folder / "domain.json").read_text())
        frames = {name: pd.read_csv(folder / f"{name}.csv") for name in ("household", "person")}
        declared = {name: {"columns": columns(sizes[name])} for name in ("household", "person")}
        raw = {"tables": {"link": sizes["key"], "largest": sizes["largest"], **declared}}
        schema = LinkedSchema.model_validate(raw)
    return frames, schema, encode_households(frames, schema, b"benchmark")


def columns(codes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Columns of codes."""
    return [{"name": name, "kind": "categorical", "values": list(range(size))} for name, size in codes.items()]


def declared(schema: Schema, more: Mapping[str, int], **keys: Any) -> Schema:
    """A table of codes with the rules of a declared one, and further columns."""
    domain = schema.domain
    sizes = dict(zip(domain.attributes, domain.sizes, strict=True))
    rules = [
        {
            "name": one.rule,
            "when": {name: list(codes) for name, codes in one.codes[:1]},
            "never": {name: list(codes) for name, codes in one.codes[1:]},
        }
        for one in domain.impossible
    ]
    return Schema.model_validate({"columns": columns({**more, **sizes}), "rules": rules, **keys})


def linked(data: str, epsilon: float, seed: int, **more: float) -> Households:
    """(a): the tables as they are declared; with a pairs_share of 0, people who are independent given the household."""
    frames, schema, _ = real(data)
    made = synthesize(frames, schema, epsilon=epsilon, delta=DELTA, seed=seed, progress=lambda said: None, **more)
    broken = schema.violations(made.tables)
    assert not any(rows.any() for rows in broken.values()), "no household breaks a rule"
    return encode_households(made.tables, schema, b"benchmark")


def flat(data: str, epsilon: float, seed: int) -> Households:
    """(b): one table of people with their household's columns, a household being a unit of up to `largest` rows.

    Households are made of its rows: those of equal size and equal household columns, one after the other.
    """
    _, schema, held = real(data)
    owner = np.repeat(np.arange(len(held.sizes)), held.sizes)
    own = {name.partition(".")[2]: codes[owner] for name, codes in held.attributes.items()}
    person = {name.partition(".")[2]: codes for name, codes in held.people.items()}
    table = pd.DataFrame({"unit": owner, **own, "size": held.sizes[owner] - 1, **person})
    domain = schema.household.domain
    more = {**dict(zip(domain.attributes, domain.sizes, strict=True)), "size": schema.largest}
    settings = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "rows_per_unit": schema.largest}
    made = synthesize(table, declared(schema.person, more, unit_column="unit"), progress=lambda said: None, **settings)
    rows = made.table.astype("int64").sort_values(["size", *own], kind="stable")
    parts = []
    for size, some in rows.groupby("size"):
        whole = len(some) // (size + 1) * (size + 1)
        parts.append((some.iloc[:whole], np.full(whole // (size + 1), size + 1)))
    kept, counts = pd.concat([part for part, _ in parts]), np.concatenate([each for _, each in parts])
    first = kept.iloc[np.cumsum(counts) - counts]
    return Households(
        {f"household.{name}": first[name].to_numpy() for name in own},
        {f"person.{name}": kept[name].to_numpy() for name in person},
        counts,
    )


def apart(data: str, epsilon: float, seed: int) -> Households:
    """(c): a table of households with their sizes and a flat one of people, who are drawn into the households."""
    _, schema, held = real(data)
    table = pd.DataFrame({name.partition(".")[2]: codes for name, codes in held.attributes.items()})
    settings = {"epsilon": epsilon * HALF, "delta": DELTA, "seed": seed, "progress": lambda said: None}
    sized = table.assign(size=held.sizes - 1)
    households = synthesize(sized, declared(schema.household, {"size": schema.largest}), **settings).table
    people = pd.DataFrame({name.partition(".")[2]: codes for name, codes in held.people.items()})
    units = people.assign(unit=np.repeat(np.arange(len(held.sizes)), held.sizes))
    kind = declared(schema.person, {}, unit_column="unit")
    made = synthesize(units, kind, rows_per_unit=schema.largest, **settings).table.astype("int64")
    counts = households["size"].astype("int64").to_numpy() + 1
    chosen = made.iloc[np.random.default_rng(seed).integers(0, len(made), counts.sum())]
    return Households(
        {f"household.{name}": households[name].astype("int64").to_numpy() for name in table},
        {f"person.{name}": chosen[name].to_numpy() for name in people},
        counts,
    )


WAYS = {"(a) linked tables": linked, "(b) flat table of people": flat, "(c) two tables apart": apart}


def report(results: list[dict[str, Any]]) -> str:
    """A table for each data set."""
    lines = [
        "# Households and their people\n",
        f"Written by `tests/benchmarks/households.py`: privmrf `default`, delta {DELTA:g}, unit: one household of up",
        "to 8 people. Means of all runs; `LinkedErrors` says what each error is. No household of (a) breaks a rule.",
        "The share of tables of households alone, and how the budget is divided among tables, were chosen by these",
        "errors on the survey (about 35 settings, two to four runs each), so that its lines of (a) are not blind;",
        "those of the fictional population are.",
    ]
    for data in DATA:
        found = [one for one in results if one["data"] == data]
        names = [name for name in NUMBERS if any(name in one["errors"] for one in found)]
        if not found:
            continue
        lines += [
            f"\n## {data[0].upper()}{data[1:]}\n",
            "| epsilon | way | runs | " + " | ".join(name.replace("_", " ") for name in names) + " | CPU s |",
            "|---|---|---|" + "---|" * (len(names) + 1),
        ]
        for epsilon in EPSILONS:
            for way in WAYS:
                own = [one for one in found if (one["epsilon"], one["way"]) == (epsilon, way)]
                if own:
                    means = [f"{np.mean([one['errors'][name] for one in own]):.4f}" for name in names]
                    cpu = f"{np.mean([one['cpu'] for one in own]):.0f}"
                    lines.append(f"| {epsilon} | {way} | {len(own)} | {' | '.join(means)} | {cpu} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the report after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", choices=DATA, action="append")
    parser.add_argument("--epsilon", type=float, choices=EPSILONS, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    kept = HERE / "households.jsonl"
    results = read_results(kept)
    asked = [
        (run, data, epsilon, way)
        for data in arguments.data or DATA
        for run in range(0 if arguments.report else arguments.runs)
        for epsilon in arguments.epsilon or EPSILONS
        for way in arguments.way or WAYS
    ]
    for run, data, epsilon, way in asked:
        if any((one["data"], one["run"], one["epsilon"], one["way"]) == (data, run, epsilon, way) for one in results):
            continue
        _, schema, held = real(data)
        start = time.process_time()
        found = WAYS[way](data, epsilon, run)
        cpu = time.process_time() - start
        errors = compare_households(held, found, schema, predictions=False).numbers
        one = {"data": data, "run": run, "epsilon": epsilon, "way": way, "cpu": round(cpu, 1), "errors": errors}
        results.append(one)
        print(one, flush=True)
        keep_result(kept, one)
    (HERE / "households.md").write_text(report(results))


if __name__ == "__main__":
    main()
