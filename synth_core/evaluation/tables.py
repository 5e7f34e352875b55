"""A table of codes too large to hold: what is asked of it is added up over its pieces, wherever they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.compiled import compiled
from synth_core.domain import Clique, Codes, Domain, breaking_rows
from synth_core.evaluation.cells import DENSE_CELLS, MAX_CELLS, Cells, Tally, merge_cells, occupied_cells
from synth_core.privacy.queries import Counts
from synth_core.privacy.wall import wall
from synth_core.storage.counting import Piece, add_counts, asked_columns, batched_cliques, count_pieces, read_piece

SAMPLE_ROWS = 50_000
"""Rows of each table that are judged one by one: SVM and propensity use 30,000 of them at most."""

PIECE_ROWS = 250_000
"""Rows of one piece of a table in memory."""
BATCH_CELLS = 16_000_000
"""Cells counted in one pass: bounds what a worker sends (4 bytes a cell) and what is held here (8 bytes a cell)."""

ARRAY_CELLS = 500_000
"""A marginal of at most as many cells, and at most one for two rows, is counted as an array, which is faster."""

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
        self._expected: dict[Clique, frozenset[str]] = {}
        self.domain = domain

    @classmethod
    def of(cls, codes: Codes, domain: Domain, *, beside: Mapping[str, NDArray[Any]] | None = None) -> CodedTable:
        """A table in memory.

        Args:
            codes: a row for each record, a column for each attribute.
            domain: the attributes and their sizes.
            beside: what else is known of each record, by name, such as the places of numbers.

        Returns:
            The table.
        """
        columns = dict(zip(domain, codes.T, strict=True)) | dict(beside or {})
        starts = range(0, max(1, len(codes)), PIECE_ROWS)
        return cls([{name: own[at : at + PIECE_ROWS] for name, own in columns.items()} for at in starts], domain)

    @cached_property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.table(self.domain.attributes[:1]).sum())

    @cached_property
    def sample(self) -> Codes:
        """All rows in their order, or `SAMPLE_ROWS` of them at random; the same for every caller."""
        drawn: Drawn = self.total(_draw, _fewest_drawn, items=list(enumerate(self._pieces)))
        return drawn[1]

    def expect(self, cliques: Sequence[Clique]) -> None:
        """Announce marginals that will be asked for later, so that larger ones asked for before give them by sums.

        Args:
            cliques: the attributes of each marginal.
        """
        self._expected |= {clique: frozenset(clique) for clique in cliques}

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
            fresh = dict(zip(missing, counted, strict=True))
            found = self._known | fresh
            for clique, table in fresh.items():
                self._remember(clique, table)
                self._sum_out(clique, table)
            self._expected = {one: members for one, members in self._expected.items() if one not in self._known}
            yield from map(found.__getitem__, batch)

    def cells(self, cliques: Sequence[Clique]) -> Iterator[Cells]:
        """Count the occupied cells of several marginals.

        Args:
            cliques: the attributes of each marginal.

        Returns:
            The occupied cells of each, or a random part of them where there are very many.
        """
        for batch in batched_cliques(cliques, self._held_cells, room=BATCH_CELLS):
            dense = [clique for clique in batch if self.domain.cells(clique) <= self._dense]
            found = dict(zip(dense, map(occupied_cells, self.tables(dense)), strict=True))
            if sparse := [clique for clique in batch if clique not in found]:
                found |= zip(sparse, self.total(_count_cells, _merged, cliques=sparse), strict=True)
            yield from map(found.__getitem__, batch)

    def matching(self, conjunctions: Conjunctions) -> Counts:
        """Count the rows that match conjunctions.

        Args:
            conjunctions: which codes are asked for in which attributes.

        Returns:
            For each conjunction, how many rows have one of the codes asked for in every attribute it names.
        """
        found: Counts = self.total(_match, add_counts, conjunctions=conjunctions)
        return found

    def breaking(self, rules: Sequence[str]) -> dict[str, int]:
        """Count the rows that break rules.

        Args:
            rules: names of rules of the domain.

        Returns:
            For each rule, how many rows break it.
        """
        return dict(zip(rules, self.total(_break, add_counts, rules=rules).tolist(), strict=True))

    @cached_property
    def _dense(self) -> int:
        """Cells of the largest marginal that is counted as an array."""
        return max(DENSE_CELLS, min(ARRAY_CELLS, self.rows // 2))

    def _held_cells(self, clique: Clique) -> int:
        """Room that a marginal takes while it is counted, in cells of an array; a hash table takes four a cell."""
        cells = self.domain.cells(clique)
        return cells if cells <= self._dense else 4 * MAX_CELLS

    def _remember(self, clique: Clique, table: Counts) -> None:
        if table.size <= min(self._room, DENSE_CELLS) and clique not in self._known:
            self._known[clique] = table.copy()  # a view would hold the whole pass
            self._room -= table.size

    def _sum_out(self, clique: Clique, table: Counts) -> None:
        """Remember the expected marginals that are sums of this one, all from one pass over its cells."""
        around, room, inside = frozenset(clique), self._room, []
        for one in [one for one, members in self._expected.items() if members < around and one not in self._known]:
            # With its axes in this order, and no more of them than will be remembered.
            cells = self.domain.cells(one)
            if one == tuple(a for a in clique if a in one) and cells <= min(room, DENSE_CELLS):
                inside.append(one)
                room -= cells
        for one, sums in zip(inside, _sums_of(clique, table, inside), strict=True):
            self._remember(one, sums)

    def total(
        self, work: Callable[..., Any], add: Callable[..., Any], *, items: Sequence[Any] = (), **asked: Any
    ) -> Any:
        """Add something up over the pieces, wherever they lie.

        Args:
            work: called with some pieces, the `domain` and what is `asked`; inside the wall.
            add: called with several results of `work` or of itself, to make one of them.
            items: what stands for the pieces, unless the pieces do.
            asked: further keyword arguments of `work`.

        Returns:
            One result for all pieces.
        """
        return self.cluster.map_reduce(work, items or self._pieces, add, domain=self.domain, **asked)


def _count_cells(pieces: Sequence[Piece], *, domain: Domain, cliques: Sequence[Clique]) -> list[Cells]:
    with wall():
        asked = asked_columns(domain, cliques)
        tallies = [Tally(domain.shape(clique)) for clique in cliques]
        for piece in pieces:
            columns = read_piece(piece, asked)
            for tally, clique in zip(tallies, cliques, strict=True):
                tally.add([columns[attribute] for attribute in clique])
        return [tally.cells() for tally in tallies]


def _merged(parts: Sequence[list[Cells]]) -> list[Cells]:
    with wall():
        return [merge_cells(pieces) for pieces in zip(*parts, strict=True)]


def _match(pieces: Sequence[Piece], *, domain: Domain, conjunctions: Conjunctions) -> Counts:
    with wall():
        begins = np.cumsum([0, *domain.sizes])
        allowed = np.ones((begins[-1], len(conjunctions.places)), dtype=np.uint8)
        for question, (places, codes) in enumerate(zip(conjunctions.places, conjunctions.codes, strict=True)):
            for place, asked in zip(places, codes, strict=True):
                allowed[begins[place] : begins[place + 1], question] = asked[: domain.sizes[place]]
        found = np.zeros(len(conjunctions.places), dtype=np.int64)
        for piece in pieces:
            columns = read_piece(piece, domain.attributes).values()
            cells = np.stack([column + begin for column, begin in zip(columns, begins, strict=False)], axis=1)
            count_matches(cells, allowed, found)
        return found


def _break(pieces: Sequence[Piece], *, domain: Domain, rules: Sequence[str]) -> Counts:
    with wall():
        local = domain.project(asked_columns(domain, domain.rule_cliques))
        found = np.zeros(len(rules), dtype=np.int64)
        for piece in pieces:
            rows = np.column_stack(list(read_piece(piece, local.attributes).values()))
            found += [breaking_rows(rows, local, rule=rule).sum() for rule in rules]
        return found


Drawn: TypeAlias = tuple[NDArray[np.float64], Codes]
"""Rows in the table's order, each with a number drawn for it: the rows with the least numbers are the sample."""


def _draw(numbered: Sequence[tuple[int, Piece]], *, domain: Domain) -> Drawn:
    with wall():
        drawn: list[Drawn] = []
        for number, piece in numbered:
            rows = np.column_stack(list(read_piece(piece, domain.attributes).values()))
            draws = np.random.default_rng([_SEED, number]).random(len(rows))
            drawn = [_fewest_drawn([*drawn, (draws, rows)])]
        return drawn[0]


def _fewest_drawn(parts: Sequence[Drawn]) -> Drawn:
    with wall():
        draws, rows = (np.concatenate(side) for side in zip(*parts, strict=True))
        if len(draws) <= SAMPLE_ROWS:
            return draws, rows
        kept = np.sort(np.argpartition(draws, SAMPLE_ROWS)[:SAMPLE_ROWS])
        return draws[kept], rows[kept]


def _sums_of(clique: Clique, table: Counts, inside: Sequence[Clique]) -> list[Counts]:
    """The sums of a table onto each of some of its axes."""
    shapes = [tuple(size for a, size in zip(clique, table.shape, strict=True) if a in one) for one in inside]
    steps = np.zeros((len(inside), len(clique)), dtype=np.int64)
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    for own, one, shape in zip(steps, inside, shapes, strict=True):
        own[[clique.index(a) for a in one]] = np.cumprod([1, *shape[:0:-1]])[::-1]
    sums = np.zeros(starts[-1], dtype=np.int64)
    if inside:
        add_sums(np.ascontiguousarray(table).reshape(-1, table.shape[-1]), np.array(table.shape), steps, starts, sums)
    return [sums[begin:end].reshape(shape) for begin, end, shape in zip(starts, starts[1:], shapes, strict=False)]


@compiled
def add_sums(
    lines: Counts, shape: NDArray[np.int64], steps: NDArray[np.int64], starts: NDArray[np.int64], sums: Counts
) -> None:
    """Add a table, as its lines along the last axis, to several tables of its sums, one after the other in `sums`.

    `steps` says for each of them how far a step along each axis leads, 0 along those that are summed.
    """
    outer = shape.size - 1
    codes = np.zeros(outer, np.int64)
    for r in range(lines.shape[0]):
        whole = np.int64(0)
        for cell in lines[r]:
            whole += cell
        if whole > 0:
            for t in range(steps.shape[0]):
                at = starts[t]
                for k in range(outer):
                    at += codes[k] * steps[t, k]
                if steps[t, outer] == 0:
                    sums[at] += whole
                else:  # the last axis of the sum is that of the table
                    for j in range(lines.shape[1]):
                        sums[at + j] += lines[r, j]
        for k in range(outer - 1, -1, -1):  # the codes of the next line
            codes[k] += 1
            if codes[k] < shape[k]:
                break
            codes[k] = 0


@compiled
def count_matches(cells: NDArray[np.int64], allowed: NDArray[np.uint8], found: Counts) -> None:
    """Add to `found`, for each question, the rows all of whose cells it allows: 1 in its column of `allowed`."""
    match, some = np.empty(found.size, np.uint8), np.zeros(found.size, np.uint8)
    for r in range(cells.shape[0]):
        match[:] = 1
        for k in range(cells.shape[1]):
            own = allowed[cells[r, k]]
            for q in range(match.size):
                match[q] &= own[q]
        for q in range(match.size):
            some[q] += match[q]
        if r % 255 == 254 or r == cells.shape[0] - 1:  # before eight bits overflow
            for q in range(match.size):
                found[q] += some[q]
            some[:] = 0
