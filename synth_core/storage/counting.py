"""Exact counts of encoded rows: integer tables, added up over partitions, wrapped before they leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.domain import Clique, Domain
from synth_core.privacy.private import Private, open_private
from synth_core.privacy.queries import Counts
from synth_core.privacy.wall import wall
from synth_core.storage.parquet import read_codes

CELLS_PER_PASS = 20_000_000
"""Tables counted in one pass over the data: bounds what a worker holds and sends (8 bytes a cell)."""

CACHED_CELLS = 50_000_000
"""Tables kept for later rounds, which ask for the same candidates again."""

Codes = Mapping[str, NDArray[Any]]


class TableCounts:
    """Counts of an encoded table that is in memory."""

    def __init__(self, codes: Codes, domain: Domain) -> None:
        self._codes = codes
        self._domain = domain
        self._cache = _Cache()

    @property
    def domain(self) -> Domain:
        """The table's public domain."""
        return self._domain

    def tables(self, cliques: Sequence[Clique]) -> list[Private[Counts]]:
        """One table of exact counts for each clique."""
        return self._cache.fill(cliques, lambda missing: count_codes(self._codes, self._domain, missing))


class PartitionCounts:
    """Counts of encoded Parquet partitions: each is counted where it lies, partial counts are added as a tree."""

    def __init__(self, partitions: Sequence[Path], domain: Domain, cluster: Cluster) -> None:
        self._partitions = [str(path) for path in partitions]
        self._domain = domain
        self._cluster = cluster
        self._cache = _Cache()

    @property
    def domain(self) -> Domain:
        """The table's public domain."""
        return self._domain

    def tables(self, cliques: Sequence[Clique]) -> list[Private[Counts]]:
        """One table of exact counts for each clique."""
        return self._cache.fill(cliques, self._count)

    def _count(self, cliques: Sequence[Clique]) -> list[Counts]:
        tables: list[Counts] = []
        for batch in _batches(cliques, self._domain):
            counted: list[Counts] = self._cluster.map_reduce(
                count_partition, self._partitions, add_tables, domain=self._domain, cliques=tuple(batch)
            )
            tables += counted
        return tables


class _Cache:
    """Counted tables, kept inside the wall until they hold too many cells; the oldest go first."""

    def __init__(self) -> None:
        self._tables: dict[Clique, Private[Counts]] = {}
        self._cells = 0

    def fill(self, cliques: Sequence[Clique], count: Any) -> list[Private[Counts]]:
        missing = [clique for clique in dict.fromkeys(cliques) if clique not in self._tables]
        new = dict(zip(missing, map(Private, count(missing)), strict=True)) if missing else {}
        found = [new[clique] if clique in new else self._tables[clique] for clique in cliques]
        for clique, table in new.items():
            self._tables[clique] = table
            self._cells += open_private(table).size
        while self._cells > CACHED_CELLS:
            oldest = next(iter(self._tables))
            self._cells -= open_private(self._tables.pop(oldest)).size
        return found


def count_codes(codes: Codes, domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    """Exact tables of the cliques over a table in memory."""
    rows = len(next(iter(codes.values()))) if codes else 0
    tables = []
    for clique in cliques:
        shape = domain.shape(clique)
        cells = math.prod(shape)
        key: NDArray[Any] = np.zeros(rows, dtype=np.int32 if cells < 2**31 else np.int64)
        for attribute, size in zip(clique, shape, strict=True):
            key *= size
            key += codes[attribute]
        tables.append(np.bincount(key, minlength=cells).astype(np.int64).reshape(shape))
    return tables


def count_partition(path: str, *, domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    """Exact tables of the cliques over one encoded partition; runs on a worker."""
    wanted = domain.clique(attribute for clique in cliques for attribute in clique) or domain.attributes[:1]
    with wall():
        return count_codes(read_codes(Path(path), wanted), domain, cliques)


def add_tables(parts: Sequence[list[Counts]]) -> list[Counts]:
    """Sum the partial counts of some partitions, table by table."""
    return [np.sum(tables, axis=0, dtype=np.int64) for tables in zip(*parts, strict=True)]


def _batches(cliques: Sequence[Clique], domain: Domain) -> list[list[Clique]]:
    batches: list[list[Clique]] = []
    room = 0
    for clique in cliques:
        cells = domain.cells(clique)
        if not batches or cells > room:
            batches.append([])
            room = CELLS_PER_PASS
        batches[-1].append(clique)
        room -= cells
    return batches
