"""Rows from calibrated clique tables: with little variance, independent, or in shards.

Rows are drawn clique by clique, parents first: the attributes a clique adds are drawn from its conditional
distribution given the separator. With little variance means that within each group of rows with equal separator
values every cell gets the floor or the ceiling of its expected count, with the right mean, and the cells are then
shuffled within the group; so rows are exchangeable, and counts stray far less than those of independent rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Domain
from synth_core.models import sampling_kernels as kernels
from synth_core.models.calibration import Table

Codes: TypeAlias = NDArray[Any]
"""One row for each record, one column for each attribute, in the smallest of uint8, uint16 and int32 that fits."""


@dataclass(frozen=True, slots=True)
class Step:
    """One clique's turn: which columns are given, which are drawn, and from which conditional table."""

    given: NDArray[np.int64]
    strides: NDArray[np.int64]
    fresh: NDArray[np.int64]
    divisors: NDArray[np.int64]
    sizes: NDArray[np.int64]
    table: NDArray[np.float64]


def sample_rows(
    domain: Domain,
    beliefs: Sequence[Table],
    rows: int,
    *,
    rng: np.random.Generator,
    independent: bool = False,
) -> Codes:
    """Draw rows of codes in the domain's order."""
    columns = np.zeros((len(domain), rows), dtype=code_type(domain))
    if rows:
        for step in steps(domain, beliefs):
            draw_step(columns, step, rng=rng, independent=independent)
    return columns.T


def draw_step(columns: Codes, step: Step, *, rng: np.random.Generator, independent: bool = False) -> None:
    """Write the columns of one turn."""
    seed = rng.integers(2**64, dtype=np.uint64)
    places = (step.given, step.strides, step.fresh, step.divisors, step.sizes)
    if independent:
        kernels.draw(columns, *places, np.cumsum(step.table, axis=1), seed)
    else:
        kernels.deal(columns, *places, step.table, seed)


def sample_shards(
    domain: Domain, beliefs: Sequence[Table], rows: int, *, shard_rows: int, seed: np.random.SeedSequence
) -> Iterator[Codes]:
    """Draw rows in shards that can be made in any order or place: shard k depends on the seed and on k alone."""
    for size, own in shards(rows, shard_rows=shard_rows, seed=seed):
        yield sample_rows(domain, beliefs, size, rng=np.random.default_rng(own))


def shards(
    rows: int, *, shard_rows: int, seed: np.random.SeedSequence
) -> list[tuple[int, np.random.SeedSequence]]:
    """Sizes and seeds of the shards."""
    if shard_rows < 1:
        raise ValueError("a shard needs at least one row")
    count = -(-rows // shard_rows)
    sizes = [min(shard_rows, rows - k * shard_rows) for k in range(count)]
    return list(zip(sizes, seed.spawn(count), strict=True))


def code_type(domain: Domain) -> np.dtype[Any]:
    """The smallest type that holds every code of the domain."""
    largest = max(domain.sizes)
    return np.dtype(np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.int32)


def steps(domain: Domain, beliefs: Sequence[Table]) -> Iterator[Step]:
    """The turns in order, each table as rows of given values by columns of fresh cells.

    Given are the attributes drawn before; in a junction tree, parents first, these are the separator by running
    intersection. A table without fresh attributes has no turn.
    """
    drawn: set[str] = set()
    for clique, values in beliefs:
        given = tuple(a for a in clique if a in drawn)
        fresh = tuple(a for a in clique if a not in drawn)
        drawn.update(fresh)
        if not fresh:
            continue
        order = [clique.index(a) for a in given + fresh]
        table = np.transpose(np.asarray(values), order)
        yield Step(
            given=_positions(domain, given),
            strides=_strides(domain.shape(given)),
            fresh=_positions(domain, fresh),
            divisors=_strides(domain.shape(fresh)),
            sizes=np.array(domain.shape(fresh), dtype=np.int64),
            table=np.ascontiguousarray(table).reshape(domain.cells(given), domain.cells(fresh)),
        )


def _positions(domain: Domain, attributes: Sequence[str]) -> NDArray[np.int64]:
    return np.array([domain.position(a) for a in attributes], dtype=np.int64)


def _strides(shape: Sequence[int]) -> NDArray[np.int64]:
    return np.array([int(np.prod(shape[k + 1 :])) for k in range(len(shape))], dtype=np.int64)
