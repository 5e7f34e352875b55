"""Rows from calibrated clique tables, with little variance or independent.

Rows are drawn clique by clique, parents first: the attributes a clique adds are drawn from its conditional
distribution given the separator. With little variance means that within each group of rows with equal separator
values every cell gets the floor or the ceiling of its expected count, with the right mean, and the cells are then
shuffled within the group; so rows are exchangeable, and counts stray far less than those of independent rows.

**Representative rows.** A table of n rows drawn from a model strays from it, and where a model is good this is a
notable part of the whole error of small tables. Rows are therefore exchanged, one at a time, for other rows that the
same model drew, wherever that brings the counts of single attributes, pairs and triples nearer to those of the whole
pool. Every row remains one that the model drew, so what the model excludes stays out. It is post-processing of the
model alone.

Nearness is squared: a cell with t expected rows has the weight min(t, 1) / (t + 1), about the inverse of its
variance where t is large, and little where t is small, because no whole number is near a small fraction. Even so,
cells of less than half a row are filled a little less often than the model would.

**Lawful rows**, for networks that are no junction tree, which would hold the rules' tables itself. The attributes of
a turn are drawn without the codes that would complete an excluded combination with what is drawn already; a row that
was led into a dead end, where no code is left, is drawn again from the beginning. So attributes drawn early follow
the tables as they are, and later ones follow them given that the rules hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes, Domain, Impossible, breaking_rows
from synth_core.errors import FeasibilityError
from synth_core.models import sampling_kernels as kernels
from synth_core.models.calibration import Factor
from synth_core.models.sampling_kernels import Turn


def sample_rows(
    domain: Domain,
    tables: Sequence[Factor],
    rows: int,
    *,
    rng: np.random.Generator,
    independent: bool = False,
    rules: Sequence[Impossible] = (),
) -> Codes:
    """Rows of codes in the domain's order; of the rules, only rows that ended in a dead end may break one."""
    columns = np.zeros((len(domain), rows), dtype=code_type(domain))
    drawn: set[str] = set()
    for turn in sampling_turns(domain, tables) if rows else ():
        fresh = [domain.attributes[place] for place in turn.fresh]
        drawn.update(fresh)
        ending = [rule for rule in rules if set(rule.attributes) <= drawn and set(rule.attributes) & set(fresh)]
        if not ending:
            _draw_turn(columns, turn, rng=rng, independent=independent)
            continue
        kinds, which = _met(columns, domain, ending, fresh)
        for number, kind in enumerate(kinds):
            own = np.flatnonzero(which == number)
            part = np.ascontiguousarray(columns[:, own])
            excluded = _excluded(turn, fresh, [rule for rule, met in zip(ending, kind, strict=True) if met])
            _draw_turn(part, turn._replace(table=turn.table * ~excluded), rng=rng, independent=independent)
            columns[:, own] = part
    return columns.T


def _draw_turn(columns: Codes, turn: Turn, *, rng: np.random.Generator, independent: bool = False) -> None:
    seed = rng.integers(2**64, dtype=np.uint64)
    if independent:
        kernels.draw(columns, turn._replace(table=np.cumsum(turn.table, axis=1)), seed)
    else:
        kernels.deal(columns, turn, seed)


def count_rows(
    codes: Codes, domain: Domain, clique: Clique, *, total: float, kept: slice | NDArray[np.bool_] = slice(None)
) -> Floats:
    """Estimate the clique's table from drawn rows, or from those of them that are kept.

    Args:
        codes: the rows, one column for each attribute of the domain.
        domain: the attributes.
        clique: those of the table, in the order of its axes.
        total: records for which all rows stand.
        kept: rows that are counted.

    Returns:
        Expected counts.
    """
    shape = domain.shape(clique)
    columns = [codes[kept, domain.position(name)] for name in clique]
    index = np.ravel_multi_index(columns, shape) if clique else np.zeros(len(codes[kept]), dtype=np.int64)
    counts = np.bincount(index, minlength=math.prod(shape)).reshape(shape)
    return np.asarray(counts * (total / len(codes)))


def code_type(domain: Domain) -> np.dtype[Any]:
    """The smallest type that holds every code of the domain."""
    largest = max(domain.sizes)
    return np.dtype(np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.int32)


def sampling_turns(domain: Domain, beliefs: Sequence[Factor]) -> Iterator[Turn]:
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
        yield Turn(
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


MAX_REPRESENTATIVE_ROWS = 150_000
"""Upper limit of the rows of a table whose rows are chosen: larger tables stray less, and choosing takes longer."""
POOL = 5
"""Rows drawn for each row wanted, besides the row itself."""
MAX_SETS = 600
"""Upper limit of the tables compared: of one attribute, then of two, then of three."""
MAX_CELLS = 4_000_000
"""Upper limit of the cells of all these tables together."""
MAX_LOOKS = 80_000_000
"""Upper limit of the tables compared over all exchanges tried: one or two seconds."""


class SmallTables(NamedTuple):
    """Tables of up to three attributes, laid out one after the other; absent attributes point at a column of zeros."""

    places: NDArray[np.int32]  # three columns for each table
    strides: NDArray[np.int32]  # of the first two; the third advances by 1
    starts: NDArray[np.int32]
    cells: int


def representative_rows(domain: Domain, draw: Callable[[int], Codes], rows: int, *, rng: np.random.Generator) -> Codes:
    """Rows chosen among POOL times as many that `draw` returns."""
    drawn = draw(rows * (POOL + 1))
    if not rows:
        return drawn
    tables = small_tables(domain, most_cells=rows, rng=rng)
    pool = np.zeros((len(drawn), len(domain) + 1), dtype=drawn.dtype)
    pool[:, :-1] = drawn
    pool = pool[rng.permutation(len(pool))]
    kept, others = pool[:rows].copy(), pool[rows:]
    expected = kernels.count_tables(pool, *tables[:3], np.zeros(tables.cells)) * (rows / len(pool))
    there = kernels.count_tables(kept, *tables[:3], np.zeros(tables.cells))
    weights = np.minimum(expected, 1.0) / (expected + 1.0)
    costs = np.stack([weights * (2 * (there - expected) + 1), 2 * weights], axis=1).astype(np.float32)
    tries = min(len(others), MAX_LOOKS // max(1, len(tables.starts)))
    seed = rng.integers(2**64, dtype=np.uint64)
    kernels.exchange(kept, others[:tries], *tables[:3], costs, seed)
    return kept[:, :-1]


def small_tables(domain: Domain, *, most_cells: int, rng: np.random.Generator) -> SmallTables:
    """Tables worth looking at: none with more cells than rows, the fewest attributes first, in random order."""
    sizes = np.array([*domain.sizes, 1])
    nothing = len(domain)
    chosen: list[tuple[int, ...]] = []
    cells = 0
    for order in range(1, min(3, len(domain)) + 1):
        found = list(combinations(range(len(domain)), order))
        for k in rng.permutation(len(found)):
            size = int(np.prod(sizes[list(found[k])]))
            if size <= most_cells and cells + size <= MAX_CELLS and len(chosen) < MAX_SETS:
                chosen.append(found[k])
                cells += size
    places = np.array([(*(nothing,) * (3 - len(c)), *c) for c in chosen], dtype=np.int32).reshape(-1, 3)
    last, middle = sizes[places[:, 2]], sizes[places[:, 1]]
    each = np.prod(sizes[places], axis=1)
    starts = np.cumsum(each) - each
    strides = np.stack([last * middle, last], axis=1)
    return SmallTables(places, strides.astype(np.int32), starts.astype(np.int32), cells)


MAX_DRAWS_PER_ROW = 1000
"""Rows drawn for each one wanted after which a model in which hardly any record is possible is refused."""
MIN_DRAWS = 100_000
"""Minimum draws before sampling is refused as infeasible."""


def redraw_rows(
    draw: Callable[[int, np.random.Generator], Codes], rows: int, *, domain: Domain, rng: np.random.Generator
) -> Codes:
    """Rows of a sampler, those that break a rule of the domain drawn again: its distribution given the rules."""
    kept = draw(rows, rng)
    if not domain.impossible:
        return kept
    drawn, kept = rows, kept[~breaking_rows(kept, domain)]
    while len(kept) < rows:
        if drawn >= max(MAX_DRAWS_PER_ROW * rows, MIN_DRAWS):
            names = ", ".join(dict.fromkeys(excluded.rule for excluded in domain.impossible))
            raise FeasibilityError(
                f"hardly any record of this model obeys the rules ({names}); use a method that holds them, "
                "such as privmrf"
            )
        wanted = (rows - len(kept)) * drawn // max(len(kept), 1) + 1
        fresh = draw(min(wanted, max(rows, MIN_DRAWS)), rng)
        drawn += len(fresh)
        kept = np.concatenate([kept, fresh[~breaking_rows(fresh, domain)]])
    return np.asfortranarray(kept[:rows])


def _met(
    columns: Codes, domain: Domain, rules: Sequence[Impossible], fresh: Sequence[str]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which rules the rows meet in all attributes but the fresh ones: the kinds of rows there are, and each row's."""
    met = np.ones((columns.shape[1], len(rules)), dtype=np.bool_)
    for number, rule in enumerate(rules):
        for attribute, codes in rule.codes:
            if attribute not in fresh:
                met[:, number] &= np.isin(columns[domain.position(attribute)], codes)
    which = np.zeros(len(met), dtype=np.int64)
    for number in range(len(rules)):
        which = 2 * which + met[:, number]
        if number % 32 == 31:  # before the numbers grow too large
            which = np.unique(which, return_inverse=True)[1]
    _, first, which = np.unique(which, return_index=True, return_inverse=True)
    return met[first], which


def _excluded(turn: Turn, fresh: Sequence[str], rules: Sequence[Impossible]) -> NDArray[Any]:
    """The cells of the turn's table that complete one of the rules."""
    cells = np.zeros(tuple(turn.sizes), dtype=np.bool_)
    for rule in rules:
        codes = dict(rule.codes)
        cells[np.ix_(*(codes.get(a, range(size)) for a, size in zip(fresh, turn.sizes, strict=True)))] = True
    return cells.ravel()
