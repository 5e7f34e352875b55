"""How far the numbers themselves are off, not their codes: what a reader sees who computes a mean.

Numbers are taken from codes and places (`schema.columns.inside`), real and synthetic ones alike, so each is known up to
a cell of its bin: whole numbers in bins of up to 4,096 of them exactly, others up to a few thousandths of their bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Domain
from synth_core.evaluation.nist import gini
from synth_core.evaluation.tables import CodedTable
from synth_core.privacy.wall import wall
from synth_core.schema.columns.inside import InsideBins, place_name
from synth_core.storage.counting import Piece, read_piece

SHARES = (0.10, 0.50, 0.90, 0.99)
"""Of which shares of the rows quantiles are compared."""

CURVE_POINTS = 99
"""Points of a quantile curve: percentiles."""

MAX_GROUPS = 10
"""Groups of rows whose means are compared: the largest."""

LARGEST_GROUP = 0.9
"""Share of all rows from which a group is no group."""

INCOME = "income"
"""The role of a column whose Gini coefficient is compared."""

RowGroup = tuple[str, int]
"""A column and one of its codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSummary:
    """The numbers of one column of one table.

    Attributes:
        rows: Rows that hold a number.
        mean: Their mean, 0 if there are none.
        deviation: Their standard deviation.
        quantiles: At `SHARES`.
        total: Their sum.
        gini: Their Gini coefficient, for a column with the role income.
    """

    rows: int
    mean: float
    deviation: float
    quantiles: tuple[float, ...]
    total: float
    gini: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMean:
    """The mean of a column's numbers among the rows with one code of another column."""

    attribute: str
    code: int
    real: float
    synthetic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueErrors:
    """How far the numbers of one column are off.

    Attributes:
        column: Its name.
        real: What the real table holds.
        synthetic: What the synthetic table holds.
        kolmogorov: Largest difference of the two distribution functions.
        wasserstein: Area between them, in standard deviations of the real numbers.
        groups: Means in the largest groups of rows.
        curve: Percentiles, as pairs of a real and a synthetic number.
    """

    column: str
    real: ValueSummary
    synthetic: ValueSummary
    kolmogorov: float
    wasserstein: float
    groups: tuple[GroupMean, ...]
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueComparison:
    """The numbers of two tables: errors of each column, and for pairs of columns the correlations of both tables."""

    columns: tuple[ValueErrors, ...] = ()
    correlations: tuple[tuple[str, str, float, float], ...] = ()


@dataclass(slots=True, eq=False)
class _Sums:
    """What is added up over the pieces of a table.

    `counts` has a histogram over the places of all bins for each column; `products` the sums of x, of x y and of x^2
    over rows in which both columns of a pair hold a number; `groups` rows and sum of each column in each group.
    """

    counts: list[NDArray[np.int64]]
    products: NDArray[np.float64]
    groups: NDArray[np.float64]


def summarise_values(table: CodedTable, columns: Sequence[InsideBins]) -> list[ValueSummary]:
    """Summarise the numbers of one table.

    Args:
        table: A table whose pieces hold places beside codes.
        columns: The columns of numbers.

    Returns:
        One summary for each column.
    """
    if not columns:
        return []
    sums: _Sums = table.total(_add_values, _added, columns=tuple(columns), groups=())
    return [
        _summary(column.place_numbers.ravel(), counts, is_income=column.role == INCOME)
        for column, counts in zip(columns, sums.counts, strict=True)
    ]


def compare_values(real: CodedTable, synthetic: CodedTable, columns: Sequence[InsideBins]) -> ValueComparison:
    """Compare the numbers of two tables.

    Args:
        real: The confidential table; its pieces hold places beside codes.
        synthetic: The synthetic table, with places too.
        columns: The columns of numbers.

    Returns:
        Every error; it is confidential.
    """
    if not columns:
        return ValueComparison()
    groups = _largest_groups(real, [column.name for column in columns])
    sums = [table.total(_add_values, _added, columns=tuple(columns), groups=groups) for table in (real, synthetic)]
    found = [_column_errors(column, k, groups, sums) for k, column in enumerate(columns)]
    pairs = [(i, j) for i in range(len(columns)) for j in range(i)]
    correlations = tuple(
        (columns[j].name, columns[i].name, _correlation(sums[0], i, j), _correlation(sums[1], i, j)) for i, j in pairs
    )
    return ValueComparison(columns=tuple(found), correlations=correlations)


def _largest_groups(table: CodedTable, numeric: Sequence[str]) -> tuple[RowGroup, ...]:
    names = [name for name in table.domain if name not in numeric]
    sizes = [
        (int(rows), name, code)
        for name, counts in zip(names, table.tables([(name,) for name in names]), strict=True)
        for code, rows in enumerate(counts.tolist())
        if 0 < rows < LARGEST_GROUP * table.rows
    ]
    return tuple((name, code) for _, name, code in sorted(sizes, key=lambda one: -one[0])[:MAX_GROUPS])


def _column_errors(column: InsideBins, k: int, groups: Sequence[RowGroup], sums: Sequence[_Sums]) -> ValueErrors:
    numbers = column.place_numbers.ravel()
    counts = [one.counts[k] for one in sums]
    real, synthetic = (_summary(numbers, own, is_income=column.role == INCOME) for own in counts)
    below = [np.cumsum(own) / max(1, own.sum()) for own in counts]
    apart = np.abs(below[0] - below[1])
    area = float((apart[:-1] * np.diff(numbers)).sum())
    shares = np.arange(1, CURVE_POINTS + 1) / (CURVE_POINTS + 1)
    curves = [_quantiles(numbers, own, shares) for own in counts]
    means = [np.divide(one.groups[k, :, 1], np.maximum(one.groups[k, :, 0], 1)) for one in sums]
    held = (sums[0].groups[k, :, 0] > 0) & (sums[1].groups[k, :, 0] > 0)
    return ValueErrors(
        column=column.name,
        real=real,
        synthetic=synthetic,
        kolmogorov=float(apart.max()),
        wasserstein=area / real.deviation if real.deviation else 0.0,
        groups=tuple(
            GroupMean(attribute=name, code=code, real=_short(means[0][g]), synthetic=_short(means[1][g]))
            for g, (name, code) in enumerate(groups)
            if held[g]
        ),
        curve=tuple(zip(*curves, strict=True)),
    )


def _summary(numbers: NDArray[np.float64], counts: NDArray[np.int64], *, is_income: bool) -> ValueSummary:
    rows = int(counts.sum())
    mean = float((numbers * counts).sum() / rows) if rows else 0.0
    deviation = math.sqrt(float(((numbers - mean) ** 2 * counts).sum() / rows)) if rows else 0.0
    some = np.flatnonzero(counts)
    measured = is_income and rows > 0 and numbers[some[0]] >= 0
    return ValueSummary(
        rows=rows,
        mean=mean,
        deviation=deviation,
        quantiles=_quantiles(numbers, counts, np.array(SHARES)),
        total=mean * rows,
        gini=gini(numbers[some], counts[some].astype(np.float64)) if measured else None,
    )


def _quantiles(
    numbers: NDArray[np.float64], counts: NDArray[np.int64], shares: NDArray[np.float64]
) -> tuple[float, ...]:
    """The least number that this share of the rows does not exceed; 0 where there are no rows."""
    below = np.cumsum(counts)
    if not below[-1]:
        return (0.0,) * len(shares)
    at = np.searchsorted(below, np.ceil(shares * below[-1] * (1 - 1e-12)))
    return tuple(numbers[at].tolist())


def _correlation(sums: _Sums, i: int, j: int) -> float:
    """Pearson's correlation from rows, sums of x and y, of x x, y y and x y; 0 where one of them is constant."""
    rows, x, y, xx, yy, xy = sums.products[:, i, j]
    if not rows:
        return 0.0
    spread = (xx / rows - (x / rows) ** 2) * (yy / rows - (y / rows) ** 2)
    return _short((xy / rows - x * y / rows**2) / math.sqrt(spread)) if spread > 0 else 0.0


def _short(value: float) -> float:
    """Ten digits: sums over pieces are rounded by the order in which they are added."""
    return float(f"{float(value):.10g}")


def _add_values(
    pieces: Sequence[Piece], *, domain: Domain, columns: Sequence[InsideBins], groups: Sequence[RowGroup]
) -> _Sums:
    """What one worker's pieces add; runs on a worker."""
    with wall():
        sums = _Sums(
            [np.zeros(column.place_numbers.size, dtype=np.int64) for column in columns],
            np.zeros((6, len(columns), len(columns))),
            np.zeros((len(columns), len(groups), 2)),
        )
        kept = [place_name(column.name) for column in columns if column.place_count > 1]
        wanted = [*domain.clique([*(column.name for column in columns), *(name for name, _ in groups)]), *kept]
        for piece in pieces:
            codes = read_piece(piece, wanted)
            numbers = []
            for k, column in enumerate(columns):
                own, count = codes[column.name].astype(np.int64), column.place_count
                at = own * count + codes[place_name(column.name)] if count > 1 else own
                at = np.where(own < column.declared, at, -1)  # where the row's number stands in the list of all
                sums.counts[k] += np.bincount(at[at >= 0], minlength=len(sums.counts[k]))
                numbers.append(_numbers_at(column, at))
            _add_products(sums.products, numbers)
            for g, (name, code) in enumerate(groups):
                members = codes[name] == code
                for k, every in enumerate(numbers):
                    mine = every[members]
                    held = ~np.isnan(mine)
                    sums.groups[k, g] += held.sum(), mine[held].sum()
        return sums


def _numbers_at(column: InsideBins, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The number of each row, NaN where it holds none."""
    found: NDArray[np.float64] = np.append(column.place_numbers.ravel(), np.nan)[at]
    return found


def _add_products(products: NDArray[np.float64], numbers: Sequence[NDArray[np.float64]]) -> None:
    for i, x in enumerate(numbers):
        for j, y in enumerate(numbers[:i]):
            both = ~(np.isnan(x) | np.isnan(y))
            a, b = x[both], y[both]
            products[:, i, j] += both.sum(), a.sum(), b.sum(), a @ a, b @ b, a @ b


def _added(parts: Sequence[_Sums]) -> _Sums:
    with wall():
        counts = [np.sum(own, axis=0) for own in zip(*(part.counts for part in parts), strict=True)]
        products = np.sum([part.products for part in parts], axis=0)
        return _Sums(counts, products, np.sum([part.groups for part in parts], axis=0))
