"""How far means and ninth deciles of published numbers are off: drawn uniformly, from densities, with sums bought.

Run as `python tests/benchmarks/values.py [--runs N] [--tables NAME,...]`; one thread. Three tables: the fictional
population; adult (ages and hours as whole numbers, capital gain and loss in hundredths of their range, which is all
that is there); and a simulated survey whose incomes have a Pareto tail. Uniform numbers and those from densities are
drawn for the same codes of the same model. Beside them: means by group with one density for all rows and with one for
each group; rows a second; and rows that break a rule about numbers. Each result is kept in values.jsonl and not made
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
from kept import keep_result, read_results
from yardstick import mean_tvd

from synth_core import Schema, synthesize
from synth_core.domain import breaking_rows
from synth_core.example.population import EXAMPLE_ROWS, EXAMPLE_SEED, generate, population_schema
from synth_core.schema.codec import decode, decode_table, encode, guess_densities, number_columns

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "values.jsonl", HERE / "values.md"
ADULT = HERE.parents[2] / "shared" / "data" / "adult14.csv"
EPSILON, DELTA, SHARE = 1.0, 1e-6, 0.25
TAILS = (1.5, 2.0, 2.5, 3.0)
SURVEY_ROWS = 100_000
WAYS = ("uniform", "densities", "bought")
GROUPS = 10
GROUP_RUNS = 3
SPEED_ROWS, SPEED_NUMBERS, SPEED_OTHERS, SPEED_RUNS = 1_000_000, 5, 10, 5
RULED_ROWS = 1_000_000


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
    """Adult with ages and hours as they were; gain and loss are known in hundredths of their range alone.

    What is declared is known without the records: ages are top coded at 90 and gains at the end of their range, most
    people have neither gain nor loss, and hours are said in round numbers, 40 above all. Edges of gains and losses end
    where some one record in a hundred is left, as docs/howto/declare-a-schema.md asks for.
    """
    frame = pd.read_csv(ADULT)
    frame["age"] += 16  # the codes begin at 16 years and at 1 hour
    frame["hours-per-week"] += 1
    numbers = {
        "age": {"bins": [16, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 75, 91], "atoms": [90]},
        "hours-per-week": {
            "bins": [1, 15, 25, 35, 45, 50, 60, 70, 100],
            "atoms": [40],
            "heaping": {"every": 5, "share": 0.8},
        },
        "capital-gain": {"bins": [0, 2, 4, 6, 8, 10, 15, 20, 100], "atoms": [0, 99]},
        "capital-loss": {"bins": [0, 20, 30, 35, 40, 45, 100], "atoms": [0]},
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

PROTECTED = {"adult": (("capital-gain",), ("capital-loss",))}
"""Columns whose counts are measured with a tenth of the budget where no sums are bought: most of their totals hangs on
few records, half a percent of them at the top code of gains."""


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
        protect=() if way == "bought" else PROTECTED.get(table, ()),
    )
    cpu = time.process_time() - begun
    tables = {way: found.table}
    drawn = found.model.sample(len(found.table), np.random.default_rng(run))
    codes = encode(frame, schema)
    real, own = np.column_stack(list(codes.values())), np.column_stack(list(encode(found.table, schema).values()))
    sizes = schema.domain.sizes
    marginals = {
        "tvd": [mean_tvd(real, own, sizes, alpha) for alpha in (1, 2)],
        "tvd_model": [mean_tvd(real, drawn, sizes, alpha) for alpha in (1, 2)],
        "rows_changed": float((own != drawn).any(axis=1).mean()),
    }
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
            **marginals,
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


def grouped(table: str, run: int) -> dict[str, Any]:
    """Errors of means in the largest groups, with one density for all rows and with one for each group.

    The groups of a density are those of the column that divides the rows and says most of the numbers: education
    where there is one. Groups whose means are compared are the largest codes of all columns that are no numbers.
    """
    frame, plain = TABLES[table]()
    schema = changed(plain)
    found = synthesize(frame, schema, epsilon=EPSILON, delta=DELTA, seed=run, protect=PROTECTED.get(table, ()))
    rows = found.model.sample(len(frame), np.random.default_rng(run))
    by = next((name for name in schema.domain if name.startswith("educ")), schema.domain.attributes[0])
    at = rows[:, schema.domain.position(by)]
    together = decode(rows, schema, np.random.default_rng(run), guess_densities(schema, found.model.marginal))
    apart = together.copy()
    for code in np.unique(at):

        def marginal(clique: tuple[str], code: int = int(code)) -> np.ndarray:
            pair = schema.domain.clique((by, *clique))
            both = found.model.marginal(pair)
            return np.take(both, code, axis=pair.index(by)) if by not in clique else found.model.marginal(clique)

        own = decode(rows[at == code], schema, np.random.default_rng(run), guess_densities(schema, marginal))
        for column in number_columns(schema):
            apart.loc[at == code, column.name] = own[column.name].to_numpy()
    numbers = {column.name for column in number_columns(schema)}
    codes, made = encode(frame, schema), {name: rows[:, k] for k, name in enumerate(schema.domain)}
    sizes = [(int((codes[n] == c).sum()), n, c) for n in schema.domain if n not in numbers for c in np.unique(codes[n])]
    groups = [(n, c) for size, n, c in sorted(sizes, key=lambda one: -one[0]) if size < 0.9 * len(frame)][:GROUPS]
    errors: dict[str, dict[str, list[float]]] = {"together": {}, "apart": {}}
    for column in number_columns(schema):
        real = frame[column.name].astype(float)
        real = real.clip(column.edges[0], column.edges[-1]) if column.unseen == "clip" else real
        for way, mine in (("together", together), ("apart", apart)):
            pairs = [
                (real[codes[n] == c].mean(), mine[column.name][made[n] == c].astype(float).mean()) for n, c in groups
            ]
            errors[way][column.name] = [round(float(b / a - 1), 5) for a, b in pairs if a and not np.isnan(a * b)]
    return {"groups": table, "by": by, "run": run, **errors}


SPEED_RULES = ("x0 <= x2", "x1 <= x3")
"""What is compared where the speed is measured with rules."""


def rate(run: int) -> dict[str, Any]:
    """Rows a second of processor time: codes drawn from a model, the same decoded too, and the same with two rules.

    Codes are drawn from columns that are independent, which is the fastest model and the hardest comparison.
    """
    rng = np.random.default_rng(22)
    edges = [0, 5000, 10_000, 20_000, 40_000, 60_000, 100_000, 200_000, 1_000_000]
    numbers = [{"name": f"x{k}", "kind": ("integer", "real")[k % 2], "bins": edges} for k in range(SPEED_NUMBERS)]
    others = [{"name": f"c{k}", "kind": "categorical", "values": list(range(6))} for k in range(SPEED_OTHERS)]
    schema = Schema.model_validate({"columns": numbers + others})
    drawn = {c["name"]: rng.lognormal(10, 1, 20_000).clip(0, 999_999) // 1 for c in numbers}
    frame = pd.DataFrame(drawn | {c["name"]: rng.integers(0, 6, 20_000) for c in others})
    ordered = [{"name": text, "compare": text} for text in SPEED_RULES]
    ruled_schema = Schema.model_validate({"columns": numbers + others, "rules": ordered})
    for text in SPEED_RULES:
        low, high = text.split(" <= ")
        drawn[low], drawn[high] = np.minimum(drawn[low], drawn[high]), np.maximum(drawn[low], drawn[high])
    ruled_frame = frame.assign(**drawn)
    found = {"rate": run}
    for way, one, rows in (("", schema, frame), ("ruled_", ruled_schema, ruled_frame)):
        made = {"epsilon": EPSILON, "delta": DELTA, "method": "independent"}
        model = synthesize(rows, one, **made).model
        densities = guess_densities(one, model.marginal)
        decode_table(model.sample(1000, rng), one, rng, densities)  # compiles
        begun = time.process_time()
        codes = model.sample(SPEED_ROWS, rng)
        between = time.process_time()
        decode_table(codes, one, rng, densities)
        decoding, sampling = time.process_time() - between, between - begun
        found |= {
            f"{way}codes": round(SPEED_ROWS / sampling),
            f"{way}decode": round(SPEED_ROWS / decoding),
            f"{way}both": round(SPEED_ROWS / (decoding + sampling)),
        }
    return found


def ruled() -> dict[str, Any]:
    """Decoded rows that break comparisons or sums, with the rules declared and without."""
    whole = {"people": [1, 2, 3, 5, 9, 21], "children": [0, 1, 3, 6, 21], "age": [0, 18, 40, 60, 100]}
    money = {name: [0, 100, 1000, 10_000] for name in ("wages", "rents", "total")}
    columns = [{"name": name, "kind": "integer", "bins": bins} for name, bins in whole.items()]
    columns += [{"name": "partner_age", "kind": "integer", "bins": whole["age"], "nullable": True}]
    columns += [{"name": n, "kind": "real", "bins": bins, "nullable": True, "atoms": [0]} for n, bins in money.items()]
    compare = ["children < people", "age - partner_age < 60", "wages + rents == total"]
    rules = [{"name": text, "compare": text} for text in compare]
    schema = Schema.model_validate({"columns": columns, "rules": rules})
    rng = np.random.default_rng(22)
    codes = np.column_stack([rng.integers(0, size, 4 * RULED_ROWS) for size in schema.domain.sizes])
    codes = np.resize(codes[~breaking_rows(codes, schema.domain)], (RULED_ROWS, len(columns)))
    broken = {}
    decode(codes[:1000], schema, np.random.default_rng(1))  # compiles
    for way, one in (("declared", schema), ("not declared", Schema.model_validate({"columns": columns}))):
        begun = time.process_time()
        frame = decode(codes, one, np.random.default_rng(1))
        taken = time.process_time() - begun
        numbers = {name: frame[name].astype(float).to_numpy(na_value=np.nan) for name in frame}
        broken[way] = {r.name: int(r.broken(numbers).sum()) for g in schema.value_groups for r in g.rules}
        broken[f"{way} rate"] = round(RULED_ROWS / taken)
    return {"ruled": RULED_ROWS, **broken}


def page(results: list[dict[str, Any]]) -> str:
    """The figures as one page."""
    lines = [
        "# Numbers inside bins: figures",
        "",
        f"Written by `tests/benchmarks/values.py`. Method privmrf, epsilon {EPSILON:g}, delta {DELTA:g}:",
        "errors of the mean and of the ninth decile of all columns of numbers, relative to the truth, as median and",
        "worst of the runs. *Uniform* is how numbers were drawn before, uniformly in their bin; *densities* draws",
        "them from guessed densities, for the same codes of the same models; *bought* spends",
        f"{SHARE:.0%} of the budget on sums of all these columns. A ninth decile of 0 has none.",
        "",
        "Adult's ages and hours are whole numbers; capital gain and loss are distributed here in hundredths of their",
        "range, numbers from 0 to 99. Where no sums are bought, both are protected (`protect`, a tenth of the",
        "budget): four ninths of all gains are those of one record in two hundred, and the noise of its count is",
        "that of the mean. Not protected, and with edges up to the largest numbers, means of gains were 7.0% / 20.6%",
        "off and those of losses 4.9% / 9.3% (densities, ten runs).",
        "",
        "The survey has 100,000 rows; a tenth of its incomes lies in a Pareto tail of the index named, cut at",
        "10,000,000, and its last bin is 200,000 to 10,000,000.",
        "",
        "| table | column | mean: uniform | densities | bought | p90: uniform | densities | bought | runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for table in TABLES:
        mine = [result for result in results if result.get("table") == table]
        for name in mine[0]["mean"] if mine else ():
            cells = [shown(mine, measure, name, way) for measure in ("mean", "p90") for way in WAYS]
            runs = min(len({r["run"] for r in mine if r["way"] == way}) for way in WAYS)
            lines.append(f"| {table} | {name} | {' | '.join(cells)} | {runs} |")
    lines += ["", *summary(results), *codes_lines(results), *beside(results), ""]
    return "\n".join(lines)


def codes_lines(results: list[dict[str, Any]]) -> list[str]:
    """Errors of marginals on codes."""
    lines = [
        "",
        "Mean total variation distance of codes from the real ones, one-way and two-way: of the rows that the model",
        "drew, and of those that were published. Densities say only where in their bins numbers lie, and change no",
        "code; bought sums exchange a few rows, because they correct counts too.",
        "",
        "| table | way | model, 1-way | published | model, 2-way | published | rows exchanged |",
        "|---|---|---|---|---|---|---|",
    ]
    for table in TABLES:
        for way in ("densities", "bought"):
            mine = [r for r in results if r.get("table") == table and r.get("way") == way]
            if mine:
                model, own = (np.mean([r[key] for r in mine], axis=0) for key in ("tvd_model", "tvd"))
                changed_rows = np.mean([r["rows_changed"] for r in mine])
                lines.append(
                    f"| {table} | {way} | {model[0]:.5f} | {own[0]:.5f} | {model[1]:.5f} | {own[1]:.5f} "
                    f"| {changed_rows:.3%} |"
                )
    return lines


def beside(results: list[dict[str, Any]]) -> list[str]:
    """Groups, speed and rules."""
    groups, rates = [r for r in results if "groups" in r], [r for r in results if "rate" in r]
    lines = []
    if groups:
        lines += [
            "",
            "Errors of means in the ten largest groups of rows, median and worst, with one density for all rows and",
            "with one for each code of a column (the same codes; densities guessed from the model's pairs). It is what",
            "a density that depends on other columns would give; rows are drawn with one density, because means",
            "by group gain next to nothing elsewhere than in the heaviest tail.",
            "",
            "| table | column | by | one density | one for each group | runs |",
            "|---|---|---|---|---|---|",
        ]
    for table in dict.fromkeys(r["groups"] for r in groups):
        mine = [r for r in groups if r["groups"] == table]
        for name in mine[0]["together"]:
            cells = [np.abs([e for r in mine for e in r[way][name]]) for way in ("together", "apart")]
            cells = [f"{np.median(errors):.2%} / {errors.max():.1%}" for errors in cells if len(errors)]
            if len(cells) == 2:
                lines.append(f"| {table} | {name} | {mine[0]['by']} | {cells[0]} | {cells[1]} | {len(mine)} |")
    if rates:
        compared = " and ".join(f"`{text}`" for text in SPEED_RULES)
        lines += [
            "",
            f"Speed at {SPEED_NUMBERS + SPEED_OTHERS} columns of which {SPEED_NUMBERS} of numbers, {SPEED_ROWS:,}",
            "rows, one thread, processor time: million rows a second, median and range of",
            f"{len(rates)} runs. *Codes* are drawn from the same model in the same run and not decoded; columns are",
            f"independent, which no other model draws faster. The rules are {compared}.",
            "",
            "| | codes drawn | decoded | both together | share of the speed of codes alone |",
            "|---|---|---|---|---|",
        ]
        for way, words in (("", "densities"), ("ruled_", "densities and two rules")):
            cells = [[r[way + key] / 1e6 for r in rates] for key in ("codes", "decode", "both")]
            cells.append([r[way + "both"] / r[way + "codes"] for r in rates])
            shown_cells = [f"{np.median(own):.2f} ({min(own):.2f} to {max(own):.2f})" for own in cells]
            lines.append(f"| {words} | {' | '.join(shown_cells)} |")
    for r in results:
        if "ruled" in r:
            lines += ["", f"Of {r['ruled']:,} decoded rows these break a rule about numbers:", ""]
            lines += ["| rule | declared | not declared |", "|---|---|---|"]
            lines += [f"| `{name}` | {r['declared'][name]:,} | {r['not declared'][name]:,} |" for name in r["declared"]]
            rates_of = [r[f"{way} rate"] / 1e6 for way in ("declared", "not declared")]
            lines += [
                "",
                "Their codes are as likely as any that are possible, so that most rows have to change; they were",
            ]
            lines += [f"decoded at {rates_of[0]:.2f} million rows a second, {rates_of[1]:.2f} without the rules."]
    return lines


def shown(results: list[dict[str, Any]], measure: str, name: str, way: str) -> str:
    """Median and worst error."""
    found = [abs(r[measure][name]) for r in results if r["way"] == way and r[measure][name] is not None]
    return f"{np.median(found):.1%} / {max(found):.1%}" if found else "–"


def summary(results: list[dict[str, Any]]) -> list[str]:
    """How many columns are within what was aimed at."""
    results = [r for r in results if "mean" in r]
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
    results = read_results(RESULTS)
    done = {(result["table"], result["way"], result["run"]) for result in results if "way" in result}

    def keep(fresh: list[dict[str, Any]]) -> None:
        results.extend(fresh)
        for result in fresh:
            keep_result(RESULTS, result)
        print(*(json.dumps(result) for result in fresh), sep="\n", flush=True)

    if not any("ruled" in result for result in results):
        keep([ruled()])
    for run in range(sum("rate" in result for result in results), SPEED_RUNS):
        keep([rate(run)])
    for run in range(asked.runs):
        for table in asked.tables.split(","):
            for way in ("densities", "bought"):
                if (table, way, run) in done:
                    continue
                keep(judged(table, way, run))
            if run < GROUP_RUNS and not any((r.get("groups"), r["run"]) == (table, run) for r in results if "run" in r):
                keep([grouped(table, run)])
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
