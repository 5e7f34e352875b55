"""Exact counts of encoded rows: integer tables, added up over partitions, wrapped before they leave.

How many tables are counted in one pass. Counting the pair table of two columns costs one increment for each record. Two
lanes, each the joint code of several columns, cost the same and hold the table of every pair between them; so columns
are fused while the joint tables stay in the processor's caches, and the tables that were asked for are summed out.
Tables that spread over more than two lanes are counted by themselves. `plan` decides, the compiled loops at the end
count.

With columns a, b, c of 2, 3 and 4 codes, lanes (a, b) and (c), and the tables (a, c) and (b, c) asked for: a record
(1, 2, 3) has the codes 1*3 + 2 = 5 and 3 in the lanes and adds one to cell 5*4 + 3 = 23 of their joint table of 24; the
table of (a, c) then is the sum of that table over b, and that of (b, c) its sum over a.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Index
from synth_core.cluster import Cluster
from synth_core.compiled import compiled, part_of_kernel
from synth_core.domain import Clique, Codes, Domain
from synth_core.errors import SourceError
from synth_core.privacy.queries import Counts
from synth_core.privacy.wall import Private, wall
from synth_core.storage.ingest import read_codes

Piece: TypeAlias = str | Mapping[str, Codes]
"""An encoded partition's address, or columns in memory."""

CELLS_PER_PASS = 20_000_000
"""Tables counted in one pass over the data: bounds what a worker holds and sends (8 bytes a cell)."""

SLAB_ROWS = 1 << 18
"""Rows packed and counted at once: their lanes stay in the last cache, and 32-bit counters cannot overflow."""

CACHED_CELLS = 50_000_000
"""Tables kept for later rounds, which ask for the same candidates again."""

LANE_SIZES = (1, 64, 128, 256, 512, 1024)
"""Largest numbers of joint codes that are tried; 1 fuses nothing."""

CACHES = ((12_000, 0.65), (400_000, 1.0), (2_000_000, 2.4), (math.inf, 7.0))
"""Cells of a table of 32-bit counters, and nanoseconds an increment of it takes: see tests/benchmarks/scale.md."""

SUM_NS, PLACE_NS, KEY_NS = 0.3, 0.8, 0.5
"""Nanoseconds to add a cell to its row, to add a row's cell to its table, and to put a column into a record's key."""

KEY_BLOCK = 2048
"""Records whose keys are built before they are counted: the keys stay in the first cache."""

Lanes = NDArray[Any]
"""A matrix of which each row, a lane, holds the joint codes of some columns, one entry for each record."""


class CachedCounts:
    """Counted tables, kept inside the wall until they hold too many cells; the oldest go first."""

    scale = 1

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._known: dict[Clique, tuple[Private[Counts], int]] = {}
        self._cells = 0

    @property
    def domain(self) -> Domain:
        """The table's public domain."""
        return self._domain

    def tables(self, cliques: Sequence[Clique]) -> list[Private[Counts]]:
        """One table of exact counts for each clique."""
        missing = [clique for clique in dict.fromkeys(cliques) if clique not in self._known]
        for clique, table in zip(missing, self._count(missing) if missing else (), strict=True):
            self._known[clique] = Private(table), table.size
            self._cells += table.size
        found = [self._known[clique][0] for clique in cliques]
        while self._cells > CACHED_CELLS:
            self._cells -= self._known.pop(next(iter(self._known)))[1]
        return found

    @abstractmethod
    def _count(self, cliques: Sequence[Clique]) -> list[Counts]: ...


class TableCounts(CachedCounts):
    """Counts of an encoded table that is in memory."""

    def __init__(self, codes: Mapping[str, Codes], domain: Domain) -> None:
        super().__init__(domain)
        self._codes = codes

    def _count(self, cliques: Sequence[Clique]) -> list[Counts]:
        return count_codes(self._codes, self._domain, cliques)


class PartitionCounts(CachedCounts):
    """Counts of encoded Parquet partitions: each is counted where it lies, partial counts are added as a tree."""

    def __init__(self, partitions: Sequence[Path], domain: Domain, cluster: Cluster) -> None:
        super().__init__(domain)
        self._partitions = [str(path) for path in partitions]
        self._cluster = cluster

    def _count(self, cliques: Sequence[Clique]) -> list[Counts]:
        batches = batched_cliques(cliques, self._domain.cells, room=CELLS_PER_PASS)
        counted = (count_pieces(self._partitions, self._domain, batch, self._cluster) for batch in batches)
        return [table for tables in counted for table in tables]


def count_pieces(pieces: Sequence[Piece], domain: Domain, cliques: Sequence[Clique], cluster: Cluster) -> list[Counts]:
    """Exact tables of the cliques over all pieces of a table, counted in one pass wherever the pieces lie."""
    counted = cluster.map_reduce(count_partitions, pieces, add_counts, domain=domain, cliques=tuple(cliques))
    return split_tables(counted, domain, cliques)


def count_codes(codes: Mapping[str, Codes], domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    """Exact tables of the cliques over a table in memory."""
    return split_tables(count_flat([codes], domain, cliques), domain, cliques)


def count_partitions(pieces: Sequence[Piece], *, domain: Domain, cliques: Sequence[Clique]) -> NDArray[Any]:
    """Exact tables of the cliques over some encoded partitions, one after the other; runs on a worker."""
    with wall():
        asked = asked_columns(domain, cliques)
        return count_flat((read_piece(piece, asked) for piece in pieces), domain, cliques)


def read_piece(piece: Piece, columns: Sequence[str]) -> dict[str, Codes]:
    """The named columns of one piece, in the given order."""
    return read_codes(piece, columns) if isinstance(piece, str) else {name: piece[name] for name in columns}


def asked_columns(domain: Domain, cliques: Iterable[Clique]) -> Clique:
    """The attributes of all the cliques, or the first one where they have none."""
    return domain.clique(attribute for clique in cliques for attribute in clique) or domain.attributes[:1]


def add_counts(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Sum the partial counts of some partitions."""
    with wall():
        return np.asarray(reduce(partial(np.add, dtype=np.int64), parts))


def count_flat(pieces: Iterable[Mapping[str, Codes]], domain: Domain, cliques: Sequence[Clique]) -> NDArray[np.uint32]:
    """The tables of all pieces together: of fewer than 2^32 rows, so that more cells stay in the caches."""
    out = np.zeros(sum(map(domain.cells, cliques)), dtype=np.uint32)
    for codes in pieces:
        rows = len(next(iter(codes.values()))) if codes else 0
        # Pieces of about as many rows have one plan.
        made = plan(domain, tuple(cliques), min(1 << rows.bit_length(), SLAB_ROWS))
        for start in range(0, rows, SLAB_ROWS):
            slab = {name: column[start : start + SLAB_ROWS] for name, column in codes.items()}
            lanes = _packed(slab, domain, made, rows=min(SLAB_ROWS, rows - start))
            count_pairs(lanes, made.sizes, made.pairs, made.pair_ends, made.drains, made.places, out)
            count_keys(lanes, made.sizes, made.key_members, made.key_ends, made.key_begins, out)
    return out


def _packed(codes: Mapping[str, Codes], domain: Domain, made: Plan, *, rows: int) -> NDArray[Any]:
    """The lanes' joint codes, in the smallest type that holds them all."""
    for attribute in dict.fromkeys(a for lane in made.lanes for a in lane):
        _check_codes(codes[attribute], attribute, size=domain.size(attribute))
    lanes = np.zeros((len(made.lanes), rows), dtype=np.min_scalar_type(int(made.sizes.max(initial=1)) - 1))
    for lane, attributes in zip(lanes, made.lanes, strict=True):
        for k, attribute in enumerate(attributes):
            # A lane that is zero stays zero, and then the size may be too large for its type.
            if domain.cells(attributes[:k]) > 1:
                lane *= lane.dtype.type(domain.size(attribute))
            np.add(lane, codes[attribute], out=lane, casting="unsafe")
    return lanes


def _check_codes(column: NDArray[Any], attribute: str, *, size: int) -> None:
    """The kernels use codes as addresses, so one outside the domain must not reach them."""
    signed = column.dtype.kind != "u"
    if len(column) and (column.max() >= size or (signed and column.min() < 0)):
        raise SourceError(f"column {attribute!r} holds a code outside its domain; run the step ingest again")


def split_tables(counted: NDArray[Any], domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    """The tables of the cliques, which lie one after the other."""
    shapes = [domain.shape(clique) for clique in cliques]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    flat = counted.astype(np.int64, copy=False)
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=False)]


def batched_cliques(cliques: Sequence[Clique], cells: Callable[[Clique], int], *, room: int) -> list[list[Clique]]:
    """The cliques in their order, in batches of at most `room` cells; a larger one is alone."""
    batches: list[list[Clique]] = []
    left = 0
    for clique in cliques:
        if not batches or cells(clique) > left:
            batches.append([])
            left = room
        batches[-1].append(clique)
        left -= cells(clique)
    return batches


@dataclass(frozen=True, slots=True)
class Plan:
    """Arguments of the compiled loops, and where each table lies in the result."""

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
    """The cheapest way found to count the cliques over about `records` records at a time.

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

    def _drain(self, number: int, left: int, right: int, places: _Places, begin: int) -> tuple[int, int, int, int, int]:
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


@compiled
def count_pairs(
    lanes: Lanes, sizes: Index, pairs: Index, ends: Index, drains: Index, places: Index, out: NDArray[np.uint32]
) -> None:
    """Count every pair of lanes and add its sums to the tables that are asked for.

    Pair p is drained by the lines ends[p-1] … ends[p]-1 of `drains`: (where in `places` each code of the left lane
    finds its row, how many rows there are, where each row finds its place in the table, where each code of the right
    lane does, where the table begins in `out`). Lines with equal rows stand together and share the sum over the left.
    """
    most = 0
    for p in range(pairs.shape[0]):
        most = max(most, sizes[pairs[p, 0]] * sizes[pairs[p, 1]])
    counts, rows = np.empty(most, np.uint32), np.empty(most, np.uint32)
    start = 0
    for p in range(pairs.shape[0]):
        left, right = pairs[p, 0], pairs[p, 1]
        width = sizes[right]
        counts[: sizes[left] * width] = 0
        _tally(lanes[left], lanes[right], np.uint64(width), counts)
        summed = -1
        for d in range(start, ends[p]):
            row_of, height, row_place, cell_place, begin = drains[d]
            if row_of != summed:
                summed = row_of
                _sum_rows(counts, places[row_of : row_of + sizes[left]], height, width, rows)
            for x in range(height):
                base = begin + places[row_place + x]
                for y in range(width):
                    out[base + places[cell_place + y]] += rows[x * width + y]
        start = ends[p]


@compiled
def count_keys(lanes: Lanes, sizes: Index, members: Index, ends: Index, begins: Index, out: NDArray[np.uint32]) -> None:
    """Count tables of any number of lanes: table t is of the lanes members[ends[t-1]] …, and begins at begins[t]."""
    keys = np.empty(KEY_BLOCK, np.uint32)
    records = lanes.shape[1]
    start = 0
    for t in range(ends.size):
        table = out[begins[t] :]
        for first in range(0, records, KEY_BLOCK):
            block = keys[: min(KEY_BLOCK, records - first)]
            block[:] = 0
            for k in range(start, ends[t]):
                size, lane = np.uint32(sizes[members[k]]), lanes[members[k]]
                for r in range(block.size):
                    block[r] = np.uint32(block[r] * size) + np.uint32(lane[first + r])
            for r in range(block.size):
                table[block[r]] += np.uint32(1)
        start = ends[t]


@part_of_kernel
def _tally(left: Lanes, right: Lanes, width: np.uint64, counts: NDArray[np.uint32]) -> None:
    for r in range(left.size):
        counts[np.uint64(left[r]) * width + np.uint64(right[r])] += np.uint32(1)


@part_of_kernel
def _sum_rows(counts: NDArray[np.uint32], row_of: Index, height: int, width: int, rows: NDArray[np.uint32]) -> None:
    """Add up the lines of a table that have the same row."""
    rows[: height * width] = 0
    for x in range(row_of.size):
        to, line = row_of[x] * width, x * width
        for y in range(width):
            rows[to + y] += counts[line + y]
