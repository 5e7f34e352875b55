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
from synth_core.errors import SourceError
from synth_core.privacy.private import Private, open_private
from synth_core.privacy.queries import Counts
from synth_core.privacy.wall import wall
from synth_core.storage.counting_kernels import count_keys, count_pairs
from synth_core.storage.fusion import Plan, plan
from synth_core.storage.partitions import read_codes

CELLS_PER_PASS = 20_000_000
"""Tables counted in one pass over the data: bounds what a worker holds and sends (8 bytes a cell)."""

SLAB_ROWS = 1 << 18
"""Rows packed and counted at once: their lanes stay in the last cache, and 32-bit counters cannot overflow."""

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
            counted = self._cluster.map_reduce(
                count_partition, self._partitions, add_counts, domain=self._domain, cliques=tuple(batch)
            )
            tables += _tables(counted, self._domain, batch)
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
    return _tables(_count_flat(codes, domain, cliques), domain, cliques)


def count_partition(path: str, *, domain: Domain, cliques: Sequence[Clique]) -> NDArray[np.int64]:
    """Exact tables of the cliques over one encoded partition, one after the other; runs on a worker."""
    wanted = domain.clique(attribute for clique in cliques for attribute in clique) or domain.attributes[:1]
    with wall():
        return _count_flat(read_codes(Path(path), wanted), domain, cliques)


def add_counts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Sum the partial counts of some partitions."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _count_flat(codes: Codes, domain: Domain, cliques: Sequence[Clique]) -> NDArray[np.int64]:
    rows = len(next(iter(codes.values()))) if codes else 0
    made = plan(domain, tuple(cliques), min(rows, SLAB_ROWS))
    out = np.zeros(made.cells, dtype=np.int64)
    for start in range(0, rows, SLAB_ROWS):
        slab = {name: column[start : start + SLAB_ROWS] for name, column in codes.items()}
        lanes = _packed(slab, domain, made, rows=min(SLAB_ROWS, rows - start))
        count_pairs(lanes, made.sizes, made.pairs, made.pair_ends, made.drains, made.places, out)
        count_keys(lanes, made.sizes, made.key_members, made.key_ends, made.key_begins, out)
    return out


def _packed(codes: Codes, domain: Domain, made: Plan, *, rows: int) -> NDArray[Any]:
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


def _tables(flat: NDArray[np.int64], domain: Domain, cliques: Sequence[Clique]) -> list[Counts]:
    shapes = [domain.shape(clique) for clique in cliques]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=False)]


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
