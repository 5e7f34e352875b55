"""What the tables of all pairs of columns tell: their distances, the worst of their cells, correlations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.evaluation.cells import Counts
from synth_core.evaluation.distances import Cell, tvd
from synth_core.evaluation.tables import CodedTable


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
    """The cells whose shares differ most over all the cliques, largest difference first."""
    worst: list[Cell] = []
    for clique, left, right in zip(cliques, real.tables(cliques), synthetic.tables(cliques), strict=True):
        p, q = left / real.rows, right / synthetic.rows
        gap = np.abs(p - q).ravel()
        for flat in np.argsort(-gap, kind="stable")[:count]:
            codes = tuple(int(code) for code in np.unravel_index(flat, p.shape))
            worst.append(Cell(clique=clique, codes=codes, left=float(p[codes]), right=float(q[codes])))
    return tuple(sorted(worst, key=lambda cell: -abs(cell.left - cell.right))[:count])


def correlation_difference(real: CodedTable, synthetic: CodedTable) -> NDArray[np.float64]:
    """Pearson correlation of every pair of columns' codes, synthetic minus real; 0 where a column is constant."""
    return _correlations(synthetic) - _correlations(real)


def _correlations(table: CodedTable) -> NDArray[np.float64]:
    domain = table.domain
    centred = [_centred(counts) for counts in table.tables([(attribute,) for attribute in domain])]
    variances = [
        float(counts @ codes**2)
        for counts, codes in zip(table.tables([(a,) for a in domain]), centred, strict=True)
    ]
    found = np.diag([1.0 if variance > 0 else 0.0 for variance in variances])
    places = list(combinations(range(len(domain)), 2))
    cliques = [(domain.attributes[i], domain.attributes[j]) for i, j in places]
    for (i, j), counts in zip(places, table.tables(cliques), strict=True):
        scale = np.sqrt(variances[i] * variances[j])
        found[i, j] = found[j, i] = float(centred[i] @ counts @ centred[j]) / scale if scale > 0 else 0.0
    return found


def _centred(counts: Counts) -> NDArray[np.float64]:
    """A column's codes less their mean."""
    codes = np.arange(len(counts), dtype=np.float64)
    mean = float(counts @ codes) / int(counts.sum())
    return codes - mean
