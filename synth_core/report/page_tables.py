"""Which tables the page of a release holds, and how they are packed into it.

A page is one file below 8 MB, so it cannot hold every table. What it holds follows from the public domain and model
alone: all counts by one column; means by none and one column; counts by two columns; means by two; counts by three
columns, first those that were measured. In each kind small tables come first, and a table that no longer fits is left
out. The page answers a question from the table over rows, columns and condition, of which it shows a slice.

A count takes three bytes, in steps that are a power of ten and so fine that the largest count of its table is up to
ten million steps. Each standard deviation takes one byte, in 254 steps of equal ratio, rounded up, so that a margin on
the page is never smaller than the computed one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain

MAX_PACKED = 6_600_000
"""Bytes of a page that packed tables may take."""
MAX_CODES = 1_000
"""Codes of a column that the page shows: a picture of more cannot be read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that the page may hold: counts by some columns, or means of a column by some columns."""

    by: Clique
    mean: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Standard deviations: of counts or means, or of shares among the records that are equal in the given columns."""

    given: Clique | None
    sigma: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """What is known of a table: its numbers, their standard deviations, and where they are from.

    `replicates` is how many replicates of the model the deviations are made of.
    """

    values: Floats
    layers: tuple[Layer, ...]
    measured: bool
    sampled: bool
    replicates: int


def choose_tables(
    domain: Domain, *, numbers: Sequence[str], cliques: Iterable[Clique], measured: Callable[[Clique], bool]
) -> list[Wanted]:
    """Choose the page's tables by public facts alone.

    Args:
        domain: The columns.
        numbers: Those that hold numbers, whose means are shown.
        cliques: Columns that the model joins.
        measured: Whether a set of columns was measured together.

    Returns:
        The tables that fit into the page.
    """
    shown = [name for name in domain if domain.size(name) <= MAX_CODES]
    means = [name for name in numbers if name in domain]
    by = {size: sorted(combinations(shown, size), key=domain.cells) for size in range(3)}
    ordered = (
        *(Wanted(clique) for clique in by[1]),
        *(Wanted(clique, mean) for size in (0, 1) for clique, mean in _mean_tables(by[size], means)),
        *(Wanted(clique) for clique in by[2]),
        *(Wanted(clique, mean) for clique, mean in _mean_tables(by[2], means)),
        *(Wanted(clique) for clique in _triples(domain, shown, cliques, measured)),
    )
    return list(_fitting(ordered, domain))


MAX_TRIPLES = 600
"""Upper limit of the tables over three columns, since each is asked of every replicate."""

FEW = 30
"""Columns, those with the fewest codes, of which any three are a candidate."""


def _triples(
    domain: Domain, shown: Sequence[str], cliques: Iterable[Clique], measured: Callable[[Clique], bool]
) -> list[Clique]:
    """Three columns at a time: those that were measured, then others of the columns with the fewest codes."""
    inside: set[Clique] = set()
    for clique in cliques:
        inside.update(combinations(domain.clique(set(clique) & set(shown)), 3))
    known = sorted(filter(measured, inside), key=lambda triple: (domain.cells(triple), triple))
    few = domain.clique(sorted(shown, key=domain.size)[:FEW])
    others = sorted(set(combinations(few, 3)) - set(known), key=lambda triple: (domain.cells(triple), triple))
    return [*known, *others][:MAX_TRIPLES]


def _mean_tables(cliques: Iterable[Clique], means: Sequence[str]) -> Iterator[tuple[Clique, str]]:
    return ((clique, mean) for clique in cliques for mean in means if mean not in clique)


def _fitting(ordered: Iterable[Wanted], domain: Domain) -> Iterator[Wanted]:
    left = MAX_PACKED
    for one in ordered:
        size = packed_size(one, domain)
        if size <= left:
            left -= size
            yield one


def packed_size(wanted: Wanted, domain: Domain) -> int:
    """Characters that a table takes: base64 of its bytes, and a line of facts."""
    layers = 1 if wanted.mean else len(list_givens(wanted.by)) + 1
    return math.ceil(domain.cells(wanted.by) * (3 + layers) / 3) * 4 + 120 + 60 * layers


def list_givens(by: Clique) -> list[Clique]:
    """The sets of columns in which records may be equal of which shares are shown: all but the whole set."""
    return [given for size in range(len(by)) for given in combinations(by, size)]


def pack(numbers: Numbers, *, of: Sequence[int], mean: int | None, places: Mapping[str, int]) -> dict[str, Any]:
    """A table as plain data.

    Args:
        numbers: The table.
        of: Places of its columns in the page's list.
        mean: Place of the column whose mean it gives; None for counts.
        places: Place of each column in the page's list, by name.

    Returns:
        Facts and base64 text that `page_data.js` unpacks.
    """
    least, per_unit, steps = _in_steps(numbers.values.ravel())
    layers, planes = [], [_three_bytes(steps)]
    for layer in numbers.layers:
        smallest, ratio, codes = _in_ratios(layer.sigma.ravel())
        given = None if layer.given is None else [places[name] for name in layer.given]
        layers.append({"given": given, "least": smallest, "ratio": ratio})
        planes.append(codes.tobytes())
    return {
        "of": list(of),
        "mean": mean,
        "measured": numbers.measured,
        "sampled": numbers.sampled,
        "replicates": numbers.replicates,
        "least": least,
        "per_unit": per_unit,
        "layers": layers,
        "cells": base64.b64encode(b"".join(planes)).decode(),
    }


MAX_STEPS = 0xFFFFFE
"""Largest number of steps that three bytes hold; one more stands for a number that there is not."""

FINEST = 3
"""Decimals of a count, at most."""


def _in_steps(values: Floats) -> tuple[int, float, NDArray[np.int64]]:
    """Numbers as whole steps above the least one; the step is a power of ten."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    low = min(low, 0.0)
    decimals = FINEST
    while (high - low) * 10.0**decimals > MAX_STEPS - 1:
        decimals -= 1
    per_unit = 10.0**decimals
    least = math.floor(low * per_unit)
    steps = np.full(values.shape, MAX_STEPS + 1, dtype=np.int64)
    steps[np.isfinite(values)] = np.rint(known * per_unit).astype(np.int64) - least
    return least, per_unit, steps


def _three_bytes(steps: NDArray[np.int64]) -> bytes:
    return np.stack([steps & 255, steps >> 8 & 255, steps >> 16], axis=-1).astype(np.uint8).tobytes()


RATIO = 4_000.0
"""How many times the least standard deviation of a table is the largest, at most; smaller ones are rounded up."""


def _in_ratios(sigma: Floats) -> tuple[float, float, NDArray[np.uint8]]:
    """Standard deviations as powers of a ratio above the least one, rounded up; 0 stays 0."""
    there = sigma > 0
    if not there.any():
        return 0.0, 1.0, np.zeros(sigma.shape, dtype=np.uint8)
    high = float(sigma[there].max())
    low = max(float(sigma[there].min()), high / RATIO)
    low, high = (float(f"{end:.4e}") for end in (low, high * 1.0001))
    ratio = max((high / low) ** (1 / 253), 1 + 1e-9)
    codes = np.zeros(sigma.shape, dtype=np.uint8)
    above = np.log(np.maximum(sigma[there] / low, 1.0)) / math.log(ratio)
    codes[there] = 1 + np.minimum(np.ceil(above - 1e-9), 253).astype(np.uint8)
    return low, ratio, codes
