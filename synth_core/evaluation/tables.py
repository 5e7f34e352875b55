"""A table of codes too large to hold: what is asked of it is added up over its pieces, wherever they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.domain import Clique, Domain
from synth_core.evaluation.cells import MOST_CELLS, Cells, Counts, count_cells, merged, occupied
from synth_core.evaluation.distances import Codes
from synth_core.exclusions import breaking_rows
from synth_core.privacy.wall import wall
from synth_core.storage.counting import count_codes
from synth_core.storage.partitions import read_codes

Piece: TypeAlias = str | Mapping[str, NDArray[Any]]
"""An encoded partition's address, or columns in memory."""

SAMPLE_ROWS = 50_000
"""Rows of each table that are judged one by one: SVM and propensity use 30,000 of them at most."""

PIECE_ROWS = 250_000
BATCH_CELLS = 4_000_000
"""Cells counted in one pass: bounds what a worker sends and what is held here (8 or 16 bytes a cell)."""

DENSE_CELLS = 2 * MOST_CELLS
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
        self._cluster = cluster or Cluster()
        self._known: dict[Clique, Counts] = {}
        self._room = BATCH_CELLS
        self.domain = domain

    @classmethod
    def of(cls, codes: Codes, domain: Domain) -> CodedTable:
        """A table in memory: an array with a row for each record and a column for each attribute."""
        starts = range(0, max(1, len(codes)), PIECE_ROWS)
        blocks = (codes[start : start + PIECE_ROWS] for start in starts)
        return cls([dict(zip(domain, block.T, strict=True)) for block in blocks], domain)

    @cached_property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.table(self.domain.attributes[:1]).sum())

    @cached_property
    def sample(self) -> Codes:
        """All rows in their order, or `SAMPLE_ROWS` of them at random; the same whoever draws them."""
        drawn: Drawn = self._total(_draw, _fewest_drawn, items=list(enumerate(self._pieces)))
        return drawn[1]

    def table(self, clique: Clique) -> Counts:
        """Counts of one marginal, an axis for each attribute."""
        return next(self.tables([clique]))

    def tables(self, cliques: Sequence[Clique]) -> Iterator[Counts]:
        """Counts of each marginal, some at a time; small ones are remembered."""
        for batch in _batches(cliques, self.domain.cells):
            missing = [clique for clique in batch if clique not in self._known]
            counted = self._total(_count, _added, cliques=missing) if missing else []
            found = self._known | dict(zip(missing, counted, strict=True))
            for clique, table in zip(missing, counted, strict=True):
                if table.size <= self._room:
                    self._known[clique] = table
                    self._room -= table.size
            yield from map(found.__getitem__, batch)

    def cells(self, cliques: Sequence[Clique]) -> Iterator[Cells]:
        """The occupied cells of each marginal, or a random part of them where there are very many."""
        for batch in _batches(cliques, lambda clique: min(self.domain.cells(clique), DENSE_CELLS)):
            dense = [clique for clique in batch if self.domain.cells(clique) <= DENSE_CELLS]
            found = dict(zip(dense, map(occupied, self.tables(dense)), strict=True))
            sparse = [clique for clique in batch if clique not in found]
            found |= zip(sparse, self._sparse(sparse), strict=True)
            yield from map(found.__getitem__, batch)

    def matching(self, conjunctions: Conjunctions) -> Counts:
        """For each conjunction, how many rows have one of the codes asked for in every attribute it names."""
        found: Counts = self._total(_match, _sum, conjunctions=conjunctions)
        return found

    def breaking(self, rules: Sequence[str]) -> dict[str, int]:
        """For each rule of the domain, how many rows break it."""
        return dict(zip(rules, self._total(_break, _sum, rules=rules).tolist(), strict=True))

    def _sparse(self, cliques: Sequence[Clique]) -> list[Cells]:
        """The first piece tells the others the limits they may begin at."""
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
        return self._cluster.map_reduce(work, items or self._pieces, add, domain=self.domain, **asked)


def _batches(cliques: Sequence[Clique], cells: Callable[[Clique], int]) -> Iterator[list[Clique]]:
    batch: list[Clique] = []
    room = BATCH_CELLS
    for clique in cliques:
        if batch and cells(clique) > room:
            yield batch
            batch, room = [], BATCH_CELLS
        batch.append(clique)
        room -= cells(clique)
    if batch:
        yield batch


def _columns(piece: Piece, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    return read_codes(piece, wanted) if isinstance(piece, str) else {name: piece[name] for name in wanted}


def _asked(domain: Domain, cliques: Sequence[Clique]) -> Clique:
    return domain.clique(attribute for clique in cliques for attribute in clique)


def _count(piece: Piece, *, domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    with wall():
        return count_codes(_columns(piece, _asked(domain, cliques)), domain, cliques)


def _added(parts: Sequence[list[Counts]]) -> list[Counts]:
    return [sum(tables[1:], start=tables[0]) for tables in zip(*parts, strict=True)]


def _count_cells(piece: Piece, *, domain: Domain, asked: Sequence[tuple[Clique, int]]) -> list[Cells]:
    with wall():
        columns = _columns(piece, _asked(domain, [clique for clique, _ in asked]))
        return [
            count_cells([columns[a] for a in clique], domain.shape(clique), halvings=halvings)
            for clique, halvings in asked
        ]


def _merged(parts: Sequence[list[Cells]]) -> list[Cells]:
    return [merged(pieces) for pieces in zip(*parts, strict=True)]


def _match(piece: Piece, *, domain: Domain, conjunctions: Conjunctions) -> Counts:
    with wall():
        columns = list(_columns(piece, domain.attributes).values())
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
        local = domain.project(_asked(domain, domain.rule_cliques) or domain.attributes[:1])
        rows = np.column_stack(list(_columns(piece, local.attributes).values()))
        return np.array([breaking_rows(rows, local, rule=rule).sum() for rule in rules], dtype=np.int64)


def _sum(parts: Sequence[Counts]) -> Counts:
    total: Counts = np.sum(parts, axis=0)
    return total


Drawn: TypeAlias = tuple[NDArray[np.float64], Codes]
"""Rows in the table's order, each with a number drawn for it: the rows with the least numbers are the sample."""


def _draw(numbered: tuple[int, Piece], *, domain: Domain) -> Drawn:
    number, piece = numbered
    with wall():
        rows = np.column_stack(list(_columns(piece, domain.attributes).values()))
        return _fewest_drawn([(np.random.default_rng([_SEED, number]).random(len(rows)), rows)])


def _fewest_drawn(parts: Sequence[Drawn]) -> Drawn:
    draws, rows = (np.concatenate(side) for side in zip(*parts, strict=True))
    if len(draws) <= SAMPLE_ROWS:
        return draws, rows
    kept = np.sort(np.argpartition(draws, SAMPLE_ROWS)[:SAMPLE_ROWS])
    return draws[kept], rows[kept]
