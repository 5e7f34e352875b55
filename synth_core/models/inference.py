"""Exact marginal inference, the MARGINAL-ORACLE of Private-PGM: potentials on measured cliques in, marginals out.

Two implementations give the same numbers: compiled kernels for numpy, and array-API code for everything else. Both
work in linear space with scaling and repeat a pass in log space where the range of floating point does not suffice.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Arrays, Floats, Index, default_backend, namespace
from synth_core.domain import Clique
from synth_core.models import kernels
from synth_core.models.calibration import calibrate, inside_cliques, split_tables
from synth_core.models.junction_tree import JunctionTree
from synth_core.models.plan import Layout, PassPlan, plan

SHARED_CELLS = 1_000_000
"""Cliques with at least this many cells are swept by all threads; below it, handing work over costs more."""

HEAD_START = 16
"""The other threads begin later, by about this part of their work: of a clique's rows the first takes so much more."""

PAGE = 4096
"""Bytes of a page of memory."""
HALF_WAY = 1024
"""A processor takes a load for one of what was just stored when their addresses agree within a page, and waits. A
row and the groups' tables advance together, mostly by powers of two: begun apart, they stay apart."""


FARTHEST = 200.0
"""Nats by which a potential may exceed its table's reference: the square of the exponential is within range."""


class Oracle(Protocol):
    """Marginals (each summing to 1) of the measured cliques, as one vector, and the log-partition function."""

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass of inference."""


def marginal_oracle(tree: JunctionTree, cliques: Sequence[Clique], arrays: Arrays | None = None) -> Oracle:
    """The fastest exact oracle for the array library in use."""
    arrays = arrays or default_backend()
    if arrays.compiled:
        return CompiledOracle(plan(tree, tuple(cliques)), threads=arrays.threads)
    return GenericOracle(tree, tuple(cliques))


@dataclass(frozen=True, slots=True)
class GenericOracle:
    """Inference by array-API code: any library, whole clique tables in memory."""

    tree: JunctionTree
    cliques: tuple[Clique, ...]

    def __call__(self, potentials: Any) -> tuple[Any, float]:
        """One pass; in log space if linear space runs out of range."""
        xp = namespace(potentials)
        calibration = calibrate(self.tree, split_tables(self.tree.domain, self.cliques, potentials))
        found = inside_cliques(self.tree, calibration.beliefs, self.cliques)
        parts = [xp.reshape(found[clique], (-1,)) for clique in self.cliques]
        return (xp.concat(parts) if parts else potentials), calibration.log_mass


class CompiledOracle:
    """Inference by compiled kernels on a fixed plan, with its workspace allocated once.

    Each table is divided by a reference before it leaves log space: first by its maximum; where products of many
    such tables underflow, by its mean potential under the last marginals, around which the likely cells lie.
    Where that leaves the range too, the pass is made in log space; so it is where a cell lies more than `FARTHEST`
    above that mean, since others as far below, without which it is nothing, would be lost without a trace.
    """

    def __init__(self, plan: PassPlan, *, threads: int = 1) -> None:
        layout = plan.layout
        parts = threads if _large(layout).any() else 1
        works = _works(plan, parts)
        self.plan = plan
        self._work = works[0]
        self._work.cells[plan.excluded] = 0.0
        self._propagate: Callable[[], float] = (
            SharedPass(layout, works) if parts > 1 else functools.partial(kernels.propagate, layout, self._work)
        )
        self._starts = layout.table_start[: len(plan.cliques)]
        self._lengths = np.diff(layout.table_start[: len(plan.cliques) + 1])
        self._last: Floats | None = None
        self._around_mean = False

    def __call__(self, potentials: Floats) -> tuple[Floats, float]:
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

    def _pass(self, potentials: Floats, references: Floats) -> float:
        with np.errstate(over="ignore"):
            shifted = potentials - np.repeat(references, self._lengths)
            np.exp(shifted, out=self._work.cells[: self.plan.measured])
        if shifted.max() > FARTHEST:
            return math.nan
        return float(self._propagate() + references.sum())


class SharedPass:
    """The same pass with the rows of large cliques dealt to several threads; small cliques stay with the first.

    Each thread prepares, sweeps and reads out its own rows, so that work is handed over once for each large clique
    and direction (once in all for a root). Who does what is fixed: the same potentials always give the same bits.
    """

    def __init__(self, layout: Layout, works: Sequence[kernels.Work]) -> None:
        self.layout = layout
        self.first, *self.others = works
        self.segments = _segments(layout)

    def __call__(self) -> float:
        """Both directions; the logarithm of the mass, or nan if it left the range."""
        log_mass = 0.0
        for begin, end, large in reversed(self.segments):
            if large:
                log_mass += self._message(begin)
            else:
                log_mass += kernels.collect(self.layout, begin, end, self.first)
        if math.isnan(log_mass):
            return log_mass
        for begin, end, large in self.segments:
            if large:
                log_mass += self._marginals(begin)
            else:
                log_mass += kernels.distribute(self.layout, begin, end, self.first)
        return log_mass

    def _message(self, i: int) -> float:
        """The sum of what the threads found; the logarithm of its scale."""
        if self.layout.parent_link[i] < 0:
            return 0.0
        self._dealt(kernels.shared_sum_up, i)
        table = self.layout.link_table[self.layout.parent_link[i]]
        begin, end = self.layout.table_start[table : table + 2]
        for other in self.others:
            self.first.cells[begin:end] += other.messages[begin:end]
        return kernels.scale_of(kernels.shared_send(self.layout, i, self.first.cells))

    def _marginals(self, i: int) -> float:
        """The mixture of what the threads found; the logarithm of the mass of a root."""
        root = self.layout.parent_link[i] < 0
        if not root:
            kernels.shared_receive(self.layout, i, self.first.cells, self.first.marginals)
        mass, *masses = self._dealt(kernels.shared_sum_all, i)
        for other, other_mass in zip(self.others, masses, strict=True):
            mass = kernels.mix(self.layout, i, mass, other_mass, self.first.marginals, other.marginals)
        return kernels.scale_of(mass) if root else 0.0

    def _dealt(self, kernel: Callable[..., Any], i: int) -> list[Any]:
        """Run a kernel on all threads' rows of a clique at once, the first one's in this thread.

        Rows that no other thread has begun by then, because all are busy, are swept here too. What one has begun is
        always awaited: it writes to memory that the next pass uses.
        """
        pool = _pool(len(self.others))
        running = [pool.submit(kernel, self.layout, i, other) for other in self.others]
        try:
            found = kernel(self.layout, i, self.first)
        finally:
            wait([each for each in running if not each.cancel()])
        return [
            found,
            *(
                kernel(self.layout, i, other) if each.cancelled() else each.result()
                for each, other in zip(running, self.others, strict=True)
            ),
        ]


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process for all its oracles."""
    return ThreadPoolExecutor(threads, thread_name_prefix="inference")


# A forked process inherits the pool but not its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _works(plan: PassPlan, parts: int) -> list[kernels.Work]:
    """The memory of each thread, and its rows."""
    layout = plan.layout
    lines = np.concatenate(([0], np.cumsum(layout.rows * layout.lines)))
    cells, weights, totals = (np.ones(size) for size in (layout.table_start[-1], lines[-1], lines[-1]))
    return [
        kernels.Work(
            cells=cells,
            line_start=lines,
            weights=weights,
            totals=totals,
            messages=cells if part == 0 else np.zeros(cells.size),
            marginals=np.zeros(cells.size),
            factors=_placed(plan.workspace, HALF_WAY),
            sums=_placed(plan.workspace, HALF_WAY),
            row=_placed(plan.longest_row, 0),
            **_share(layout, part, parts),
        )
        for part in range(parts)
    ]


def _share(layout: Layout, part: int, parts: int) -> dict[str, Index]:
    """The rows of each clique that belong to a part, and the rows of the groups that they meet."""
    begin, end = _rows_before(layout, part, parts), _rows_before(layout, part + 1, parts)
    first, last = np.zeros_like(layout.group_rows), np.zeros_like(layout.group_rows)
    cliques = np.repeat(np.arange(layout.rows.size), np.diff(layout.clique_groups))
    for g, (i, start) in enumerate(zip(cliques, layout.group_offset, strict=True)):
        met = layout.offsets[start + begin[i] : start + end[i]] // layout.group_width[g]
        if met.size:
            first[g], last[g] = met.min(), met.max() + 1
    return {"row_begin": begin, "row_end": end, "group_begin": first, "group_end": last}


def _rows_before(layout: Layout, part: int, parts: int) -> Index:
    """For each clique the rows that belong to earlier parts; those of small cliques all belong to the first."""
    if part == 0:
        return np.zeros_like(layout.rows)
    shared = layout.rows * (HEAD_START * part + 1) // (HEAD_START * parts + 1)
    return np.where(_large(layout), shared, layout.rows)


def _placed(cells: int, offset: int) -> Floats:
    """Uninitialised cells that begin `offset` bytes after a page's border."""
    held = np.empty(cells + PAGE // 8)
    skipped = (offset - held.ctypes.data) % PAGE // 8
    return held[skipped : skipped + cells]


def _large(layout: Layout) -> NDArray[np.bool_]:
    """For each clique whether threads share it."""
    return layout.rows * layout.lines * layout.block >= SHARED_CELLS


def _segments(layout: Layout) -> list[tuple[int, int, bool]]:
    """Ranges of cliques that are swept together: runs of small ones, and each large one alone."""
    segments: list[tuple[int, int, bool]] = []
    for i, large in enumerate(_large(layout).tolist()):
        if segments and not large and not segments[-1][2]:
            segments[-1] = (segments[-1][0], i + 1, False)
        else:
            segments.append((i, i + 1, large))
    return segments
