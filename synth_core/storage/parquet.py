"""The confidential zone's encoded table: written once as Parquet partitions of codes, read by columns."""

from __future__ import annotations

import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from synth_core.cluster import Cluster
from synth_core.errors import SourceError
from synth_core.files import atomic_write, flush_to_disk
from synth_core.privacy.wall import wall
from synth_core.schema import Schema
from synth_core.schema.codec import Codes
from synth_core.storage.contribution import UNIT_COLUMNS, ContributionBound, kept_rows
from synth_core.storage.encoding import Slice, encode_sources, partition_slices, read_slices
from synth_core.storage.locations import distinct_files

SHORTEST_KEY = 16


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
        with atomic_write(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read a snapshot that `save` wrote."""
        try:
            raw = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(digest=str(raw["digest"]), partitions=tuple(map(str, raw["partitions"])))
        except (OSError, ValueError, KeyError, TypeError):
            raise SourceError(f"{path}: not a readable snapshot; run the step ingest again") from None


def ingest_partitions(
    sources: Sequence[str | Path],
    schema: Schema,
    out_dir: str | Path,
    *,
    key: bytes,
    rows_per_partition: int = 250_000,
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
    if len(key) < SHORTEST_KEY:
        raise SourceError(f"the snapshot key is too short; use at least {SHORTEST_KEY} random bytes")
    if rows_per_partition < 1:
        raise SourceError("rows_per_partition must be at least 1")
    target = Path(out_dir)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        place, files = cluster or Cluster(), distinct_files(map(str, sources))
        if progress is not None:
            for number in range(1, len(files) + 1):
                progress(f"encoding file {number} of {len(files)}")
        encoded = encode_sources(files, schema, building, bound=bound, cluster=place)
        groups = partition_slices(encoded, rows_per_partition)
        if not groups:
            raise SourceError("the source has no rows; check its path and that its files are complete")
        parts = [building / f"part-{number:05d}.parquet" for number in range(len(groups))]
        place.map(_write_partition, list(zip(groups, parts, strict=True)))
        for piece in encoded:
            piece.path.unlink()
        digest = _TableDigest(schema, key)
        for codes in map(read_codes, parts) if bound is None else _bounded(parts, bound):
            digest.update(codes)
        swap_in(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Snapshot(digest.hexdigest(), tuple(part.name for part in parts))


def read_codes(path: str | Path, columns: Iterable[str] | None = None) -> dict[str, Codes]:
    """Codes of one partition: the named columns in the given order, or all of them."""
    wanted = None if columns is None else list(columns)
    with pq.ParquetFile(path, memory_map=True) as file:
        for name in wanted or ():
            if name not in file.schema_arrow.names:
                raise SourceError(f"{path}: the partition has no column {name!r}; run the step ingest again")
        table = file.read(columns=wanted, use_threads=False)
    return {name: table.column(name).to_numpy() for name in (wanted or table.column_names)}


def _bounded(partitions: list[Path], bound: ContributionBound) -> Iterator[dict[str, Codes]]:
    """Rewrite the partitions without the rows beyond the bound and without the units' hashes."""
    for path, kept in zip(partitions, kept_rows(map(read_codes, partitions), bound), strict=True):
        codes = {name: column[kept] for name, column in read_codes(path).items() if name not in UNIT_COLUMNS}
        write_codes(codes, path)
        yield codes


def _write_partition(job: tuple[list[Slice], Path]) -> None:
    """Join the slices of one partition; runs on a worker."""
    slices, path = job
    with wall():
        write_codes(read_slices(slices), path)


def write_codes(codes: dict[str, Codes], path: Path) -> None:
    """Write one partition, without statistics: the file says nothing of its rows to those who see its footer."""
    fields = [
        pa.field(name, pa.from_numpy_dtype(column.dtype), nullable=False) for name, column in codes.items()
    ]
    table = pa.Table.from_arrays([pa.array(column) for column in codes.values()], schema=pa.schema(fields))
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="lz4", write_statistics=False)


def swap_in(building: Path, target: Path) -> None:
    """Give the finished directory its name; an older one is moved away first and removed."""
    flush_to_disk(building)
    old = building.with_name(f"{building.name}-old")
    if target.exists():
        target.rename(old)
    building.rename(target)
    flush_to_disk(target.parent)
    shutil.rmtree(old, ignore_errors=True)


class _TableDigest:
    """Keyed digest of a table of codes, fed in any pieces.

    Each column has its own HMAC over its codes in row order, so pieces do not matter; the table's digest is
    the HMAC of the columns' names, sizes and digests, so neither their order nor their borders are ambiguous.
    """

    def __init__(self, schema: Schema, key: bytes) -> None:
        self._key = key
        self._sizes = dict(zip(schema.domain.attributes, schema.domain.sizes, strict=True))
        self._columns = {name: hmac.new(key, digestmod="sha256") for name in self._sizes}

    def update(self, codes: dict[str, Codes]) -> None:
        for name, digest in self._columns.items():
            column = codes[name]
            digest.update(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).data)

    def hexdigest(self) -> str:
        lines = [[name, size, self._columns[name].hexdigest()] for name, size in self._sizes.items()]
        return hmac.new(self._key, json.dumps(lines).encode(), digestmod="sha256").hexdigest()
