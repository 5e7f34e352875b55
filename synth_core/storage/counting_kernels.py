"""Compiled loops that count packed columns.

A lane is one row of a matrix: the joint codes of some columns, one entry for each record. Counters are 32 bits wide,
half the memory of the result and so in a nearer cache; the caller passes fewer than 2^32 records at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.compiled import compiled

Lanes = NDArray[Any]
Index = NDArray[np.int64]

KEY_BLOCK = 2048
"""Records whose keys are built before they are counted: the keys stay in the first cache."""


@compiled
def count_pairs(
    lanes: Lanes, sizes: Index, pairs: Index, ends: Index, drains: Index, places: Index, out: Index
) -> None:
    """Count every pair of lanes and add its sums to the tables that are asked for.

    Pair p is drained by the lines ends[p-1] … ends[p]-1 of `drains`: (where in `places` each code of the left lane
    finds its row, how many rows there are, where each row finds its place in the table, where each code of the right
    lane does, where the table begins in `out`). Lines with equal rows stand together and share the sum over the left.
    """
    most = 0
    for p in range(pairs.shape[0]):
        most = max(most, sizes[pairs[p, 0]] * sizes[pairs[p, 1]])
    counts, rows = np.empty(most, np.uint32), np.empty(most, np.uint32)
    start = 0
    for p in range(pairs.shape[0]):
        left, right = pairs[p, 0], pairs[p, 1]
        width = sizes[right]
        counts[: sizes[left] * width] = 0
        _tally(lanes[left], lanes[right], np.uint64(width), counts)
        summed = -1
        for d in range(start, ends[p]):
            row_of, height, row_place, cell_place, begin = drains[d]
            if row_of != summed:
                summed = row_of
                _sum_rows(counts, places[row_of : row_of + sizes[left]], height, width, rows)
            for x in range(height):
                base = begin + places[row_place + x]
                for y in range(width):
                    out[base + places[cell_place + y]] += rows[x * width + y]
        start = ends[p]


@compiled
def count_keys(lanes: Lanes, sizes: Index, members: Index, ends: Index, begins: Index, out: Index) -> None:
    """Count tables of any number of lanes: table t is of the lanes members[ends[t-1]] …, and begins at begins[t]."""
    keys = np.empty(KEY_BLOCK, np.uint64)
    records = lanes.shape[1]
    start = 0
    for t in range(ends.size):
        table = out[begins[t] :]
        for first in range(0, records, KEY_BLOCK):
            block = keys[: min(KEY_BLOCK, records - first)]
            block[:] = 0
            for k in range(start, ends[t]):
                size, lane = np.uint64(sizes[members[k]]), lanes[members[k]]
                for r in range(block.size):
                    block[r] = block[r] * size + np.uint64(lane[first + r])
            for r in range(block.size):
                table[block[r]] += 1
        start = ends[t]


@compiled
def _tally(left: Lanes, right: Lanes, width: np.uint64, counts: NDArray[np.uint32]) -> None:
    for r in range(left.size):
        counts[np.uint64(left[r]) * width + np.uint64(right[r])] += np.uint32(1)


@compiled
def _sum_rows(
    counts: NDArray[np.uint32], row_of: Index, height: int, width: int, rows: NDArray[np.uint32]
) -> None:
    """Add up the lines of a table that have the same row."""
    rows[: height * width] = 0
    for x in range(row_of.size):
        to, line = row_of[x] * width, x * width
        for y in range(width):
            rows[to + y] += counts[line + y]
