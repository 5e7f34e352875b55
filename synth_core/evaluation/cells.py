"""Marginals of any number of cells: exact counts of their occupied cells, or of a random part of those.

A cell is in the part if the hash of its position is below a limit. The limit begins above every hash and is halved
while a table has more than `MOST_CELLS` occupied cells below it, so a marginal with fewer is complete. Every table
hashes alike: a cell that is kept is counted over all rows of both. Rows added can only lower the limit, and counts of
pieces are thinned to the lowest limit before they are added, so the result does not depend on how rows are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

MOST_CELLS = 50_000
"""A table of as many rows is never thinned; from half as many cells a distance is known to about one in a hundred."""

LARGEST_MARGINAL = 2**62
"""Positions of cells are 64-bit integers; a marginal with more cells than this cannot be judged."""

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cells:
    """Occupied cells of a marginal: their row-major positions, ascending, and the rows in each.

    Of all occupied cells about one in 2^halvings is here.
    """

    positions: NDArray[np.int64]
    counts: Counts
    halvings: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far two tables are apart on one marginal; `estimated` from a part of its cells, or exact."""

    tvd: float
    l2: float
    jensen_shannon: float
    estimated: bool


def occupied(table: Counts) -> Cells:
    """The occupied cells of a table of counts."""
    positions = np.flatnonzero(table)
    return Cells(positions, table.ravel()[positions])


def count_cells(columns: Sequence[NDArray[Any]], shape: Sequence[int], *, halvings: int = 0) -> Cells:
    """Count the rows of every occupied cell below a limit; the columns are the marginal's, in the shape's order.

    Where other rows of the table are known to lower the limit, beginning there saves sorting what will not stay.
    """
    positions = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, shape, strict=True):
        positions *= size
        positions += column
    if halvings:
        positions = positions[_hash(positions) < _limit(halvings)]
    positions.sort()
    starts = _starts(positions)
    return _thinned(Cells(positions[starts], np.diff(starts, append=len(positions)), halvings))


def merged(parts: Sequence[Cells]) -> Cells:
    """The cells of several pieces of a table together."""
    halvings = max(part.halvings for part in parts)
    kept = [_below(part, halvings) for part in parts]
    positions, counts = (
        np.concatenate([getattr(part, name) for part in kept]) for name in ("positions", "counts")
    )
    order = np.argsort(positions, kind="stable")
    starts = _starts(positions[order])
    return _thinned(Cells(positions[order][starts], np.add.reduceat(counts[order], starts), halvings))


def aligned(left: Cells, right: Cells) -> tuple[Counts, Counts]:
    """Counts of both tables over the same cells: those of either, below the lower of the two limits."""
    halvings = max(left.halvings, right.halvings)
    sides = _below(left, halvings), _below(right, halvings)
    positions = np.union1d(sides[0].positions, sides[1].positions)
    counts = np.zeros((2, len(positions)), dtype=np.int64)
    for row, side in zip(counts, sides, strict=True):
        row[np.searchsorted(positions, side.positions)] = side.counts
    return counts[0], counts[1]


def distances(real: Cells, synthetic: Cells, *, rows: tuple[int, int]) -> Distances:
    """Distances of two tables with so many rows.

    Each is a sum over cells, and the shares of both tables sum to 2 over all of them. So a sum over a random part of
    the cells, over half of what the shares sum to there, estimates the whole: which cells were drawn matters little,
    because heavy ones weigh in both sums. With all cells that half is 1.
    """
    left, right = aligned(real, synthetic)
    p, q = left / rows[0], right / rows[1]
    part = float(p.sum() + q.sum()) / 2
    middle = (p + q) / 2
    bits = _relative_entropy(p, middle) + _relative_entropy(q, middle)
    return Distances(
        tvd=float(np.abs(p - q).sum() / 2) / part,
        l2=float(np.sqrt(((p - q) ** 2).sum() / part)),
        jensen_shannon=max(0.0, bits / 2 / part),
        estimated=max(real.halvings, synthetic.halvings) > 0,
    )


def _relative_entropy(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    held = p > 0
    return float((p[held] * np.log2(p[held] / q[held])).sum())


def _starts(ascending: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where each value occurs first."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def _thinned(cells: Cells) -> Cells:
    """The cells below the highest limit that leaves few enough."""
    if len(cells.positions) <= MOST_CELLS:
        return cells
    hashes, halvings = _hash(cells.positions), cells.halvings
    while np.count_nonzero(kept := hashes < _limit(halvings)) > MOST_CELLS:
        halvings += 1
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _below(cells: Cells, halvings: int) -> Cells:
    if halvings == cells.halvings:
        return cells
    kept = _hash(cells.positions) < _limit(halvings)
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _limit(halvings: int) -> np.uint64:
    return np.uint64((2**64 - 1) >> halvings)


def _hash(positions: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Steele, Lea and Flood's SplitMix64: one to one, and as even as chance in its upper bits."""
    mixed = positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
