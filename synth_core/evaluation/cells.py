"""Occupied cells of marginals that are too large for an array, and how far two tables are apart on them.

A marginal of very many cells is known by its occupied cells, or by a random part of those (`Cells`). A cell is in the
part if the hash of its position is below a limit. The limit begins above every hash and is halved while a table has
more than `MAX_CELLS` occupied cells below it, so a marginal with fewer is complete. Every table hashes alike: a cell
that is kept is counted over all rows of both. Rows added can only lower the limit, and counts of pieces are thinned
to the lowest limit before they are added, so the result does not depend on how rows are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.compiled import compiled, part_of_kernel
from synth_core.evaluation.distances import relative_entropy
from synth_core.privacy.queries import Counts

MAX_CELLS = 50_000
"""A table of as many rows is never thinned; from half as many cells a distance is known to about one in a hundred."""

DENSE_CELLS = 2 * MAX_CELLS
"""Larger marginals are known by their occupied cells, which then take less room."""

BLOCK = 1024
"""Rows whose cells are found before they are counted: they stay in the first cache."""
FREE = -1
"""In a hash table, the position of a cell that is not there."""


LARGEST_MARGINAL = 2**62
"""Positions of cells are 64-bit integers; a marginal with more cells than this cannot be judged."""


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


def occupied_cells(table: Counts) -> Cells:
    """The occupied cells of a table of counts; of a large table no more than counting them would have left."""
    cells = Cells(*find_occupied(table.ravel()))
    return cells if table.size <= DENSE_CELLS else _thinned(cells)


class Tally:
    """Counts the rows of every occupied cell of a marginal below the limit, in a hash table."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = np.array(shape, dtype=np.int64)
        slots = 1 << (2 * MAX_CELLS).bit_length()
        self._cells = np.full(slots, FREE, dtype=np.int64)
        self._counts = np.zeros(slots, dtype=np.int64)
        self._state = np.zeros(2, dtype=np.int64)  # occupied slots, halvings

    def add(self, columns: Sequence[NDArray[Any]]) -> None:
        """Count rows.

        Args:
            columns: those of the marginal, in the order of its shape.
        """
        count_hashed(np.stack(columns), self._shape, self._state, self._cells, self._counts, MAX_CELLS)

    def cells(self) -> Cells:
        """The cells that were counted, in their order."""
        used = np.flatnonzero(self._cells != FREE)
        order = used[np.argsort(self._cells[used])]
        return Cells(self._cells[order], self._counts[order], int(self._state[1]))


def count_cells(columns: Sequence[NDArray[Any]], shape: Sequence[int]) -> Cells:
    """Count the rows of every occupied cell below the limit.

    Args:
        columns: those of the marginal, in the order of its shape.
        shape: sizes of its attributes.

    Returns:
        The cells.
    """
    tally = Tally(shape)
    tally.add(columns)
    return tally.cells()


def merge_cells(parts: Sequence[Cells]) -> Cells:
    """The cells of several pieces of a table together."""
    halvings = max(part.halvings for part in parts)
    kept = [_below(part, halvings) for part in parts]
    positions, counts = (np.concatenate([getattr(part, name) for part in kept]) for name in ("positions", "counts"))
    order = np.argsort(positions, kind="stable")
    starts = _starts(positions[order])
    return _thinned(Cells(positions[order][starts], np.add.reduceat(counts[order], starts), halvings))


def align_cells(left: Cells, right: Cells) -> tuple[Counts, Counts]:
    """Counts of both tables over the same cells: those of either, below the lower of the two limits."""
    halvings = max(left.halvings, right.halvings)
    (p, of_p), (q, of_q) = (
        [np.ascontiguousarray(values, dtype=np.int64) for values in (side.positions, side.counts)]
        for side in (_below(left, halvings), _below(right, halvings))
    )
    counts = np.zeros((2, len(p) + len(q)), dtype=np.int64)
    cells = merge_ascending(p, q, of_p, of_q, counts)
    return counts[0, :cells], counts[1, :cells]


def distances(real: Cells, synthetic: Cells, *, rows: tuple[int, int]) -> Distances:
    """Distances of two tables, of which `rows` are the lengths.

    Each is a sum over cells, and the shares of both tables sum to 2 over all of them. So a sum over a random part of
    the cells, over half of what the shares sum to there, estimates the whole: which cells were drawn matters little,
    because heavy ones weigh in both sums. With all cells that half is 1.
    """
    left, right = align_cells(real, synthetic)
    p, q = left / rows[0], right / rows[1]
    part = float(p.sum() + q.sum()) / 2
    middle = (p + q) / 2
    bits = relative_entropy(p, middle) + relative_entropy(q, middle)
    return Distances(
        tvd=float(np.abs(p - q).sum() / 2) / part,
        l2=float(np.sqrt(((p - q) ** 2).sum() / part)),
        jensen_shannon=max(0.0, bits / 2 / part),
        estimated=max(real.halvings, synthetic.halvings) > 0,
    )


def _starts(ascending: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where each value occurs first."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def _thinned(cells: Cells) -> Cells:
    """The cells below the highest limit that leaves few enough."""
    if len(cells.positions) <= MAX_CELLS:
        return cells
    hashes, halvings = _hash(cells.positions), cells.halvings
    while np.count_nonzero(kept := hashes < _limit(halvings)) > MAX_CELLS:
        halvings += 1
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _below(cells: Cells, halvings: int) -> Cells:
    if halvings == cells.halvings:
        return cells
    kept = _hash(cells.positions) < _limit(halvings)
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _limit(halvings: int) -> np.uint64:
    return np.uint64((2**64 - 1) >> halvings)


@part_of_kernel
def _hash_one(position: np.int64) -> np.uint64:
    """Steele, Lea and Flood's SplitMix64: one to one, and as even as chance in its upper bits."""
    mixed = np.uint64(position) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled
def find_occupied(table: Counts) -> tuple[NDArray[np.int64], Counts]:
    """Positions of the cells with rows, ascending, and their counts."""
    occupied = 0
    for cell in table:
        occupied += cell != 0
    positions, counts = np.empty(occupied, np.int64), np.empty(occupied, np.int64)
    at = 0
    for k in range(table.size):
        if table[k] != 0:
            positions[at], counts[at] = k, table[k]
            at += 1
    return positions, counts


@compiled
def merge_ascending(
    left: NDArray[np.int64], right: NDArray[np.int64], of_left: Counts, of_right: Counts, counts: Counts
) -> int:
    """Put the counts of two ascending lists of positions beside each other, a column a position; how many there are."""
    x, y, cells = 0, 0, 0
    while x < left.size or y < right.size:
        from_left = y == right.size or (x < left.size and left[x] <= right[y])
        from_right = x == left.size or (y < right.size and right[y] <= left[x])
        if from_left:
            counts[0, cells] = of_left[x]
            x += 1
        if from_right:
            counts[1, cells] = of_right[y]
            y += 1
        cells += 1
    return cells


@compiled
def _hash(positions: NDArray[np.int64]) -> NDArray[np.uint64]:
    found = np.empty(positions.size, np.uint64)
    for k in range(positions.size):
        found[k] = _hash_one(positions[k])
    return found


@part_of_kernel
def _slot_of(position: np.int64, hashed: np.uint64, cells: NDArray[np.int64]) -> np.uint64:
    """Where a cell is in the hash table, or where it may be put."""
    last = np.uint64(cells.size - 1)
    slot = hashed & last
    while cells[slot] != FREE and cells[slot] != position:
        slot = (slot + np.uint64(1)) & last
    return slot


@part_of_kernel
def _thin(cells: NDArray[np.int64], counts: Counts, limit: np.uint64, state: NDArray[np.int64]) -> None:
    """Keep the cells below a lower limit."""
    old, rows = cells.copy(), counts.copy()
    cells[:] = FREE
    counts[:] = 0
    state[0] = 0
    for k in range(old.size):
        hashed = _hash_one(old[k])
        if old[k] != FREE and hashed < limit:
            slot = _slot_of(old[k], hashed, cells)
            cells[slot], counts[slot] = old[k], rows[k]
            state[0] += 1


@compiled
def count_hashed(
    lanes: NDArray[Any],
    shape: NDArray[np.int64],
    state: NDArray[np.int64],
    cells: NDArray[np.int64],
    counts: Counts,
    most: int,
) -> None:
    """Count rows, a column of `lanes` each, into a hash table; beyond `most` cells the limit is halved.

    `state` holds how many cells there are and how often the limit was halved. Nearly all rows are of cells that are in
    the first slot looked at: these are counted in a loop without a branch, so that the processor waits for the memory
    of many at once. The others are left for a loop that searches.
    """
    highest, last = ~np.uint64(0), np.uint64(cells.size - 1)
    limit = highest >> np.uint64(state[1])
    places, hashes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint64)
    left = np.empty(BLOCK, np.int64)
    for first in range(0, lanes.shape[1], BLOCK):
        block = places[: min(BLOCK, lanes.shape[1] - first)]
        block[:] = 0
        for k in range(shape.size):
            lane = lanes[k, first:]
            for r in range(block.size):
                block[r] = block[r] * shape[k] + np.int64(lane[r])
        for r in range(block.size):
            hashes[r] = _hash_one(block[r])
        below, searched = np.int64(0), np.int64(0)
        for r in range(block.size):  # each is put where it may be overwritten, and stays if it is below
            place, hashed = block[r], hashes[r]
            block[below], hashes[below] = place, hashed
            below += np.int64(hashed < limit)
        for r in range(below):
            slot = hashes[r] & last
            met = np.int64(cells[slot] == block[r])
            counts[slot] += met
            left[searched] = r
            searched += 1 - met
        for r in left[:searched]:
            if hashes[r] >= limit:  # it was lowered since
                continue
            slot = _slot_of(block[r], hashes[r], cells)
            if cells[slot] == FREE:
                cells[slot] = block[r]
                state[0] += 1
            counts[slot] += 1
            while state[0] > most:
                state[1] += 1
                limit = highest >> np.uint64(state[1])
                _thin(cells, counts, limit, state)
