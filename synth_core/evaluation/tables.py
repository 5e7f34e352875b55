"""A table of codes too large to hold: what is asked of it is added up over its pieces, wherever they lie.

A marginal of very many cells is known by its occupied cells, or by a random part of those (`Cells`). A cell is in the
part if the hash of its position is below a limit. The limit begins above every hash and is halved while a table has
more than `MAX_CELLS` occupied cells below it, so a marginal with fewer is complete. Every table hashes alike: a cell
that is kept is counted over all rows of both. Rows added can only lower the limit, and counts of pieces are thinned
to the lowest limit before they are added, so the result does not depend on how rows are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.domain import Clique, Domain, breaking_rows
from synth_core.evaluation.distances import Codes, relative_entropy
from synth_core.privacy.wall import wall
from synth_core.storage.counting import Piece, add_counts, asked_columns, batched_cliques, count_pieces, read_piece

SAMPLE_ROWS = 50_000
"""Rows of each table that are judged one by one: SVM and propensity use 30,000 of them at most."""

PIECE_ROWS = 250_000
"""Rows of one piece of a table in memory."""
BATCH_CELLS = 4_000_000
"""Cells counted in one pass: bounds what a worker sends and what is held here (8 or 16 bytes a cell)."""

MAX_CELLS = 50_000
"""A table of as many rows is never thinned; from half as many cells a distance is known to about one in a hundred."""

DENSE_CELLS = 2 * MAX_CELLS
"""Larger marginals are counted by their occupied cells, which then take less room."""

_SEED = 6


@dataclass(frozen=True, slots=True, eq=False)
class Conjunctions:
    """Questions about several attributes each: their places in the domain, a row a question, and the codes asked for.

    They are two arrays because they travel to a worker with every piece.
    """

    places: NDArray[np.int64]
    codes: NDArray[np.bool_]


class CodedTable:
    """One table over a domain, real or synthetic, in pieces; it does not show them."""

    def __init__(self, pieces: Sequence[Piece], domain: Domain, *, cluster: Cluster | None = None) -> None:
        self._pieces = list(pieces)
        self.cluster = cluster or Cluster()
        self._known: dict[Clique, Counts] = {}
        self._room = BATCH_CELLS
        self.domain = domain

    @classmethod
    def of(cls, codes: Codes, domain: Domain) -> CodedTable:
        """A table in memory.

        Args:
            codes: a row for each record, a column for each attribute.
            domain: the attributes and their sizes.

        Returns:
            The table.
        """
        starts = range(0, max(1, len(codes)), PIECE_ROWS)
        blocks = (codes[start : start + PIECE_ROWS] for start in starts)
        return cls([dict(zip(domain, block.T, strict=True)) for block in blocks], domain)

    @cached_property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.table(self.domain.attributes[:1]).sum())

    @cached_property
    def sample(self) -> Codes:
        """All rows in their order, or `SAMPLE_ROWS` of them at random; the same for every caller."""
        drawn: Drawn = self._total(_draw, _fewest_drawn, items=list(enumerate(self._pieces)))
        return drawn[1]

    def table(self, clique: Clique) -> Counts:
        """Count one marginal.

        Args:
            clique: the attributes of the marginal.

        Returns:
            Counts, an axis for each attribute.
        """
        return next(self.tables([clique]))

    def tables(self, cliques: Sequence[Clique]) -> Iterator[Counts]:
        """Count several marginals.

        Args:
            cliques: the attributes of each marginal.

        Returns:
            Counts of each, some counted at a time; small ones are remembered.
        """
        for batch in batched_cliques(cliques, self.domain.cells, room=BATCH_CELLS):
            missing = [clique for clique in batch if clique not in self._known]
            counted = count_pieces(self._pieces, self.domain, missing, self.cluster) if missing else []
            found = self._known | dict(zip(missing, counted, strict=True))
            for clique, table in zip(missing, counted, strict=True):
                if table.size <= self._room:
                    self._known[clique] = table
                    self._room -= table.size
            yield from map(found.__getitem__, batch)

    def cells(self, cliques: Sequence[Clique]) -> Iterator[Cells]:
        """Count the occupied cells of several marginals.

        Args:
            cliques: the attributes of each marginal.

        Returns:
            The occupied cells of each, or a random part of them where there are very many.
        """
        for batch in batched_cliques(cliques, self._held_cells, room=BATCH_CELLS):
            dense = [clique for clique in batch if self.domain.cells(clique) <= DENSE_CELLS]
            found = dict(zip(dense, map(occupied_cells, self.tables(dense)), strict=True))
            sparse = [clique for clique in batch if clique not in found]
            found |= zip(sparse, self._sparse(sparse), strict=True)
            yield from map(found.__getitem__, batch)

    def matching(self, conjunctions: Conjunctions) -> Counts:
        """Count the rows that match conjunctions.

        Args:
            conjunctions: which codes are asked for in which attributes.

        Returns:
            For each conjunction, how many rows have one of the codes asked for in every attribute it names.
        """
        found: Counts = self._total(_match, add_counts, conjunctions=conjunctions)
        return found

    def breaking(self, rules: Sequence[str]) -> dict[str, int]:
        """Count the rows that break rules.

        Args:
            rules: names of rules of the domain.

        Returns:
            For each rule, how many rows break it.
        """
        return dict(zip(rules, self._total(_break, add_counts, rules=rules).tolist(), strict=True))

    def _held_cells(self, clique: Clique) -> int:
        return min(self.domain.cells(clique), DENSE_CELLS)

    def _sparse(self, cliques: Sequence[Clique]) -> list[Cells]:
        """The limits found in the first piece are where the others begin."""
        first, *others = self._pieces
        asked = [(clique, 0) for clique in cliques]
        found: list[Cells] = self._total(_count_cells, _merged, items=[first], asked=asked) if asked else []
        if asked and others:
            asked = [(clique, cells.halvings) for clique, cells in zip(cliques, found, strict=True)]
            found = _merged([found, self._total(_count_cells, _merged, items=others, asked=asked)])
        return found

    def _total(
        self, work: Callable[..., Any], add: Callable[..., Any], *, items: Sequence[Any] = (), **asked: Any
    ) -> Any:
        return self.cluster.map_reduce(work, items or self._pieces, add, domain=self.domain, **asked)


def _count_cells(piece: Piece, *, domain: Domain, asked: Sequence[tuple[Clique, int]]) -> list[Cells]:
    with wall():
        columns = read_piece(piece, asked_columns(domain, (clique for clique, _ in asked)))
        return [
            count_cells([columns[a] for a in clique], domain.shape(clique), halvings=halvings)
            for clique, halvings in asked
        ]


def _merged(parts: Sequence[list[Cells]]) -> list[Cells]:
    with wall():
        return [merge_cells(pieces) for pieces in zip(*parts, strict=True)]


def _match(piece: Piece, *, domain: Domain, conjunctions: Conjunctions) -> Counts:
    with wall():
        columns = list(read_piece(piece, domain.attributes).values())
        questions = zip(conjunctions.places, conjunctions.codes, strict=True)
        return np.array([_matching([columns[k] for k in places], codes) for places, codes in questions])


def _matching(columns: Sequence[NDArray[Any]], codes: NDArray[np.bool_]) -> int:
    """Few rows are left after few attributes, so each attribute looks at those alone."""
    left = np.flatnonzero(codes[0][columns[0]])
    for column, asked in zip(columns[1:], codes[1:], strict=True):
        left = left[asked[column[left]]]
    return len(left)


def _break(piece: Piece, *, domain: Domain, rules: Sequence[str]) -> Counts:
    with wall():
        local = domain.project(asked_columns(domain, domain.rule_cliques))
        rows = np.column_stack(list(read_piece(piece, local.attributes).values()))
        return np.array([breaking_rows(rows, local, rule=rule).sum() for rule in rules], dtype=np.int64)


Drawn: TypeAlias = tuple[NDArray[np.float64], Codes]
"""Rows in the table's order, each with a number drawn for it: the rows with the least numbers are the sample."""


def _draw(numbered: tuple[int, Piece], *, domain: Domain) -> Drawn:
    number, piece = numbered
    with wall():
        rows = np.column_stack(list(read_piece(piece, domain.attributes).values()))
        return _fewest_drawn([(np.random.default_rng([_SEED, number]).random(len(rows)), rows)])


def _fewest_drawn(parts: Sequence[Drawn]) -> Drawn:
    with wall():
        draws, rows = (np.concatenate(side) for side in zip(*parts, strict=True))
        if len(draws) <= SAMPLE_ROWS:
            return draws, rows
        kept = np.sort(np.argpartition(draws, SAMPLE_ROWS)[:SAMPLE_ROWS])
        return draws[kept], rows[kept]


LARGEST_MARGINAL = 2**62
"""Positions of cells are 64-bit integers; a marginal with more cells than this cannot be judged."""

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cells:
    """Occupied cells of a marginal: their row-major positions, ascending, and the rows in each.

    Of all occupied cells about one in 2^halvings is here.
    """

    positions: NDArray[np.int64]
    counts: Counts
    halvings: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far two tables are apart on one marginal; `estimated` from a part of its cells, or exact."""

    tvd: float
    l2: float
    jensen_shannon: float
    estimated: bool


def occupied_cells(table: Counts) -> Cells:
    """The occupied cells of a table of counts."""
    positions = np.flatnonzero(table)
    return Cells(positions, table.ravel()[positions])


def count_cells(columns: Sequence[NDArray[Any]], shape: Sequence[int], *, halvings: int = 0) -> Cells:
    """Count the rows of every occupied cell below a limit; the columns are the marginal's, in the shape's order.

    Where other rows of the table are known to lower the limit, beginning there saves sorting what will not stay.
    """
    positions = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, shape, strict=True):
        positions *= size
        positions += column
    if halvings:
        positions = positions[_hash(positions) < _limit(halvings)]
    positions.sort()
    starts = _starts(positions)
    return _thinned(Cells(positions[starts], np.diff(starts, append=len(positions)), halvings))


def merge_cells(parts: Sequence[Cells]) -> Cells:
    """The cells of several pieces of a table together."""
    halvings = max(part.halvings for part in parts)
    kept = [_below(part, halvings) for part in parts]
    positions, counts = (np.concatenate([getattr(part, name) for part in kept]) for name in ("positions", "counts"))
    order = np.argsort(positions, kind="stable")
    starts = _starts(positions[order])
    return _thinned(Cells(positions[order][starts], np.add.reduceat(counts[order], starts), halvings))


def align_cells(left: Cells, right: Cells) -> tuple[Counts, Counts]:
    """Counts of both tables over the same cells: those of either, below the lower of the two limits."""
    halvings = max(left.halvings, right.halvings)
    sides = _below(left, halvings), _below(right, halvings)
    positions = np.union1d(sides[0].positions, sides[1].positions)
    counts = np.zeros((2, len(positions)), dtype=np.int64)
    for row, side in zip(counts, sides, strict=True):
        row[np.searchsorted(positions, side.positions)] = side.counts
    return counts[0], counts[1]


def distances(real: Cells, synthetic: Cells, *, rows: tuple[int, int]) -> Distances:
    """Distances of two tables, of which `rows` are the lengths.

    Each is a sum over cells, and the shares of both tables sum to 2 over all of them. So a sum over a random part of
    the cells, over half of what the shares sum to there, estimates the whole: which cells were drawn matters little,
    because heavy ones weigh in both sums. With all cells that half is 1.
    """
    left, right = align_cells(real, synthetic)
    p, q = left / rows[0], right / rows[1]
    part = float(p.sum() + q.sum()) / 2
    middle = (p + q) / 2
    bits = relative_entropy(p, middle) + relative_entropy(q, middle)
    return Distances(
        tvd=float(np.abs(p - q).sum() / 2) / part,
        l2=float(np.sqrt(((p - q) ** 2).sum() / part)),
        jensen_shannon=max(0.0, bits / 2 / part),
        estimated=max(real.halvings, synthetic.halvings) > 0,
    )


def _starts(ascending: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where each value occurs first."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def _thinned(cells: Cells) -> Cells:
    """The cells below the highest limit that leaves few enough."""
    if len(cells.positions) <= MAX_CELLS:
        return cells
    hashes, halvings = _hash(cells.positions), cells.halvings
    while np.count_nonzero(kept := hashes < _limit(halvings)) > MAX_CELLS:
        halvings += 1
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _below(cells: Cells, halvings: int) -> Cells:
    if halvings == cells.halvings:
        return cells
    kept = _hash(cells.positions) < _limit(halvings)
    return Cells(cells.positions[kept], cells.counts[kept], halvings)


def _limit(halvings: int) -> np.uint64:
    return np.uint64((2**64 - 1) >> halvings)


def _hash(positions: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Steele, Lea and Flood's SplitMix64: one to one, and as even as chance in its upper bits."""
    mixed = positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
