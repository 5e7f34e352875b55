"""Tables of households alone are paid for from their own share, and the method builds on them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.linked_tables import SCHEMA, linked_frames

from synth_core import synthesize
from synth_core.synthesizers.households_first import HOUSEHOLDS, TUNED, HouseholdsFirst, households_first
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.privmrf import PrivMRF


def test_the_share_is_taken_off_the_plan_of_the_method():
    domain, total = SCHEMA.domain(1), Fraction(1, 3)
    plan = households_first(synthesizer("privmrf"), SCHEMA).plan(domain, total)
    inner = TUNED.plan(domain, total * (1 - HOUSEHOLDS))
    assert plan.mu2("households") == total * HOUSEHOLDS
    assert {name: plan.mu2(name) for name, _ in inner.shares} == {name: inner.mu2(name) for name, _ in inner.shares}
    assert sum(share for _, share in plan.shares) == 1


def test_what_is_asked_first_is_about_households_alone():
    """The first step pays the share of households, and the method's own first questions."""
    made = synthesize(linked_frames(1500), SCHEMA, epsilon=3.0, delta=1e-6, progress=lambda said: None)
    measured = [record for record in made.records if record.state == "measured"]
    first = [record.purpose for record in measured if record.step == "score"]
    assert first.count("one-way marginals") == 2, "of households alone, and of all columns"
    assert made.cost.spent <= 3.0


@pytest.mark.parametrize("method", ["mst", "aim", "independent", "privbayes"])
def test_a_method_that_cannot_build_on_answers_stays_as_it_is(method):
    built = synthesizer(method)
    wrapped = households_first(built, SCHEMA)
    assert wrapped == built or isinstance(wrapped, HouseholdsFirst)
    assert isinstance(wrapped, HouseholdsFirst) == bool(getattr(built, "can_reuse", False))


def test_options_that_are_given_are_kept():
    mine = PrivMRF(rounds=3)
    assert households_first(mine, SCHEMA).method == mine
    assert households_first(PrivMRF(), SCHEMA).method == TUNED
    assert households_first(PrivMRF(), SCHEMA).attributes == ("household.tenure", "household.area", "size")
