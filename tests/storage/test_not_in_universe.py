"""Numbers that do not apply: apart from missing ones in every kind of file, and written back as they were declared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.schema.codec import decode, decode_table, encode
from synth_core.steps.sample import CSV, PARQUET
from synth_core.storage.ingest import ingest_partitions, read_codes

WORD = {"name": "hours", "kind": "integer", "bins": [0, 35, 99], "not_in_universe": "N", "nullable": True}
NUMBER = {"name": "rent", "kind": "real", "bins": [0, 500, 900], "not_in_universe": -1, "nullable": True}
SCHEMA = Schema.model_validate(
    {"columns": [WORD, NUMBER, {**WORD, "name": "pay", "kind": "real", "bins": [0, 0.1, 7.5]}]}
)


def written(table, path):
    if path.suffix == ".parquet":
        pq.write_table(table, path, **PARQUET)
    else:
        pa_csv.write_csv(table, path, CSV)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_written_table_is_read_back_to_the_same_codes(tmp_path, ending):
    rng = np.random.default_rng(4)
    codes = np.column_stack([rng.integers(0, size, 500) for size in SCHEMA.domain.sizes])
    written(decode_table(codes, SCHEMA, rng), tmp_path / f"x.{ending}")
    snapshot = ingest_partitions([tmp_path / f"x.{ending}"], SCHEMA, tmp_path / "out", key=bytes(32))
    again = read_codes(tmp_path / "out" / snapshot.partitions[0], SCHEMA.domain)
    assert np.array_equal(np.column_stack(list(again.values())), codes)


def test_a_word_makes_the_column_text_and_a_number_leaves_it_numbers():
    table = decode_table(np.array([[2, 2, 2], [3, 3, 3], [1, 0, 0]]), SCHEMA, np.random.default_rng(0))
    assert [field.type for field in table.schema] == [pa.string(), pa.float64(), pa.string()]
    assert table.column("hours").to_pylist()[:2] == ["N", None]
    assert table.column("rent").to_pylist()[:2] == [-1.0, None]
    assert 35 <= int(table.column("hours")[2].as_py()) < 99
    frame = decode(np.array([[2, 2, 2]]), SCHEMA, np.random.default_rng(0))
    assert frame.iloc[0].tolist() == ["N", -1.0, "N"]


def test_whole_numbers_keep_their_type():
    schema = Schema.model_validate({"columns": [{**WORD, "not_in_universe": -9, "bins": [0, 1, 2]}]})
    table = decode_table(np.array([[2], [0], [3]]), schema, np.random.default_rng(0))
    assert table.schema.field("hours").type == pa.int64()
    assert table.column("hours").to_pylist() == [-9, 0, None]


@pytest.mark.parametrize(
    "cells",
    [
        ["N", "40", None],
        ["N", 40, None],
        pd.Series(["N", "40", None], dtype="category"),
        pd.Series(["N", "40.0", None], dtype="str"),
    ],
)
def test_a_word_is_known_however_it_comes(cells):
    frame = pd.DataFrame({"hours": cells, "rent": 1, "pay": 1})
    assert encode(frame, SCHEMA)["hours"].tolist() == [2, 1, 3]


def test_a_number_is_known_however_it_comes():
    for cells in ([-1, 600, None], ["-1.0", "6e2", None], np.array([-1, 600, np.nan])):
        frame = pd.DataFrame({"hours": 1, "rent": cells, "pay": 1})
        assert encode(frame, SCHEMA)["rent"].tolist() == [2, 1, 3]


@pytest.mark.parametrize("unseen", ["clip", "other"])
def test_what_is_not_in_universe_is_neither_clipped_nor_other(unseen):
    schema = Schema.model_validate({"columns": [{**NUMBER, "unseen": unseen, "nullable": False}]})
    codes = encode(pd.DataFrame({"rent": [-1, -2, 950]}), schema)["rent"].tolist()
    assert codes == ([2, 0, 1] if unseen == "clip" else [2, 3, 3])


@pytest.mark.parametrize(("cell", "rule"), [("M", "is not a number"), ("n", "is not a number"), ("-1", "outside")])
def test_another_word_is_refused_without_being_quoted(cell, rule):
    with pytest.raises(SourceError, match=rule) as refusal:
        encode(pd.DataFrame({"hours": ["N", cell], "rent": 1, "pay": 1}), SCHEMA)
    assert f"'{cell}'" not in str(refusal.value)


def test_the_declaration_survives_saving(tmp_path):
    SCHEMA.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == SCHEMA
