"""The error of estimated tables on a declared workload."""

from collections.abc import Callable, Iterable

import numpy as np

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.models.linear import contract_axes
from synth_core.synthesizers.workloads import QuerySet

Tables = Callable[[Clique], Floats]
"""Counts of a clique's cells, from a model or from records."""


def relative_error(parts: Iterable[QuerySet], domain: Domain, *, real: Tables, estimated: Tables) -> float:
    """Section 5 of Private-PGM: mean of |W c - W c'|_1 / (2 |W c|_1) over the parts, by their weights.

    For plain marginals with the same total it is the mean total variation distance. It is computed from exact
    counts, so the result is confidential where the records are.
    """
    error = mass = 0.0
    for part in parts:
        matrices = part.matrices(domain)
        truth = contract_axes(np.asarray(real(part.clique), dtype=np.float64), matrices)
        guess = contract_axes(np.asarray(estimated(part.clique), dtype=np.float64), matrices)
        error += part.weight * float(np.abs(truth - guess).sum() / (2 * truth.sum()))
        mass += part.weight
    return error / mass
