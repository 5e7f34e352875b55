"""Judge two linked tables beside a flat table of people and beside people who are drawn into households.

Run as `PYTHONPATH=tests python tests/benchmarks/households.py [--runs N] [--epsilon E]`. The data are a public travel
survey of 27,980 households with 59,762 people, and 20,000 made-up ones with couples and children, whose age differences
are compared. Each result is kept in households.jsonl, and runs that are there are not made again.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from kept import keep_result, read_results
from support.linked_tables import SCHEMA, linked_frames

from synth_core import LinkedSchema, Schema, synthesize
from synth_core.evaluation.linked import compare_households, gap_error
from synth_core.models.tuples import Households
from synth_core.storage.households import encode_households

HERE = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "households"
KEY, DELTA, EPSILONS = "household_id", 1e-5, (0.8, 1.6, 3.2)
HALF = 0.5
"""Share of epsilon of each of two separate tables; mu adds up in squares, so a little more would be allowed."""


def sizes() -> dict:
    """Codes of each column, by table."""
    return json.loads((DATA / "domain.json").read_text())


def schema() -> LinkedSchema:
    """The declaration of both tables."""
    declared = {name: {"columns": columns(sizes()[name])} for name in ("household", "person")}
    return LinkedSchema.model_validate({"tables": {"link": KEY, "largest": sizes()["largest"], **declared}})


def columns(codes: dict) -> list[dict]:
    """Columns of codes."""
    return [{"name": name, "kind": "categorical", "values": list(range(size))} for name, size in codes.items()]


def linked(frames: dict, epsilon: float, seed: int, **more: float) -> Households:
    """(a): the tables as they are declared; with a pairs_share of 0, people who are independent given the household."""
    made = synthesize(frames, schema(), epsilon=epsilon, delta=DELTA, seed=seed, **more)
    return encode_households(made.tables, schema(), b"benchmark")


def flat(frames: dict, epsilon: float, seed: int) -> Households:
    """(b): one table of people with their household's columns, a household being a unit of up to `largest` rows.

    Households are made of its rows: those of equal size and equal household columns, one after the other.
    """
    own, person, largest = sizes()["household"], sizes()["person"], sizes()["largest"]
    number = frames["person"].groupby(KEY)[KEY].transform("size").clip(upper=largest) - 1
    table = frames["person"].assign(size=number).merge(frames["household"], on=KEY)
    declared = {"columns": columns({**own, "size": largest, **person}), "unit_column": KEY}
    made = synthesize(
        table, Schema.model_validate(declared), epsilon=epsilon, delta=DELTA, seed=seed, rows_per_unit=largest
    )
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


def apart(frames: dict, epsilon: float, seed: int) -> Households:
    """(c): a table of households with their sizes and a flat one of people, who are drawn into the households."""
    own, person, largest = sizes()["household"], sizes()["person"], sizes()["largest"]
    number = frames["person"].groupby(KEY)[KEY].size().clip(upper=largest) - 1
    table = frames["household"].assign(size=frames["household"][KEY].map(number))
    settings = {"epsilon": epsilon * HALF, "delta": DELTA, "seed": seed}
    households = synthesize(table, Schema.model_validate({"columns": columns({**own, "size": largest})}), **settings)
    declared = Schema.model_validate({"columns": columns(person), "unit_column": KEY})
    people = synthesize(frames["person"], declared, rows_per_unit=largest, **settings).table.astype("int64")
    counts = households.table["size"].astype("int64").to_numpy() + 1
    chosen = people.iloc[np.random.default_rng(seed).integers(0, len(people), counts.sum())]
    return Households(
        {f"household.{name}": households.table[name].astype("int64").to_numpy() for name in own},
        {f"person.{name}": chosen[name].to_numpy() for name in person},
        counts,
    )


MADE_UP = 20_000
"""Households of the made-up population."""


def relations(epsilon: float, seed: int, *, pairs_share: float | None) -> dict[str, float]:
    """Errors of age differences in made-up households, whose ages are in bins of ten years, and of broken rules."""
    frames = linked_frames(MADE_UP, seed=seed)
    made = synthesize(frames, SCHEMA, epsilon=epsilon, delta=1e-6, seed=seed, pairs_share=pairs_share)
    real, found = (encode_households(tables, SCHEMA, b"benchmark") for tables in (frames, made.tables))
    ages, errors = SCHEMA.person.column("age").levels, {}
    for name, code in (("couples", 1), ("parents and children", 2)):

        def asked(one: dict, two: dict, code: int = code) -> np.ndarray:
            return (one["person.relation"] == 0) & (two["person.relation"] == code)

        errors[name] = gap_error(real, found, ages, "person.age", asked)
    return errors | {"broken": float(sum(int(rows.sum()) for rows in SCHEMA.violations(made.tables).values()))}


WAYS = {
    "(a) linked tables": linked,
    "(a0) linked, pairs_share 0": lambda *given: linked(*given, pairs_share=0.0),
    "(b) flat table of people": flat,
    "(c) two tables apart": apart,
}


def report(results: list[dict]) -> str:
    """Both tables."""
    relations, results = ([r for r in results if r.get("data", "survey") == data] for data in ("made up", "survey"))
    names = [name for name in results[0]["errors"] if name != "broken"]
    lines = [
        "# Households and their people\n",
        f"Written by `tests/benchmarks/households.py`: privmrf `default`, delta {DELTA:g}, unit: one household, on the",
        "households of a public travel survey. Means of all runs; `LinkedErrors` says what each error is;",
        "`age gaps`: total variation distance of the differences of age classes between people of one household.\n",
        "| epsilon | way | runs | " + " | ".join(name.replace("_", " ") for name in names) + " | CPU s |",
        "|---|---|---|" + "---|" * (len(names) + 1),
    ]
    for epsilon in sorted({r["epsilon"] for r in results}):
        for way in WAYS:
            own = [r for r in results if (r["epsilon"], r["way"]) == (epsilon, way)]
            if own:
                means = [f"{np.mean([r['errors'][name] for r in own]):.4f}" for name in names]
                cpu = f"{np.mean([r['cpu'] for r in own]):.0f}"
                lines.append(f"| {epsilon} | {way} | {len(own)} | {' | '.join(means)} | {cpu} |")
    lines += [
        "",
        f"{MADE_UP:,} made-up households with rules (`tests/support/linked_tables.py`), delta 1e-6: total variation",
        "distance of the differences of age classes of ten years, and households that break a rule.\n",
        "| epsilon | way | runs | couples | parents and children | broken |",
        "|---|---|---|---|---|---|",
    ]
    for epsilon, way in sorted({(r["epsilon"], r["way"]) for r in relations}):
        own = [r["errors"] for r in relations if (r["epsilon"], r["way"]) == (epsilon, way)]
        couples, children = (np.mean([r[name] for r in own]) for name in ("couples", "parents and children"))
        broken = sum(r["broken"] for r in own)
        lines.append(f"| {epsilon} | {way} | {len(own)} | {couples:.4f} | {children:.4f} | {broken:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the report after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilon", type=float, choices=EPSILONS)
    arguments = parser.parse_args()
    kept = HERE / "households.jsonl"
    results = read_results(kept)
    frames = {name: pd.read_csv(DATA / f"{name}.csv") for name in ("household", "person")}
    real = encode_households(frames, schema(), b"benchmark")
    ages = np.arange(sizes()["person"]["age"], dtype=np.float64)
    for run in range(arguments.runs):
        for epsilon in [arguments.epsilon] if arguments.epsilon else EPSILONS:
            for way, made in WAYS.items():
                if sum((r["epsilon"], r["way"]) == (epsilon, way) for r in results if "data" not in r) > run:
                    continue
                start = time.process_time()
                found = made(frames, epsilon, run)
                cpu = time.process_time() - start
                errors = asdict(compare_households(real, found, schema()))
                errors["age gaps"] = gap_error(real, found, ages, "person.age", lambda one, _: one["person.age"] >= 0)
                results.append({"epsilon": epsilon, "way": way, "cpu": round(cpu, 1), "errors": errors})
                keep(kept, results)
            for way, share in (("(a) linked tables", None), ("(a0) linked, pairs_share 0", 0.0)):
                if sum((r["epsilon"], r["way"]) == (epsilon, way) for r in results if "data" in r) <= run:
                    errors = relations(epsilon, run, pairs_share=share)
                    results.append({"data": "made up", "epsilon": epsilon, "way": way, "errors": errors})
                    keep(kept, results)


def keep(kept: Path, results: list[dict]) -> None:
    """Write the last result and the report."""
    print(results[-1], flush=True)
    keep_result(kept, results[-1])
    (HERE / "households.md").write_text(report(results))


if __name__ == "__main__":
    main()
