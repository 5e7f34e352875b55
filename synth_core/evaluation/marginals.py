"""Errors of a synthetic table's marginals: overall, by pair of columns, cell by cell, inside groups, and on a workload.

Two yardsticks stand beside them: a fresh sample of the real rows, and the real columns shuffled apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain, pick_varied
from synth_core.evaluation.cells import LARGEST_MARGINAL, Cells, distances
from synth_core.evaluation.distances import Cell, Summary, alpha_way, summarize, tvd
from synth_core.evaluation.tables import CodedTable
from synth_core.privacy.queries import Counts

YARDSTICK_MARGINALS = 60
"""Yardsticks vary little from marginal to marginal, so some of the cliques are enough for them."""
_YARDSTICK_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalErrors:
    """Errors over the marginals of `alpha` attributes; `values` holds the TVD of each clique.

    Two yardsticks are measured on the same cliques: `floor` is the mean TVD of a bootstrap of the real rows,
    as many as the synthetic table has (what sampling alone costs), `independent` that of the real columns
    shuffled apart (every tie between columns lost). Of the values, `estimated` come from a random part of the cells.
    """

    alpha: int
    population: int
    cliques: tuple[Clique, ...]
    values: tuple[float, ...]
    tvd: Summary
    l2: float
    jensen_shannon: float
    floor: float
    independent: float
    estimated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """The rows with one value of one column: their share of each table, and the mean TVD of all other columns.

    `floor` is the error that sampling as many rows would give by itself.
    """

    attribute: str
    code: int
    real: float
    synthetic: float
    error: float
    floor: float


def marginal_errors(real: CodedTable, synthetic: CodedTable, *, alpha: int) -> MarginalErrors | None:
    """Compare the marginals of `alpha` attributes; None where the domain has fewer attributes than that."""
    domain, rows = real.domain, (real.rows, synthetic.rows)
    cliques = tuple(c for c in alpha_way(domain, alpha) if domain.cells(c) <= LARGEST_MARGINAL)
    if not cliques:
        return None
    yardsticks = _Yardsticks(real, synthetic.rows)
    some = set(cliques[:: max(1, len(cliques) // YARDSTICK_MARGINALS)])
    found, floors, apart = [], [], []
    for clique, left, right in zip(cliques, real.cells(cliques), synthetic.cells(cliques), strict=True):
        found.append(distances(left, right, rows=rows))
        if clique in some:
            floors.append(yardsticks.floor(left))
            apart.append(yardsticks.independent(left, clique))
    values = tuple(distance.tvd for distance in found)
    population = math.comb(len(domain), alpha)
    return MarginalErrors(
        alpha=alpha,
        population=population,
        cliques=cliques,
        values=values,
        tvd=summarize(values, population=population),
        l2=float(np.mean([distance.l2 for distance in found])),
        jensen_shannon=float(np.mean([distance.jensen_shannon for distance in found])),
        floor=float(np.mean(floors)),
        independent=float(np.mean(apart)),
        estimated=sum(distance.estimated for distance in found),
    )


class _Yardsticks:
    """What a bootstrap of the real rows and a shuffle of every column on its own would give, drawn from the counts."""

    def __init__(self, real: CodedTable, rows: int) -> None:
        self._real, self._rows = real.rows, rows
        self._domain: Domain = real.domain
        self._shares = {name: real.table((name,)) / real.rows for name in self._domain}
        self._rng = np.random.default_rng(_YARDSTICK_SEED)

    def floor(self, cells: Cells) -> float:
        """TVD of as many rows as the synthetic table has, drawn from the real ones."""
        kept = int(cells.counts.sum())
        fresh = self._rng.multinomial(max(1, round(self._rows * kept / self._real)), cells.counts / kept)
        return tvd(cells.counts, fresh)

    def independent(self, cells: Cells, clique: Clique) -> float:
        """TVD of the real rows after every column was shuffled on its own.

        It is the sum over cells of what the real share exceeds the other's by, so cells without real rows do not count.
        """
        if len(clique) == 1:
            return 0.0
        codes = np.unravel_index(cells.positions, self._domain.shape(clique))
        expected: NDArray[np.float64] = np.full(len(cells.positions), float(self._real))
        for name, of_column in zip(clique, codes, strict=True):
            expected *= self._shares[name][of_column]
        shuffled = self._rng.poisson(expected)
        return float(np.maximum(cells.counts - shuffled, 0).sum() / cells.counts.sum())


WORKLOAD_MARGINALS = 15
"""Three-way marginals of the workload error."""
LARGEST_TABLE = 5_000_000
"""Upper limit of one of these marginals in cells."""


def workload_error(real: CodedTable, synthetic: CodedTable, *, ordered: Collection[str]) -> float | None:
    """Mean over 15 fixed random three-way marginals of the L1 error of their queries, relative to twice their sum.

    For a marginal of unordered attributes this is the total variation distance. Both tables are scaled to sum 1
    first, because a synthetic table need not have as many rows. None where no marginal of three is small enough.
    """
    domain = real.domain
    cliques = [clique for clique in alpha_way(domain, 3) if domain.cells(clique) <= LARGEST_TABLE]
    if not cliques:
        return None
    order = np.random.default_rng(3).permutation(len(cliques))[:WORKLOAD_MARGINALS]
    chosen = [cliques[place] for place in order]
    errors = []
    for clique, left, right in zip(chosen, real.tables(chosen), synthetic.tables(chosen), strict=True):
        truth = _answers(left, clique, ordered=ordered)
        guess = _answers(right, clique, ordered=ordered)
        errors.append(float(np.abs(truth - guess).sum() / (2 * truth.sum())))
    return float(np.mean(errors))


def _answers(counts: Counts, clique: Clique, *, ordered: Collection[str]) -> NDArray[np.float64]:
    answers: NDArray[np.float64] = counts / counts.sum()
    for axis, attribute in enumerate(clique):
        if attribute in ordered:
            answers = answers.cumsum(axis=axis)
    return answers


def pair_tvd(real: CodedTable, synthetic: CodedTable) -> NDArray[np.float64]:
    """Symmetric matrix of the TVD of every pair of attributes; the diagonal holds the single attributes."""
    domain = real.domain
    places = list(combinations_with_replacement(range(len(domain)), 2))
    cliques = [domain.clique((domain.attributes[i], domain.attributes[j])) for i, j in places]
    matrix = np.zeros((len(domain), len(domain)))
    for (i, j), left, right in zip(places, real.tables(cliques), synthetic.tables(cliques), strict=True):
        matrix[i, j] = matrix[j, i] = tvd(left, right)
    return matrix


def worst_cells(
    real: CodedTable, synthetic: CodedTable, *, cliques: Sequence[Clique], count: int = 10
) -> tuple[Cell, ...]:
    """The cells whose shares differ most over all the cliques, largest difference first; see `pick_varied`."""
    worst: list[Cell] = []
    for clique, left, right in zip(cliques, real.tables(cliques), synthetic.tables(cliques), strict=True):
        p, q = left / real.rows, right / synthetic.rows
        gap = np.abs(p - q).ravel()
        for flat in np.argsort(-gap, kind="stable")[:count]:
            codes = tuple(int(code) for code in np.unravel_index(flat, p.shape))
            worst.append(Cell(clique=clique, codes=codes, left=float(p[codes]), right=float(q[codes])))
    ranked = sorted(worst, key=lambda cell: -abs(cell.left - cell.right))
    return tuple(pick_varied(ranked, lambda cell: cell.clique, count=count))


def correlation_difference(real: CodedTable, synthetic: CodedTable) -> NDArray[np.float64]:
    """Pearson correlation of every pair of columns' codes, synthetic minus real; 0 where a column is constant."""
    return _correlations(synthetic) - _correlations(real)


def _correlations(table: CodedTable) -> NDArray[np.float64]:
    domain = table.domain
    columns = list(table.tables([(attribute,) for attribute in domain]))
    codes_of = [np.arange(len(counts), dtype=np.float64) for counts in columns]
    means = [float(counts @ codes) / table.rows for counts, codes in zip(columns, codes_of, strict=True)]
    centred = [codes - mean for codes, mean in zip(codes_of, means, strict=True)]
    variances = [float(counts @ codes**2) for counts, codes in zip(columns, centred, strict=True)]
    found = np.diag([1.0 if variance > 0 else 0.0 for variance in variances])
    places = list(combinations(range(len(domain)), 2))
    cliques = [(domain.attributes[i], domain.attributes[j]) for i, j in places]
    for (i, j), counts in zip(places, table.tables(cliques), strict=True):
        scale = np.sqrt(variances[i] * variances[j])
        found[i, j] = found[j, i] = float(centred[i] @ counts @ centred[j]) / scale if scale > 0 else 0.0
    return found


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
