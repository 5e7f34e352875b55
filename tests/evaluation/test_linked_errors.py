"""True errors of two linked tables: zero for the same households, and what they should be by hand."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from support.linked_tables import SCHEMA, linked_frames

from synth_core.evaluation.linked import compare_households, gap_error
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
    held = encode_households(linked_frames(300), SCHEMA, b"key")
    assert set(asdict(compare_households(held, held, SCHEMA)).values()) == {0.0}


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


@pytest.mark.parametrize(
    ("other", "error"), [(((0, 1), (1, 0)), 0.0), (((0, 0), (1, 1)), 1.0), (((0, 0), (0, 1)), 0.5)]
)
def test_gaps_are_compared_as_distributions(other, error):
    """Both people of a couple are asked about: gaps 1 and -1 in each unlike couple, 0 and 0 in each alike one."""
    values = np.array([20.0, 30.0])
    real = couples((0, 1), (1, 0))
    found = gap_error(real, couples(*other), values, "person.a", lambda one, two: one["person.a"] >= 0)
    assert found == pytest.approx(error)


def test_the_errors_show_that_they_are_confidential():
    assert "not to be published" in compare_households(couples((0, 1)), couples((0, 1)), TINY)._repr_html_()
