"""Workload error: marginals whose ordered attributes are asked as prefix ranges (Private-PGM, Section 5)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.evaluation.cells import Counts
from synth_core.evaluation.distances import alpha_way
from synth_core.evaluation.tables import CodedTable

WORKLOAD_MARGINALS = 15
LARGEST_TABLE = 5_000_000


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
