"""The tuple relation: its tables are those of all ordered tuples with weights that sum to 1."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.models.tuples import Households, attribute_place, canonical_clique, count_tuples

SCALE = 5040


def domain_of(places: int, largest: int = 4) -> Domain:
    sizes = {"household.h": 3, "size": largest - places + 1}
    for place in range(1, places + 1):
        mark = "" if place == 1 else f"@{place}"
        sizes |= {f"person.a{mark}": 2, f"person.b{mark}": 3}
    return Domain.of(sizes)


def some_households(number: int = 12, seed: int = 3) -> Households:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, number)
    people = int(sizes.sum())
    return Households(
        {"household.h": rng.integers(0, 3, number)},
        {"person.a": rng.integers(0, 2, people), "person.b": rng.integers(0, 3, people)},
        sizes,
    )


def by_hand(households: Households, domain: Domain, clique: tuple[str, ...], places: int) -> np.ndarray:
    """The definition, tuple by tuple."""
    table = np.zeros(domain.shape(clique))
    start = 0
    for h, size in enumerate(households.sizes):
        if size >= places:
            for people in permutations(range(start, start + size), places):
                cell = []
                for attribute in clique:
                    place = attribute_place(attribute)
                    if attribute == "size":
                        cell.append(size - places)
                    elif not place:
                        cell.append(households.attributes[attribute][h])
                    else:
                        cell.append(households.people[attribute.split("@")[0]][people[place - 1]])
                table[tuple(cell)] += SCALE / math.perm(size, places)
        start += size
    return table


@pytest.mark.parametrize("places", [1, 2, 3])
def test_tables_are_those_of_all_ordered_tuples(places):
    households, domain = some_households(), domain_of(places)
    cliques = [()] + [c for k in (1, 2, 3) for c in combinations(domain.attributes, k)]
    for clique, table in zip(
        cliques, count_tuples(households, domain, cliques, places=places, scale=SCALE), strict=True
    ):
        np.testing.assert_array_equal(table, by_hand(households, domain, clique, places), err_msg=str(clique))


def test_households_smaller_than_a_tuple_are_left_out():
    alone = Households({"household.h": np.array([0, 1])}, {"person.a": np.array([0, 1, 1])}, np.array([1, 2]))
    (table,) = count_tuples(alone, domain_of(2), [("household.h",)], places=2, scale=SCALE)
    assert table.tolist() == [0, SCALE, 0]


def test_places_are_exchangeable():
    """A table and the one with its places exchanged are each other's transposes, and are counted as one."""
    households, domain = some_households(), domain_of(2)
    one, other = ("person.a", "person.b@2"), ("person.b", "person.a@2")
    left, right = count_tuples(households, domain, [one, other], places=2, scale=SCALE)
    np.testing.assert_array_equal(left, right.T)
    assert canonical_clique(domain, one)[0] == canonical_clique(domain, other)[0]
    assert canonical_clique(domain, ("size", "person.b@2"))[0] == ("size", "person.b")
    assert canonical_clique(domain_of(3), ("person.a@2", "person.b@3"))[0] == ("person.a", "person.b@2")


LEAD = ("person.a", np.array([True, False]))
"""Whoever has code 0 is a reference person."""


def anchored_domain(largest: int = 4) -> Domain:
    return Domain.of(
        dict(zip(domain_of(2, largest), domain_of(2, largest).sizes, strict=True)) | {"person.b@reference": 3}
    )


def led_by_hand(households: Households, domain: Domain, clique: tuple[str, ...]) -> np.ndarray:
    """The definition: pairs of the only reference person and each of the others."""
    table, start = np.zeros(domain.shape(clique)), 0
    for h, size in enumerate(households.sizes):
        own = range(start, start + size)
        leads = [k for k in own if households.people["person.a"][k] == 0]
        for other in own if len(leads) == 1 else ():
            if other != leads[0]:
                cell = []
                for attribute in clique:
                    name, _, mark = attribute.partition("@")
                    who = {"reference": leads[0], "2": other}.get(mark)
                    held = households.attributes[name][h] if who is None else households.people[name][who]
                    cell.append(held)
                table[tuple(cell)] += SCALE / (size - 1)
        start += size
    return table


@pytest.mark.parametrize(
    "clique",
    [
        ("person.b@reference",),
        ("person.b@2", "person.b@reference"),
        ("person.a@2", "person.b@2", "person.b@reference"),
        ("household.h", "person.b@2", "person.b@reference"),
    ],
)
def test_tables_of_the_reference_person_are_those_of_its_pairs(clique):
    households, domain = some_households(60), anchored_domain()
    clique = domain.clique(clique)
    (table,) = count_tuples(households, domain, [clique], places=2, scale=SCALE, anchor=LEAD)
    np.testing.assert_array_equal(table, led_by_hand(households, domain, clique))
    assert canonical_clique(domain, clique)[0] == clique
    assert 0 < table.sum() < SCALE * (households.sizes > 1).sum(), "some have none or several"


def test_who_the_reference_person_is_must_be_known():
    with pytest.raises(ValueError, match="needs to know"):
        count_tuples(some_households(), anchored_domain(), [("person.b@reference",)], places=2, scale=SCALE)


def test_a_name_with_a_mark_of_a_place_is_read():
    assert [attribute_place(a) for a in ("household.x", "size", "person.x", "person.x@2", "household.y@2")] == [
        0,
        0,
        1,
        2,
        0,
    ]
