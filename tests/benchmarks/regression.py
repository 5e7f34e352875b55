"""How often intervals of a regression on replicate tables cover the truth, by the rule of `combine` and by others.

Run as `python tests/benchmarks/regression.py [--runs N] [--tables NAME,...]`; one thread. Two tables: adult (a logistic
regression of income on age, education and sex) and the fictional population (having work, of people from 25 to 64, on
age, education and sex). Each run is a whole release with fresh noise from the operating system, with replicate tables,
once as the method plans it and once with the tables of the analysis protected. The truth is the same regression on the
confidential rows. Each run is kept in regression.jsonl and not made again; regression.md is written from it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from kept import keep_result, read_results
from scipy.special import ndtri, stdtrit

from synth_core.example.population import EXAMPLE_ROWS, EXAMPLE_SEED, generate, population_schema
from synth_core.inference import combine
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.release.paths import ReleasePaths
from synth_core.steps import prepare, run_step

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "regression.jsonl", HERE / "regression.md"
ADULT = HERE.parents[2] / "shared" / "data" / "adult14.csv"
EPSILON, DELTA, TABLES, LEVEL = 1.0, 1e-6, 10, 0.95
RUNS = 50
PEOPLE = ("region", "household_size", "sex", "age", "marital", "education", "activity", "tenure")
TERMS = ("intercept", "age", "education", "sex")
STEPS = ("ingest", "score", "select", "fit", "sample")


class Analysis(NamedTuple):
    """A confidential table, its schema, the columns of the regression, and how rows become numbers."""

    frame: pd.DataFrame
    schema: dict[str, Any]
    columns: tuple[str, str, str, str]
    design: Any


def adult() -> Analysis:
    """Eight columns; ages in bands of five years and hours of ten, as codes."""
    names = {
        "age": "age",
        "workclass": "workclass",
        "education-num": "education",
        "marital-status": "marital",
        "occupation": "occupation",
        "sex": "sex",
        "hours-per-week": "hours",
        "income>50K": "income",
    }
    frame = pd.read_csv(ADULT)[list(names)].rename(columns=names)
    frame["age"] //= 5
    frame["hours"] //= 10
    columns = [
        {"name": name, "kind": "categorical", "values": list(range(int(frame[name].max()) + 1))} for name in frame
    ]

    def design(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        x = np.column_stack([np.ones(len(rows)), rows["age"], rows["education"], rows["sex"]])
        return x.astype(float), rows["income"].to_numpy(float)

    return Analysis(frame, {"columns": columns}, ("income", "age", "education", "sex"), design)


def population() -> Analysis:
    """Eight columns of the fictional population, with the rules about them."""
    schema = population_schema()
    plain = schema._plain()
    columns = [column for column in plain["columns"] if column["name"] in PEOPLE]
    rules = [rule for rule in plain["rules"] if {*rule["when"], *rule["never"]} <= set(PEOPLE)]
    levels = {name: k for k, name in enumerate(schema.column("education").captions)}
    edges = np.array(schema.column("age").edges)

    def design(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        rows = rows[(rows["age"] >= 25) & (rows["age"] < 65)]
        band = np.searchsorted(edges, rows["age"], side="right")  # ages inside a bin are drawn, not modelled
        x = np.column_stack([np.ones(len(rows)), band, rows["education"].map(levels), rows["sex"] == "F"])
        return x.astype(float), rows["activity"].isin(["employed", "self_employed"]).to_numpy(float)

    frame = generate(EXAMPLE_ROWS, EXAMPLE_SEED)[list(PEOPLE)]
    return Analysis(frame, {"columns": columns, "rules": rules}, ("activity", "age", "education", "sex"), design)


ANALYSES = {"adult": adult, "population": population}
ASKED = ("protected", "default")


def logistic(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and the standard errors of independent rows, by Newton's method over distinct rows."""
    cells, which = np.unique(x, axis=0, return_inverse=True)
    rows, ones = np.bincount(which), np.bincount(which, weights=y)
    beta = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-cells @ beta))
        information = (cells * (rows * p * (1 - p))[:, None]).T @ cells
        step = np.linalg.solve(information, cells.T @ (ones - rows * p))
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


def protected(columns: tuple[str, ...]) -> list[list[str]]:
    """The outcome with each predictor, and the predictors together: all that a logistic regression depends on."""
    outcome, *others = columns
    return [*([outcome, name] for name in others), others]


def released(analysis: Analysis, asked: str, seed: int) -> dict[str, Any]:
    """One release, and the regression on each of its tables."""
    began = time.process_time()
    with TemporaryDirectory() as at:
        folder = Path(at)
        analysis.frame.to_csv(folder / "rows.csv", index=False)
        (folder / "schema.yaml").write_text(yaml.safe_dump(analysis.schema, allow_unicode=True))
        (folder / "workspace").mkdir()
        account = Account(dataset="rows", delta=DELTA, cap_epsilon=EPSILON, rows_per_unit=1, largest_n=100_000)
        open_ledger(folder / "workspace", create=True).declare(account, actor="benchmark")
        spec = {
            "release": "one",
            "dataset": "rows",
            "source": str(folder / "rows.csv"),
            "schema": str(folder / "schema.yaml"),
            "epsilon": EPSILON,
            "delta": DELTA,
            "evaluate": "none",
            "uncertainty": TABLES,
            "replicates": TABLES,
            "seed": seed,
            **({"protect": protected(analysis.columns)} if asked == "protected" else {}),
        }
        address = prepare(spec, workspace=folder / "workspace")
        for step in STEPS:
            run_step(step, address)
        paths = ReleasePaths.of_address(address)
        published = logistic(*analysis.design(pd.read_parquet(paths.extract)))
        tables = [pd.read_parquet(paths.replicate_table(table)) for table in range(1, TABLES + 1)]
    found = [logistic(*analysis.design(table)) for table in tables]
    return {
        "published": [list(map(float, part)) for part in published],
        "replicates": [[list(map(float, part)) for part in one] for one in found],
        "seconds": round(time.process_time() - began, 1),
    }


def half_widths(run: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The middle and half the width of each rule's interval."""
    centre, own = map(np.array, run["published"])
    estimates, errors = (np.array(part) for part in zip(*run["replicates"], strict=True))
    m, within = len(estimates), np.mean(errors**2, axis=0)
    between, mean, t = estimates.var(axis=0, ddof=1), estimates.mean(axis=0), stdtrit(m - 1, (1 + LEVEL) / 2)
    combined, by_mean = combine(estimates, published=centre), combine(estimates)
    return {
        "the extract alone": (centre, ndtri((1 + LEVEL) / 2) * own),
        "combine, with the extract": (combined.estimate, combined.interval(LEVEL)[1] - combined.estimate),
        "combine, replicate tables alone": (by_mean.estimate, by_mean.interval(LEVEL)[1] - by_mean.estimate),
        "(1 + 1/m) B - W": (mean, t * np.sqrt(np.maximum((1 + 1 / m) * between - within, 0))),
        "(1 + 1/m) B + W": (mean, t * np.sqrt((1 + 1 / m) * between + within)),
    }


def page(runs: list[dict[str, Any]]) -> str:
    """The results as a page."""
    lines = [
        "# Regression on replicate tables: coverage",
        "",
        f"Written by `tests/benchmarks/regression.py`. Method privmrf, epsilon {EPSILON:g}, delta {DELTA:g}, {TABLES}",
        f"replicate tables. Share of runs in which the {LEVEL:.0%} interval covers the coefficient of the same",
        "logistic regression on the confidential rows, for the intercept and the coefficients of age, education and",
        "sex, and over all four; the last column but one is the mean width, relative to that of the extract alone.",
        "*Protected*: the outcome with each predictor, and the predictors together, were protected tables. B is the",
        "variance of the replicate tables' estimates, W the mean of the variances that the analysis states itself.",
        "`synth combine` is the second rule, or the third where it is not given the extract's estimates.",
        "",
        "| table | asked | rule | " + " | ".join(TERMS) + " | all | width | runs |",
        "|---|---|---|" + "---:|" * (len(TERMS) + 3),
    ]
    for table in ANALYSES:
        for asked in ASKED:
            own = [run for run in runs if (run["table"], run["asked"]) == (table, asked)]
            lines += _rows(own, table, asked) if own else []
    return "\n".join(lines) + "\n"


def _rows(runs: list[dict[str, Any]], table: str, asked: str) -> list[str]:
    truth, judged = np.array(runs[0]["truth"]), [half_widths(run) for run in runs]
    naive = np.mean([one["the extract alone"][1] for one in judged], axis=0)
    rows = []
    for rule in judged[0]:
        covered = np.mean([np.abs(one[rule][0] - truth) <= one[rule][1] for one in judged], axis=0)
        wide = float(np.mean(np.mean([one[rule][1] for one in judged], axis=0) / naive))
        cells = " | ".join(f"{share:.0%}" for share in (*covered, covered.mean()))
        rows.append(f"| {table} | {asked} | {rule} | {cells} | {wide:.1f} | {len(runs)} |")
    return rows


def main() -> None:
    """Make the runs that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tables", default=",".join(ANALYSES))
    parser.add_argument("--asked", default=",".join(ASKED))
    arguments = parser.parse_args()
    runs = read_results(RESULTS)
    for asked in arguments.asked.split(","):
        for table in arguments.tables.split(","):
            analysis = ANALYSES[table]()
            truth = list(map(float, logistic(*analysis.design(analysis.frame))[0]))
            made = {run["run"] for run in runs if (run["table"], run["asked"]) == (table, asked)}
            for number in sorted(set(range(arguments.runs)) - made):
                run = {
                    "table": table,
                    "asked": asked,
                    "run": number,
                    "truth": truth,
                    **released(analysis, asked, number),
                }
                runs.append(run)
                keep_result(RESULTS, run)
                PAGE.write_text(page(runs))
                print(f"{table} {asked} {number}: {run['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
