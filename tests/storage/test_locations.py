"""Sources by file, glob, folder and list, here and in an object store: the same rows, in a known order."""

from __future__ import annotations

import gzip

import fsspec
import numpy as np
import pytest
from support.object_store import ObjectStore

from synth_core.cluster import Cluster, connect
from synth_core.errors import SourceError
from synth_core.example.population import generate, population_schema
from synth_core.storage import locations, sources
from synth_core.storage.ingest import ingest_partitions, read_codes
from synth_core.storage.locations import distinct_files, source_files

KEY = bytes(range(32))
SCHEMA = population_schema()


@pytest.fixture(scope="module")
def people():
    return generate(900, 3)


@pytest.fixture
def folder(tmp_path):
    for name in (
        "a/1.csv",
        "a/b/2.csv.gz",
        "a/b/3.parquet",
        "a/_SUCCESS",
        "a/.hidden.csv",
        "a/notes.txt",
        "4.csv",
    ):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("4.csv", ["4.csv"]),
        ("*.csv", ["4.csv"]),
        ("a", ["a/1.csv", "a/b/2.csv.gz", "a/b/3.parquet"]),
        ("a/*/?.*", ["a/b/2.csv.gz", "a/b/3.parquet"]),
        ("**/[0-9].csv", ["4.csv", "a/1.csv"]),
        ("a/[12].csv", ["a/1.csv"]),
    ],
)
def test_a_source_names_files(folder, source, found):
    assert source_files(str(folder / source)) == [str(folder / name) for name in found]


def test_folders_that_a_glob_does_not_name_are_not_listed(folder, monkeypatch):
    listed = []
    entries = locations._entries
    monkeypatch.setattr(
        locations, "_entries", lambda files, path, **how: listed.append(path) or entries(files, path, **how)
    )
    assert source_files(str(folder / "[a]/?.csv")) == [str(folder / "a" / "1.csv")]
    assert listed == [str(folder), str(folder / "a")]
    with pytest.raises(SourceError, match=r"… is longer than 4,096 letters; name its folder"):
        source_files(str(folder / ("[" * 5000)))


def test_a_list_keeps_its_order(folder):
    assert source_files([str(folder / "a" / "1.csv"), str(folder / "*.csv")]) == [
        str(folder / "a" / "1.csv"),
        str(folder / "4.csv"),
    ]


def test_a_file_named_twice_is_counted_once(people, tmp_path):
    """Overlapping globs, a folder and a file of it, symbolic and hard links, and the same address written otherwise."""
    folder = tmp_path / "in"
    folder.mkdir()
    people.to_csv(folder / "x.csv", index=False)
    (folder / "soft.csv").symlink_to(folder / "x.csv")
    (folder / "hard.csv").hardlink_to(folder / "x.csv")
    (tmp_path / "door").symlink_to(folder)
    named = [
        folder / "*.csv",
        folder / "**" / "x.*",
        folder,
        folder / "x.csv",
        tmp_path / "door" / ".." / "in",
    ]
    files = source_files([*map(str, named), str(tmp_path / "door"), f"file://{folder}/x.csv"])
    assert len(files) > 9
    once = ingest_partitions([folder / "x.csv"], SCHEMA, tmp_path / "a", key=KEY)
    often = ingest_partitions(files, SCHEMA, tmp_path / "b", key=KEY)
    rows = [len(read_codes(tmp_path / "b" / name)["sex"]) for name in often.partitions]
    assert sum(rows) == len(people)
    assert often == once


def test_copies_and_other_files_are_files_of_their_own(tmp_path):
    for name in ("x.csv", "y.csv"):
        (tmp_path / name).write_text("a\n1\n")
    files = [str(tmp_path / "x.csv"), str(tmp_path / "y.csv"), str(tmp_path / "none.csv"), "s3://a/x.csv"]
    assert distinct_files([*files, *files]) == files


@pytest.mark.parametrize("source", ["none.csv", "none/*.csv", "*.xlsx", "empty"])
def test_a_source_without_files_is_refused(folder, source):
    (folder / "empty").mkdir()
    with pytest.raises(SourceError, match="matches no file; check the path"):
        source_files(str(folder / source))


def test_an_address_with_credentials_is_refused_without_them():
    with pytest.raises(SourceError, match="carries credentials") as refusal:
        source_files("s3://name:word@bucket/x.csv")
    assert "word" not in str(refusal.value)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(SourceError, match="nothing here opens nowhere:// addresses"):
        source_files("nowhere://bucket/x.csv")


@pytest.fixture
def store(monkeypatch):
    store = ObjectStore()
    with store.serve() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
        monkeypatch.setenv("AWS_REGION", "nowhere-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield store


def test_rows_from_an_object_store_are_those_of_local_files(people, store, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 20_000)
    people[:400].to_csv(tmp_path / "1.csv", index=False)
    people[400:700].to_csv(tmp_path / "2.csv.gz", index=False)
    people[700:].to_parquet(tmp_path / "3.parquet")
    local = source_files(str(tmp_path))
    for path in local:
        name = path.rpartition("/")[2]
        store.objects[f"census/2026/{name}"] = (tmp_path / name).read_bytes()
    remote = source_files("s3://census/2026")
    assert remote == [f"s3://census/2026/{name}" for name in ("1.csv", "2.csv.gz", "3.parquet")]
    assert source_files("s3://census/2026/*.csv") == remote[:1]
    here = ingest_partitions(local, SCHEMA, tmp_path / "a", key=KEY)
    there = ingest_partitions(remote, SCHEMA, tmp_path / "b", key=KEY)
    assert there == here


def test_a_wrong_object_is_refused_by_its_address(store, tmp_path):
    store.objects["census/x.csv"] = b"sex\nperhaps\n"
    with pytest.raises(SourceError, match=r"s3://census/x\.csv: columns 'region', 'district', .* are missing"):
        ingest_partitions(["s3://census/x.csv"], SCHEMA, tmp_path / "out", key=KEY)


def test_file_systems_that_arrow_lacks_come_from_fsspec(people, tmp_path):
    people.to_csv(tmp_path / "x.csv", index=False)
    fsspec.filesystem("memory").pipe("/census/x.csv", (tmp_path / "x.csv").read_bytes())
    here = ingest_partitions([tmp_path / "x.csv"], SCHEMA, tmp_path / "a", key=KEY)
    there = ingest_partitions(source_files("memory://census/*.csv"), SCHEMA, tmp_path / "b", key=KEY)
    assert there == here


def test_partitions_do_not_depend_on_who_encodes(people, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 9_000)
    people.to_csv(tmp_path / "1.csv", index=False)
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress((tmp_path / "1.csv").read_bytes()))
    files = source_files(str(tmp_path / "*.csv*"))

    def contents(out, cluster):
        snapshot = ingest_partitions(files, SCHEMA, out, key=KEY, cluster=cluster, rows_per_partition=170)
        return snapshot, [(out / name).read_bytes() for name in snapshot.partitions]

    with connect("local") as workers:
        assert contents(tmp_path / "a", workers) == contents(tmp_path / "b", Cluster())


@pytest.mark.parametrize("block", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("text", ["a,b\n1,1\n0,0\n2,1\n", "a,b\r\n1,1\r\n0,0\r\n2,1", "a,b\n1,1\n\n0,0\n\n\n2,1"])
def test_lines_are_cut_nowhere_but_at_their_ends(tmp_path, monkeypatch, text, block):
    from synth_core.schema import Schema

    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", block)
    (tmp_path / "x.csv").write_bytes(text.encode())
    schema = Schema.from_sizes({"a": 3, "b": 2})
    snapshot = ingest_partitions([tmp_path / "x.csv"], schema, tmp_path / "out", key=KEY)
    codes = read_codes(tmp_path / "out" / snapshot.partitions[0])
    assert np.array_equal(codes["a"], [1, 0, 2])
    assert np.array_equal(codes["b"], [1, 0, 1])
