"""Tables of strata made to agree with those of the level above: districts that add up to their state.

Post-processing of noisy answers. An upper table was measured directly, so it has the noise of one table; the sum of its
strata's tables has the noise of many. Both are averaged by inverse variance, then the strata take up the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.measurement import Measurement
from synth_core.synthesizers.consistency import nearest_non_negative

Table = NDArray[np.float64]

MAX_RAKING_ROUNDS = 500
"""Upper limit of the rounds of raking; what is left after them is moved at once."""
RAKED = 1e-9
"""Raking ends when no margin is further off than this share of the total."""
LEAST = 1e-6
"""Records that every cell has at least before raking, so that a margin without records in it can still be met."""


@dataclass(frozen=True, slots=True, eq=False)
class Upper:
    """One table of the level above: a row for each of its codes, a column for each code of the attribute."""

    attribute: str
    noisy: Table
    sigma: float


def stratum_rows(counts: Measurement, uppers: Sequence[Upper], *, upper_of: Sequence[int] | None) -> Table:
    """The number of rows of each stratum, never negative, from noisy answers alone.

    Inside each upper code, its strata's counts and the total of each upper table estimate the same number of records;
    they are averaged by inverse variance, and the strata, being equally noisy, share the difference evenly. So
    strata add up to their upper code, and all of them to the total.
    """
    noisy = np.array(counts.noisy, dtype=np.float64)
    groups = np.zeros(noisy.size, dtype=np.int64) if upper_of is None else np.asarray(upper_of)
    for group in np.unique(groups):
        own = groups == group
        totals = [float(noisy[own].sum()), *(float(upper.noisy[group].sum()) for upper in uppers)]
        variances = [
            own.sum() * counts.sigma**2,
            *(upper.noisy.shape[1] * upper.sigma**2 for upper in uppers),
        ]
        agreed = float(np.average(totals, weights=1 / np.array(variances)))
        noisy[own] = nearest_non_negative(noisy[own] + (agreed - totals[0]) / own.sum())
    return noisy


def agreed_tables(
    tables: Sequence[Measurement], above: Table, *, sigma: float, rows: Sequence[float]
) -> list[Measurement]:
    """One attribute's tables of the parts of one upper code, changed so that they add up to a table of that code.

    `above` is that code's own noisy table and `rows` the parts' numbers of rows. First the least-squares answer: with
    S the sum of the parts' tables, of variance V = sum of v_p, and U the upper table of variance u, the upper table
    becomes the mean of U and S weighted by inverse variance, and part p takes v_p / V of the difference. A cell of p
    keeps the variance v_p (1 - v_p / (V + u)), its own less what it learns from all others. Then, as no count is
    negative, the nearest upper table without negative counts, and the parts raked to it and to their rows.
    """
    if sum(rows) <= 0:
        return [Measurement(m.clique, np.zeros_like(m.noisy), m.sigma) for m in tables]
    variances = np.array([m.sigma**2 for m in tables])
    whole = float(variances.sum())
    stacked = np.stack([m.noisy for m in tables])
    summed = stacked.sum(axis=0)
    upper = (above * whole + summed * sigma**2) / (whole + sigma**2)
    stacked = stacked + np.outer(variances / whole, upper - summed)
    upper = nearest_non_negative(upper + (sum(rows) - upper.sum()) / upper.size)
    raked = with_margins(stacked, np.asarray(rows, dtype=np.float64), upper)
    left = variances * (1 - variances / (whole + sigma**2))
    return [
        Measurement(m.clique, row, math.sqrt(variance))
        for m, row, variance in zip(tables, raked, left, strict=True)
    ]


def with_margins(table: Table, rows: Table, columns: Table) -> Table:
    """A table without negative counts that has these row sums and column sums, of which the totals are equal.

    Raking scales rows and columns in turn and converges, because every cell is positive at the start; but where a
    margin can only be met by cells that began near 0 it does so slowly. What rows are off by after the last round is
    therefore moved between them (`_moved_to_rows`), so that both margins hold to rounding however far raking came.
    """
    found = np.maximum(table, LEAST)
    for _ in range(MAX_RAKING_ROUNDS):
        found *= np.divide(rows, found.sum(axis=1), out=np.zeros_like(rows), where=rows > 0)[:, None]
        sums = found.sum(axis=0)
        found *= np.divide(columns, sums, out=np.zeros_like(columns), where=(columns > 0) & (sums > 0))
        if np.abs(found.sum(axis=1) - rows).max() <= RAKED * rows.sum():
            break
    return _moved_to_rows(found, rows)


def _moved_to_rows(table: Table, rows: Table) -> Table:
    """The table with these row sums and its own column sums.

    A row with too much keeps its proportions and gives the rest away; what is given in a column stays in it and goes
    to the rows with too little, in proportion to what they lack. Givers give in all what takers lack in all, so each
    taker gets just that. Nothing becomes negative, and no cell moves by more than its row was off.
    """
    sums = table.sum(axis=1)
    kept = np.divide(np.minimum(rows, sums), sums, out=np.zeros_like(sums), where=sums > 0)[:, None] * table
    lacking = np.maximum(rows - sums, 0.0)
    given = (table - kept).sum(axis=0)
    taken = np.outer(lacking / lacking.sum(), given) if lacking.sum() > 0 else 0.0
    return np.asarray(kept + taken)
