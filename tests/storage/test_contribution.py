"""Bounded contributions: each unit keeps at most so many rows, whatever the file's order and the other units."""

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema
from synth_core.errors import SchemaError, SourceError
from synth_core.storage.contribution import ContributionBound
from synth_core.storage.parquet import ingest_partitions, read_codes

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
    assert ingest(frame, tmp_path / "x", 2) != ingest(
        frame, tmp_path / "y", 2, key=b"another key, also 32 bytes long!"
    )


def test_an_empty_unit_and_a_missing_column_are_refused(tmp_path):
    frame = table()
    frame.loc[3, "person"] = None
    with pytest.raises(SourceError, match="'person' names the unit of each row and is empty"):
        ingest(frame, tmp_path / "x", 2)
    with pytest.raises(
        SourceError, match="'person', which names the unit of each row, must be there exactly once"
    ):
        ingest(table().drop(columns="person"), tmp_path / "y", 2)


def test_the_unit_column_cannot_be_published():
    with pytest.raises(SchemaError, match="unit_column 'a' is also in columns"):
        Schema.model_validate(
            {"unit_column": "a", "columns": [{"name": "a", "kind": "categorical", "values": [1]}]}
        )


def test_a_bound_does_not_show_its_key():
    assert "secret" not in repr(ContributionBound("person", 1, b"the secret of this agency"))
