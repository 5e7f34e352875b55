"""Ingest: the same codes and digest from any split of the source, nothing half-written, every refusal."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.cluster import Cluster
from synth_core.errors import SourceError
from synth_core.example.population import generate, population_schema
from synth_core.schema import Schema
from synth_core.schema.codec import encode
from synth_core.storage import sources
from synth_core.storage.ingest import (
    Slice,
    Snapshot,
    encode_for_now,
    ingest_partitions,
    partition_slices,
    read_codes,
    unpack_partitions,
)
from synth_core.storage.sources import piece_batches, pieces

KEY = b"0123456789abcdef0123456789abcdef"
SCHEMA = population_schema()


@pytest.fixture(scope="module")
def people():
    return generate(1_000, 7)


def ingest(files, out, **options):
    return ingest_partitions(files, options.pop("schema", SCHEMA), out, key=options.pop("key", KEY), **options)


def all_codes(out, snapshot):
    parts = [read_codes(out / name) for name in snapshot.partitions]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def written(people, folder, form):
    if form == "parquet":
        people.to_parquet(folder / "people.parquet")
        return [folder / "people.parquet"]
    if form == "gzip":
        people.to_csv(folder / "people.csv.gz", index=False)
        return [folder / "people.csv.gz"]
    people.to_csv(folder / "people.csv", index=False, quoting=1 if form == "quoted" else 0)
    return [folder / "people.csv"]


def test_rows_encoded_for_now_are_the_partitions_of_an_ingest(people, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "PARQUET_BATCH_ROWS", 130)
    monkeypatch.setattr("synth_core.storage.ingest.PARTITION_ROWS", 300)
    files, now = written(people, tmp_path, "parquet"), tmp_path / "now"
    now.mkdir()
    snapshot = ingest(files, tmp_path / "out", rows_per_partition=300)
    parts = encode_for_now(files, SCHEMA, now, cluster=Cluster())
    assert sorted(path.name for path in now.iterdir()) == [path.name for path in parts]
    for name, path in zip(snapshot.partitions, parts, strict=True):
        kept, own = read_codes(tmp_path / "out" / name), read_codes(path)
        assert list(own) == list(kept)
        for column, codes in own.items():
            np.testing.assert_array_equal(codes, kept[column])
            assert codes.dtype == kept[column].dtype
    assert list(read_codes(parts[0], ["sex"])) == ["sex"]
    packed = [tmp_path / "out" / name for name in snapshot.partitions]
    for path, copy in zip(parts, unpack_partitions(packed, tmp_path, cluster=Cluster()), strict=True):
        assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("form", ["csv", "quoted", "gzip", "parquet"])
def test_every_form_of_the_source_gives_the_same_codes(people, tmp_path, monkeypatch, form):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 20_000)
    monkeypatch.setattr(sources, "PARQUET_BATCH_ROWS", 130)
    snapshot = ingest(written(people, tmp_path, form), tmp_path / "out", rows_per_partition=300)
    assert snapshot.partitions == tuple(f"part-{i:05d}.parquet" for i in range(4))
    expected = encode(people, SCHEMA)
    found = all_codes(tmp_path / "out", snapshot)
    for column in SCHEMA.columns:
        assert found[column.name].dtype == np.uint8
        assert np.array_equal(found[column.name], expected[column.name])


def test_the_digest_does_not_depend_on_files_and_partitions(people, tmp_path):
    whole = ingest(written(people, tmp_path, "csv"), tmp_path / "a")
    people[:333].to_csv(tmp_path / "1.csv", index=False)
    people[333:].to_parquet(tmp_path / "2.parquet")
    split = ingest([tmp_path / "1.csv", tmp_path / "2.parquet"], tmp_path / "b", rows_per_partition=90)
    assert split.digest == whole.digest
    assert len(split.partitions) > len(whole.partitions)


def test_the_digest_depends_on_key_rows_order_and_columns(people, tmp_path):
    files = written(people, tmp_path, "csv")
    digests = {
        ingest(files, tmp_path / "out").digest,
        ingest(files, tmp_path / "out", key=KEY[::-1]).digest,
        ingest(written(pd.concat([people, people]), tmp_path, "csv"), tmp_path / "out").digest,
        ingest(written(people[::-1], tmp_path, "csv"), tmp_path / "out").digest,
        ingest(files, tmp_path / "out", schema=Schema(columns=SCHEMA.columns[:-1])).digest,
        ingest(files, tmp_path / "out", schema=Schema(columns=SCHEMA.columns[::-1])).digest,
    }
    assert len(digests) == 6


@settings(max_examples=40)
@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 9))
def test_regrouping_keeps_rows_and_order(sizes, rows):
    ends = np.cumsum(sizes, dtype=int)
    pieces = {f"{k}": np.arange(end - size, end) for k, (size, end) in enumerate(zip(sizes, ends, strict=True))}
    slices = partition_slices([Slice(name, 0, len(own)) for name, own in pieces.items()], rows)
    groups = [np.concatenate([pieces[s.path][s.start : s.stop] for s in group]) for group in slices]
    assert all(len(group) == rows for group in groups[:-1])
    assert all(len(group) > 0 for group in groups)
    assert np.array_equal(np.concatenate([np.empty(0), *groups]), np.arange(sum(sizes)))


def test_partitions_hold_no_statistics(people, tmp_path):
    snapshot = ingest(written(people, tmp_path, "csv"), tmp_path / "out")
    metadata = pq.read_metadata(tmp_path / "out" / snapshot.partitions[0])
    assert not metadata.row_group(0).column(0).is_stats_set


def test_chosen_columns_come_in_the_asked_order(people, tmp_path):
    snapshot = ingest(written(people, tmp_path, "csv"), tmp_path / "out")
    assert list(read_codes(tmp_path / "out" / snapshot.partitions[0], ["sex", "region"])) == ["sex", "region"]


def test_an_older_ingest_is_replaced_as_a_whole(people, tmp_path):
    ingest(written(people, tmp_path, "csv"), tmp_path / "out", rows_per_partition=100)
    snapshot = ingest(written(people[:150], tmp_path, "csv"), tmp_path / "out", rows_per_partition=100)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(snapshot.partitions)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "people.csv"]


def test_a_refused_source_changes_nothing(people, tmp_path):
    before = ingest(written(people, tmp_path, "csv"), tmp_path / "out")
    people.assign(sex="X").to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(SourceError):
        ingest([tmp_path / "people.csv", tmp_path / "bad.csv"], tmp_path / "out", rows_per_partition=10)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(before.partitions)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "out", "people.csv"]


def test_progress_tells_files_and_never_rows(people, tmp_path):
    told = []
    files = [*written(people, tmp_path, "csv"), *written(people, tmp_path, "parquet")]
    ingest(files, tmp_path / "out", progress=told.append)
    assert told == ["encoding file 1 of 2", "encoding file 2 of 2"]


def test_a_snapshot_is_saved_and_loaded(tmp_path):
    snapshot = Snapshot("abc", ("part-00000.parquet",))
    snapshot.save(tmp_path / "snapshot.json")
    assert Snapshot.load(tmp_path / "snapshot.json") == snapshot
    assert set(json.loads((tmp_path / "snapshot.json").read_text())) == {"digest", "partitions"}


@pytest.mark.parametrize("content", ["", "{}", '{"digest": 1, "partitions": 3}', "[]"])
def test_a_broken_snapshot_is_refused(tmp_path, content):
    (tmp_path / "snapshot.json").write_text(content)
    with pytest.raises(SourceError, match="not a readable snapshot"):
        Snapshot.load(tmp_path / "snapshot.json")


SMALL = Schema.from_sizes({"a": 3, "b": 2})


def refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as refusal:
        ingest([tmp_path / name], tmp_path / "out", schema=SMALL)
    assert refusal.value.__context__ is None
    assert not (tmp_path / "out").exists()
    assert "\n" not in str(refusal.value)
    return str(refusal.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"a\n1\n", "/x.csv: column 'b' is missing"),
        ("x.csv", b"a,b,a\n1,1,1\n", "/x.csv: column 'a' appears more than once"),
        ("x.csv", b"a,b\n7,1\n", "the source: column 'a' has a value outside the declared values"),
        ("x.csv", b"a,b\n,1\n", "the source: column 'a' has a missing value"),
        ("x.csv", b"a,b\n1,1\n1,1,7\n", "the source: a line is not one record"),
        ("x.csv", b"a,b\n1,\xff\xfe7\n", "the source: a line is not one record"),
        ("x.csv.gz", b"a,b\n7,1\n", "/x.csv.gz: the file cannot be read as what its name says"),
        (
            "x.csv.gz",
            gzip.compress(b"a,b\n" + b"1,1\n" * 5000, mtime=0)[:-9],
            "/x.csv.gz: the file cannot be read",
        ),
        ("x.parquet", b"a,b\n7,1\n", "/x.parquet: the file cannot be read as what its name says"),
        ("x.xlsx", b"a,b\n7,1\n", "/x.xlsx: unknown kind of file"),
        ("x.csv", b"", "/x.csv: its first line names no column of the schema"),
        ("x.csv", b"a,b\n", "the source has no rows"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_a_wrong_record_without_one(tmp_path, name, content, message):
    text = refused(tmp_path, name, content)
    assert message in text
    assert re.search("[0-9]", text) is None


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SourceError, match="cannot be read"):
        ingest([tmp_path / "none.csv"], tmp_path / "out")


def test_no_files_are_no_rows(tmp_path):
    with pytest.raises(SourceError, match="no rows"):
        ingest([], tmp_path / "out")


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,1\n")
    assert len(ingest([tmp_path / "x.csv"], tmp_path / "out", schema=SMALL).partitions) == 1


def test_na_is_text_like_any_other(tmp_path):
    schema = Schema.model_validate({"columns": [{"name": "a", "kind": "categorical", "values": ["NA", "null"]}]})
    (tmp_path / "x.csv").write_text("a,b\nNA,1\nnull,1\n")
    snapshot = ingest([tmp_path / "x.csv"], tmp_path / "out", schema=schema)
    assert all_codes(tmp_path / "out", snapshot)["a"].tolist() == [0, 1]


def test_a_short_key_is_refused(tmp_path):
    with pytest.raises(SourceError, match="key is too short"):
        ingest([], tmp_path / "out", key=b"short")


def test_partitions_without_rows_are_refused(tmp_path):
    with pytest.raises(SourceError, match="rows_per_partition"):
        ingest([], tmp_path / "out", rows_per_partition=0)


def test_a_column_that_was_not_ingested_is_refused(people, tmp_path):
    snapshot = ingest(written(people, tmp_path, "csv"), tmp_path / "out")
    with pytest.raises(SourceError, match="no column 'shoe'"):
        read_codes(tmp_path / "out" / snapshot.partitions[0], ["shoe"])


def test_batches_of_a_source_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 4_000)
    pd.DataFrame({"a": [1] * 5_000, "b": [0] * 5_000}).to_csv(tmp_path / "x.csv", index=False)
    batches = [b for piece in pieces(str(tmp_path / "x.csv"), SMALL) for b in piece_batches(piece, SMALL)]
    assert sum(batch.num_rows for batch in batches) == 5_000
    assert max(batch.num_rows for batch in batches) <= 1_000


@pytest.mark.parametrize("name", ["survey", "census"])
def test_integer_coded_tables_are_ingested_as_they_are(samples, tmp_path, name):
    domain = json.loads((samples / f"{name}-domain.json").read_text())
    snapshot = ingest([samples / f"{name}.csv"], tmp_path / "out", schema=Schema.from_sizes(domain))
    expected = pd.read_csv(samples / f"{name}.csv")
    found = all_codes(tmp_path / "out", snapshot)
    assert all(np.array_equal(found[name], expected[name]) for name in domain)


def test_text_of_a_parquet_file_comes_as_a_dictionary_and_means_the_same(people, tmp_path):
    plain, coded = tmp_path / "plain.parquet", tmp_path / "coded.parquet"
    people.to_parquet(plain)
    people.astype(dict.fromkeys(people.select_dtypes("object"), "category")).to_parquet(coded)
    (piece,) = pieces(str(plain), SCHEMA)
    (batch,) = piece_batches(piece, SCHEMA)
    text = {name for name in people.select_dtypes("object") if SCHEMA.column(name).looks_up(list(people))}
    assert text
    assert {field.name for field in batch.schema if pa.types.is_dictionary(field.type)} == text
    found = [ingest([path], tmp_path / path.stem) for path in (plain, coded)]
    assert found[0].digest == found[1].digest
