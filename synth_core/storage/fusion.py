"""Plan how to count many tables in one pass: which columns are fused into lanes, which lanes are counted together.

Counting the pair table of two columns costs one increment for each record. Two lanes, each the joint code of several
columns, cost the same and hold the table of every pair between them; so columns are fused while the joint tables stay
in the processor's caches, and the tables that were asked for are summed out. Tables that spread over more than two
lanes are counted by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain

Index = NDArray[np.int64]

LANE_SIZES = (1, 64, 128, 256, 512, 1024)
"""Largest numbers of joint codes that are tried; 1 fuses nothing."""

CACHES = ((12_000, 0.65), (400_000, 1.0), (2_000_000, 2.4), (math.inf, 7.0))
"""Cells of a table of 32-bit counters, and nanoseconds an increment of it takes: see tests/benchmarks/scale.md."""

SUM_NS, PLACE_NS, KEY_NS = 0.3, 0.8, 0.5
"""Nanoseconds to add a cell to its row, to add a row's cell to its table, and to put a column into a record's key."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the kernels are told (see `counting_kernels`), and where each table lies in the result."""

    lanes: tuple[Clique, ...]
    sizes: Index
    pairs: Index
    pair_ends: Index
    drains: Index
    places: Index
    key_members: Index
    key_ends: Index
    key_begins: Index
    cells: int


@lru_cache(maxsize=8)
def plan(domain: Domain, cliques: tuple[Clique, ...], records: int) -> Plan:
    """The cheapest way found to count the cliques over about so many records at a time.

    The result holds the cliques' tables one after the other.
    """
    paired = domain.clique(a for clique in cliques if len(clique) == 2 for a in clique)
    tried = {_fused(domain.project(paired), limit) for limit in LANE_SIZES}
    sketches = [_Sketch(domain, cliques, lanes) for lanes in sorted(tried)]
    return min(sketches, key=lambda sketch: sketch.nanoseconds(records)).plan()


def _fused(domain: Domain, limit: int) -> tuple[Clique, ...]:
    """Columns in lanes of at most `limit` joint codes: the largest column first, into the fullest lane with room."""
    lanes: list[tuple[int, list[str]]] = []
    for attribute in sorted(domain, key=lambda a: (-domain.size(a), domain.position(a))):
        size = domain.size(attribute)
        room = [k for k, (codes, _) in enumerate(lanes) if codes * size <= limit]
        if room:
            best = max(room, key=lambda k: lanes[k][0])
            lanes[best] = (lanes[best][0] * size, [*lanes[best][1], attribute])
        else:
            lanes.append((size, [attribute]))
    return tuple(domain.clique(members) for _, members in lanes)


class _Sketch:
    """One choice of lanes: which pairs of them are counted, what is summed out of each, what is counted by itself."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique], lanes: tuple[Clique, ...]) -> None:
        self.domain = domain
        self.cliques = cliques
        self.lanes = lanes
        self.size_of = dict(zip(domain.attributes, domain.sizes, strict=True))
        self.lane_of = {attribute: k for k, lane in enumerate(lanes) for attribute in lane}
        self.drained: dict[tuple[int, int], list[int]] = {}
        self.alone: list[int] = []
        self._share_out()

    def _share_out(self) -> None:
        inside: list[tuple[int, int]] = []
        for number, clique in enumerate(self.cliques):
            touched = sorted({self.lane_of.get(attribute, -1) for attribute in clique})
            if len(touched) == 2 and touched[0] >= 0:
                # Sides change with parity, so that among three lanes or more each stands right somewhere.
                left, right = touched if sum(touched) % 2 else touched[::-1]
                self.drained.setdefault((left, right), []).append(number)
            elif len(touched) == 1 and touched[0] >= 0:
                inside.append((touched[0], number))
            else:
                self.alone.append(number)
        # Tables inside one lane come out of one pair with it: where it stands right, they share the sum over the left.
        host: dict[int, tuple[int, int]] = {}
        for pair in self.drained:
            host.setdefault(pair[0], pair)
        for pair in sorted(self.drained, key=self._pair_cells, reverse=True):
            host[pair[1]] = pair
        for lane, number in inside:
            (self.drained[host[lane]] if lane in host else self.alone).append(number)

    def _cells(self, attributes: Iterable[str]) -> int:
        return math.prod(self.size_of[attribute] for attribute in attributes)

    def _pair_cells(self, pair: tuple[int, int]) -> int:
        return self._cells(self.lanes[pair[0]] + self.lanes[pair[1]])

    def _inside(self, number: int, lane: int) -> Clique:
        """The part of a clique that the lane holds, in the lane's order."""
        return tuple(a for a in self.lanes[lane] if a in self.cliques[number])

    def nanoseconds(self, records: int) -> float:
        """What counting is expected to take."""
        total = 0.0
        for pair, numbers in self.drained.items():
            cells, width = self._pair_cells(pair), self._cells(self.lanes[pair[1]])
            rows = [self._inside(number, pair[0]) for number in numbers]
            total += records * _increment_ns(cells) + cells * SUM_NS * (1 + len(set(rows)))
            total += PLACE_NS * width * sum(map(self._cells, rows))
        for number in self.alone:
            clique = self.cliques[number]
            total += records * (KEY_NS * len(clique) + _increment_ns(2 * self._cells(clique)))
        return total

    def plan(self) -> Plan:
        """The sketch in the kernels' words."""
        begins = np.cumsum([0, *map(self._cells, self.cliques)])
        places = _Places(self.size_of)
        drains: list[tuple[int, int, int, int, int]] = []
        ends: list[int] = []
        for (left, right), numbers in self.drained.items():
            drains += sorted(self._drain(n, left, right, places, int(begins[n])) for n in numbers)
            ends.append(len(drains))
        columns = self.domain.clique(a for number in self.alone for a in self.cliques[number])
        lane_of = {a: len(self.lanes) + k for k, a in enumerate(columns)}
        members = [[lane_of[a] for a in self.cliques[number]] for number in self.alone]
        lanes = (*self.lanes, *((a,) for a in columns))
        return Plan(
            lanes=lanes,
            sizes=_index(map(self._cells, lanes)),
            pairs=_index(self.drained).reshape(-1, 2),
            pair_ends=_index(ends),
            drains=_index(drains).reshape(-1, 5),
            places=places.all(),
            key_members=_index(lane for clique in members for lane in clique),
            key_ends=np.cumsum([len(clique) for clique in members], dtype=np.int64),
            key_begins=_index(int(begins[number]) for number in self.alone),
            cells=int(begins[-1]),
        )

    def _drain(
        self, number: int, left: int, right: int, places: _Places, begin: int
    ) -> tuple[int, int, int, int, int]:
        rows = self._inside(number, left)
        of_row, of_cell = self._strides(rows), self._strides(self.cliques[number])
        return (
            places.of(self.lanes[left], of_row),
            self._cells(rows),
            places.of(rows, of_cell),
            places.of(self.lanes[right], of_cell),
            begin,
        )

    def _strides(self, attributes: Clique) -> dict[str, int]:
        return {a: self._cells(attributes[k + 1 :]) for k, a in enumerate(attributes)}


class _Places:
    """Where the joint codes of some columns lead: sums of column code times stride, each kind stored once."""

    def __init__(self, size_of: dict[str, int]) -> None:
        self._size_of = size_of
        self._begins: dict[tuple[tuple[int, int], ...], int] = {}
        self._parts: list[Index] = []
        self._length = 0

    def of(self, columns: Clique, strides: dict[str, int]) -> int:
        """Where the places of the columns' joint codes begin; a column without a stride does not matter."""
        key = tuple((self._size_of[a], strides.get(a, 0)) for a in columns)
        if key not in self._begins:
            place = np.zeros(1, dtype=np.int64)
            for size, stride in key:
                place = np.add.outer(place, np.arange(size) * stride).ravel()
            self._begins[key] = self._length
            self._parts.append(place)
            self._length += len(place)
        return self._begins[key]

    def all(self) -> Index:
        return np.concatenate(self._parts) if self._parts else np.empty(0, dtype=np.int64)


def _increment_ns(cells: int) -> float:
    return next(ns for most, ns in CACHES if cells <= most)


def _index(values: Iterable[object]) -> Index:
    return np.array(list(values), dtype=np.int64)
