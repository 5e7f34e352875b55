"""Rows divided by strata inside the confidential zone: each part has its own, all of them, and nothing else."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synth_core.cluster import Cluster
from synth_core.errors import WallError
from synth_core.storage.ingest import divide_rows, read_codes

PARTS = (("0-north", (2,)), ("1-others", (4, 0)), ("2-empty", (1,)), ("3-south", (3,)))


@pytest.fixture
def partitions(tmp_path):
    rng = np.random.default_rng(1)
    paths, columns = [], {"region": [], "state": [], "row": []}
    for number, rows in enumerate((70, 1, 50)):
        codes = {
            "region": rng.choice([0, 2, 3, 4], rows).astype(np.uint8),
            "state": rng.integers(0, 3, rows).astype(np.uint8),
            "row": (np.arange(rows) + 1000 * number).astype(np.uint16),
        }
        paths.append(tmp_path / f"part-{number}.parquet")
        pq.write_table(pa.table(codes), paths[-1])
        for name, values in codes.items():
            columns[name].append(values)
    return paths, {name: np.concatenate(values) for name, values in columns.items()}


def divide(paths, target, parts=PARTS):
    divide_rows(paths, target, column="region", parts=parts, dropped=["state"], cluster=Cluster())


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_each_part_has_its_rows_in_their_order(partitions, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("synth_core.storage.ingest.PARTITIONS_AT_ONCE", at_once)
    paths, whole = partitions
    divide(paths, tmp_path / "strata")
    for folder, codes in PARTS:
        files = sorted((tmp_path / "strata" / folder).iterdir())
        assert len(files) == -(-3 // at_once), "also for a part without rows"
        found = [read_codes(file) for file in files]
        mine = np.isin(whole["region"], codes)
        assert set(found[0]) == ({"row", "region"} if len(codes) > 1 else {"row"})
        assert np.concatenate([one["row"] for one in found]).tolist() == whole["row"][mine].tolist()
        if len(codes) > 1:
            renamed = np.concatenate([one["region"] for one in found])
            assert [codes[code] for code in renamed] == whole["region"][mine].tolist()


def test_files_tell_nothing_of_their_rows_in_their_footers(partitions, tmp_path):
    divide(partitions[0], tmp_path / "strata")
    (file,) = (tmp_path / "strata" / "0-north").iterdir()
    column = pq.read_metadata(file).row_group(0).column(0)
    assert not column.is_stats_set


def test_what_was_divided_stays_and_a_failure_leaves_nothing(partitions, tmp_path):
    paths, _ = partitions
    divide(paths, tmp_path / "strata")
    before = {file: file.read_bytes() for file in (tmp_path / "strata").rglob("*.parquet")}
    divide(paths[:1], tmp_path / "strata")
    assert {file: file.read_bytes() for file in (tmp_path / "strata").rglob("*.parquet")} == before
    divide(paths, tmp_path / "strata", (("all", (0, 1, 2, 3, 4)),))
    assert {file.parent.name for file in (tmp_path / "strata").rglob("*.parquet")} == {"all"}
    paths[1].write_bytes(b"torn")
    with pytest.raises(WallError):
        divide(paths, tmp_path / "others")
    assert not [path for path in tmp_path.iterdir() if "others" in path.name]
