"""The layout of one pass of belief propagation: which tables meet in which clique, and where their cells lie.

A clique's axes are split into an outer and an inner part; its table is read as rows of `block` inner cells. Every
factor is expanded once to full rows (its inner axes broadcast), factors with similar outer axes are multiplied
together into one group, and the clique's cells are then products of whole rows: contiguous, vectorised, and
never stored. Factors without inner axes become one number for each row. The plan depends on the tree and on the
measured cliques only, so it is built once for a fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.models.junction_tree import JunctionTree

Index = NDArray[np.int64]
Offsets = NDArray[np.int32]

ROW_OVERHEAD = 24
"""Cost of starting one row operation, in cells."""
GATHER_COST = 3
"""Cost of moving one cell by an index, in cells multiplied in rows."""
LARGEST_BLOCK = 2048
"""Rows longer than this leave the first-level cache."""


class Layout(NamedTuple):
    """All offsets as flat arrays, in the form the compiled kernels read.

    Tables (measured cliques first, then one separator for each clique with a parent) share one vector of cells.
    A *link* places a table in a clique: in a group, or as a number for each row (group -1).
    """

    table_start: Index  # tables + 1
    parent_link: Index  # for each clique its link of the separator to the parent, -1 at a root
    block: Index  # for each clique the cells of a row
    rows: Index  # for each clique the number of rows
    clique_groups: Index  # cliques + 1: range of groups
    clique_links: Index  # cliques + 1: range of links
    group_start: Index  # for each group where its table begins in the workspace
    group_rows: Index
    group_offset: Index  # for each group where its row offsets begin
    group_wanted: Index  # whether any marginal is read from the group
    offsets: Offsets  # for each group, for each row of its clique: where the group's row begins
    link_table: Index
    link_group: Index  # -1: a number for each row
    link_rows: Index  # where the link's row map begins
    link_inner: Index  # where the link's inner map begins, -1 if the inner cells are contiguous
    row_map: Offsets  # for each row of the group (or of the clique): the table's cell at the row's start
    inner_map: Offsets  # for each inner cell: its distance from there


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout with the names it was made from."""

    tree: JunctionTree
    cliques: tuple[Clique, ...]
    layout: Layout
    axes: tuple[Clique, ...]  # each tree clique's axes, outer then inner, as its rows enumerate them
    measured: int  # cells of the measured tables, which come first in the vector
    workspace: int
    longest_row: int
    most_rows: int


@dataclass(frozen=True, slots=True)
class _Link:
    table: int
    clique: frozenset[str]


def plan(tree: JunctionTree, cliques: Sequence[Clique]) -> Plan:
    """Lay out the pass that turns potentials on the cliques into their marginals."""
    tables = [*cliques, *(tree.separator(i) for i, parent in enumerate(tree.parents) if parent >= 0)]
    members: list[list[_Link]] = [[] for _ in tree.cliques]
    hosts = _hosts(tree, cliques)
    for t, host in enumerate(hosts):
        members[host].append(_Link(t, frozenset(cliques[t])))
    parent_table = {}
    t = len(cliques)
    for i, parent in enumerate(tree.parents):
        if parent >= 0:
            parent_table[i] = t
            members[i].append(_Link(t, frozenset(tables[t])))
            members[parent].append(_Link(t, frozenset(tables[t])))
            t += 1
    builder = _Builder(tree, tables, len(cliques))
    for i, links in enumerate(members):
        builder.add(i, links, parent_table.get(i, -1))
    return builder.finish(tuple(cliques))


def _hosts(tree: JunctionTree, cliques: Sequence[Clique]) -> list[int]:
    """For each measured clique the smallest tree clique that contains it."""
    holding: dict[str, set[int]] = {a: set() for a in tree.domain}
    for i, clique in enumerate(tree.cliques):
        for a in clique:
            holding[a].add(i)
    cells = [tree.domain.cells(clique) for clique in tree.cliques]
    hosts = []
    for clique in cliques:
        candidates = set.intersection(*(holding[a] for a in clique)) if clique else {0}
        hosts.append(min(candidates, key=lambda i: (cells[i], i)))
    return hosts


class _Builder:
    """Collects the flat arrays of a layout clique by clique."""

    def __init__(self, tree: JunctionTree, tables: list[Clique], measured: int) -> None:
        self.tree = tree
        self.sizes = dict(zip(tree.domain.attributes, tree.domain.sizes, strict=True))
        self.tables = tables
        self.table_start = np.cumsum([0, *(self._cells(table) for table in tables)])
        self.measured = measured
        self.lists: dict[str, list[int]] = {
            name: []
            for name in Layout._fields
            if name not in ("table_start", "offsets", "row_map", "inner_map")
        }
        self.lists["clique_groups"].append(0)
        self.lists["clique_links"].append(0)
        self.maps: dict[str, list[Offsets]] = {"offsets": [], "row_map": [], "inner_map": []}
        self.lengths = dict.fromkeys(self.maps, 0)
        self.workspace = 0
        self.axes: list[Clique] = []

    def add(self, i: int, links: list[_Link], parent_table: int) -> None:
        """Lay out one clique."""
        clique = self.tree.cliques[i]
        scopes = [link.clique for link in links]
        inner = _inner_axes(clique, scopes, self.sizes)
        outer = tuple(a for a in clique if a not in inner)
        inner_axes = tuple(a for a in clique if a in inner)
        self.axes.append(outer + inner_axes)
        block, rows = self._cells(inner_axes), self._cells(outer)
        self.lists["block"].append(block)
        self.lists["rows"].append(rows)
        self.lists["parent_link"].append(-1)
        for link in links:
            if not link.clique & inner:
                self._link(link, -1, outer, (), parent_table)
        for scope, group in _groups([link for link in links if link.clique & inner], inner, rows, self.sizes):
            axes = tuple(a for a in outer if a in scope)
            self._group(axes, outer, block)
            number = len(self.lists["group_start"]) - 1
            for link in group:
                self._link(link, number, axes, inner_axes, parent_table)
            wanted = any(link.table != parent_table for link in group)
            self.lists["group_wanted"].append(int(wanted))
        self.lists["clique_groups"].append(len(self.lists["group_start"]))
        self.lists["clique_links"].append(len(self.lists["link_table"]))

    def _group(self, axes: Clique, outer: Clique, block: int) -> None:
        rows = self._cells(axes)
        self.lists["group_start"].append(self.workspace)
        self.lists["group_rows"].append(rows)
        self.workspace += rows * block
        self.lists["group_offset"].append(self._append("offsets", self._enumerate(outer, axes) * block))

    def _link(self, link: _Link, group: int, rows: Clique, inner: Clique, parent_table: int) -> None:
        table = self.tables[link.table]
        if link.table == parent_table:
            self.lists["parent_link"][-1] = len(self.lists["link_table"])
        self.lists["link_table"].append(link.table)
        self.lists["link_group"].append(group)
        self.lists["link_rows"].append(self._append("row_map", self._enumerate(rows, table)))
        inner_map = self._enumerate(inner, table)
        contiguous = bool((inner_map == np.arange(inner_map.size)).all())
        self.lists["link_inner"].append(-1 if contiguous else self._append("inner_map", inner_map))

    def finish(self, cliques: tuple[Clique, ...]) -> Plan:
        """Freeze what was collected."""
        arrays = {name: np.array(values, dtype=np.int64) for name, values in self.lists.items()}
        maps = {name: np.concatenate([np.zeros(0, np.int32), *parts]) for name, parts in self.maps.items()}
        fields: dict[str, Any] = {"table_start": self.table_start.astype(np.int64), **arrays, **maps}
        layout = Layout(**fields)
        return Plan(
            tree=self.tree,
            cliques=cliques,
            layout=layout,
            axes=tuple(self.axes),
            measured=int(self.table_start[self.measured]),
            workspace=self.workspace,
            longest_row=max(self.lists["block"]),
            most_rows=max(self.lists["rows"]),
        )

    def _append(self, name: str, values: NDArray[np.int64]) -> int:
        start = self.lengths[name]
        self.maps[name].append(values.astype(np.int32))
        self.lengths[name] += values.size
        return start

    def _cells(self, attributes: Iterable[str]) -> int:
        return _product(attributes, self.sizes)

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


def _product(attributes: Iterable[str], sizes: dict[str, int]) -> int:
    product = 1
    for a in attributes:
        product *= sizes[a]
    return product


def _groups(
    links: list[_Link], inner: frozenset[str], rows: int, sizes: dict[str, int]
) -> list[tuple[frozenset[str], list[_Link]]]:
    """Merge links whose joint outer axes stay cheap: a merge saves two row operations on every row of the clique."""
    groups: list[tuple[frozenset[str], list[_Link]]] = []
    for link in sorted(links, key=lambda x: -_product(x.clique - inner, sizes)):
        scope = link.clique - inner
        best, cheapest = None, 2.0 * rows + GATHER_COST * 2 * _product(scope, sizes)
        for k, (other, members) in enumerate(groups):
            grown = GATHER_COST * 2 * _product(scope | other, sizes) * (len(members) + 1)
            extra = grown - GATHER_COST * 2 * _product(other, sizes) * len(members)
            if extra < cheapest:
                best, cheapest = k, extra
        if best is None:
            groups.append((scope, [link]))
        else:
            other, members = groups[best]
            groups[best] = (scope | other, [*members, link])
    return groups or [(frozenset(), [])]


def _inner_axes(clique: Clique, scopes: list[frozenset[str]], sizes: dict[str, int]) -> frozenset[str]:
    """Choose the inner axes greedily, by the estimated cost of a pass over the clique."""
    cells = _product(clique, sizes)

    def cost(inner: frozenset[str]) -> float:
        block = _product(inner, sizes)
        rows = cells // block
        links = [_Link(0, scope) for scope in scopes if scope & inner]
        groups = _groups(links, inner, rows, sizes)
        sweep = rows * (2 * len(groups) + 1) * (block + ROW_OVERHEAD)
        moved = sum(
            _product(scope, sizes) * (block * GATHER_COST + ROW_OVERHEAD) * 2 * len(group)
            for scope, group in groups
        )
        return sweep + moved + GATHER_COST * rows * (len(scopes) - len(links))

    inner: frozenset[str] = frozenset()
    best = float("inf")
    while True:
        options = [
            inner | {a} for a in clique if a not in inner and _product(inner | {a}, sizes) <= LARGEST_BLOCK
        ]
        if not inner:
            options = options or [frozenset([max(clique, key=sizes.__getitem__)])]
        scored = [(cost(option), sorted(option), option) for option in options]
        if not scored or min(scored)[0] >= best:
            return inner
        best, _, inner = min(scored)
