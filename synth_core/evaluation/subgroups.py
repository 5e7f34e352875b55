"""Whom the synthetic table serves worst: errors inside the groups that single values of columns make."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from synth_core.evaluation.cells import Counts
from synth_core.evaluation.result import Subgroup
from synth_core.evaluation.tables import CodedTable

FEWEST_ROWS = 100
"""A smaller group's error is mostly the chance of sampling it."""


def subgroup_errors(real: CodedTable, synthetic: CodedTable) -> tuple[Subgroup, ...]:
    """For every value of every column: the mean TVD of all other columns among the rows that have the value.

    The largest error is first. `floor` is the mean TVD that a fresh sample of as many rows would have, in expectation:
    E|p^ - p| is about sqrt(2 p (1 - p) / (pi m)) for each cell.
    """
    domain = real.domain
    others = len(domain) - 1
    pairs = list(combinations(domain, 2))
    sums = {name: np.zeros((2, domain.size(name))) for name in domain}
    for (a, b), left, right in zip(pairs, real.tables(pairs), synthetic.tables(pairs), strict=True):
        sums[a] += _within(left, right)
        sums[b] += _within(left.T, right.T)
    found = []
    for name in domain if others else ():
        rows = real.table((name,)), synthetic.table((name,))
        errors, floors = sums[name] / others
        found += [
            Subgroup(
                attribute=name,
                code=code,
                real=float(rows[0][code] / real.rows),
                synthetic=float(rows[1][code] / synthetic.rows),
                error=float(errors[code]),
                floor=float(floors[code]),
            )
            for code in range(domain.size(name))
            if rows[0][code] >= FEWEST_ROWS
        ]
    return tuple(sorted(found, key=lambda group: -group.error))


def _within(real: Counts, synthetic: Counts) -> NDArray[np.float64]:
    """TVD of the second attribute given each code of the first, and what sampling alone would give."""
    p, q = _conditional(real), _conditional(synthetic)
    rows = np.maximum(synthetic.sum(axis=1), 1)
    floor = np.sqrt(2 * p * (1 - p) / (np.pi * rows[:, None])).sum(axis=1) / 2
    return np.stack([np.abs(p - q).sum(axis=1) / 2, floor])


def _conditional(counts: Counts) -> NDArray[np.float64]:
    """Each row scaled to sum 1; a row without records is uniform: nothing is known of the group."""
    totals = counts.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.where(totals > 0, counts / np.maximum(totals, 1), 1 / counts.shape[1])
    return shares
