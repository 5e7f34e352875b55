"""Encodes a source into Parquet partitions: its pieces in parallel, cut and joined to files of equal size."""

from __future__ import annotations

import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.documents import read_json
from synth_core.domain import Codes
from synth_core.errors import SourceError
from synth_core.files import atomic_write, flush_to_disk, write_text
from synth_core.privacy.wall import wall
from synth_core.schema import Schema
from synth_core.schema.codec import summed_columns
from synth_core.schema.columns.inside import is_place, place_name
from synth_core.schema.columns.numbers import NumberBase
from synth_core.storage.contribution import UNIT_COLUMNS, ContributionBound, kept_rows
from synth_core.storage.locations import distinct_files, open_file
from synth_core.storage.sources import Piece, encoded_batches, pieces

MIN_KEY_BYTES = 16
"""Minimum length of the key under which a snapshot is digested."""

PORTION_BYTES = 16 << 20
"""Bytes of a file that are read at once for its fingerprint."""

WAY = "parts.json"
"""Name of the file that says how the rows beside it were divided."""

PARTITION_ROWS = 250_000
"""Rows of a partition unless asked for otherwise."""

UNPACKED = ".arrow"
"""Ending of a partition that is kept for a while only: as it is in memory, so that reading it takes no time."""

NO_ROWS = "the source has no rows; check its path and that its files are complete"
"""What is said of a source without rows."""

PARTITIONS_AT_ONCE = 8
"""Partitions that one task reads: it holds their rows, and every part gets one file of them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was ingested: a keyed digest of the encoded table, and the partitions' names inside its directory.

    Without its key the digest says nothing about the data; with it, equal tables have equal digests however
    they are split. It is kept in the confidential zone, because the number of partitions bounds that of rows.
    """

    digest: str
    partitions: tuple[str, ...]

    def save(self, path: str | Path) -> None:
        """Write the snapshot as JSON, whole or not at all."""
        text = json.dumps({"digest": self.digest, "partitions": self.partitions}, indent=1)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read a snapshot that `save` wrote."""
        try:
            raw = read_json(path)
            return cls(digest=str(raw["digest"]), partitions=tuple(map(str, raw["partitions"])))
        except (OSError, ValueError, KeyError, TypeError):
            raise SourceError(f"{path}: not a readable snapshot; run the step ingest again") from None


def fingerprint_files(addresses: Sequence[str], *, key: bytes, cluster: Cluster) -> list[str]:
    """Keyed digests of the files' bytes, whatever their schema; without the key they say nothing about the data.

    Args:
        addresses: the files, each read once from begin to end, wherever the cluster has room.
        key: the workspace's secret; fingerprints are compared only where it is the same.
        cluster: where the files are read.

    Returns:
        One fingerprint for each file, in hexadecimal.

    Raises:
        SourceError: a file cannot be read.
    """
    return cluster.map(_fingerprint, list(addresses), key=key)


def ingest_partitions(
    sources: Sequence[str | Path],
    schema: Schema,
    out_dir: str | Path,
    *,
    key: bytes,
    rows_per_partition: int = PARTITION_ROWS,
    bound: ContributionBound | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[str], None] | None = None,
) -> Snapshot:
    """Encode the source files, in the given order, into partitions of equal size (the last may be shorter).

    Pieces of the files are encoded wherever the cluster has room, then cut and joined to partitions: these are the
    same whatever the number of workers. Each worker holds a piece or a partition; a `bound` on contributions, which
    needs to see all rows of a unit, takes 25 bytes a row on top and leaves partitions of unequal size. Everything is
    written to a directory beside `out_dir`, which takes its name at the end: after a crash `out_dir` is absent or
    whole.
    """
    check_ingest(key, rows_per_partition)
    place, files = cluster or Cluster(), distinct_files(map(str, sources))
    with whole_folder(Path(out_dir)) as building:
        if progress is not None:
            for number in range(1, len(files) + 1):
                progress(f"encoding file {number} of {len(files)}")
        parts = _encode_files(files, schema, building, rows=rows_per_partition, bound=bound, cluster=place)
        tables = map(read_codes, parts) if bound is None else _bounded(parts, bound)
        digest = table_digest(tables, _digested_sizes(schema), key)
    return Snapshot(digest, tuple(part.name for part in parts))


def check_ingest(key: bytes, rows_per_partition: int) -> None:
    """Refuse a key that is too short to hide anything, and partitions without rows."""
    if len(key) < MIN_KEY_BYTES:
        raise SourceError(f"the snapshot key is too short; use at least {MIN_KEY_BYTES} random bytes")
    if rows_per_partition < 1:
        raise SourceError("rows_per_partition must be at least 1")


def encode_for_now(sources: Sequence[str | Path], schema: Schema, folder: Path, *, cluster: Cluster) -> list[Path]:
    """Encode files that are read several times and then forgotten, into the partitions that an ingest would make.

    Args:
        sources: the files.
        schema: the declared columns.
        folder: where the partitions are written; the caller removes it.
        cluster: where the files are read.

    Returns:
        The partitions, not packed, in the order of the rows.
    """
    return _encode_files(list(map(str, sources)), schema, folder, rows=PARTITION_ROWS, cluster=cluster, ending=UNPACKED)


def unpack_partitions(partitions: Sequence[Path], folder: Path, *, cluster: Cluster) -> list[Path]:
    """Copy partitions that are read many times, so that each time takes no unpacking.

    Args:
        partitions: as an ingest left them.
        folder: where the copies are written; the caller removes it.
        cluster: where they are copied.

    Returns:
        The copies, in the same order.
    """
    copies = [folder / f"part-{number:05d}{UNPACKED}" for number in range(len(partitions))]
    cluster.map(_unpack, list(zip(partitions, copies, strict=True)))
    return copies


def _encode_files(
    files: Sequence[str],
    schema: Schema,
    folder: Path,
    *,
    rows: int,
    cluster: Cluster,
    bound: ContributionBound | None = None,
    ending: str = ".parquet",
) -> list[Path]:
    """Encode the pieces of the files, and cut and join them to partitions of `rows` rows."""
    encoded = encode_pieces(files, schema, folder, cluster=cluster, bound=bound)
    groups = partition_slices(encoded, rows)
    if not groups:
        raise SourceError(NO_ROWS)
    parts = [folder / f"part-{number:05d}{ending}" for number in range(len(groups))]
    cluster.map(_write_partition, list(zip(groups, parts, strict=True)))
    for piece in encoded:
        piece.path.unlink()
    return parts


def encode_pieces(
    files: Sequence[str], schema: Schema, folder: Path, *, cluster: Cluster, bound: ContributionBound | None = None
) -> list[Slice]:
    """Encode the pieces of some files.

    Args:
        files: the files.
        schema: the declared columns.
        folder: where the encoded pieces are written, as Arrow files; whoever asked removes them.
        cluster: where they are encoded.
        bound: where one is given, rows have the hashes of their units beside their codes.

    Returns:
        All rows of each piece, in the order of the rows.
    """
    found = [piece for of_file in cluster.map(_pieces, files, schema=schema) for piece in of_file]
    jobs = [(piece, folder / f"piece-{number:06d}.arrow") for number, piece in enumerate(found)]
    return cluster.map(_encode_piece, jobs, schema=schema, bound=bound)


def coarsen_partitions(
    partitions: Sequence[Path],
    target: Path,
    *,
    groups: Mapping[str, NDArray[Any]],
    columns: Sequence[tuple[NumberBase, NumberBase]] = (),
    cluster: Cluster,
) -> None:
    """Write the partitions to `target` under their names, each code of a column in `groups` replaced by its group.

    `columns` are pairs of a fine and a coarse column, for the places of numbers: they become those in the coarse bins.
    Everything is written beside `target`, which takes its name at the end: after a crash it is absent or whole.
    """
    with whole_folder(target) as building:
        jobs = [(path, building / path.name) for path in partitions]
        cluster.map(_coarsen, jobs, groups=dict(groups), columns=tuple(columns))


def read_codes(path: str | Path, columns: Iterable[str] | None = None) -> dict[str, Codes]:
    """Codes of one partition: the named columns in the given order, or all of them."""
    wanted = None if columns is None else list(columns)
    if str(path).endswith(UNPACKED):
        mapped = encoded_table(path)
        return {name: mapped.column(name).chunk(0).to_numpy() for name in (wanted or mapped.column_names)}
    with pq.ParquetFile(path, memory_map=True) as file:
        for name in wanted or ():
            if name not in file.schema_arrow.names:
                raise SourceError(f"{path}: the partition has no column {name!r}; run the step ingest again")
        table = file.read(columns=wanted, use_threads=False)
    return {name: table.column(name).to_numpy() for name in (wanted or table.column_names)}


def write_codes(codes: dict[str, Codes], path: Path) -> None:
    """Write one partition, without statistics: the file says nothing of its rows to those who see its footer."""
    fields = [pa.field(name, pa.from_numpy_dtype(column.dtype), nullable=False) for name, column in codes.items()]
    table = pa.Table.from_arrays([pa.array(column) for column in codes.values()], schema=pa.schema(fields))
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="lz4", write_statistics=False)


def keeps_places(path: Path, columns: Iterable[NumberBase]) -> bool:
    """Whether a partition holds the places of these columns; those of earlier versions hold none."""
    names = set(pq.read_schema(path).names)
    return all(place_name(column.name) in names for column in columns if column.place_count > 1)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` that takes its name, and an older one's place, if the block ends well."""
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    old = building.with_name(f"{building.name}-old")
    try:
        yield building
        flush_to_disk(building)
        if target.exists():
            target.rename(old)
        building.rename(target)
        flush_to_disk(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of an encoded piece, which is an Arrow file of codes."""

    path: Path
    start: int
    stop: int


def partition_slices(encoded: Sequence[Slice], rows: int) -> list[list[Slice]]:
    """The same rows in the same order, in groups of `rows`; the last group may be shorter, never empty."""
    groups: list[list[Slice]] = []
    missing = 0
    for piece in encoded:
        start = piece.start
        while start < piece.stop:
            if missing == 0:
                groups.append([])
                missing = rows
            stop = min(start + missing, piece.stop)
            groups[-1].append(Slice(piece.path, start, stop))
            missing -= stop - start
            start = stop
    return groups


def _pieces(address: str, *, schema: Schema) -> list[Piece]:
    with wall():
        return pieces(address, schema)


def _encode_piece(job: tuple[Piece, Path], *, schema: Schema, bound: ContributionBound | None) -> Slice:
    """Encode one piece, a batch at a time; runs on a worker, and leaves the same file if it runs again or twice."""
    piece, path = job
    writer, rows = None, 0
    with wall(), atomic_write(path) as temporary, pa.OSFile(str(temporary), "wb") as file:
        for codes in encoded_batches(piece, schema, bound):
            batch = pa.RecordBatch.from_arrays([pa.array(column) for column in codes.values()], names=list(codes))
            writer = writer or pa.ipc.new_file(file, batch.schema)
            writer.write_batch(batch)
            rows += len(batch)
        if writer is not None:
            writer.close()
    return Slice(path, 0, rows)


def encoded_table(path: str | Path) -> pa.Table:
    """The rows of an encoded piece, mapped and not read."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _write_partition(job: tuple[list[Slice], Path]) -> None:
    """Join the slices of one partition; runs on a worker."""
    slices, path = job
    with wall():
        joined = pa.concat_tables(encoded_table(s.path).slice(s.start, s.stop - s.start) for s in slices)
        if path.suffix == UNPACKED:
            _write_unpacked(joined.combine_chunks(), path)
            return
        write_codes({name: joined.column(name).to_numpy() for name in joined.column_names}, path)


def _unpack(job: tuple[Path, Path]) -> None:
    """Copy one partition; runs on a worker."""
    path, to = job
    with wall():
        codes = read_codes(path)
        _write_unpacked(pa.table({name: pa.array(column) for name, column in codes.items()}), to)


def _write_unpacked(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _bounded(partitions: list[Path], bound: ContributionBound) -> Iterator[dict[str, Codes]]:
    """Rewrite the partitions without the rows beyond the bound and without the units' hashes."""
    for path, kept in zip(partitions, kept_rows(map(read_codes, partitions), bound), strict=True):
        codes = {name: column[kept] for name, column in read_codes(path).items() if name not in UNIT_COLUMNS}
        write_codes(codes, path)
        yield codes


def _coarsen(
    job: tuple[Path, Path], *, groups: dict[str, NDArray[Any]], columns: Sequence[tuple[NumberBase, NumberBase]]
) -> None:
    """Coarsen one partition; runs on a worker."""
    path, to = job
    with wall():
        codes = read_codes(path)
        coarse = {name: groups[name][own] if name in groups else own for name, own in codes.items()}
        for fine, wide in columns:
            own = codes[fine.name]
            inside = np.minimum(own, fine.declared - 1)
            fine_places = codes.get(place_name(fine.name), np.zeros(len(own), dtype=np.uint16))
            numbers = fine.place_numbers[inside, fine_places]
            if wide.place_count > 1:
                coarse[place_name(wide.name)] = wide.places(numbers, coarse[wide.name])
        write_codes(coarse, to)


def _fingerprint(address: str, *, key: bytes) -> str:
    """Runs on a worker."""
    digest = hmac.new(key, b"source file:", digestmod="sha256")
    with wall():
        try:
            with open_file(address) as file:
                while portion := file.read(PORTION_BYTES):
                    digest.update(portion)
        except OSError:
            raise SourceError("a file of the source cannot be read; check that all are there and readable") from None
    return f"file {digest.hexdigest()}"


def _digested_sizes(schema: Schema) -> dict[str, int]:
    """What goes into the digest: all columns and, where sums of numbers are asked for, their places."""
    return dict(zip(schema.domain.attributes, schema.domain.sizes, strict=True)) | {
        place_name(column.name): column.place_count for column in summed_columns(schema)
    }


def table_digest(pieces: Iterable[Mapping[str, Codes]], sizes: Mapping[str, int], key: bytes) -> str:
    """Keyed digest of a table of codes, in any pieces, with the sizes of its columns.

    Each column has its own HMAC over its codes in row order, so pieces do not matter; the table's digest is
    the HMAC of the columns' names, sizes and digests, so neither their order nor their borders are ambiguous.
    """
    digests = {name: hmac.new(key, digestmod="sha256") for name in sizes}
    for codes in pieces:
        for name, digest in digests.items():
            digest.update(np.ascontiguousarray(codes[name], dtype=codes[name].dtype.newbyteorder("<")).data)
    lines = [[name, sizes[name], digest.hexdigest()] for name, digest in digests.items()]
    return hmac.new(key, json.dumps(lines).encode(), digestmod="sha256").hexdigest()


def divide_rows(
    partitions: Sequence[Path],
    target: Path,
    *,
    column: str,
    parts: Sequence[tuple[str, tuple[int, ...]]],
    dropped: Sequence[str],
    cluster: Cluster,
) -> None:
    """Write each part's rows to a folder of its own below `target`; a part is a folder's name and the column's codes.

    The columns `dropped` are left out, and the places of numbers. A part of one code loses the column too; in the
    others its codes are numbered anew, in the order given. Parts without rows have files as well. Everything is written
    beside `target`, which takes its name at the end: after a crash it is absent or whole. Rows that were divided in the
    same way stay as they are.
    """
    way = json.dumps([column, parts, dropped])
    if target.exists():
        if (target / WAY).read_text(encoding="utf-8") == way:
            return
        shutil.rmtree(target)
    with whole_folder(target) as building:
        for folder, _ in parts:
            (building / folder).mkdir()
        starts = range(0, len(partitions), PARTITIONS_AT_ONCE)
        jobs = [(number, partitions[at : at + PARTITIONS_AT_ONCE]) for number, at in enumerate(starts)]
        cluster.map(write_parts, jobs, building=building, column=column, parts=parts, dropped=dropped)
        write_text(building / WAY, way)


def write_parts(
    job: tuple[int, Sequence[Path]],
    *,
    building: Path,
    column: str,
    parts: Sequence[tuple[str, tuple[int, ...]]],
    dropped: Sequence[str],
) -> None:
    """Divide the rows of some partitions; runs on a worker."""
    number, paths = job
    with wall():
        pieces = [read_codes(path) for path in paths]
        codes = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        strata = codes.pop(column)
        part_of = _numbers([own for _, own in parts])[strata]
        order = np.argsort(part_of, kind="stable")
        borders = np.searchsorted(part_of[order], np.arange(len(parts) + 1))
        for place, (folder, own) in enumerate(parts):
            mine = order[borders[place] : borders[place + 1]]
            kept = {name: values[mine] for name, values in codes.items() if name not in dropped and not is_place(name)}
            if len(own) > 1:
                kept[column] = _numbers([(code,) for code in own])[strata[mine]]
            write_codes(kept, building / folder / f"part-{number:05d}.parquet")


def _numbers(sets: Sequence[tuple[int, ...]]) -> NDArray[Any]:
    """For each code the number of the set that holds it, in the smallest type that counts the sets."""
    numbers = np.zeros(max(map(max, sets)) + 1, dtype=np.min_scalar_type(len(sets) - 1))
    for number, codes in enumerate(sets):
        numbers[list(codes)] = number
    return numbers
