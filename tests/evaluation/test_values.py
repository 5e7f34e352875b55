"""Errors of the numbers themselves: counted over pieces as one would from all rows at once, and shown in the report."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from synth_core.errors import SchemaError
from synth_core.evaluation import compare_tables
from synth_core.evaluation.nist import gini
from synth_core.evaluation.tables import CodedTable
from synth_core.evaluation.true_errors import Evaluation, encode_table
from synth_core.evaluation.values import compare_values
from synth_core.report.internal import compare_and_report
from synth_core.report.values import groups_table
from synth_core.schema import Schema
from synth_core.schema.codec import number_columns
from synth_core.schema.columns.inside import place_name

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "sex", "kind": "categorical", "values": ["F", "M"]},
            {"name": "age", "kind": "integer", "bins": [0, 18, 30, 65, 100]},
            {
                "name": "income",
                "kind": "real",
                "bins": [0, 500, 1000, 2000, 4000, 100_000],
                "nullable": True,
                "unseen": "clip",
                "role": "income",
            },
            {"name": "size", "kind": "integer", "bins": [1, 2, 3, 4]},
        ]
    }
)


def people(rows, seed, *, dearer=1.0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], rows, p=[0.6, 0.4])
    age = rng.integers(0, 100, rows)
    income = 1000 * rng.lognormal(0, 0.6, rows) * dearer * (1 + (sex == "M")) + 5 * age
    income[rng.random(rows) < 0.2] = np.nan
    return pd.DataFrame({"sex": sex, "age": age, "income": income, "size": rng.integers(1, 4, rows)})


def compared(real, synthetic):
    tables = [encode_table(frame, SCHEMA, source="a frame") for frame in (real, synthetic)]
    return compare_values(*tables, number_columns(SCHEMA))


def test_numbers_are_compared_as_from_the_rows_themselves():
    real, synthetic = people(4000, 1), people(3000, 2, dearer=1.3)
    found = compared(real, synthetic)
    assert [one.column for one in found.columns] == ["age", "income", "size"]
    for one in found.columns:
        for frame, side in ((real, one.real), (synthetic, one.synthetic)):
            numbers = frame[one.column].dropna().clip(upper=100_000)
            assert side.rows == len(numbers)
            assert side.mean == pytest.approx(numbers.mean(), rel=1e-3)
            assert side.deviation == pytest.approx(numbers.std(ddof=0), rel=1e-3)
            assert side.total == pytest.approx(numbers.sum(), rel=1e-3)
            assert side.quantiles == pytest.approx(
                [np.sort(numbers)[int(np.ceil(share * len(numbers))) - 1] for share in (0.1, 0.5, 0.9, 0.99)], rel=5e-3
            )
    age, income, _ = found.columns
    assert age.real.gini is None
    numbers = np.sort(real["income"].dropna().to_numpy())
    assert income.real.gini == pytest.approx(gini(numbers, np.ones(len(numbers))), abs=1e-3)
    assert income.synthetic.mean / income.real.mean > 1.2


def test_whole_numbers_are_exact():
    real, synthetic = people(2000, 3), people(2000, 4)
    age = compared(real, synthetic).columns[0]
    assert age.real.mean == real["age"].mean()
    steps = np.arange(100)
    shares = [np.searchsorted(np.sort(frame["age"]), steps, side="right") / 2000 for frame in (real, synthetic)]
    apart = np.abs(shares[0] - shares[1])
    assert age.kolmogorov == pytest.approx(apart.max(), abs=1e-12)
    assert age.wasserstein == pytest.approx(apart.sum() / real["age"].std(ddof=0), rel=1e-9)


def test_equal_tables_differ_in_nothing():
    real = people(1000, 5)
    for one in compared(real, real.sample(frac=1, random_state=0)).columns:
        assert (one.kolmogorov, one.wasserstein, one.synthetic.mean) == (0, 0, one.real.mean)
        assert all(a == b for a, b in one.curve)


def test_means_of_groups_and_correlations_are_those_of_the_rows():
    real, synthetic = people(4000, 6), people(4000, 7)
    found = compared(real, synthetic)
    groups = {(g.attribute, g.code): g for g in found.columns[1].groups}
    assert set(groups) == {("sex", 0), ("sex", 1)}
    for code, sex in enumerate("FM"):
        assert groups["sex", code].real == pytest.approx(real.loc[real["sex"] == sex, "income"].mean(), rel=1e-3)
    (a, b, of_real, of_synthetic) = found.correlations[0]
    assert (a, b) == ("age", "income")
    assert of_real == pytest.approx(real[["age", "income"]].corr().iloc[0, 1], abs=2e-3)
    assert of_synthetic == pytest.approx(synthetic[["age", "income"]].corr().iloc[0, 1], abs=2e-3)


def test_pieces_give_what_the_whole_table_gives():
    real, synthetic = people(3000, 8), people(3000, 9)
    whole = encode_table(real, SCHEMA, source="real")
    parts = [encode_table(real.iloc[at : at + 700], SCHEMA, source="real") for at in range(0, 3000, 700)]
    pieced = CodedTable([piece for part in parts for piece in part._pieces], SCHEMA.domain)
    other = encode_table(synthetic, SCHEMA, source="synthetic")
    columns = number_columns(SCHEMA)
    assert compare_values(pieced, other, columns) == compare_values(whole, other, columns)


def test_tables_without_numbers_have_nothing_to_compare():
    real = encode_table(people(100, 1), SCHEMA, source="real")
    assert compare_values(real, real, []).columns == ()


def test_a_column_without_any_number_is_compared_as_empty():
    real = people(200, 10)
    synthetic = real.assign(income=np.nan)
    income = compared(real, synthetic).columns[1]
    assert (income.synthetic.rows, income.synthetic.mean, income.synthetic.gini) == (0, 0, None)
    assert income.kolmogorov == pytest.approx(1)


def test_an_evaluation_with_numbers_is_read_as_it_was_written():
    real, synthetic = people(600, 11), people(600, 12)
    tables = [encode_table(frame, SCHEMA, source="a frame") for frame in (real, synthetic)]
    evaluation = compare_tables(*tables, numbers=number_columns(SCHEMA), quick=True)
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    raw = json.loads(evaluation.to_json())
    del raw["values"]
    assert Evaluation.from_json(json.dumps(raw)).values.columns == ()  # one of an earlier version


def test_groups_whose_means_are_farthest_off_come_first_and_not_all_of_one_column():
    found, _ = compare_and_report(people(500, 13), people(500, 14, dearer=1.5), SCHEMA, title="Test", progress=print)
    rows = groups_table(found.values, SCHEMA).rows
    assert len(rows) == sum(len(one.groups) for one in found.values.columns)
    assert rows[0][0] == "income"
    assert len({name for name, *_ in rows[:6]}) > 1


def test_the_report_shows_means_quantiles_and_groups():
    _, report = compare_and_report(people(500, 13), people(500, 14, dearer=1.5), SCHEMA, title="Test", progress=print)
    assert "Means and quantiles</h2>" in report
    for words in ("Kolmogorov–Smirnov", "Gini coefficient", "Means in the largest groups", "sex = F", "age, income"):
        assert words in report
    plain = Schema.model_validate({"columns": [SCHEMA.columns[0].model_dump()]})
    _, report = compare_and_report(people(500, 13), people(500, 14), plain, title="Test", progress=print)
    assert "Means and quantiles" not in report


def test_places_are_kept_under_names_that_no_column_can_have():
    assert "\n" in place_name("income")
    with pytest.raises(SchemaError, match="line breaks and control characters are not allowed"):
        Schema.model_validate({"columns": [{"name": place_name("a"), "kind": "categorical", "values": ["x"]}]})
