"""Households from a model of one person: people are drawn for them, then exchanged until they fit together.

A model of the tuple relation of one place (`schema.linked`) says which households there are, how large they are, and
who lives in a household of each kind; what it does not say is who lives with whom. So households are drawn first
(`draw_households`), each with as many people as its size says, independent of one another given the household. Then
two people of households of one size change places, again and again, wherever that brings the tables of pairs
of people of one household nearer to those that were measured, or a household nearer to its rules (`arrange`). Nothing
about a person is changed, so what the model says of single people stays as it is.

**Distance.** Each measured table of pairs is compared in squares, in units of its noise; so is, in units of chance, the
table of each household attribute with each person attribute, as far as exchanges could change it. An exchange that does
not raise the sum is made. What no table speaks of stays random, as a fit of greatest entropy leaves it.

**Rules.** The number of broken rules counts before all else. People then also leave households of one kind for those of
another, where only their size is the same, if fewer rules are broken by that. A household in which one is left broken
takes the people of another that breaks none (`settle`), of its own size or, where every one of that size breaks some,
the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats, Index
from synth_core.domain import Codes, Domain
from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement
from synth_core.models.arrangement_kernels import CodeRules, Homes, PairTables, broken_households, exchange_people
from synth_core.models.mixture import Model
from synth_core.models.tuples import (
    UNITS,
    Households,
    attribute_place,
    count_tuples,
    first_place,
    is_anchored,
    joint_codes,
    member_rows,
    reorder,
)
from synth_core.schema.linked import SIZE, CountRule, GapRule, LinkedSchema

POOL = 16
"""People drawn for each household, from whom those of its kind are taken."""

ENOUGH = 1
"""People of a kind drawn for each one wanted; where there are fewer, less alike households share theirs."""

STRATUM = 300
"""Mean number of people of a kind of households between which exchanges are made."""

PASSES = 40
"""Exchanges tried for each person; with 12 age differences of couples were twice as far off, with 100 hardly less."""


def draw_households(model: Model, schema: LinkedSchema, households: int, rng: np.random.Generator) -> Households:
    """Draw households with independent people from a model of one person.

    Args:
        model: over the domain of one place.
        schema: the declaration of the tables.
        households: how many.
        rng: source of randomness; equal states give equal households.

    Returns:
        The households; the people of each follow the model given the household and its size.
    """
    ranked = rank_attributes(model, schema)
    domain = model.domain
    kinds = model.sample(households, rng)
    pool = model.sample(households * POOL, rng)
    rows = np.concatenate([kinds, pool])
    sizes = kinds[:, domain.position(SIZE)].astype(np.int64) + 1
    owner = np.repeat(np.arange(households), sizes)
    taken = np.full(len(owner), -1, dtype=np.int64)
    left = np.arange(len(owner))
    shared = [SIZE, *ranked]
    alike = _number_rows(rows[:, [domain.position(name) for name in schema.person_attributes()]])
    sorted_rows = _stable_order(alike, rng.permutation(len(rows)))
    while len(left):
        kind = _number_rows(rows[:, [domain.position(name) for name in shared]])
        last = len(shared) == 1
        taken[left] = _take(kind[owner[left]], kind, sorted_rows, rng, enough=0 if last else ENOUGH)
        left = np.flatnonzero(taken < 0)
        shared.pop()
    people = rows[taken]
    return Households(
        {name: kinds[:, domain.position(name)] for name in schema.household_attributes},
        {name: people[:, domain.position(name)] for name in schema.person_attributes()},
        sizes,
    )


def rank_attributes(model: Model, schema: LinkedSchema) -> list[str]:
    """Order the household attributes by how much the people of a household depend on them, the most first.

    Args:
        model: over the domain of one place.
        schema: the declaration of the tables.

    Returns:
        The names of the attributes, the size left out.
    """
    dependence = {}
    for name in schema.household_attributes:
        found = 0.0
        for other in schema.person_attributes():
            table = model.marginal((name, other)) / model.total
            found += float(np.abs(table - np.outer(table.sum(1), table.sum(0))).sum())
        dependence[name] = found
    return sorted(dependence, key=lambda name: -dependence[name])


def _take(wanted: Index, kinds: Index, rows: Index, rng: np.random.Generator, *, enough: float) -> Index:
    """For each kind that is wanted a row of that kind, -1 if there are too few of it.

    The rows of a kind are taken at even distances from its list, in the order of `rows`, where people who are alike
    come together: so every sort of people is taken as often as it should be, up to rounding, and at random otherwise.
    """
    number = int(kinds.max()) + 1
    there, asked = np.bincount(kinds, minlength=number), np.bincount(wanted, minlength=number)
    starts = np.cumsum(there) - there
    rows = _stable_order(kinds, rows)
    order = _stable_order(wanted, rng.permutation(len(wanted)))
    kind = wanted[order]
    turn = np.arange(len(order)) - np.repeat(np.cumsum(asked) - asked, asked)
    places = ((turn + rng.random(number)[kind]) * (there[kind] / asked[kind])).astype(np.int64)
    found = np.empty(len(wanted), dtype=np.int64)
    found[order] = np.where(there[kind] >= enough * asked[kind], rows[starts[kind] + places % there[kind]], -1)
    return found


MAX_NUMBER = 1 << 22
"""Rows are numbered without regard to which numbers occur as long as there are at most as many."""


def _number_rows(codes: Codes) -> Index:
    """A number for each row, equal for equal rows and for no others."""
    numbers, most = np.zeros(len(codes), dtype=np.int64), 1
    for column in codes.T:
        size = int(column.max(initial=0)) + 1
        if most * size > MAX_NUMBER:
            numbers = _without_gaps(numbers)
            most = int(numbers.max(initial=0)) + 1
        numbers = numbers * size + column
        most *= size
    return numbers


def _group_rows(codes: Codes) -> Index:
    """The same with no number left out."""
    return _without_gaps(_number_rows(codes))


def _without_gaps(numbers: Index) -> Index:
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _stable_order(keys: Index, order: Index) -> Index:
    """The order in which keys do not fall and, where they are equal, that of before; by sixteen bits at a time."""
    highest = int(keys.max(initial=0))
    for shift in range(0, max(1, highest.bit_length()), 16):
        part = (keys[order] >> shift).astype(np.uint16)  # which keeps the lowest sixteen bits
        order = order[np.argsort(part, kind="stable")]
    return order


def encode_rules(schema: LinkedSchema, people: Mapping[str, Codes]) -> CodeRules:
    """Translate the rules of a schema for some people.

    Args:
        schema: the declaration of the tables.
        people: codes of each person attribute.

    Returns:
        The rules as arrays that the compiled exchange reads.
    """
    number = len(next(iter(people.values())))
    counts = [rule for rule in schema.together if isinstance(rule, CountRule)]
    gaps = [rule for rule in schema.together if isinstance(rule, GapRule)]

    def meeting(conditions: Sequence[Any]) -> NDArray[np.bool_]:
        met = np.ones((len(conditions), number), dtype=np.bool_)
        for row, own in zip(met, conditions, strict=True):
            for name, codes in schema.meeting_codes(own).items():
                row &= codes[people[f"person.{name}"]]
        return met

    most = schema.largest + 1
    limits = [(rule.limits[0], min(rule.limits[1], most), rule.even) for rule in counts]
    size = max((schema.person.column(rule.column).size for rule in gaps), default=1)
    allowed = np.ones((len(gaps), size, size), dtype=np.bool_)
    for k, rule in enumerate(gaps):
        own = allowed_codes(schema, rule)
        allowed[k, : len(own), : len(own)] = own
    return CodeRules(
        met=meeting([rule.people for rule in counts]),
        limits=np.array(limits, dtype=np.int64).reshape(len(counts), 3),
        lower=meeting([rule.lower for rule in gaps]),
        upper=meeting([rule.upper for rule in gaps]),
        level=np.array([people[f"person.{rule.column}"] for rule in gaps], dtype=np.int64).reshape(len(gaps), number),
        allowed=allowed,
    )


def count_broken_rules(households: Households, schema: LinkedSchema) -> Index:
    """Count by how much each household breaks the rules across its people.

    Args:
        households: in codes.
        schema: the declaration of the tables.

    Returns:
        A number for each household, 0 where it keeps them all.
    """
    rules = encode_rules(schema, households.people)
    return broken_households(_places(households.sizes), np.arange(int(households.sizes.sum())), rules)


def _places(sizes: Index) -> Homes:
    return Homes(np.cumsum(sizes) - sizes, sizes, np.repeat(np.arange(len(sizes)), sizes))


def allowed_codes(schema: LinkedSchema, rule: GapRule) -> NDArray[np.bool_]:
    """Decide which bins of a lower and an upper person hold some numbers that keep a rule.

    Args:
        schema: the declaration of the tables.
        rule: one of its rules about gaps.

    Returns:
        A table of the codes of the lower by those of the upper person; codes that are no number go with all.
    """
    column = schema.person.column(rule.column)
    numbers = column.numbers
    allowed = np.ones((column.size, column.size), dtype=np.bool_)
    if numbers is None:
        return allowed
    edges = np.asarray(numbers.edges, dtype=np.float64)
    last = edges[1:] - numbers.step if numbers.step else np.nextafter(edges[1:], -np.inf)
    bins = numbers.declared
    allowed[:bins, :bins] = last[None, :] - edges[:-1][:, None] >= rule.by
    return allowed


def arrange(
    households: Households,
    schema: LinkedSchema,
    measured: Sequence[Measurement],
    rng: np.random.Generator,
    *,
    total: float,
    ranked: Sequence[str],
    passes: int = PASSES,
) -> Households:
    """Exchange people between households until pairs of people are as measured and rules hold.

    Args:
        households: households with independent people.
        schema: the declaration of the tables.
        measured: noisy tables of the tuple relation of two places.
        rng: source of randomness.
        total: how many households the measurements are about.
        ranked: household attributes, the most important first.
        passes: exchanges tried for each person.

    Returns:
        The same households with the same people, in other places.
    """
    if not len(households.sizes) or not (measured or schema.together):
        return households
    held = _sorted_by_kind(households, ranked)
    domain, scale = schema.domain(min(2, schema.largest)), len(held.households.sizes) / max(total, 1.0)
    tables = [_pair_table(held.households, domain, one, scale, schema) for one in measured]
    for name, other in product(held.free, schema.person_attributes()):
        tables.append(_own_table(held.households, schema, name, other))
    leads = np.zeros(int(held.households.sizes.sum()), np.bool_)
    if schema.anchor:
        leads = schema.anchor[1][held.households.people[schema.anchor[0]]]
    rules = encode_rules(schema, held.households.people)
    member = _exchange(held, tables, rules, leads, rng, passes=passes)
    moved = {name: codes[member] for name, codes in held.households.people.items()}
    return Households(held.households.attributes, moved, held.households.sizes)


def settle(households: Households, schema: LinkedSchema, rng: np.random.Generator) -> Households:
    """Give the people of other households of their size to households that break a rule.

    Args:
        households: some of which may break a rule.
        schema: the declaration of the tables.
        rng: source of randomness.

    Returns:
        Households none of which breaks a rule in its codes.

    Raises:
        FeasibilityError: if all of them break one.
    """
    return replace_people(households, count_broken_rules(households, schema) > 0, schema, rng)


def replace_people(
    households: Households, broken: NDArray[np.bool_], schema: LinkedSchema, rng: np.random.Generator
) -> Households:
    """Copy the people of sound households, drawn at random, into broken ones."""
    if not broken.any():
        return households
    source = find_donors(households.sizes, broken, schema, rng)
    rows = member_rows(households.sizes, source)
    people = {name: codes[rows] for name, codes in households.people.items()}
    return Households(households.attributes, people, households.sizes[source])


def find_donors(
    sizes: NDArray[np.int64], broken: NDArray[np.bool_], schema: LinkedSchema, rng: np.random.Generator
) -> NDArray[np.int64]:
    """For each household itself, or for a broken one another that is not, of its size or the nearest size there is.

    Args:
        sizes: how many people each household has.
        broken: which households break a rule.
        schema: the declaration of the tables, for the refusal.
        rng: source of randomness.

    Returns:
        The number of a household for each.

    Raises:
        FeasibilityError: if all households are broken.
    """
    source = np.arange(len(sizes))
    there = np.unique(sizes[~broken])
    if not len(there):
        names = ", ".join(repr(rule.name) for rule in schema.together)
        raise FeasibilityError(
            f"no household was found that keeps the rules {names}; drop one that the data break often"
        )
    for size in np.unique(sizes[broken]):
        nearest = there[np.argmin(np.abs(there - size))]
        sound = np.flatnonzero((sizes == nearest) & ~broken)
        own = (sizes == size) & broken
        source[own] = rng.choice(sound, size=int(own.sum()))
    return source


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Households sorted by kind: where the people of each kind begin, and which attributes do not tell kinds apart."""

    households: Households
    ends: Index  # of the people of each kind
    free: tuple[str, ...]


def _sorted_by_kind(households: Households, ranked: Sequence[str]) -> _Held:
    """Kinds are of one size, and alike in as many of the first attributes as leave enough people to a kind."""
    kinds = _group_rows(households.sizes[:, None])
    free = list(ranked)
    while free:
        finer = _group_rows(np.column_stack([kinds, households.attributes[free[0]]]))
        if households.sizes.sum() < STRATUM * (int(finer.max()) + 1):
            break
        kinds = finer
        del free[0]
    order = np.argsort(kinds, kind="stable")
    own = reorder(households, order)
    people = np.bincount(kinds[order], weights=own.sizes).astype(np.int64)
    return _Held(own, np.cumsum(people), tuple(free))


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One table of the distance: codes of households and people in it, what it should be, and how much it counts."""

    own: Index  # where the row of a household begins
    first: Index  # where in it the cells of a first person begin
    second: Index
    pairs: bool
    led: bool  # of the reference person and another alone
    counts: Floats
    wanted: Floats
    weights: Floats


def _pair_table(held: Households, domain: Domain, measured: Measurement, scale: float, schema: LinkedSchema) -> _Table:
    clique = measured.clique
    parts = [tuple(a for a in clique if attribute_place(a) == place) for place in range(3)]
    order = [clique.index(a) for part in parts for a in part]
    wanted = np.transpose(measured.noisy, order).ravel() * scale  # cut off at 0, noise would add up in empty cells
    shared = held.attributes | {SIZE: np.maximum(held.sizes - 2, 0)}
    people = {a: held.people[first_place(a)] for a in parts[1] + parts[2]}
    asked = [parts[0] + parts[1] + parts[2]]
    (counts,) = count_tuples(held, domain, asked, places=2, scale=UNITS, anchor=schema.anchor, strict=False)
    return _Table(
        joint_codes(shared, domain, parts[0], len(held.sizes)) * domain.cells(parts[1] + parts[2]),
        joint_codes(people, domain, parts[1], int(held.sizes.sum())) * domain.cells(parts[2]),
        joint_codes(people, domain, parts[2], int(held.sizes.sum())),
        True,
        is_anchored(clique),
        counts.ravel() / UNITS,
        wanted,
        np.full(wanted.size, 1.0 / ((measured.sigma * scale) ** 2 + 1.0)),
    )


def _own_table(held: Households, schema: LinkedSchema, name: str, other: str) -> _Table:
    domain = schema.domain(1)
    (counts,) = count_tuples(held, domain, [domain.clique((name, other))], places=1, scale=UNITS)
    present = counts.ravel() / UNITS
    return _Table(
        held.attributes[name].astype(np.int64) * domain.size(other),
        held.people[other].astype(np.int64),
        np.zeros(len(held.people[other]), dtype=np.int64),
        False,
        False,
        present,
        present.copy(),
        1.0 / (present + 1.0),
    )


def _exchange(
    held: _Held,
    tables: Sequence[_Table],
    rules: CodeRules,
    leads: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    passes: int,
) -> Index:
    """Which person is in each place after exchanges within kinds, and then, for rules alone, between them."""
    sizes = held.households.sizes
    people, none = int(sizes.sum()), np.zeros(0)
    member = np.arange(people)
    begins = np.cumsum([0, *(table.counts.size for table in tables)])
    placed = PairTables(
        own=_side_by_side([begin + table.own for begin, table in zip(begins, tables, strict=False)], len(sizes)),
        first=_side_by_side([table.first for table in tables], people),
        second=_side_by_side([table.second for table in tables], people),
        pairs=np.array([table.pairs for table in tables], dtype=np.bool_),
        led=np.array([table.led for table in tables], dtype=np.bool_),
        leads=leads,
    )
    distance = np.concatenate([none, *(table.counts - table.wanted for table in tables)])
    weights = np.concatenate([none, *(table.weights for table in tables)])

    def exchange(ends: Index, *, mending: bool) -> None:
        seed: Any = rng.integers(2**63)
        exchange_people(member, ends, _places(sizes), placed, distance, weights, rules, mending, passes * people, seed)

    exchange(held.ends, mending=False)
    if len(rules.limits) or len(rules.allowed):  # households stand in the order of their sizes
        exchange(np.cumsum(np.bincount(sizes, weights=sizes).astype(np.int64)), mending=True)
    return member


def _side_by_side(columns: Sequence[Index], rows: int) -> NDArray[np.int32]:
    return np.ascontiguousarray(np.array(columns, dtype=np.int32).reshape(len(columns), rows).T)
