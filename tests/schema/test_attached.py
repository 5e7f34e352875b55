"""Attached columns: looked up or computed from decoded rows, exactly; part of no domain; every refusal."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from synth_core import documents
from synth_core.errors import SchemaError
from synth_core.schema import Schema
from synth_core.schema.codec import decode, encode

REGION = {"name": "region", "kind": "categorical", "values": ["north", "south"], "nullable": True}
AGE = {"name": "age", "kind": "integer", "bins": [0, 18, 65, 100], "nullable": True}
WAGES = {"name": "wages", "kind": "integer", "bins": [0, 10, 100]}
PAY = {"name": "pay", "kind": "real", "bins": [0, 10, 100]}
DENSITY = {"name": "density", "lookup": {"from": "region", "values": {"north": 12.5, "south": 3}}}


def schema_of(*attached, rules=()):
    columns = [REGION, AGE, WAGES, PAY]
    return Schema.model_validate({"columns": columns, "attached": attached, "rules": rules})


def decoded(schema, rows=2000):
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, size, rows) for size in schema.domain.sizes])
    return codes, decode(codes, schema, rng)


def test_attached_columns_are_functions_of_the_published_row():
    schema = schema_of(
        DENSITY,
        {"name": "adult", "computed": "age >= 18"},
        {"name": "all", "computed": "2 * wages - 1"},
        {"name": "income", "computed": "wages + pay"},
    )
    codes, frame = decoded(schema)
    assert list(frame.columns)[4:] == ["density", "adult", "all", "income"]
    expected = frame["region"].map({"north": 12.5, "south": 3.0}).astype(float)
    pd.testing.assert_series_equal(frame["density"], expected, check_names=False)
    assert frame["density"].isna().any()
    adult = (frame["age"] >= 18).astype("Int64").where(frame["age"].notna())
    assert adult.equals(frame["adult"].rename("age"))
    assert (frame["all"] == 2 * frame["wages"] - 1).all()
    assert str(frame["all"].dtype) == "int64"
    assert frame["income"].to_numpy() == pytest.approx((frame["wages"] + frame["pay"]).to_numpy())
    again = encode(frame, schema)
    assert all(np.array_equal(again[name], codes[:, k]) for k, name in enumerate(schema.domain))


def test_a_name_in_backticks_may_hold_signs_of_comparison():
    columns = [{"name": "=x", "kind": "integer", "bounds": [0, 9], "bins": 10}]
    attached = [{"name": "twice", "computed": "2 * `=x`"}, {"name": "large", "computed": "`=x` >= 5"}]
    schema = Schema.model_validate({"columns": columns, "attached": attached})
    rows = decode(np.array([[3], [7]]), schema, np.random.default_rng(0))
    assert rows[["twice", "large"]].to_numpy().tolist() == [[6, 0], [14, 1]]


def test_they_are_measured_nowhere_and_change_no_draw():
    plain, schema = schema_of(), schema_of(DENSITY)
    assert plain.domain == schema.domain
    assert plain.digest() != schema.digest()
    frames = [decoded(one)[1][["region", "age", "wages", "pay"]] for one in (plain, schema)]
    pd.testing.assert_frame_equal(*frames)


def test_a_table_is_read_beside_the_schema_and_kept_in_it(tmp_path):
    (tmp_path / "density.csv").write_text("region,density\nnorth,12.5\nsouth,3\n")
    text = "columns:\n  - {name: region, kind: categorical, values: [north, south]}\nattached:\n"
    (tmp_path / "schema.yaml").write_text(f"{text}  - {{name: d, lookup: {{from: region, table: density.csv}}}}\n")
    schema = Schema.load(tmp_path / "schema.yaml")
    (tmp_path / "density.csv").unlink()
    schema.save(tmp_path / "kept.yaml")
    again = Schema.load(tmp_path / "kept.yaml")
    assert again == schema
    assert again.attached[0].lookup.values == {"north": 12.5, "south": 3}
    with pytest.raises(SchemaError, match=r"attached 'd': table density\.csv cannot be read; it is a CSV file"):
        Schema.load(tmp_path / "schema.yaml")


@pytest.mark.parametrize("table", ["long.csv", "fifo", ".", "a\\0b"])
def test_a_table_that_never_ends_or_is_none_is_not_read(tmp_path, monkeypatch, table):
    """Pipes and files beyond the limit are refused before they are read."""
    monkeypatch.setattr(documents, "MAX_BYTES", 1000)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long.csv").write_text("a,b\n" * 1000)
    text = "columns:\n  - {name: region, kind: categorical, values: [north]}\nattached:\n"
    (tmp_path / "schema.yaml").write_text(f'{text}  - {{name: d, lookup: {{from: region, table: "{table}"}}}}\n')
    with pytest.raises(SchemaError, match="cannot be read; it is a CSV file"):
        Schema.load(tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    "table", ["/dev/zero", "/proc/self/mem", "../density.csv", "below/../../density.csv", "link.csv"]
)
def test_a_table_outside_of_the_schemas_folder_is_not_read(tmp_path, table):
    """Before, whoever wrote a schema could have any file of two columns published with it."""
    place = tmp_path / "place"
    (place / "below").mkdir(parents=True)
    for folder in (tmp_path, place / "below"):
        (folder / "density.csv").write_text("region,density\nnorth,1\n")
    (place / "link.csv").symlink_to(tmp_path / "density.csv")
    text = "columns:\n  - {name: region, kind: categorical, values: [north]}\nattached:\n"
    line = f"{text}  - {{name: d, lookup: {{from: region, table: TABLE}}}}\n"
    (place / "schema.yaml").write_text(line.replace("TABLE", table))
    with pytest.raises(SchemaError, match="lies outside of the schema's folder; put it beside the schema"):
        Schema.load(place / "schema.yaml")
    (place / "schema.yaml").write_text(line.replace("TABLE", "below/density.csv"))
    assert Schema.load(place / "schema.yaml").attached[0].lookup.values == {"north": 1}


def test_codes_beside_a_table_are_what_they_look_like(tmp_path):
    """The word table changes nothing else: `no` is no truth value, 007 no number, in the schema and in the table."""
    (tmp_path / "rate.csv").write_text("answer,rate\nno,1\n007,1_000\nyes,nan\n")
    text = "columns:\n  - {name: answer, kind: categorical, values: [no, 007, yes]}\n"
    (tmp_path / "schema.yaml").write_text(
        f"{text}attached:\n  - {{name: rate, lookup: {{from: answer, table: rate.csv}}}}"
    )
    with pytest.raises(SchemaError, match="text and numbers are mixed"):
        Schema.load(tmp_path / "schema.yaml")
    (tmp_path / "rate.csv").write_text("answer,rate\nno,1\n007,2.5\nyes,3\n")
    schema = Schema.load(tmp_path / "schema.yaml")
    assert schema.columns[0].values == ("no", "007", "yes")
    assert schema.attached[0].lookup.values == {"no": 1, "007": 2.5, "yes": 3}
    for wrong in ("[table]", "attached: 5\ncolumns: table"):
        (tmp_path / "schema.yaml").write_text(wrong)
        with pytest.raises(SchemaError):
            Schema.load(tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    ("attached", "problem"),
    [
        ({"name": "age", "computed": "wages"}, "attached 'age': a column of the schema has that name"),
        ({"name": "x", "computed": "rents + 1"}, "attached 'x': column 'rents' is not in the schema"),
        ({"name": "x", "computed": "region"}, "attached 'x': column 'region' holds no numbers in bins"),
        (
            {"name": "x", "computed": {"from": ["age"], "expression": "age >= 18"}},
            "computed: write it as text, such as",
        ),
        ({"name": "x", "computed": "1 + 2"}, "computed: a column is needed"),
        (
            {"name": "x", "computed": "1000000000000000000 * age"},
            "its numbers may have more than 64 bits; write smaller",
        ),
        ({"name": "x", "computed": f"{'9' * 400} * age"}, "compare: a number is too large"),
        ({"name": "x"}, "an attached column needs either lookup or computed"),
        ({"name": "x", "lookup": {"from": "age", "values": {1: 2}}}, "column 'age' has no list of values; compute it"),
        ({"name": "x", "lookup": {"from": "region", "values": {"north": 1}}}, "'south' of 'region' has no entry"),
        ({"name": "x", "lookup": {"from": "region", "values": {"north": 2**63, "south": 0.5}}}, "more than 64 bits"),
        ({"name": "x", "lookup": {"from": "region", "values": {"north": 1.0, "south": np.inf}}}, "is infinite"),
        (
            {"name": "x", "lookup": {"from": "region", "values": {"north": 1, "south": 2, "west": 3}}},
            "'west' is no value of 'region'; remove it",
        ),
        (
            {"name": "x", "lookup": {"from": "region", "values": {"north": 1, "south": "b"}}},
            "text and numbers are mixed",
        ),
    ],
)
def test_what_cannot_be_attached_is_refused(attached, problem):
    with pytest.raises(SchemaError, match=problem):
        schema_of(attached)


def test_a_name_is_attached_once():
    with pytest.raises(SchemaError, match="attached 'density': declared twice"):
        schema_of(DENSITY, DENSITY)


def test_bins_of_numbers_may_be_decided_by_a_column():
    rule = {"name": "r", "column": "region", "decides": "age", "by": {"0..17": ["north"], "18..": ["south", None]}}
    schema = schema_of(rules=[rule])
    from synth_core.domain import breaking_rows

    rows = np.array([[region, age, 0, 0] for region in range(3) for age in range(4)])
    kept = rows[~breaking_rows(rows, schema.domain)][:, :2].tolist()
    assert kept == [[0, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    with pytest.raises(SchemaError, match=r"'18\.\.x' is not a number"):
        schema_of(rules=[{**rule, "by": {"18..x": ["north"], "..17": ["south", None]}}])
