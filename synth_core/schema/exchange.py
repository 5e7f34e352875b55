"""Rows whose numbers break a rule exchange one of them with a row of the same bin, so that no bin's numbers change.

Drawing numbers again until a rule holds changes what a bin's numbers are on average: where wages may not exceed
incomes, incomes that are kept are the higher ones. An exchange inside a bin keeps every column's numbers as they were
drawn, and with them means, totals and quantiles; only which row has which is another, and inside a bin that is chance
anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Flags

ROUNDS = 64
"""Partners that a row tries in each of the columns."""

Rows = NDArray[np.int64]
Values = dict[str, NDArray[Any]]


class _Pools:
    """The rows of each code of a column."""

    def __init__(self, codes: NDArray[Any]) -> None:
        self.rows = np.argsort(codes, kind="stable")
        self.sizes = np.bincount(codes)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def partners(self, codes: NDArray[Any], rng: np.random.Generator) -> Rows:
        """A random row of the same code for each."""
        found: Rows = self.rows[self.starts[codes] + (rng.random(len(codes)) * self.sizes[codes]).astype(np.int64)]
        return found


def exchange_numbers(
    numbers: Values,
    codes: Mapping[str, NDArray[Any]],
    rng: np.random.Generator,
    *,
    broken: Callable[[Values, Values], Flags],
) -> Rows:
    """Exchange numbers, in place, of rows that break a rule with those of rows that do not, until both keep it.

    Args:
        numbers: Numbers by column; exchanged are those of rows with the same code.
        codes: Codes of these columns.
        rng: Draws the partners.
        broken: Says which of some rows break a rule, by their numbers and their codes.

    Returns:
        The rows that still break one.
    """
    breaking = broken(numbers, dict(codes))
    rows = np.flatnonzero(breaking)
    if not len(rows):
        return rows
    pools = {name: _Pools(own) for name, own in codes.items()}
    claims = np.empty(len(breaking), dtype=np.int64)
    for _ in range(ROUNDS):
        for name, pool in pools.items():
            partners = pool.partners(codes[name][rows], rng)
            at = _apart(partners, breaking, claims)
            pairs = rows[at], partners[at]
            holds = ~_either(numbers, codes, name, pairs, broken=broken)
            mine, others = (side[holds] for side in pairs)
            numbers[name][mine], numbers[name][others] = numbers[name][others], numbers[name][mine]
            breaking[mine] = False
            rows = rows[breaking[rows]]
            if not len(rows):
                return rows
    return rows


def _apart(partners: Rows, breaking: Flags, claims: Rows) -> Rows:
    """Which of the rows have a partner that keeps the rules and is no other row's; `claims` is overwritten."""
    claims[partners] = own = np.arange(len(partners))
    found: Rows = np.flatnonzero((claims[partners] == own) & ~breaking[partners])
    return found


def _either(
    numbers: Values,
    codes: Mapping[str, NDArray[Any]],
    name: str,
    pairs: tuple[Rows, Rows],
    *,
    broken: Callable[[Values, Values], Flags],
) -> Flags:
    """Whether either row of a pair would break a rule after an exchange in this column."""
    found = np.zeros(len(pairs[0]), dtype=np.bool_)
    for rows, from_rows in (pairs, pairs[::-1]):
        tried = {column: held[from_rows if column == name else rows] for column, held in numbers.items()}
        found |= broken(tried, {column: held[rows] for column, held in codes.items()})
    return found
