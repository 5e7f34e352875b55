"""Bounded contributions: each unit keeps at most so many rows, whatever the file's order and the other units."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema
from synth_core.errors import SchemaError, SourceError
from synth_core.privacy.accounts import Account
from synth_core.schema import DeclaredSchema
from synth_core.schema.codec import encode
from synth_core.storage.contribution import ContributionBound, bound_for, bounded_frame
from synth_core.storage.ingest import ingest_partitions, read_codes

SCHEMA = Schema.model_validate(
    {
        "unit_column": "person",
        "columns": [
            {"name": "a", "kind": "categorical", "values": list(range(50))},
            {"name": "b", "kind": "categorical", "values": [0, 1]},
        ],
    }
)
KEY = bytes(range(32))


def table(rows=600, people=80, seed=1):
    rng = np.random.default_rng(seed)
    names = [f"p{i}" for i in rng.integers(0, people, rows)]
    return pd.DataFrame({"person": names, "a": rng.integers(0, 50, rows), "b": rng.integers(0, 2, rows)})


def ingest(frame, folder, most, *, key=KEY, ending="csv", rows_per_partition=100):
    folder.mkdir()
    path = folder / f"source.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    bound = ContributionBound("person", most, key)
    snapshot = ingest_partitions(
        [path], SCHEMA, folder / "encoded", key=key, bound=bound, rows_per_partition=rows_per_partition
    )
    parts = [read_codes(folder / "encoded" / name) for name in snapshot.partitions]
    assert set(parts[0]) == {"a", "b"}, "nothing of the unit is kept"
    return sorted(zip(*(np.concatenate([p[c] for p in parts]).tolist() for c in ("a", "b")), strict=True))


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_each_unit_keeps_its_rows_up_to_the_bound(tmp_path, most, ending):
    frame = table()
    kept = ingest(frame, tmp_path / "x", most, ending=ending)
    assert len(kept) == frame.groupby("person").size().clip(upper=most).sum()
    available = frame.groupby(["a", "b"]).size()
    taken = pd.Series(kept).value_counts()
    assert all(taken[row] <= available[row] for row in taken.index)


def test_the_order_of_the_file_does_not_matter(tmp_path):
    frame = table()
    shuffled = frame.sample(frac=1, random_state=2)
    assert ingest(frame, tmp_path / "x", 2) == ingest(shuffled, tmp_path / "y", 2, rows_per_partition=37)


def test_a_unit_more_changes_no_other(tmp_path):
    """The neighbour relation: without the unit, exactly its own kept rows are gone."""
    frame = table()
    kept = ingest(frame, tmp_path / "x", 2)
    own = ingest(frame[frame.person == "p7"], tmp_path / "own", 2)
    without = ingest(frame[frame.person != "p7"], tmp_path / "y", 2)
    assert sorted(without + own) == kept
    assert len(own) == 2


def test_the_key_decides_which_rows(tmp_path):
    frame = table(people=5)
    assert ingest(frame, tmp_path / "x", 2) != ingest(frame, tmp_path / "y", 2, key=b"another key, also 32 bytes long!")


def test_an_empty_unit_and_a_missing_column_are_refused(tmp_path):
    frame = table()
    frame.loc[3, "person"] = None
    with pytest.raises(SourceError, match="'person' names the unit of each row and is empty"):
        ingest(frame, tmp_path / "x", 2)
    with pytest.raises(SourceError, match="'person', which names the unit of each row, must be there exactly once"):
        ingest(table().drop(columns="person"), tmp_path / "y", 2)


SEVEN = ["7", "007", "7.0", "+7", "7."]


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_a_unit_may_be_written_in_several_ways_if_it_is_declared_a_number(tmp_path, kind):
    names = [*SEVEN, "8"]
    schema = Schema(columns=SCHEMA.columns, unit_column="person", unit_kind=kind)
    frame = pd.DataFrame({"person": names, "a": range(6), "b": 0})
    frame.to_csv(tmp_path / "x.csv", index=False)
    pd.DataFrame({"person": [7, 8], "a": [10, 11], "b": 1}).to_parquet(tmp_path / "y.parquet")
    pd.DataFrame({"person": [7.0], "a": [20], "b": 1}).to_parquet(tmp_path / "z.parquet")
    files = [tmp_path / name for name in ("x.csv", "y.parquet", "z.parquet")]
    account = Account(dataset="d", delta=1e-6, cap_epsilon=1.0, rows_per_unit=1)
    snapshot = ingest_partitions(files, schema, tmp_path / "out", key=KEY, bound=bound_for(schema, account, KEY))
    kept = [len(read_codes(tmp_path / "out" / name)["a"]) for name in snapshot.partitions]
    assert sum(kept) == (2 if kind == "integer" else 6)
    mixed = frame.assign(person=pd.Series([7, 7.0, Decimal("7.0"), np.int8(7), "7", 8], dtype=object))
    codes = encode(mixed, schema)
    bound = bound_for(schema, account, KEY)
    assert len(bounded_frame(mixed, codes, bound, source="the frame")["a"]) == 2


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x", "has a value that is no whole number; correct it or declare unit_kind: text"),
        (7.5, "has a value that is no whole number"),
        (2.0**60, "floating-point numbers beyond 2\\^53"),
        ("", "is empty in some"),
        (None, "is empty in some"),
        (float("nan"), "is empty in some"),
        (date(2020, 1, 1), "neither text nor numbers"),
    ],
)
def test_a_unit_that_cannot_be_told_apart_is_refused_without_its_name(cell, message):
    schema = Schema(columns=SCHEMA.columns, unit_column="person", unit_kind="integer")
    account = Account(dataset="d", delta=1e-6, cap_epsilon=1.0)
    for cells in ([cell], [7, cell], ["7", cell]):
        frame = pd.DataFrame({"person": pd.Series(cells, dtype=object), "a": 0, "b": 0})
        for column in (frame.person, frame.person.infer_objects()):
            with pytest.raises(SourceError, match=message):
                bounded_frame(
                    frame.assign(person=column),
                    encode(frame, schema),
                    bound_for(schema, account, KEY),
                    source="the frame",
                )


def test_the_kind_of_a_unit_needs_a_unit_column():
    with pytest.raises(SchemaError, match="unit_kind: there is no unit_column"):
        Schema(columns=SCHEMA.columns, unit_kind="integer")
    declared = DeclaredSchema(columns=SCHEMA.columns, unit_column="person", unit_kind="integer")
    assert declared.resolve().unit_kind == "integer"


def test_the_unit_column_cannot_be_published():
    with pytest.raises(SchemaError, match="unit_column 'a' is also in columns"):
        Schema.model_validate({"unit_column": "a", "columns": [{"name": "a", "kind": "categorical", "values": [1]}]})


def test_a_bound_does_not_show_its_key():
    assert "secret" not in repr(ContributionBound("person", 1, b"the secret of this agency"))
