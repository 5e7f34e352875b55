"""Errors of a synthetic table's marginals, beside two yardsticks: a fresh sample and independent columns."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.evaluation.cells import LARGEST_MARGINAL, Cells, distances
from synth_core.evaluation.distances import alpha_way, summarize, tvd
from synth_core.evaluation.result import MarginalErrors
from synth_core.evaluation.tables import CodedTable

YARDSTICK_MARGINALS = 60
"""Yardsticks vary little from marginal to marginal, so some of the cliques are enough for them."""
_YARDSTICK_SEED = 1


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
