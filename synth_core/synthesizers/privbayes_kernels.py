"""The compiled kernel that draws records one after the other, counts tables down, and steps back from empty rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.compiled import compiled
from synth_core.models.sampling_kernels import GOLDEN, _uniform

Cells = NDArray[np.float64]
Index = NDArray[np.int64]

EMPTY = 1e-6
"""A row with no more records than this has nothing to draw from."""


RESTARTS = 10
"""How many times `tries` a record starts again from its first step before it is completed without going back."""


@compiled
def _mass(row: Cells) -> float:
    mass = 0.0
    for value in row:
        mass += max(value, 0.0)
    return mass


@compiled
def _cell(row: Cells, point: float) -> int:
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
    left: Cells,
    whole: Cells,
    countdown: bool,
    tries: int,
    seed: np.uint64,
) -> None:
    """Fill the columns record by record.

    Step s reads the columns places[s, :given[s]] as a row number and draws a cell of that row of its table, which
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
            cell = _cell(row, _uniform(counter) * mass)
            cells[s] = start + cell
            for k in range(given[s], given[s] + fresh[s]):
                digit = cell // strides[s, k]
                columns[places[s, k], r] = digit
                cell -= digit * strides[s, k]
            s += 1
        if countdown:
            for k in range(steps):
                left[cells[k]] -= 1.0
