"""Gives encoded rows coarser codes: the same partitions, with some columns' codes put into groups."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.privacy.wall import wall
from synth_core.storage.parquet import read_codes, swap_in, write_codes


def coarsen_partitions(
    partitions: Sequence[Path], target: Path, *, groups: Mapping[str, NDArray[Any]], cluster: Cluster
) -> None:
    """Write the partitions to `target` under their names, each code of a column in `groups` replaced by its group.

    Everything is written beside `target`, which takes its name at the end: after a crash it is absent or whole.
    """
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        jobs = [(path, building / path.name) for path in partitions]
        cluster.map(_coarsen, jobs, groups=dict(groups))
        swap_in(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _coarsen(job: tuple[Path, Path], *, groups: dict[str, NDArray[Any]]) -> None:
    """Coarsen one partition; runs on a worker."""
    path, to = job
    with wall():
        codes = read_codes(path)
        write_codes({name: groups[name][own] if name in groups else own for name, own in codes.items()}, to)
