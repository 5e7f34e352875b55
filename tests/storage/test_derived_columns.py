"""Columns derived row by row: the same from every kind of file, and read by their own name from a synthetic table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from synth_core.errors import SchemaError, SourceError
from synth_core.schema import Schema
from synth_core.schema.codec import decode, encode
from synth_core.storage.ingest import ingest_partitions, read_codes

JOBS = {"name": "job", "kind": "categorical", "values": ["cook", "clerk", "niu"], "nullable": True}
PLACE = {
    "name": "place",
    "kind": "categorical",
    "values": ["in", "out"],
    "reads": "job",
    "recode": {"cook": "in", "clerk": "in", "niu": "out"},
    "nullable": True,
}
SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 100},
            {"name": "adult", "kind": "integer", "bins": [0, 18, 100], "reads": "age"},
            JOBS,
            PLACE,
        ]
    }
)
ROWS = pd.DataFrame({"age": [17, 18, 40, 3], "job": ["niu", "cook", "clerk", None]})
EXPECTED = {"age": [17, 18, 40, 3], "adult": [0, 1, 1, 0], "job": [2, 0, 1, 3], "place": [1, 0, 0, 2]}


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_a_derived_column_is_the_same_from_every_kind_of_file(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    ROWS.to_parquet(path) if ending == "parquet" else ROWS.to_csv(path, index=False)
    snapshot = ingest_partitions([path], SCHEMA, tmp_path / "out", key=bytes(32))
    codes = read_codes(tmp_path / "out" / snapshot.partitions[0], SCHEMA.domain)
    assert {name: column.tolist() for name, column in codes.items()} == EXPECTED


LOAD = {
    "name": "load",
    "kind": "categorical",
    "values": ["full", "part", "niu"],
    "compare": {"left": "hours", "is": ">=", "right": 35, "then": "full", "otherwise": "part"},
    "recode": {"N": "niu", "-1": "niu"},
    "nullable": True,
}
MORE = {
    "name": "more",
    "kind": "categorical",
    "values": [0, 1],
    "compare": {"left": "hours", "is": ">", "right": "usual", "then": 1, "otherwise": 0},
    "recode": {-7: 0},
    "nullable": True,
}
HOURS = pd.DataFrame(
    {
        "hours": ["35", "34.5", "N", "-1", None, "40", None, "-7"],
        "usual": ["30", "34.5", "1", "1", "5", None, "-7", "3"],
    }
)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("with_another", [False, True])
def test_a_comparison_is_the_same_from_every_kind_of_file(tmp_path, ending, with_another):
    load = LOAD if with_another else LOAD | {"recode": {"N": "niu"}}
    columns = [load, MORE | {"recode": {-7: 0}, "unseen": "other"}] if with_another else [load]
    rows = HOURS.drop(index=[2]) if with_another else HOURS
    path = tmp_path / f"x.{ending}"
    rows.to_parquet(path) if ending == "parquet" else rows.to_csv(path, index=False)
    schema = Schema.model_validate({"columns": columns})
    snapshot = ingest_partitions([path], schema, tmp_path / "out", key=bytes(32))
    codes = read_codes(tmp_path / "out" / snapshot.partitions[0])
    if with_another:
        assert codes["load"].tolist() == [0, 1, 2, 3, 0, 3, 1]
        assert codes["more"].tolist() == [
            1,
            0,
            0,
            3,
            3,
            0,
            0,
        ]  # a kept value, then what is missing, then numbers
    else:
        assert codes["load"].tolist() == [0, 1, 2, 1, 3, 0, 3, 1]


@pytest.mark.parametrize(
    ("comparator", "holds"),
    [
        ("<", [True, False, False]),
        ("<=", [True, True, False]),
        ("==", [False, True, False]),
        ("!=", [True, False, True]),
        (">=", [False, True, True]),
        (">", [False, False, True]),
    ],
)
@pytest.mark.parametrize("right", [35, 0.1, "usual"])
def test_every_comparator_of_numbers_and_of_text(comparator, holds, right):
    number = 35 if right == "usual" else right
    cells = [round(number - 0.05, 2), number, round(number + 0.05, 2)]
    schema = Schema.model_validate(
        {"columns": [LOAD | {"compare": LOAD["compare"] | {"is": comparator, "right": right}, "recode": {}}]}
    )
    frame = pd.DataFrame({"hours": cells, "usual": 35})
    expected = [0 if held else 1 for held in holds]
    assert encode(frame, schema)["load"].tolist() == expected
    assert encode(frame.astype(str), schema)["load"].tolist() == expected


def test_a_comparison_keeps_a_value_however_it_is_written():
    schema = Schema.model_validate({"columns": [LOAD | {"recode": {}, "values": ["full", "part", "-1"]}]})
    assert encode(pd.DataFrame({"hours": ["-1", "-1.0", "35", "7"]}), schema)["load"].tolist() == [2, 2, 0, 1]
    assert encode(pd.DataFrame({"hours": [-1, 35, 7]}), schema)["load"].tolist() == [2, 0, 1]


def test_cells_that_are_no_numbers_are_refused_without_being_quoted():
    schema = Schema.model_validate({"columns": [LOAD]})
    with pytest.raises(SourceError, match="column 'load' has a value that is not a number") as refusal:
        encode(pd.DataFrame({"hours": ["35", "many"]}), schema)
    assert "many" not in str(refusal.value)
    with pytest.raises(SourceError, match="'load' has a missing value"):
        encode(
            pd.DataFrame({"hours": [35, None]}),
            Schema.model_validate({"columns": [LOAD | {"nullable": False}]}),
        )
    with pytest.raises(SourceError, match="'more' is missing, and so is 'usual', from which it is derived"):
        encode(pd.DataFrame({"hours": [35]}), Schema.model_validate({"columns": [MORE]}))


def test_a_table_with_the_result_of_a_comparison_is_not_compared_again():
    schema = Schema.model_validate({"columns": [LOAD]})
    frame = pd.DataFrame({"hours": [35, 35], "load": ["part", "N"]})
    assert encode(frame, schema)["load"].tolist() == [1, 2]


def test_chunks_of_two_columns_may_be_cut_at_different_rows():
    table = pa.table(
        {
            "hours": pa.chunked_array([[1.0], [2.0, 3.0]]),
            "usual": pa.chunked_array([[2.0, 2.0], [2.0]]),
        }
    )
    schema = Schema.model_validate({"columns": [MORE]})
    assert encode(table, schema)["more"].tolist() == [0, 0, 1]
    assert encode(table.slice(0, 0), schema)["more"].tolist() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is": "~"}, "compare: is: "),
        ({"right": True}, "compare: right: a column's name or a number is needed"),
        ({"right": float("inf")}, "compare: right: the number must be finite"),
        ({"then": "much"}, "compare: 'much' is not among the values"),
        ({"otherwise": "full"}, "compare: then and otherwise are the same"),
        ({"left": "load"}, "compare: a column is not compared to derive itself"),
        ({"then": None}, "compare: then: null is not a value"),
    ],
)
def test_wrong_comparisons_are_refused(change, message):
    with pytest.raises(SchemaError, match=message) as refusal:
        Schema.model_validate({"columns": [LOAD | {"compare": LOAD["compare"] | change}]})
    assert str(refusal.value).startswith("column 'load': ")


def test_a_column_is_read_or_compared_not_both():
    with pytest.raises(SchemaError, match="remove reads"):
        Schema.model_validate({"columns": [LOAD | {"reads": "hours"}]})


def test_a_table_with_the_column_itself_is_not_derived_from_again():
    codes = np.column_stack([EXPECTED[name] for name in SCHEMA.domain])
    codes[0, 3] = 0  # a synthetic row whose place does not follow from its job
    again = encode(decode(codes, SCHEMA, np.random.default_rng(0)), SCHEMA)
    assert np.array_equal(np.column_stack(list(again.values())), codes)


def test_a_missing_origin_is_refused():
    column = {"name": "adult", "kind": "integer", "bins": [0, 18, 100], "reads": "years"}
    schema = Schema.model_validate({"columns": [column]})
    with pytest.raises(SourceError, match="'adult' is missing, and so is 'years', from which it is derived"):
        encode(ROWS, schema)


@pytest.mark.parametrize(
    ("recode", "message"),
    [
        ({"in": "out"}, "'in' is among the values"),
        ({"cook": "kitchen"}, "'kitchen' is not among the values"),
        ({7: "in"}, "7 is not written as the values are"),
    ],
)
def test_wrong_recodes_are_refused(recode, message):
    with pytest.raises(SchemaError, match=message):
        Schema.model_validate({"columns": [PLACE | {"recode": recode}]})


def test_a_schema_with_derived_columns_is_saved_and_loaded(tmp_path):
    for schema in (SCHEMA, Schema.model_validate({"columns": [LOAD, MORE]})):
        schema.save(tmp_path / "schema.yaml")
        again = Schema.load(tmp_path / "schema.yaml")
        assert (again, again.digest()) == (schema, schema.digest())
