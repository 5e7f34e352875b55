"""Exact marginal inference, the MARGINAL-ORACLE of Private-PGM: potentials on measured cliques in, marginals out.

Two implementations give the same numbers: compiled kernels for numpy, and array-API code for everything else. Both
work in linear space with scaling and repeat a pass in log space where the range of floating point does not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Arrays, chosen, namespace
from synth_core.domain import Clique
from synth_core.models import kernels
from synth_core.models.calibration import calibrate, inside_cliques, split
from synth_core.models.junction_tree import JunctionTree
from synth_core.models.plan import Plan, plan

Vector = NDArray[np.float64]

SHARED_CELLS = 300_000
"""Cliques with at least this many cells are swept by all threads; below it, handing work over costs more."""


class Oracle(Protocol):
    """Marginals (each summing to 1) of the measured cliques, as one vector, and the log-partition function."""

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass of inference."""
        ...


def marginal_oracle(tree: JunctionTree, cliques: Sequence[Clique], arrays: Arrays | None = None) -> Oracle:
    """The fastest exact oracle for the array library in use."""
    arrays = arrays or chosen()
    if arrays.compiled:
        return CompiledOracle(plan(tree, cliques), threads=arrays.threads)
    return GenericOracle(tree, tuple(cliques))


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


class CompiledOracle:
    """Inference by compiled kernels on a fixed plan, with its workspace allocated once.

    Each table is divided by a reference before it leaves log space: first by its maximum; where products of many
    such tables underflow, by its mean potential under the last marginals, around which the likely cells lie.
    Where that leaves the range too, the pass is made in log space.
    """

    def __init__(self, plan: Plan, *, threads: int = 1) -> None:
        layout = plan.layout
        self.plan = plan
        self._line_start = np.concatenate(([0], np.cumsum(layout.rows * layout.lines)))
        self._cells = np.ones(int(layout.table_start[-1]))
        self._marginals = np.zeros_like(self._cells)
        self._factors = np.empty(plan.workspace)
        self._sums = np.empty((threads, plan.workspace))
        self._weights, self._totals = np.empty(int(self._line_start[-1])), np.empty(int(self._line_start[-1]))
        self._row = np.empty((threads, plan.longest_row))
        self._starts = layout.table_start[: len(plan.cliques)]
        self._lengths = np.diff(layout.table_start[: len(plan.cliques) + 1])
        self._last: Vector | None = None
        self._around_mean = False
        cells = layout.rows * layout.lines * layout.block
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and cells.max() >= SHARED_CELLS else None

    def __call__(self, potentials: Vector) -> tuple[Vector, float]:
        """One pass."""
        if not self._starts.size:
            return GenericOracle(self.plan.tree, self.plan.cliques)(potentials)
        log_mass = math.nan
        if not self._around_mean:
            log_mass = self._pass(potentials, np.maximum.reduceat(potentials, self._starts))
        if math.isnan(log_mass) and self._last is not None:
            self._around_mean = True
            log_mass = self._pass(potentials, np.add.reduceat(potentials * self._last, self._starts))
        if math.isnan(log_mass):
            marginals, log_mass = GenericOracle(self.plan.tree, self.plan.cliques)(potentials)
        else:
            marginals = self._marginals[: self.plan.measured].copy()
        self._last = marginals
        return marginals, log_mass

    def _pass(self, potentials: Vector, references: Vector) -> float:
        with np.errstate(over="ignore"):
            np.exp(potentials - np.repeat(references, self._lengths), out=self._cells[: self.plan.measured])
        work = (self._cells, self._marginals, self._factors)
        if self._pool is not None:
            log_mass = self._shared_pass(self._pool)
        else:
            places = (self._sums[0], self._weights, self._totals, self._row[0])
            log_mass = kernels.propagate(self.plan.layout, self._line_start, *work, *places)
        return float(log_mass + references.sum())

    def _shared_pass(self, pool: ThreadPoolExecutor) -> float:
        """The same pass clique by clique, the rows of large cliques dealt to the threads."""
        layout, cells, sums = self.plan.layout, self._cells, self._sums[0]
        log_mass = 0.0
        for i in reversed(range(layout.block.size)):
            weights, totals = self._lines(i)
            kernels.prepare(layout, i, cells, self._factors, weights)
            if layout.parent_link[i] >= 0:
                self._sweep(kernels.sum_up, i, pool)
                largest = kernels.send(layout, i, cells, sums, totals)
                if not kernels.in_range(largest):
                    return math.nan
                log_mass += math.log(largest)
        for i in range(layout.block.size):
            weights, totals = self._lines(i)
            if layout.parent_link[i] >= 0:
                kernels.receive(layout, i, cells, self._marginals, self._factors, weights)
            self._sweep(kernels.sum_all, i, pool)
            mass = kernels.read(layout, i, sums, totals, self._marginals)
            if layout.parent_link[i] < 0:
                if not kernels.in_range(mass):
                    return math.nan
                log_mass += math.log(mass)
        return log_mass

    def _sweep(self, kernel: Any, i: int, pool: ThreadPoolExecutor) -> None:
        """Run a kernel over all rows of a clique; each thread sums into its own table, then they are added."""
        layout, rows = self.plan.layout, int(self.plan.layout.rows[i])
        shared = rows * layout.lines[i] * layout.block[i] >= SHARED_CELLS
        parts = min(len(self._sums), rows) if shared else 1
        weights, totals = self._lines(i)

        def swept(part: int) -> None:
            sums = self._sums[part]
            kernels.clear(layout, i, sums)
            begin, end = rows * part // parts, rows * (part + 1) // parts
            kernel(layout, i, begin, end, weights, self._factors, sums, totals, self._row[part])

        others = [pool.submit(swept, part) for part in range(1, parts)]
        swept(0)
        for part, other in enumerate(others, start=1):
            other.result()
            kernels.add_sums(layout, i, self._sums[part], self._sums[0])

    def _lines(self, i: int) -> tuple[Vector, Vector]:
        begin, end = self._line_start[i], self._line_start[i + 1]
        return self._weights[begin:end], self._totals[begin:end]
