"""Columns derived row by row: the same from every kind of file, and read by their own name from a synthetic table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from synth_core.codec import decode, encode
from synth_core.errors import SchemaError, SourceError
from synth_core.schema import Schema
from synth_core.storage.parquet import ingest_partitions, read_codes

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
    codes = read_codes(tmp_path / "out" / snapshot.partitions[0])
    assert {name: column.tolist() for name, column in codes.items()} == EXPECTED


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
    SCHEMA.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == SCHEMA
