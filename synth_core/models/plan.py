"""The layout of one pass of belief propagation: which tables meet in which clique, and where their cells lie.

A clique's axes are split in three: outer, middle and inner. Its cells are read as rows (one for each outer
combination) of lines (one for each middle combination) of inner cells. Every table is expanded once to what its kind
needs, and the clique's cells are then products of contiguous stretches: vectorised and never stored.

- a table with no inner axis becomes one weight for each line;
- a table with inner but no middle axes becomes one line for each row, used by all lines of the row (*narrow*);
- a table with both becomes a whole row (*wide*).

Narrow and wide tables with similar outer axes are multiplied together into one group. The plan depends on the tree
and on the measured cliques alone, so it is built once for a fit.

A clique's axes are split so that the estimated time is least (`blocking`). Axes and scopes are bit masks over the
clique's own axes. Times are nanoseconds measured on one core; only their ratios matter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Index
from synth_core.domain import Clique
from synth_core.errors import FeasibilityError
from synth_core.models.calibration import exclusions, host_of
from synth_core.models.junction_tree import JunctionTree, bits, clique_of, mask_cells, mask_of

Offsets = NDArray[np.int32]

LARGEST_OFFSET = 2**31 - 1
"""Offsets are 32-bit integers, which halves the memory the kernels read them from."""


class Layout(NamedTuple):
    """All offsets as flat arrays, in the form the compiled kernels read.

    Tables (measured cliques first, then those of the domain's rules, then one separator for each clique with a parent)
    share one vector of cells.
    A *link* places a table in a clique: in a group, or as a weight for each line (group -1).
    """

    table_start: Index  # tables + 1
    parent_link: Index  # for each clique its link of the separator to the parent, -1 at a root
    rows: Index  # for each clique the number of rows
    lines: Index  # for each clique the lines of a row
    block: Index  # for each clique the cells of a line
    clique_groups: Index  # cliques + 1: range of groups
    clique_links: Index  # cliques + 1: range of links
    group_start: Index  # for each group where its table begins in the workspace
    group_rows: Index
    group_width: Index  # cells of a group's row: a line's if narrow, a row's if wide
    group_offset: Index  # for each group where its row offsets begin
    group_wanted: Index  # whether any marginal is read from the group
    offsets: Offsets  # for each group, for each row of its clique: where the group's row begins
    link_table: Index
    link_group: Index  # -1: a weight for each line
    link_rows: Index  # where the link's row map begins
    link_inner: Index  # where the link's inner map begins, -1 if the cells are contiguous
    row_map: Offsets  # for each row of the group (or line of the clique): the table's cell at its start
    inner_map: Offsets  # for each cell of a group's row: its distance from there


@dataclass(frozen=True, slots=True)
class PassPlan:
    """A layout with the names it was made from, and the sizes of the memory a pass works in."""

    tree: JunctionTree
    cliques: tuple[Clique, ...]
    layout: Layout
    measured: int  # cells of the measured tables, which come first in the vector
    excluded: Index  # cells of the vector in which the rules allow no record
    workspace: int
    longest_row: int


@functools.lru_cache(maxsize=1)
def plan(tree: JunctionTree, cliques: tuple[Clique, ...]) -> PassPlan:
    """Lay out the pass that turns potentials on the cliques into their marginals; replicates share one."""
    separators = {i: tree.separator(i) for i, parent in enumerate(tree.parents) if parent >= 0}
    given = [*cliques, *(rule.clique for rule in exclusions(tree.domain))]
    tables = [*given, *separators.values()]
    members: list[list[int]] = [[] for _ in tree.cliques]
    for table, clique in enumerate(given):
        members[host_of(tree, clique)].append(table)
    upward = {i: len(given) + k for k, i in enumerate(separators)}
    for i, table in upward.items():
        members[i].append(table)
        members[tree.parents[i]].append(table)
    builder = _Builder(tree, tables, rules=range(len(cliques), len(given)))
    for i, own in enumerate(members):
        builder.add(i, own, upward.get(i, -1))
    return builder.finish(tuple(cliques))


class _Builder:
    """Collects the flat arrays of a layout clique by clique."""

    def __init__(self, tree: JunctionTree, tables: list[Clique], rules: range) -> None:
        self.tree = tree
        self.sizes = dict(zip(tree.domain.attributes, tree.domain.sizes, strict=True))
        self.tables = tables
        self.rules = rules  # marginals of these tables are not read
        self.maps: dict[str, list[NDArray[np.int64]]] = {"offsets": [], "row_map": [], "inner_map": []}
        self.lengths = dict.fromkeys(self.maps, 0)
        self.lists: dict[str, list[int]] = {name: [] for name in Layout._fields if name not in self.maps}
        for name in ("table_start", "clique_groups", "clique_links"):
            self.lists[name].append(0)
        for table in tables:
            self.lists["table_start"].append(self.lists["table_start"][-1] + self._cells(table))
        self.workspace = 0

    def add(self, i: int, tables: list[int], upward: int) -> None:
        """Lay out one clique, with the tables it holds; `upward` is the separator to its parent."""
        clique = self.tree.cliques[i]
        local = self.tree.domain.project(clique)
        scopes = tuple(mask_of(local, self.tables[table]) for table in tables)
        chosen = blocking(local.sizes, scopes)
        outer, middle, inner = (clique_of(local, mask) for mask in (chosen.outer, chosen.middle, chosen.inner))
        self._note(rows=self._cells(outer), lines=self._cells(middle), block=self._cells(inner), parent_link=-1)
        for member in chosen.weights:
            self._link(tables[member], -1, outer + middle, (), upward)
        for group in chosen.groups:
            rows = clique_of(local, group.outer)
            axes = middle + inner if group.wide else inner
            wanted = any(tables[member] != upward and tables[member] not in self.rules for member in group.members)
            number = self._group(rows, outer, self._cells(axes), wanted)
            for member in group.members:
                self._link(tables[member], number, rows, axes, upward)
        self._note(clique_groups=len(self.lists["group_start"]), clique_links=len(self.lists["link_table"]))

    def finish(self, cliques: tuple[Clique, ...]) -> PassPlan:
        """Freeze what was collected."""
        if max(self.workspace, self.lists["table_start"][-1]) > LARGEST_OFFSET:
            raise FeasibilityError(
                f"the measured tables around {', '.join(self.tree.largest)} need more than {LARGEST_OFFSET:,} cells; "
                "measure smaller cliques"
            )
        fields: dict[str, Any] = {name: np.array(values, dtype=np.int64) for name, values in self.lists.items()}
        for name, parts in self.maps.items():
            fields[name] = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32)
        layout = Layout(**fields)
        ruled = [np.zeros(0), *(np.ravel(rule.values) for rule in exclusions(self.tree.domain))]
        return PassPlan(
            tree=self.tree,
            cliques=cliques,
            layout=layout,
            measured=(measured := int(layout.table_start[len(cliques)])),
            excluded=measured + np.flatnonzero(np.isneginf(np.concatenate(ruled))),
            workspace=self.workspace,
            longest_row=int((layout.lines * layout.block).max()),
        )

    def _group(self, axes: Clique, outer: Clique, width: int, wanted: bool) -> int:
        rows = self._cells(axes)
        self._note(
            group_start=self.workspace,
            group_rows=rows,
            group_width=width,
            group_wanted=int(wanted),
            group_offset=self._append("offsets", self._enumerate(outer, axes) * width),
        )
        self.workspace += rows * width
        return len(self.lists["group_start"]) - 1

    def _link(self, table: int, group: int, rows: Clique, axes: Clique, upward: int) -> None:
        if table == upward:
            self.lists["parent_link"][-1] = len(self.lists["link_table"])
        inner_map = self._enumerate(axes, self.tables[table])
        contiguous = bool((inner_map == np.arange(inner_map.size)).all())
        self._note(
            link_table=table,
            link_group=group,
            link_rows=self._append("row_map", self._enumerate(rows, self.tables[table])),
            link_inner=-1 if contiguous else self._append("inner_map", inner_map),
        )

    def _note(self, **values: int) -> None:
        for name, value in values.items():
            self.lists[name].append(value)

    def _append(self, name: str, values: NDArray[np.int64]) -> int:
        start = self.lengths[name]
        self.maps[name].append(values)
        self.lengths[name] += values.size
        return start

    def _cells(self, attributes: Iterable[str]) -> int:
        return math.prod(self.sizes[a] for a in attributes)

    def _enumerate(self, axes: Clique, table: Clique) -> NDArray[np.int64]:
        """The table's cell for each combination of the axes, in row-major order; axes it lacks stand still."""
        strides, stride = {}, 1
        for a in reversed(table):
            strides[a] = stride
            stride *= self.sizes[a]
        cells = np.zeros(1, dtype=np.int64)
        for a in axes:
            steps = np.arange(self.sizes[a], dtype=np.int64) * strides.get(a, 0)
            cells = (cells[:, None] + steps).ravel()
        return cells


OPERATION_NS, LINE_NS, CELL_NS, MOVE_NS = 12.0, 4.0, 0.1, 3.5
"""Nanoseconds to start an operation on a row, to start a line within it, to multiply or add one cell, and to copy a
cell by an index, there and back."""
LONGEST_ROW = 2048
"""Upper limit of a row in cells: with the lines it meets, it still fits the first-level cache."""


@dataclass(frozen=True, slots=True)
class FactorGroup:
    """Tables that are multiplied together before the sweep; `outer` are the outer axes they depend on."""

    outer: int
    wide: bool
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocking:
    """A split of the axes, the members that weight lines, and the groups of all others."""

    outer: int
    middle: int
    inner: int
    weights: tuple[int, ...]
    groups: tuple[FactorGroup, ...]


Time = Callable[[int, bool, int], float]
"""Of a group, from the outer axes it depends on, whether it is wide and how many members it has."""


@functools.lru_cache(maxsize=4096)
def blocking(sizes: tuple[int, ...], scopes: tuple[int, ...]) -> Blocking:
    """Search greedily from the best single inner axis by adding axes to the inner and middle part."""
    whole = (1 << len(sizes)) - 1
    cells = functools.cache(lambda mask: mask_cells(mask, sizes))  # a search asks for few of them very often
    best = min(
        (_priced(cells, scopes, whole, middle=0, inner=1 << k) for k in range(len(sizes))),
        key=lambda priced: priced[0],
        default=(0.0, Blocking(0, 0, 0, (*range(len(scopes)),), ())),
    )
    while True:
        options = [
            _priced(cells, scopes, whole, middle=middle, inner=inner)
            for middle, inner in _neighbours(best[1])
            if cells(middle | inner) <= LONGEST_ROW
        ]
        following = min(options, key=lambda priced: priced[0], default=best)
        if not following[0] < best[0]:
            return best[1]
        best = following


def _neighbours(split: Blocking) -> Iterator[tuple[int, int]]:
    for k in bits(split.outer):
        yield split.middle | 1 << k, split.inner
        yield split.middle, split.inner | 1 << k
    for k in bits(split.middle):
        yield split.middle & ~(1 << k), split.inner | 1 << k


def _priced(
    cells: Callable[[int], int], scopes: Sequence[int], whole: int, *, middle: int, inner: int
) -> tuple[float, Blocking]:
    """The blocking for a split of the axes, and its estimated time."""
    outer = whole & ~middle & ~inner
    rows, lines, block = map(cells, (outer, middle, inner))
    weights = tuple(k for k, scope in enumerate(scopes) if not scope & inner)
    by_line = OPERATION_NS + LINE_NS * lines + CELL_NS * lines * block
    by_row = OPERATION_NS + CELL_NS * lines * block
    narrow, wide = LINE_NS + MOVE_NS * block, LINE_NS + MOVE_NS * lines * block

    def time(depends: int, is_wide: bool, members: int) -> float:
        if is_wide:
            return cells(depends) * wide * members + 3 * rows * by_row
        return cells(depends) * narrow * members + 3 * rows * by_line

    grouped = [k for k, scope in enumerate(scopes) if scope & inner]
    groups, spent = _grouped(grouped, scopes, outer, middle, time)
    sweeps = 4 * rows * by_line + MOVE_NS * rows * lines * len(weights)
    return sweeps + spent, Blocking(outer, middle, inner, weights, groups)


def _grouped(
    members: list[int], scopes: Sequence[int], outer: int, middle: int, time: Time
) -> tuple[tuple[FactorGroup, ...], float]:
    """Put each member, largest scope first, into the group where it adds the least time, or into its own."""
    groups: list[tuple[int, bool, tuple[int, ...], float]] = []  # what a `FactorGroup` holds, and its time
    for k in sorted(members, key=lambda k: (-(scopes[k] & outer).bit_count(), k)):
        own, own_wide = scopes[k] & outer, bool(scopes[k] & middle)
        best, least = len(groups), time(own, own_wide, 1)
        for at, (depends, wide, inside, before) in enumerate(groups):
            added = time(depends | own, wide or own_wide, len(inside) + 1) - before
            if added < least:
                best, least = at, added
        if best == len(groups):
            groups.append((0, False, (), 0.0))
        depends, wide, inside, before = groups[best]
        groups[best] = depends | own, wide or own_wide, (*inside, k), before + least
    return tuple(FactorGroup(*group[:3]) for group in groups), sum(group[3] for group in groups)
