"""How far means and ninth deciles of published numbers are off: drawn uniformly, from densities, with sums bought.

Run as `python tests/benchmarks/values.py [--runs N] [--tables NAME,...]`; one thread. Three tables: the fictional
population; adult as it is distributed (ages and hours as whole numbers, capital gain and loss in hundredths of their
range, which is all that is there); and a simulated survey whose incomes have a Pareto tail. Uniform numbers and those
from densities are drawn for the same codes of the same model. Each result is kept in values.jsonl and not made
again; values.md is written from it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synth_core import Schema, synthesize
from synth_core.example.population import EXAMPLE_ROWS, EXAMPLE_SEED, generate, population_schema
from synth_core.schema.codec import decode, number_columns

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "values.jsonl", HERE / "values.md"
ADULT = HERE.parents[2] / "shared" / "data" / "adult14.csv"
EPSILON, DELTA, SHARE = 1.0, 1e-6, 0.1
TAILS = (1.5, 2.0, 2.5, 3.0)
SURVEY_ROWS = 100_000
WAYS = ("uniform", "densities", "bought")


def survey(index: float) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Lognormal incomes below 60,000 or so, and a tenth of them in a Pareto tail that begins there."""
    rng = np.random.default_rng([22, int(10 * index)])
    education = rng.integers(0, 4, SURVEY_ROWS)
    age = rng.integers(18, 90, SURVEY_ROWS)
    body = np.exp(rng.normal(9.7 + 0.2 * education + 0.004 * (age - 50), 0.45))
    tail = 60_000 * rng.random(SURVEY_ROWS) ** (-1 / index)
    rich = rng.random(SURVEY_ROWS) < 0.04 * (1 + education)
    frame = pd.DataFrame(
        {
            "region": rng.integers(0, 5, SURVEY_ROWS),
            "education": education,
            "age": age,
            "hours": np.where(rng.random(SURVEY_ROWS) < 0.4, 40, rng.integers(5, 70, SURVEY_ROWS)),
            "income": np.where(rich, tail, body).round(2),
        }
    )
    edges = [0, 5000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000, 100_000, 200_000, 10_000_000]
    columns = [
        {"name": "region", "kind": "categorical", "values": list(range(5))},
        {"name": "education", "kind": "categorical", "values": list(range(4))},
        {"name": "age", "kind": "integer", "bins": [18, 25, 35, 45, 55, 65, 75, 90]},
        {"name": "hours", "kind": "integer", "bins": [5, 20, 35, 50, 70], "atoms": [40]},
        {"name": "income", "kind": "real", "bins": edges, "unseen": "clip"},
    ]
    return frame, {"columns": columns}


def adult() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Adult with ages and hours as whole numbers; gain and loss are numbered from 0 to 99."""
    frame = pd.read_csv(ADULT)
    numbers = {
        "age": {"bins": [0, 5, 9, 14, 19, 24, 29, 34, 39, 44, 49, 59, 85]},
        "hours-per-week": {"bins": [0, 14, 24, 34, 44, 49, 59, 99], "atoms": [39]},
        "capital-gain": {"bins": [0, 5, 10, 20, 100], "atoms": [0, 99]},
        "capital-loss": {"bins": [0, 20, 40, 60, 100], "atoms": [0]},
    }
    kept = ["workclass", "education-num", "marital-status", "relationship", "sex", "income>50K", *numbers]
    columns = [
        {"name": name, "kind": "integer", **numbers[name]}
        if name in numbers
        else {"name": name, "kind": "categorical", "values": list(range(int(frame[name].max()) + 1))}
        for name in kept
    ]
    return frame[kept], {"columns": columns}


def population() -> tuple[pd.DataFrame, dict[str, Any]]:
    """The fictional population, its rules declared."""
    return generate(EXAMPLE_ROWS, EXAMPLE_SEED), population_schema()._plain()


TABLES = {
    "population": population,
    "adult": adult,
    **{f"survey {index:g}": lambda index=index: survey(index) for index in TAILS},
}


def changed(plain: dict[str, Any], **keys: Any) -> Schema:
    """The schema with these keys in every column of numbers."""
    columns = [
        column if column["kind"] == "categorical" else {k: v for k, v in {**column, **keys}.items() if v is not None}
        for column in plain["columns"]
    ]
    return Schema.model_validate({**plain, "columns": columns})


def judged(table: str, way: str, run: int) -> list[dict[str, Any]]:
    """Errors of all columns of numbers for one noise; two ways share a model and its codes."""
    frame, plain = TABLES[table]()
    schema = changed(plain, moments=True if way == "bought" else None)
    begun = time.process_time()
    found = synthesize(
        frame,
        schema,
        epsilon=EPSILON,
        delta=DELTA,
        moments_share=SHARE if way == "bought" else 0.0,
        seed=run,
    )
    cpu = time.process_time() - begun
    tables = {way: found.table}
    if way == "densities":
        rng = np.random.default_rng(run)
        codes = found.model.sample(len(found.table), rng)
        tables["uniform"] = decode(codes, changed(plain, tail="uniform"), rng)
    return [
        {
            "table": table,
            "way": name,
            "run": run,
            "cpu": round(cpu, 2),
            **errors(frame, made, schema),
        }
        for name, made in tables.items()
    ]


def errors(frame: pd.DataFrame, made: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """Relative errors of means and ninth deciles; what is clipped counts as its bound."""
    means, deciles = {}, {}
    for column in number_columns(schema):
        real = frame[column.name].dropna().astype(float)
        if column.unseen == "clip":
            real = real.clip(column.edges[0], column.edges[-1])
        own = made[column.name].dropna().astype(float)
        means[column.name] = round(float(own.mean() / real.mean() - 1), 5)
        ninth = real.quantile(0.9)
        deciles[column.name] = round(float(own.quantile(0.9) / ninth - 1), 5) if ninth else None
    return {"mean": means, "p90": deciles}


def page(results: list[dict[str, Any]]) -> str:
    """The figures as one page."""
    lines = [
        "# Numbers inside bins: figures",
        "",
        f"Written by `tests/benchmarks/values.py`. Method privmrf, epsilon {EPSILON:g}, delta {DELTA:g}:",
        "errors of the mean and of the ninth decile of all columns of numbers, relative to the truth, as median and",
        "worst of the runs. *Uniform* is how numbers were drawn before, uniformly in their bin; *densities* draws",
        "them from guessed densities, for the same codes of the same models; *bought* spends",
        f"{SHARE:.0%} of the budget on sums inside bins of all these columns. A ninth decile of 0 has none.",
        "",
        "Adult is used as it is distributed here: ages and hours are whole numbers, capital gain and loss numbers from",
        "0 to 99, hundredths of their range. The survey has 100,000 rows; a tenth of its incomes lies in a Pareto tail",
        "of the index named, cut at 10,000,000, and its last bin is 200,000 to 10,000,000.",
        "",
        "| table | column | mean: uniform | densities | bought | p90: uniform | densities | bought | runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for table in TABLES:
        mine = [result for result in results if result["table"] == table]
        for name in mine[0]["mean"] if mine else ():
            cells = [shown(mine, measure, name, way) for measure in ("mean", "p90") for way in WAYS]
            runs = min(len({r["run"] for r in mine if r["way"] == way}) for way in WAYS)
            lines.append(f"| {table} | {name} | {' | '.join(cells)} | {runs} |")
    lines += ["", *summary(results), ""]
    return "\n".join(lines)


def shown(results: list[dict[str, Any]], measure: str, name: str, way: str) -> str:
    """Median and worst error."""
    found = [abs(r[measure][name]) for r in results if r["way"] == way and r[measure][name] is not None]
    return f"{np.median(found):.1%} / {max(found):.1%}" if found else "–"


def summary(results: list[dict[str, Any]]) -> list[str]:
    """How many columns are within what was aimed at."""
    columns = sorted({(r["table"], name) for r in results for name in r["mean"]})
    lines = []
    for way in WAYS:
        by_column = [
            [abs(r["mean"][name]) for r in results if r["way"] == way and r["table"] == table]
            for table, name in columns
        ]
        by_column = [found for found in by_column if found]
        if not by_column:
            continue
        every = [error for found in by_column for error in found]
        medians, worst = [float(np.median(found)) for found in by_column], [max(found) for found in by_column]
        lines.append(
            f"- {way}: of {len(by_column)} columns the median error of the mean is within 2 % in "
            f"{sum(m <= 0.02 for m in medians)}, the worst within 5 % in {sum(w <= 0.05 for w in worst)} "
            f"and within 8 % in {sum(w <= 0.08 for w in worst)}; all runs: median {np.median(every):.2%}, "
            f"worst {max(worst):.1%}."
        )
    return lines


def main() -> None:
    """Make what is missing, and write the page anew after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tables", default=",".join(TABLES))
    asked = parser.parse_args()
    results = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {(result["table"], result["way"], result["run"]) for result in results}
    for run in range(asked.runs):
        for table in asked.tables.split(","):
            for way in ("densities", "bought"):
                if (table, way, run) in done:
                    continue
                fresh = judged(table, way, run)
                results += fresh
                with RESULTS.open("a") as file:
                    file.writelines(json.dumps(result) + "\n" for result in fresh)
                print(*(json.dumps(result) for result in fresh), sep="\n", flush=True)
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
