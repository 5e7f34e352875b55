"""Encode the pieces of a source in parallel, and say which rows of which piece make up a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from synth_core.cluster import Cluster
from synth_core.files import atomic_write
from synth_core.privacy.wall import wall
from synth_core.schema import Schema
from synth_core.schema.codec import Codes
from synth_core.storage.contribution import ContributionBound
from synth_core.storage.sources import Piece, encoded_batches, pieces


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of an encoded piece, which is an Arrow file of codes."""

    path: Path
    start: int
    stop: int


def encode_sources(
    addresses: Sequence[str],
    schema: Schema,
    site: Path,
    *,
    bound: ContributionBound | None,
    cluster: Cluster,
) -> list[Slice]:
    """Encode every piece of the files into the building site, in the order of the files and their rows."""
    found = [piece for of_file in cluster.map(_pieces, addresses, schema=schema) for piece in of_file]
    jobs = [(piece, site / f"piece-{number:06d}.arrow") for number, piece in enumerate(found)]
    return cluster.map(_encode_piece, jobs, schema=schema, bound=bound)


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


def read_slices(slices: Sequence[Slice]) -> dict[str, Codes]:
    """The slices' rows, joined."""
    tables = [_encoded_table(s.path).slice(s.start, s.stop - s.start) for s in slices]
    joined = pa.concat_tables(tables)
    return {name: joined.column(name).to_numpy() for name in joined.column_names}


def _pieces(address: str, *, schema: Schema) -> list[Piece]:
    with wall():
        return pieces(address, schema)


def _encode_piece(job: tuple[Piece, Path], *, schema: Schema, bound: ContributionBound | None) -> Slice:
    """Encode one piece, a batch at a time; runs on a worker, and leaves the same file if it runs again or twice."""
    piece, path = job
    writer, rows = None, 0
    with wall(), atomic_write(path) as temporary, pa.OSFile(str(temporary), "wb") as file:
        for codes in encoded_batches(piece, schema, bound):
            batch = pa.RecordBatch.from_arrays(
                [pa.array(column) for column in codes.values()], names=list(codes)
            )
            writer = writer or pa.ipc.new_file(file, batch.schema)
            writer.write_batch(batch)
            rows += len(batch)
        if writer is not None:
            writer.close()
    return Slice(path, 0, rows)


def _encoded_table(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
