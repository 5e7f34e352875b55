"""Compiled kernels that draw rows clique by clique, exchange them for better ones, or draw them record by record.

Example of dealing: weights (1, 2, 1) and 2 rows give expected counts (0.5, 1, 0.5), which reach to 0.5, 1.5 and 2.
From the random start 0.3 the points 0.3 and 1.3 fall into the first and the second cell: one row each, and none in
the third.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats, Index
from synth_core.compiled import compiled, part_of_kernel

Columns = NDArray[Any]
Index32 = NDArray[np.int32]


class Turn(NamedTuple):
    """One clique's turn: which columns are given, which are drawn, and from which conditional table.

    Attributes:
        given: places of the columns that are drawn already.
        strides: what a code of each adds to the number of the table's row.
        fresh: places of the columns that are drawn now.
        divisors: what a code of each adds to the number of the row's cell.
        sizes: how many codes each of these has.
        table: weights of the cells, one row for each combination of given codes.
    """

    given: Index
    strides: Index
    fresh: Index
    divisors: Index
    sizes: Index
    table: Floats


GOLDEN, MIX_1, MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The step of SplitMix64's sequence, and the two factors by which it mixes a word."""


@part_of_kernel
def _mixed(counter: np.uint64) -> np.uint64:
    """SplitMix64 (Steele, Lea, Flood 2014): a well-mixed word from a Weyl sequence."""
    word = counter
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@part_of_kernel
def _uniform(counter: np.uint64) -> float:
    """A number in [0, 1) with 53 random bits."""
    return np.float64(_mixed(counter) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part_of_kernel
def _separator_codes(columns: Columns, turn: Turn, codes: Index32) -> None:
    """The joint code of the given columns, row by row."""
    codes[:] = 0
    for k in range(turn.given.size):
        column = columns[turn.given[k]]
        stride = np.int32(turn.strides[k])
        for r in range(codes.size):
            codes[r] += np.int32(column[r]) * stride


@part_of_kernel
def _write(columns: Columns, turn: Turn, codes: Index32) -> None:
    """Write joint codes as the digits of the fresh columns."""
    for k in range(turn.fresh.size):
        column = columns[turn.fresh[k]]
        divisor, size = np.int32(turn.divisors[k]), np.int32(turn.sizes[k])
        if turn.fresh.size == 1:
            for r in range(codes.size):
                column[r] = codes[r]
        else:
            for r in range(codes.size):
                column[r] = codes[r] // divisor % size


@part_of_kernel
def _allot(weights: Floats, rows: int, start: float, dealt: NDArray[np.int32]) -> None:
    """Fill `dealt` with cells: the integer part of each expected count, the fractions by systematic sampling.

    Cell k is dealt floor or ceil of its expected count e_k, with mean e_k: it is dealt as often as the points
    start, start + 1, start + 2 … (start uniform in [0, 1)) fall into its stretch of the cumulated counts. What rounding
    leaves over goes to the largest cell: a cell of weight 0 is never dealt.
    """
    total = weights.sum()
    scale = rows / total
    reached = 0.0
    at = 0
    largest = 0
    for k in range(weights.size):
        if weights[k] <= 0.0:
            continue
        if weights[k] > weights[largest]:
            largest = k
        reached += weights[k] * scale
        while at < rows and start + at < reached:
            dealt[at] = k
            at += 1
    while at < rows:
        dealt[at] = largest
        at += 1


@compiled
def deal(columns: Columns, turn: Turn, seed: np.uint64) -> None:
    """Draw the fresh columns: in each group of equal given values, cells are allotted and then shuffled."""
    rows = columns.shape[1]
    groups = turn.table.shape[0]
    codes = np.empty(rows, np.int32)
    _separator_codes(columns, turn, codes)
    ends = np.zeros(groups + 1, np.int64)
    for code in codes:
        ends[code + 1] += 1
    for s in range(groups):
        ends[s + 1] += ends[s]
    dealt = np.empty(rows, np.int32)
    counter = seed
    for s in range(groups):
        own = dealt[ends[s] : ends[s + 1]]
        if own.size == 0:
            continue
        counter += GOLDEN
        _allot(turn.table[s], own.size, _uniform(counter), own)
        for k in range(own.size - 1, 0, -1):
            counter += GOLDEN
            j = np.int64(_uniform(counter) * (k + 1))
            own[k], own[j] = own[j], own[k]
    for r in range(rows):
        s = codes[r]
        codes[r] = dealt[ends[s]]
        ends[s] += 1
    _write(columns, turn, codes)


@compiled
def draw(columns: Columns, turn: Turn, seed: np.uint64) -> None:
    """Draw the fresh columns independently for each row, by inversion of the cumulated table."""
    rows = columns.shape[1]
    codes = np.empty(rows, np.int32)
    _separator_codes(columns, turn, codes)
    counter = seed
    for r in range(rows):
        row = turn.table[codes[r]]
        counter += GOLDEN
        point = _uniform(counter) * row[-1]
        codes[r] = min(np.searchsorted(row, point, side="right"), row.size - 1)
    _write(columns, turn, codes)


@part_of_kernel
def _cell(row: Columns, k: int, places: Index32, strides: Index32, starts: Index32) -> np.int64:
    """Where a row falls in table k."""
    return np.int64(
        starts[k]
        + np.int32(row[places[k, 0]]) * strides[k, 0]
        + np.int32(row[places[k, 1]]) * strides[k, 1]
        + np.int32(row[places[k, 2]])
    )


@compiled
def count_tables(rows: Columns, places: Index32, strides: Index32, starts: Index32, counts: Floats) -> Floats:
    """Add the rows to the counts of the tables (see `sampling.representative_rows`)."""
    for r in range(rows.shape[0]):
        row = rows[r]
        for k in range(starts.size):
            counts[_cell(row, k, places, strides, starts)] += 1.0
    return counts


@compiled
def exchange(
    rows: Columns,
    others: Columns,
    places: Index32,
    strides: Index32,
    starts: Index32,
    costs: NDArray[np.float32],
    seed: np.uint64,
) -> None:
    """Put each of the other rows in the place of a random row if that lowers the cost.

    costs[c, 0] is what one more row costs in cell c, costs[c, 1] what the next one costs beyond that; so taking a row
    out of it costs costs[c, 1] - costs[c, 0].
    """
    coming = np.empty(starts.size, np.int64)
    going = np.empty(starts.size, np.int64)
    counter = seed
    for o in range(others.shape[0]):
        counter += GOLDEN
        place = np.int64(_uniform(counter) * rows.shape[0])
        new, old = others[o], rows[place]
        cost = np.float32(0.0)
        for k in range(starts.size):
            to = _cell(new, k, places, strides, starts)
            of = _cell(old, k, places, strides, starts)
            coming[k], going[k] = to, of
            change = costs[to, 0] + costs[of, 1] - costs[of, 0]
            cost += change if to != of else np.float32(0.0)
        if cost < 0.0:
            for k in range(new.size):
                old[k] = new[k]
            for k in range(starts.size):
                costs[coming[k], 0] += costs[coming[k], 1]
                costs[going[k], 0] -= costs[going[k], 1]


EMPTY = 1e-6
"""A row with no more records than this has nothing to draw from."""


RESTARTS = 10
"""How many times `tries` a record starts again from its first step before it is completed without going back."""


@part_of_kernel
def _mass(row: Floats) -> float:
    mass = 0.0
    for value in row:
        mass += max(value, 0.0)
    return mass


@part_of_kernel
def _cell_at(row: Floats, point: float) -> int:
    """The cell in whose stretch of the cumulated positive values the point lies."""
    found = 0
    for k in range(row.size):
        if row[k] > 0.0:
            found = k
            point -= row[k]
            if point < 0.0:
                break
    return found


@compiled
def draw_records(
    columns: NDArray[Any],
    places: Index,
    strides: Index,
    given: Index,
    fresh: Index,
    widths: Index,
    starts: Index,
    left: Floats,
    whole: Floats,
    countdown: bool,
    tries: int,
    seed: np.uint64,
) -> None:
    """Fill the columns record by record.

    Turn s reads the columns places[s, :given[s]] as a row number and draws a cell of that row of its table, which
    starts at starts[s] and has rows of widths[s] cells; the cell's digits are the columns that follow in `places`.
    `left` are the tables to draw from: with `countdown` each record takes its cells away (Section 3.3). If a row has
    nothing left, the record goes back one step, after every `tries` vain attempts one step further (Section 3.3.1);
    when starting again has not helped many times, the row of `whole`, never empty, is used.
    """
    steps, rows = widths.size, columns.shape[1]
    cells = np.empty(steps, np.int64)
    failures = np.zeros(steps, np.int64)
    counter = seed
    for r in range(rows):
        failures[:] = 0
        s = 0
        while s < steps:
            start = starts[s]
            for k in range(given[s]):
                start += np.int64(columns[places[s, k], r]) * strides[s, k] * widths[s]
            row = left[start : start + widths[s]]
            mass = _mass(row)
            if mass <= EMPTY:
                failures[s] += 1
                if s > 0 and failures[s] <= tries * (s + RESTARTS):
                    s = max(0, s - 1 - (failures[s] - 1) // tries)
                    continue
                row = whole[start : start + widths[s]]
                mass = _mass(row)
            counter += GOLDEN
            cell = _cell_at(row, _uniform(counter) * mass)
            cells[s] = start + cell
            for k in range(given[s], given[s] + fresh[s]):
                digit = cell // strides[s, k]
                columns[places[s, k], r] = digit
                cell -= digit * strides[s, k]
            s += 1
        if countdown:
            for k in range(steps):
                left[cells[k]] -= 1.0
