"""Exact marginal inference, the MARGINAL-ORACLE of Private-PGM: potentials on measured cliques in, marginals out.

Two implementations give the same numbers: compiled kernels for numpy, and array-API code for everything else. Both
work in linear space with scaling and repeat a pass in log space where the range of floating point does not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from synth_core.models.plan import Layout, Plan, plan

Vector = NDArray[np.float64]

SHARED_CELLS = 1_000_000
"""Cliques with at least this many cells are swept by all threads; below it, handing work over costs more."""


PAGE = 4096
HALF_WAY = 1024
"""A processor takes a load for one of what was just stored when their addresses agree within a page, and waits. A
row and the groups' tables advance together, mostly by powers of two: begun apart, they stay apart."""


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
        lines = np.concatenate(([0], np.cumsum(layout.rows * layout.lines)))
        tables = int(layout.table_start[-1])
        self.plan = plan
        self._work = kernels.Work(
            line_start=lines,
            cells=np.ones(tables),
            marginals=np.zeros(tables),
            factors=_placed(plan.workspace, HALF_WAY),
            sums=_placed(plan.workspace, HALF_WAY),
            weights=np.empty(int(lines[-1])),
            totals=np.empty(int(lines[-1])),
            row=_placed(plan.longest_row, 0),
        )
        self._work.cells[plan.excluded] = 0.0
        self._starts = layout.table_start[: len(plan.cliques)]
        self._lengths = np.diff(layout.table_start[: len(plan.cliques) + 1])
        self._last: Vector | None = None
        self._around_mean = False
        self._shared = SharedSweeps(plan, self._work, threads) if threads > 1 else None

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
            marginals = self._work.marginals[: self.plan.measured].copy()
        self._last = marginals
        return marginals, log_mass

    def _pass(self, potentials: Vector, references: Vector) -> float:
        with np.errstate(over="ignore"):
            shifted = potentials - np.repeat(references, self._lengths)
            np.exp(shifted, out=self._work.cells[: self.plan.measured])
        log_mass = self._shared() if self._shared else kernels.propagate(self.plan.layout, self._work)
        return float(log_mass + references.sum())


class SharedSweeps:
    """The same pass with the rows of large cliques dealt to several threads; small cliques stay with one."""

    def __init__(self, plan: Plan, work: kernels.Work, threads: int) -> None:
        self.layout = plan.layout
        self.work = work
        self.segments = _segments(plan.layout)
        self.sums = [work.sums, *(_placed(work.sums.size, HALF_WAY) for _ in range(threads - 1))]
        self.row = [work.row, *(_placed(work.row.size, 0) for _ in range(threads - 1))]
        self.pool = ThreadPoolExecutor(threads - 1)

    def __call__(self) -> float:
        """Both directions; the logarithm of the mass, or nan if it left the range."""
        log_mass = 0.0
        for begin, end, large in reversed(self.segments):
            if large:
                log_mass += self._collect(begin)
            else:
                log_mass += kernels.collect(self.layout, begin, end, self.work)
        for begin, end, large in self.segments:
            if large:
                log_mass += self._distribute(begin)
            else:
                log_mass += kernels.distribute(self.layout, begin, end, self.work)
        return log_mass

    def _collect(self, i: int) -> float:
        weights, totals = self._lines(i)
        places = (self.work.cells, self.work.factors, weights)
        self._dealt(lambda part, parts: kernels.prepare(self.layout, i, part, parts, *places))
        if self.layout.parent_link[i] < 0:
            return 0.0
        self._sweep(kernels.sum_up, i)
        return kernels.scale_of(kernels.send(self.layout, i, self.work.cells, self.work.sums, totals))

    def _distribute(self, i: int) -> float:
        weights, totals = self._lines(i)
        root = self.layout.parent_link[i] < 0
        if not root:
            kernels.receive(self.layout, i, self.work.cells, self.work.marginals, self.work.factors, weights)
        self._sweep(kernels.sum_all, i)
        places = (self.work.sums, totals, self.work.marginals)
        mass = self._dealt(lambda part, parts: kernels.read(self.layout, i, part, parts, *places))
        return kernels.scale_of(mass) if root else 0.0

    def _sweep(self, kernel: Any, i: int) -> None:
        """Run a kernel over all rows of a clique; each thread sums into its own tables, then they are added."""
        rows = int(self.layout.rows[i])
        weights, totals = self._lines(i)

        def swept(part: int, parts: int) -> None:
            begin, end = rows * part // parts, rows * (part + 1) // parts
            kernels.clear(self.layout, i, self.sums[part])
            places = (weights, self.work.factors, self.sums[part], totals, self.row[part])
            kernel(self.layout, i, begin, end, *places)

        self._dealt(swept)
        for sums in self.sums[1:]:
            kernels.add_sums(self.layout, i, sums, self.work.sums)

    def _dealt(self, work: Callable[[int, int], Any]) -> Any:
        """Do all parts of some work at once, the first in this thread; the first one's result."""
        parts = len(self.sums)
        others = [self.pool.submit(work, part, parts) for part in range(1, parts)]
        result = work(0, parts)
        for other in others:
            other.result()
        return result

    def _lines(self, i: int) -> tuple[Vector, Vector]:
        begin, end = self.work.line_start[i], self.work.line_start[i + 1]
        return self.work.weights[begin:end], self.work.totals[begin:end]


def _placed(cells: int, offset: int) -> Vector:
    """Uninitialised cells that begin `offset` bytes after a page's border."""
    held = np.empty(cells + PAGE // 8)
    skipped = (offset - held.ctypes.data) % PAGE // 8
    return held[skipped : skipped + cells]


def _segments(layout: Layout) -> list[tuple[int, int, bool]]:
    """Ranges of cliques that are swept together: runs of small ones, and each large one alone."""
    segments: list[tuple[int, int, bool]] = []
    for i, cells in enumerate(layout.rows * layout.lines * layout.block):
        large = bool(cells >= SHARED_CELLS)
        if segments and not large and not segments[-1][2]:
            segments[-1] = (segments[-1][0], i + 1, False)
        else:
            segments.append((i, i + 1, large))
    return segments
