"""Rows that stand for a model: chosen among many it drew, so that tables of few attributes follow it closely.

A table of n rows drawn from a model strays from it, and where a model is good this is a notable part of the whole
error of small tables. Rows are therefore exchanged, one at a time, for other rows that the same model drew, wherever
that brings the counts of single attributes, pairs and triples nearer to those of the whole pool. Every row remains
one that the model drew, so what the model excludes stays out. It is post-processing of the model alone.

Nearness is squared: a cell with t expected rows has the weight min(t, 1) / (t + 1), about the inverse of its
variance where t is large, and little where t is small, because no whole number is near a small fraction. Even so,
cells of less than half a row are filled a little less often than the model would.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Domain
from synth_core.models import sampling_kernels as kernels
from synth_core.models.sampling import Codes

MOST_ROWS = 150_000
"""Up to here rows are chosen; larger tables stray less, and choosing takes longer than drawing."""
POOL = 5
"""Rows drawn for each row wanted."""
MOST_SETS = 600
"""Tables looked at: of one attribute, then of two, then of three, as many as there is room for."""
MOST_CELLS = 4_000_000
"""Cells of all these tables together."""
MOST_LOOKS = 80_000_000
"""Tables looked at, over all exchanges tried: one or two seconds."""


class Tables(NamedTuple):
    """Tables of up to three attributes, laid out one after the other; absent attributes point at a column of zeros."""

    places: NDArray[np.int32]  # three columns for each table
    strides: NDArray[np.int32]  # of the first two; the third advances by 1
    starts: NDArray[np.int32]
    cells: int


def representative_rows(
    domain: Domain, draw: Callable[[int], Codes], rows: int, *, rng: np.random.Generator
) -> Codes:
    """So many rows, chosen among POOL times as many that `draw` returns."""
    drawn = draw(rows * (POOL + 1))
    if not rows:
        return drawn
    tables = small_tables(domain, most_cells=rows, rng=rng)
    pool = np.zeros((len(drawn), len(domain) + 1), dtype=drawn.dtype)
    pool[:, :-1] = drawn
    pool = pool[rng.permutation(len(pool))]
    kept, others = pool[:rows].copy(), pool[rows:]
    expected = kernels.counted(pool, *tables[:3], np.zeros(tables.cells)) * (rows / len(pool))
    there = kernels.counted(kept, *tables[:3], np.zeros(tables.cells))
    weights = np.minimum(expected, 1.0) / (expected + 1.0)
    costs = np.stack([weights * (2 * (there - expected) + 1), 2 * weights], axis=1).astype(np.float32)
    tries = min(len(others), MOST_LOOKS // max(1, len(tables.starts)))
    seed = rng.integers(2**64, dtype=np.uint64)
    kernels.exchange(kept, others[:tries], *tables[:3], costs, seed)
    return kept[:, :-1]


def small_tables(domain: Domain, *, most_cells: int, rng: np.random.Generator) -> Tables:
    """Tables worth looking at: none with more cells than rows, the fewest attributes first, in random order."""
    sizes = np.array([*domain.sizes, 1])
    nothing = len(domain)
    chosen: list[tuple[int, ...]] = []
    cells = 0
    for order in range(1, min(3, len(domain)) + 1):
        found = list(combinations(range(len(domain)), order))
        for k in rng.permutation(len(found)):
            size = int(np.prod(sizes[list(found[k])]))
            if size <= most_cells and cells + size <= MOST_CELLS and len(chosen) < MOST_SETS:
                chosen.append(found[k])
                cells += size
    places = np.array([(*(nothing,) * (3 - len(c)), *c) for c in chosen], dtype=np.int32).reshape(-1, 3)
    last, middle = sizes[places[:, 2]], sizes[places[:, 1]]
    each = np.prod(sizes[places], axis=1)
    starts = np.cumsum(each) - each
    strides = np.stack([last * middle, last], axis=1)
    return Tables(places, strides.astype(np.int32), starts.astype(np.int32), cells)
