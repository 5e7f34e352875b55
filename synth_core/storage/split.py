"""The encoded table divided by strata inside the confidential zone, so that a part's counts see its own rows alone."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.files import atomic_write, flush_to_disk
from synth_core.privacy.wall import wall
from synth_core.schema.codec import Codes
from synth_core.storage.partitions import read_codes

WAY = "parts.json"
"""Says how the rows beside it were divided."""

PARTITIONS_AT_ONCE = 8
"""Partitions that one task reads: it holds their rows, and every part gets one file of them."""


def split_rows(
    partitions: Sequence[Path],
    target: Path,
    *,
    column: str,
    parts: Sequence[tuple[str, tuple[int, ...]]],
    dropped: Sequence[str],
    cluster: Cluster,
) -> None:
    """Write each part's rows to a folder of its own below `target`; a part is a folder's name and the column's codes.

    The columns `dropped` are left out. A part of one code loses the column too; in the others its codes are numbered
    anew, in the order given. Parts without rows have files as well. Everything is written beside `target`, which takes
    its name at the end: after a crash it is absent or whole. Rows that were divided in the same way stay as they are.
    """
    way = json.dumps([column, parts, dropped])
    if target.exists():
        if (target / WAY).read_text(encoding="utf-8") == way:
            return
        shutil.rmtree(target)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for folder, _ in parts:
            (building / folder).mkdir()
        paths = [str(path) for path in partitions]
        starts = range(0, len(paths), PARTITIONS_AT_ONCE)
        jobs = [(number, paths[at : at + PARTITIONS_AT_ONCE]) for number, at in enumerate(starts)]
        cluster.map(
            write_parts,
            jobs,
            building=str(building),
            column=column,
            parts=tuple(parts),
            dropped=tuple(dropped),
        )
        (building / WAY).write_text(way, encoding="utf-8")
        flush_to_disk(building)
        building.rename(target)
        flush_to_disk(target.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_parts(
    job: tuple[int, list[str]],
    *,
    building: str,
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
            kept = {name: values[mine] for name, values in codes.items() if name not in dropped}
            if len(own) > 1:
                kept[column] = _numbers([(code,) for code in own])[strata[mine]]
            _write(kept, Path(building) / folder / f"part-{number:05d}.parquet")


def _numbers(sets: Sequence[tuple[int, ...]]) -> NDArray[Any]:
    """For each code the number of the set that holds it, in the smallest type that counts the sets."""
    numbers = np.zeros(max(map(max, sets)) + 1, dtype=np.min_scalar_type(len(sets) - 1))
    for number, codes in enumerate(sets):
        numbers[list(codes)] = number
    return numbers


def _write(codes: dict[str, Codes], path: Path) -> None:
    """Without statistics: the file says nothing of its rows to those who see its footer."""
    table = pa.table({name: pa.array(values) for name, values in codes.items()})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="lz4", write_statistics=False)
