"""Exact belief propagation in array-API code: beliefs of every clique of a junction tree, on any array library.

The rules of the tree's domain take part as tables that are 0 where no record can be, so beliefs are exactly 0 there.

A marginal that no clique of the tree holds is found by variable elimination (`eliminate_variables`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from synth_core.arrays import namespace
from synth_core.domain import Clique, Domain, forbidden_tables
from synth_core.errors import FeasibilityError
from synth_core.models.junction_tree import JunctionTree

GROUPING = 32
"""Small tables are multiplied together first while their union has at most 1/32 of the clique's cells."""
TINY = 1e-200
"""A message below this, from tables with maximum 1, means that linear space ran out of range."""


class OutOfRangeError(ArithmeticError):
    """Linear space underflowed; the pass must be repeated in log space."""


class Factor(NamedTuple):
    """An array with one axis for each attribute of its clique, in the domain's order."""

    clique: Clique
    values: Any


@dataclass(frozen=True, slots=True)
class Calibration:
    """The marginal of every tree clique (each summing to 1), and the log-partition function."""

    beliefs: tuple[Factor, ...]
    log_mass: float


@lru_cache(maxsize=16)
def exclusions(domain: Domain) -> tuple[Factor, ...]:
    """The domain's rules as log potentials: 0 where a record may be, minus infinity where none can."""
    return tuple(Factor(clique, np.where(forbidden, -math.inf, 0.0)) for clique, forbidden in forbidden_tables(domain))


def calibrate(tree: JunctionTree, potentials: Sequence[Factor]) -> Calibration:
    """Beliefs of all tree cliques from log potentials; linear space first, log space where that underflows."""
    try:
        return calibrate_in(Linear(), tree, potentials)
    except OutOfRangeError:
        return calibrate_in(Log(), tree, potentials)


def split_tables(domain: Domain, cliques: Iterable[Clique], vector: Any) -> list[Factor]:
    """Read one vector as the tables of the cliques, one after the other."""
    xp = namespace(vector)
    tables, start = [], 0
    for clique in cliques:
        end = start + domain.cells(clique)
        tables.append(Factor(clique, xp.reshape(vector[start:end], domain.shape(clique))))
        start = end
    return tables


def projections(table: Factor, targets: Iterable[Clique]) -> dict[Clique, Any]:
    """Sums of the table onto each target, sharing partial sums.

    The table is first summed down to the union of the targets; then the largest axis that some target lacks is
    summed out for those targets, and the others go on with the whole table.
    """
    wanted = set(targets)
    if not wanted:
        return {}
    union = set().union(*wanted)
    xp = namespace(table.values)
    gone = tuple(k for k, a in enumerate(table.clique) if a not in union)
    if gone:
        table = Factor(tuple(a for a in table.clique if a in union), xp.sum(table.values, axis=gone))
    found = {table.clique: table.values} if table.clique in wanted else {}
    rest = [target for target in wanted if target != table.clique]
    if not rest:
        return found
    lacked = [k for k, a in enumerate(table.clique) if any(a not in target for target in rest)]
    axis = max(lacked, key=lambda k: table.values.shape[k])
    attribute = table.clique[axis]
    without = [target for target in rest if attribute not in target]
    smaller = Factor(table.clique[:axis] + table.clique[axis + 1 :], xp.sum(table.values, axis=axis))
    return {
        **found,
        **projections(smaller, without),
        **projections(table, [target for target in rest if attribute in target]),
    }


def inside_cliques(tree: JunctionTree, beliefs: Sequence[Factor], targets: Iterable[Clique]) -> dict[Clique, Any]:
    """Marginals of targets that lie inside cliques of the tree, in one go for each clique."""
    wanted: dict[int, list[Clique]] = {}
    for target in targets:
        wanted.setdefault(host_of(tree, target), []).append(target)
    found: dict[Clique, Any] = {}
    for i, inside in wanted.items():
        found.update(projections(beliefs[i], inside))
    return found


class Linear:
    """Tables as they are: products multiply, sums add."""

    one = 1.0

    def enter(self, log_values: Any) -> Any:
        """A table from its logarithms."""
        return namespace(log_values).exp(log_values)

    def times(self, x: Any, y: Any) -> Any:
        """Product of two tables."""
        return x * y

    def over(self, x: Any, y: Any) -> Any:
        """Quotient of two tables, 0 where both are 0."""
        xp = namespace(x)
        return xp.where(y > 0, x / xp.where(y > 0, y, xp.ones_like(y)), xp.zeros_like(y))

    def total(self, x: Any, axis: tuple[int, ...]) -> Any:
        """Sum over axes."""
        return namespace(x).sum(x, axis=axis)

    def scaled(self, x: Any) -> tuple[Any, float]:
        """The table with maximum 1, and the logarithm of what was divided out."""
        peak = float(namespace(x).max(x))
        if not peak > TINY:
            raise OutOfRangeError("a message underflowed in linear space; repeat the pass in log space")
        return x / peak, math.log(peak)

    def leave(self, x: Any) -> Any:
        """Plain values."""
        return x


class Log(Linear):
    """Tables of logarithms: products add, sums are log-sum-exp around the largest term."""

    one = 0.0

    def enter(self, log_values: Any) -> Any:
        """A table of logarithms."""
        return log_values

    def times(self, x: Any, y: Any) -> Any:
        """Product of two tables."""
        return x + y

    def over(self, x: Any, y: Any) -> Any:
        """Quotient of two tables, 0 where both are 0."""
        xp = namespace(x)
        return xp.where(xp.isfinite(y), x - xp.where(xp.isfinite(y), y, xp.zeros_like(y)), y)

    def total(self, x: Any, axis: tuple[int, ...]) -> Any:
        """Sum over axes."""
        if not axis:
            return x
        xp = namespace(x)
        peak = xp.max(x, axis=axis, keepdims=True)
        peak = xp.where(xp.isfinite(peak), peak, xp.zeros_like(peak))
        sums = xp.sum(xp.exp(x - peak), axis=axis, keepdims=True)
        logs = xp.log(xp.where(sums > 0, sums, xp.ones_like(sums)))
        whole = xp.where(sums > 0, logs + peak, xp.full_like(sums, -math.inf))
        return xp.squeeze(whole, axis=axis)

    def scaled(self, x: Any) -> tuple[Any, float]:
        """The table with maximum 0, and what was subtracted."""
        peak = float(namespace(x).max(x))
        if peak == -math.inf:
            raise FeasibilityError("the rules leave no possible record; remove the rule that goes too far")
        return x - peak, peak

    def leave(self, x: Any) -> Any:
        """Plain values."""
        return namespace(x).exp(x)


def calibrate_in(algebra: Linear, tree: JunctionTree, potentials: Sequence[Factor]) -> Calibration:
    """Two sweeps in the given algebra: towards the roots, then away from them."""
    xp = namespace(potentials[0].values) if potentials else np
    members: list[list[Factor]] = [[] for _ in tree.cliques]
    log_mass = 0.0
    for table in potentials:
        values, peak = Log().scaled(table.values)
        log_mass += peak
        members[host_of(tree, table.clique)].append(Factor(table.clique, algebra.enter(values)))
    for table in exclusions(tree.domain):
        values = algebra.enter(xp.asarray(table.values))
        members[host_of(tree, table.clique)].append(Factor(table.clique, values))
    separators = [tree.separator(i) for i in range(len(tree.cliques))]
    products: list[Any] = [None] * len(tree.cliques)
    messages: list[Any] = [None] * len(tree.cliques)
    for i in reversed(range(len(tree.cliques))):
        products[i] = _product(algebra, tree, i, members[i], xp)
        messages[i], peak = algebra.scaled(_onto(algebra, products[i], separators[i]))
        log_mass += peak
        if tree.parents[i] >= 0:
            members[tree.parents[i]].append(Factor(separators[i], messages[i]))
    beliefs: list[Factor] = []
    for i, parent in enumerate(tree.parents):
        known = _onto(algebra, beliefs[parent], separators[i]) if parent >= 0 else xp.asarray(algebra.one)
        news = Factor(separators[i], algebra.over(known, messages[i]))
        belief = algebra.times(products[i].values, _aligned(news, tree.cliques[i]))
        mass = algebra.total(belief, tuple(range(len(tree.cliques[i]))))
        beliefs.append(Factor(tree.cliques[i], algebra.over(belief, mass)))
        products[i] = None
    return Calibration(tuple(Factor(b.clique, algebra.leave(b.values)) for b in beliefs), log_mass)


def host_of(tree: JunctionTree, clique: Clique) -> int:
    """The smallest clique of the tree that contains the clique."""
    found = tree.host(clique)
    if found is None:
        raise ValueError(f"no clique of the tree contains {clique}")
    return found


def _aligned(table: Factor, clique: Clique) -> Any:
    """The table's values with an axis of length 1 for each attribute of the clique it lacks."""
    sizes = dict(zip(table.clique, table.values.shape, strict=True))
    return namespace(table.values).reshape(table.values, tuple(sizes.get(a, 1) for a in clique))


def _onto(algebra: Linear, table: Factor, target: Clique) -> Any:
    return algebra.total(table.values, tuple(k for k, a in enumerate(table.clique) if a not in target))


def _product(algebra: Linear, tree: JunctionTree, i: int, members: list[Factor], xp: Any) -> Factor:
    """The product of tables over clique i, small tables among themselves first."""
    clique = tree.cliques[i]
    limit = tree.domain.cells(clique) // GROUPING
    groups: list[Factor] = []
    for table in sorted(members, key=lambda t: tree.domain.cells(t.clique)):
        union = tree.domain.clique((*table.clique, *groups[-1].clique)) if groups else ()
        if groups and tree.domain.cells(union) <= limit:
            merged = algebra.times(_aligned(groups[-1], union), _aligned(table, union))
            groups[-1] = Factor(union, merged)
        else:
            groups.append(table)
    whole = xp.full((1,) * len(clique), algebra.one)
    for group in groups:
        whole = algebra.times(whole, _aligned(group, clique))
    return Factor(clique, xp.broadcast_to(whole, tree.domain.shape(clique)))


SMALL_PRODUCT = 20_000
"""Cells over all attributes of some tables up to which multiplying all at once takes less than planning an order."""
LARGEST_TABLE = 2**28
"""Cells of the largest intermediate table (2 GiB); einsum letters are not the limit before this is."""


def eliminate_variables(tables: Sequence[Factor], kept: Clique) -> Any:
    """The product of the tables summed over every attribute that is not kept, smallest intermediate first.

    Values may be negative.
    """
    pool = list(tables)
    sizes = {a: size for table in pool for a, size in zip(table.clique, table.values.shape, strict=True)}
    pending = set(sizes) - set(kept)
    while pending:
        attribute = min(pending, key=lambda a: (math.prod(sizes[b] for b in _around(pool, a)), a))
        scope = _around(pool, attribute) - {attribute}
        _check(scope, sizes)
        bucket = [table for table in pool if attribute in table.clique]
        pool = [table for table in pool if attribute not in table.clique]
        output = tuple(sorted(scope))
        pool.append(Factor(output, _contract(bucket, output)))
        pending.discard(attribute)
    _check(kept, sizes)
    return _contract(pool, kept)


def _around(tables: Sequence[Factor], attribute: str) -> set[str]:
    return {a for table in tables if attribute in table.clique for a in table.clique}


def _check(scope: Iterable[str], sizes: Mapping[str, int]) -> None:
    cells = math.prod(sizes[a] for a in scope)
    if cells > LARGEST_TABLE:
        raise FeasibilityError(
            f"a table over {', '.join(sorted(scope))} would need {cells:,} cells; ask for fewer attributes at once"
        )


def _contract(operands: Sequence[Factor], output: Clique) -> Any:
    """Multiply numpy tables and sum out every attribute the output lacks."""
    if not operands:
        return np.ones(())
    letters = {a: k for k, a in enumerate(dict.fromkeys(a for t in operands for a in t.clique))}
    terms = [part for t in operands for part in (t.values, [letters[a] for a in t.clique])]
    sizes = {a: size for t in operands for a, size in zip(t.clique, t.values.shape, strict=True)}
    planned = math.prod(sizes.values()) > SMALL_PRODUCT
    return np.einsum(*terms, [letters[a] for a in output], optimize=planned)


def conditionals(tree: JunctionTree, beliefs: Sequence[Factor], *, keep: set[str]) -> list[Factor]:
    """Tables whose product, summed over the attributes not kept, is the kept attributes' distribution.

    Below the smallest subtree that holds the kept attributes everything sums to 1 and is left out; its top enters
    as a marginal and every other clique as a conditional given its separator.
    """
    needed: set[int] = set()
    for i in reversed(range(len(tree.cliques))):
        own = set(tree.cliques[i]) - set(tree.separator(i))
        if own & keep:
            needed.add(i)
        if i in needed and tree.parents[i] >= 0:
            needed.add(tree.parents[i])
    for i in sorted(needed):  # a top goes if all it contributes to the kept attributes is in its only needed child
        below = [set(tree.cliques[k]) for k in needed if tree.parents[k] == i]
        if tree.parents[i] not in needed and len(below) == 1 and keep & set(tree.cliques[i]) <= below[0]:
            needed.discard(i)
    tables = []
    for i in sorted(needed):
        belief = beliefs[i]
        if tree.parents[i] in needed:
            axes = tuple(k for k, a in enumerate(belief.clique) if a not in tree.separator(i))
            given = belief.values.sum(axis=axes, keepdims=True)
            belief = Factor(belief.clique, Linear().over(belief.values, given))
        tables.append(belief)
    return tables
