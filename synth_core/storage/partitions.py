"""Parquet partitions of the confidential zone's encoded table: written once, read by columns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from synth_core.errors import SourceError
from synth_core.files import atomic_write, flush_to_disk
from synth_core.schema.codec import Codes


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


def read_codes(path: str | Path, columns: Iterable[str] | None = None) -> dict[str, Codes]:
    """Codes of one partition: the named columns in the given order, or all of them."""
    wanted = None if columns is None else list(columns)
    with pq.ParquetFile(path, memory_map=True) as file:
        for name in wanted or ():
            if name not in file.schema_arrow.names:
                raise SourceError(f"{path}: the partition has no column {name!r}; run the step ingest again")
        table = file.read(columns=wanted, use_threads=False)
    return {name: table.column(name).to_numpy() for name in (wanted or table.column_names)}


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
