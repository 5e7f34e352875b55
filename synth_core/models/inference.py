"""Exact marginal inference, the MARGINAL-ORACLE of Private-PGM: potentials on measured cliques in, marginals out.

Two implementations give the same numbers: compiled kernels for numpy, and array-API code for everything else. Both
work in linear space with scaling and repeat a pass in log space where the range of floating point does not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from synth_core.arrays import Arrays, chosen, namespace
from synth_core.domain import Clique
from synth_core.models import kernels
from synth_core.models.calibration import calibrate, inside_cliques, split
from synth_core.models.junction_tree import JunctionTree
from synth_core.models.plan import Plan, plan


class Oracle(Protocol):
    """Marginals (each summing to 1) of the measured cliques, as one vector, and the log-partition function."""

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass of inference."""
        ...


def marginal_oracle(tree: JunctionTree, cliques: Sequence[Clique], arrays: Arrays | None = None) -> Oracle:
    """The fastest exact oracle for the array library in use."""
    arrays = arrays or chosen()
    if arrays.compiled:
        return CompiledOracle(plan(tree, cliques))
    return GenericOracle(tree, tuple(cliques))


class CompiledOracle:
    """Inference by compiled kernels on a fixed plan, with its workspace allocated once."""

    def __init__(self, plan: Plan) -> None:
        layout = plan.layout
        self.plan = plan
        self._row_start = np.concatenate(([0], np.cumsum(layout.rows)))
        self._cells = np.ones(int(layout.table_start[-1]))
        self._marginals = np.zeros_like(self._cells)
        self._factors, self._sums = np.empty(plan.workspace), np.empty(plan.workspace)
        self._weights, self._totals = np.empty(int(self._row_start[-1])), np.empty(plan.most_rows)
        self._row = np.empty(plan.longest_row)
        self._starts = layout.table_start[: len(plan.cliques)]
        self._lengths = np.diff(layout.table_start[: len(plan.cliques) + 1])

    def __call__(self, potentials: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], float]:
        """One pass; in log space if linear space runs out of range."""
        measured = self.plan.measured
        if measured:
            peaks = np.maximum.reduceat(potentials, self._starts)
            np.exp(potentials - np.repeat(peaks, self._lengths), out=self._cells[:measured])
        else:
            peaks = np.zeros(0)
        log_mass = kernels.propagate(
            self.plan.layout,
            self._row_start,
            self._cells,
            self._marginals,
            self._factors,
            self._sums,
            self._weights,
            self._totals,
            self._row,
        )
        if math.isnan(log_mass):
            return GenericOracle(self.plan.tree, self.plan.cliques)(potentials)
        return self._marginals[:measured].copy(), float(log_mass + peaks.sum())


@dataclass(frozen=True, slots=True)
class GenericOracle:
    """Inference by array-API code: any library, whole clique tables in memory."""

    tree: JunctionTree
    cliques: tuple[Clique, ...]

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass; in log space if linear space runs out of range."""
        xp = namespace(potentials)
        calibration = calibrate(self.tree, split(self.tree.domain, self.cliques, potentials))
        found = inside_cliques(self.tree, calibration.beliefs, self.cliques)
        parts = [xp.reshape(found[clique], (-1,)) for clique in self.cliques]
        return (xp.concat(parts) if parts else potentials), calibration.log_mass
