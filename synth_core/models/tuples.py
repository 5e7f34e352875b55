"""Households with their people in codes, and the tables of their tuple relation.

For t places, a household of s >= t people stands for its s! / (s - t)! ordered t-tuples of different people, each with
the weight (s - t)! / s!; a smaller household stands for nothing (see `schema.linked`). Two people in a household of
three, say, are one of six pairs: with ages 40, 38 and 5, the cell (40, 5) of the table of both places' ages gets 1/6,
and (5, 40) as well.

In the relation of the reference person, a household of s >= 2 people of whom exactly one is the reference person
stands for the s - 1 pairs of that person and another, each with the weight 1 / (s - 1); any other household stands for
nothing. If 40 is the reference person's age above, the cells (40, 38) and (40, 5) get 1/2 each. Its first place is
named by `REFERENCE`, its second is the second place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Index
from synth_core.compiled import compiled
from synth_core.domain import Clique, Codes, Domain
from synth_core.schema.linked import REFERENCE, SIZE, place_name

MAX_PLACES = 3
"""Upper limit of the people of a tuple."""

UNITS = 2520
"""Units of the weight of public households: a multiple of s and s (s - 1) for every size s up to 10."""


Anchor: TypeAlias = tuple[str, NDArray[np.bool_]]
"""The attribute of roles, and which of its codes are reference persons."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Households:
    """Encoded households with their people; it shows nothing, because what is shown may end in a log.

    Attributes:
        attributes: codes of the household attributes, one entry for each household.
        people: codes of the person attributes of the first place, household by household.
        sizes: how many people each household has.
    """

    attributes: dict[str, Codes]
    people: dict[str, Codes]
    sizes: NDArray[np.int64]


def shuffle(households: Households, rng: np.random.Generator) -> Households:
    """Put households in random order, so that their places say nothing.

    Args:
        households: in any order.
        rng: source of randomness.

    Returns:
        The same households.
    """
    order = rng.permutation(len(households.sizes))
    return reorder(households, order)


def join_households(parts: Sequence[Households]) -> Households:
    """Join parts to one.

    Args:
        parts: households of the same attributes, at least one part.

    Returns:
        All of them, one part after the other.
    """
    return Households(
        {name: np.concatenate([part.attributes[name] for part in parts]) for name in parts[0].attributes},
        {name: np.concatenate([part.people[name] for part in parts]) for name in parts[0].people},
        np.concatenate([part.sizes for part in parts]),
    )


def first_households(households: Households, number: int) -> Households:
    """Take the first households.

    Args:
        households: at least as many as are wanted.
        number: how many.

    Returns:
        These, with their people.
    """
    people = int(households.sizes[:number].sum())
    return Households(
        {name: codes[:number] for name, codes in households.attributes.items()},
        {name: codes[:people] for name, codes in households.people.items()},
        households.sizes[:number],
    )


def reorder(households: Households, order: NDArray[np.int64]) -> Households:
    """Take households in another order, each with its people.

    Args:
        households: in any order.
        order: the numbers of the households, in the new order.

    Returns:
        The households in the new order.
    """
    rows = member_rows(households.sizes, order)
    return Households(
        {name: codes[order] for name, codes in households.attributes.items()},
        {name: codes[rows] for name, codes in households.people.items()},
        households.sizes[order],
    )


def member_rows(sizes: NDArray[np.int64], source: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of the people of each of some households, one household after the other."""
    starts = np.cumsum(sizes) - sizes
    own = sizes[source]
    within = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
    rows: NDArray[np.int64] = np.repeat(starts[source], own) + within
    return rows


def count_tuples(
    households: Households,
    domain: Domain,
    cliques: Sequence[Clique],
    *,
    places: int,
    scale: int,
    anchor: Anchor | None = None,
    strict: bool = True,
) -> list[NDArray[np.int64]]:
    """Tables of the tuple relation, in units of 1/scale.

    Args:
        households: who is counted, those of fewer than `places` people left out.
        domain: the attributes of a tuple.
        cliques: attributes of the tables.
        places: people of a tuple.
        scale: units of a household's weight.
        anchor: who is a reference person; without it no table of that relation is counted.
        strict: whether a household of none or several reference persons stands for nothing in that relation, as it
            must among confidential ones; otherwise each of its pairs has its weight.

    Returns:
        Integer tables, one axis for each attribute.
    """
    counted = _Counting(households, domain, places, scale, anchor, strict)
    tables = {known: counted.table(known) for known in {canonical_clique(domain, clique)[0] for clique in cliques}}
    found = []
    for clique in cliques:
        known, back = canonical_clique(domain, clique)
        table, order = tables[known]
        axes = [order.index(back[attribute]) for attribute in clique]
        found.append(np.array(np.transpose(table, axes), order="C"))
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Counting:
    """What is counted, of whom."""

    households: Households
    domain: Domain
    places: int
    scale: int
    anchor: Anchor | None
    strict: bool

    def table(self, clique: Clique) -> tuple[NDArray[np.int64], list[str]]:
        """One table, and the order of its axes: the household's own attributes, then place by place."""
        sizes, people = self.households.sizes, self.households.people
        anchored = is_anchored(clique)
        lead, led = self._leads(clique)
        number, counted = int(sizes.sum()), sizes * (led & (sizes >= self.places))
        used = 2 if anchored else max(map(attribute_place, clique), default=0)
        weights = np.zeros(len(sizes), dtype=np.int64)
        for size in range(self.places, int(sizes.max(initial=0)) + 1):
            weights[sizes == size] = self.scale // (size - 1 if anchored else math.perm(size, used))
        parts = [[a for a in clique if attribute_place(a) == place] for place in range(MAX_PLACES + 1)]
        shared = {SIZE: (sizes - self.places) * (sizes >= self.places)} if SIZE in clique else {}
        own = joint_codes(self.households.attributes | shared, self.domain, parts[0], len(sizes))
        first, second, third = (
            joint_codes({a: people[first_place(a)] for a in part}, self.domain, part, number) for part in parts[1:]
        )
        cells = [self.domain.cells(part) for part in parts]
        table = np.zeros(math.prod(cells), dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        _add_tuples(own, first, second, third, starts, counted, weights, np.array(cells), used, lead, table)
        order = [attribute for part in parts for attribute in part]
        return np.reshape(table, self.domain.shape(order)), order

    def _leads(self, clique: Clique) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Who may be in the first place, nobody where anybody may, and which households count."""
        sizes = self.households.sizes
        if not is_anchored(clique):
            return np.zeros(0, np.bool_), np.ones(len(sizes), np.bool_)
        if self.anchor is None:
            raise ValueError("a table of reference persons needs to know who they are")
        name, codes = self.anchor
        lead = codes[self.households.people[name]]
        owner = np.repeat(np.arange(len(sizes)), sizes)
        number = np.bincount(owner[lead], minlength=len(sizes))
        return lead, (number == 1) | (not self.strict)


def is_anchored(clique: Clique) -> bool:
    """Decide whether a table is one of reference persons with others.

    Args:
        clique: attributes of two places.

    Returns:
        Whether an attribute of the reference person is among them.
    """
    return any(attribute.endswith(f"@{REFERENCE}") for attribute in clique)


def attribute_place(attribute: str) -> int:
    """The place of a tuple that an attribute is about, 0 for the household's own.

    Args:
        attribute: a name of the flattened domain.

    Returns:
        The place, counted from 1.
    """
    if not attribute.startswith("person."):
        return 0
    place = attribute.rpartition("@")[2] if "@" in attribute else ""
    return int(place) if place.isdecimal() else 1


def first_place(attribute: str) -> str:
    """Name the same attribute in the first place.

    Args:
        attribute: a name of the flattened domain.

    Returns:
        The name that the codes of people have.
    """
    named = attribute_place(attribute) > 1 or attribute.endswith(f"@{REFERENCE}")
    return attribute.rpartition("@")[0] if named else attribute


def canonical_clique(domain: Domain, clique: Clique) -> tuple[Clique, dict[str, str]]:
    """The clique among those equal by exchange of places whose places are lowest.

    Args:
        domain: the attributes of a tuple.
        clique: some of them.

    Returns:
        The canonical clique, and which of its attributes stands for each of the given ones; a table of reference
        persons is its own, because its places differ.
    """
    if is_anchored(clique):
        return domain.clique(clique), {a: a for a in clique}
    used = sorted({attribute_place(a) for a in clique} - {0})
    tried = []
    for order in permutations(range(1, len(used) + 1)):
        moved = dict(zip(used, order, strict=True))
        back = {a: place_name(first_place(a), moved.get(attribute_place(a), 1)) for a in clique}
        positions = tuple(sorted(domain.position(a) for a in back.values()))
        tried.append((positions, domain.clique(back.values()), back))
    _, known, back = min(tried, key=lambda one: one[0])
    return known, back


def joint_codes(columns: Mapping[str, NDArray[Any]], domain: Domain, attributes: Sequence[str], rows: int) -> Index:
    """Join the codes of several attributes to one, as their table in C order has it.

    Args:
        columns: codes by attribute.
        domain: says how many codes each has.
        attributes: which are joined, in this order.
        rows: how many entries there are.

    Returns:
        The joint code of each entry.
    """
    joint = np.zeros(rows, dtype=np.int64)
    for attribute in attributes:
        joint = joint * domain.size(attribute) + columns[attribute]
    return joint


@compiled
def _add_tuples(
    own: Index,
    first: Index,
    second: Index,
    third: Index,
    starts: Index,
    sizes: Index,
    weights: Index,
    cells: Index,
    places: int,
    lead: NDArray[np.bool_],
    table: Index,
) -> None:
    """Add the weight of each tuple of `places` different people of a household to its cell, household by household.

    Where there is a `lead`, pairs are of one who leads and one who does not.
    """
    for h in range(sizes.size):
        if sizes[h] == 0:
            continue
        weight, begin, end = weights[h], starts[h], starts[h] + sizes[h]
        if places == 0:
            table[own[h]] += weight
            continue
        for i in range(begin, end):
            one = own[h] * cells[1] + first[i]
            if places == 1:
                table[one] += weight
                continue
            for j in range(begin, end):
                if j == i or (lead.size > 0 and (lead[j] or not lead[i])):
                    continue
                two = one * cells[2] + second[j]
                if places == 2:
                    table[two] += weight
                    continue
                for k in range(begin, end):
                    if k != i and k != j:
                        table[two * cells[3] + third[k]] += weight
