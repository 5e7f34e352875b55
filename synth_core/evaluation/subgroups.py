"""Whom the synthetic table serves worst: errors inside the groups that single values of columns make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Domain
from synth_core.evaluation.result import Subgroup
from synth_core.metrics import Codes, tabulate

FEWEST_ROWS = 100
"""A smaller group's error is mostly the chance of sampling it."""


def subgroup_errors(real: Codes, synthetic: Codes, domain: Domain) -> tuple[Subgroup, ...]:
    """For every value of every column: the mean TVD of all other columns among the rows that have the value.

    The largest error is first. `floor` is the mean TVD that a fresh sample of as many rows would have, in expectation:
    E|p^ - p| is about sqrt(2 p (1 - p) / (pi m)) for each cell.
    """
    found = []
    for attribute in domain:
        rows = tabulate(real, domain, (attribute,)), tabulate(synthetic, domain, (attribute,))
        others = [name for name in domain if name != attribute]
        if not others:
            continue
        parts = [_within(real, synthetic, domain, (attribute, other)) for other in others]
        errors, floors = (np.mean([part[side] for part in parts], axis=0) for side in (0, 1))
        found += [
            Subgroup(
                attribute=attribute,
                code=code,
                real=float(rows[0][code] / len(real)),
                synthetic=float(rows[1][code] / len(synthetic)),
                error=float(errors[code]),
                floor=float(floors[code]),
            )
            for code in range(domain.size(attribute))
            if rows[0][code] >= FEWEST_ROWS
        ]
    return tuple(sorted(found, key=lambda group: -group.error))


def _within(
    real: Codes, synthetic: Codes, domain: Domain, pair: tuple[str, str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """TVD of the second attribute given each code of the first, and what sampling alone would give."""
    p, q = (_conditional(tabulate(codes, domain, pair)) for codes in (real, synthetic))
    rows = np.maximum(tabulate(synthetic, domain, pair[:1]), 1)
    floor = np.sqrt(2 * p * (1 - p) / (np.pi * rows[:, None])).sum(axis=1) / 2
    return np.abs(p - q).sum(axis=1) / 2, floor


def _conditional(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each row scaled to sum 1; a row without records is uniform: nothing is known of the group."""
    totals = counts.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.where(totals > 0, counts / np.maximum(totals, 1), 1 / counts.shape[1])
    return shares
