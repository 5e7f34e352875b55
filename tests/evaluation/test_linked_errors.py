"""True errors of two linked tables: zero for the same households, and what they should be by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.linked_tables import ROLES, SCHEMA, linked_frames

from synth_core.evaluation.household_shares import age_gaps, describe_households
from synth_core.evaluation.linked import NUMBERS, compare_households, gap_error
from synth_core.models.tuples import Households
from synth_core.schema.linked import LinkedSchema
from synth_core.storage.households import encode_households

CODES = [{"name": "a", "kind": "categorical", "values": [0, 1]}]
TINY = LinkedSchema.model_validate(
    {"tables": {"link": "h", "largest": 2, "household": {"columns": CODES}, "person": {"columns": CODES}}}
)


def couples(*ages, tenure=0):
    """Households of two people each."""
    people = np.array(ages, dtype=np.int64).ravel()
    number = len(people) // 2
    return Households({"household.a": np.full(number, tenure)}, {"person.a": people}, np.full(number, 2))


def test_the_same_households_have_no_error():
    held = encode_households(linked_frames(300), ROLES, b"key")
    found = compare_households(held, held, ROLES)
    assert set(found.numbers) == set(NUMBERS)
    assert set(found.numbers.values()) == {0.0}
    assert found.broken == 0
    assert found.real == found.synthetic
    assert not np.any(found.of_pairs)
    assert not np.any(found.across)
    assert [one.target for one in found.targets] == ["relation", "age"]
    assert {one.tested for one in found.targets} == {int(held.sizes.sum()) // 3}
    assert found.targets[0].synthetic < found.targets[0].majority, "ages say who is a child"


def test_people_who_are_mixed_are_right_by_themselves_and_wrong_together():
    """Alike couples against unlike ones: each table of one person is the same, that of pairs has nothing in common."""
    found = compare_households(couples((0, 0), (1, 1)), couples((0, 1), (1, 0)), TINY)
    assert found.people == found.people_in_households == found.households == 0
    assert found.pairs == found.pairs_by_size == 1
    assert found.groups > 0


def test_other_households_are_seen_where_they_differ():
    found = compare_households(couples((0, 1)), couples((0, 1), tenure=1), TINY)
    assert found.households == 1
    assert found.people == found.pairs == 0
    assert compare_households(couples((0, 1)), couples((0, 1)), TINY, broken=3).broken == 3


def test_households_of_one_person_have_no_pairs_to_compare():
    alone = Households({"household.a": np.array([0])}, {"person.a": np.array([1])}, np.array([1]))
    assert compare_households(alone, alone, TINY).pairs == 0
    assert compare_households(couples((0, 1)), alone, TINY).pairs == 1


def test_group_queries_are_relative_and_bounded_by_the_sanity_bound():
    """Nobody of either code in one table, everybody in the other: no share is below 0.01, so no error above 100."""
    found = compare_households(couples((0, 0)), couples((1, 1)), TINY)
    assert 1 < found.groups <= 100


def family(*people):
    """One household of people who are each a role and an age class of ten years."""
    roles, ages = np.array(people).T
    return Households(
        {"household.tenure": np.zeros(1, np.int64), "household.area": np.zeros(1, np.int64)},
        {"person.relation": roles, "person.age": ages},
        np.array([len(people)]),
    )


def test_age_differences_are_those_of_couples_and_of_parents_with_their_children():
    held = family((1, 5), (0, 4), (2, 1), (2, 2))
    assert age_gaps(held, ROLES, "couples").tolist() == [10.0], "the partner is a class older"
    assert sorted(age_gaps(held, ROLES, "parents and children")) == [20.0, 30.0]


@pytest.mark.parametrize(("partner", "error"), [(5, 0.0), (6, 1.0)])
def test_gaps_are_compared_as_distributions(partner, error):
    assert gap_error(family((0, 4), (1, 5)), family((0, 4), (1, partner)), ROLES, "couples") == error


def test_where_nobody_has_a_role_there_is_no_difference_to_compare():
    alone, couple = family((0, 4)), family((0, 4), (1, 4))
    assert gap_error(alone, alone, ROLES, "couples") is None
    assert gap_error(couple, alone, ROLES, "couples") == 1.0
    assert gap_error(couple, couple, SCHEMA, "couples") is None, "no roles are declared"


@pytest.mark.parametrize(
    ("people", "kind"),
    [
        ([(0, 3)], "one person"),
        ([(0, 3), (1, 3)], "couple"),
        ([(1, 3), (2, 1), (0, 3)], "couple with children"),
        ([(2, 1), (0, 3)], "one parent with children"),
        ([(0, 3), (0, 3)], "other"),
        ([(0, 3), (1, 3), (1, 3)], "other"),
        ([(1, 3), (2, 1)], "other"),
    ],
)
def test_households_are_told_apart_by_roles(people, kind):
    found = describe_households(family(*people), ROLES).compositions
    assert {name for name, share in found.items() if share} == {kind}
    assert "with a parent" not in found, "no role of parents is declared"
    assert describe_households(family(*people), SCHEMA).compositions == {}


def test_it_is_said_how_many_households_have_at_least_so_many_people():
    found = describe_households(family((0, 4), (2, 1), (2, 1)), ROLES)
    shares = {(one.column, one.code, one.least): one.share for one in found.members}
    assert shares["relation", 2, 2] == shares["age", 1, 2] == shares["relation", 0, 1] == 1
    assert shares["relation", 0, 2] == shares["relation", 1, 1] == 0
    assert found.sizes == (0, 0, 1, 0)
    assert found.columns["person.age"][1] == pytest.approx(2 / 3)


def test_the_errors_show_that_they_are_confidential():
    assert "not to be published" in compare_households(couples((0, 1)), couples((0, 1)), TINY)._repr_html_()
