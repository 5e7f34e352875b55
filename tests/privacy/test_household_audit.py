"""The audit of linked tables: a household of eight more is never noticed beyond its price, and faults are."""

from __future__ import annotations

import pytest

from synth_core.audit.adversary import run_audit
from synth_core.audit.households import COUPLES, SCHEMA, household_cases, household_worlds
from synth_core.privacy.wall import open_private

CASES = {case.title: case for case in household_cases(faults=True)}
SOUND = [title for title in CASES if not title.startswith("planted")]


def seen(worlds, clique):
    """By how many records the canary moves a table."""
    (without,), (more,) = (source.tables([clique]) for source in worlds)
    return (open_private(more) - open_private(without)).sum() / worlds[0].scale


@pytest.mark.parametrize(
    ("canary", "alike", "led"), [("eight people alike", 1, 0), ("a reference person and seven alike", 1, 1)]
)
def test_the_canary_moves_tables_as_far_as_any_household_can(canary, alike, led):
    worlds = household_worlds(canary, places=2)
    assert seen(worlds, ("person.age", "person.age@2")) == alike
    assert seen(worlds, ("person.age@2", "person.age@reference")) == led
    assert seen(household_worlds(canary, places=1), ("person.age",)) == 1


def test_both_worlds_differ_by_the_largest_household():
    assert SCHEMA.largest == 8
    assert seen(household_worlds("eight people alike", places=2), ("size",)) == 1
    assert COUPLES == 40


def test_every_case_has_a_name_of_its_own():
    assert len(CASES) == 2 * 2 * 3 + 1 + 2 + 2


@pytest.mark.slow
@pytest.mark.parametrize("title", SOUND)
def test_sound_code_passes(title):
    case = CASES[title]
    found = run_audit(title, case.experiment, worlds=case.worlds, runs=100)
    assert found.passed, found.failures


@pytest.mark.slow
@pytest.mark.parametrize("title", [title for title in CASES if title not in SOUND])
def test_planted_faults_are_caught(title):
    case = CASES[title]
    found = run_audit(title, case.experiment, worlds=case.worlds, runs=1000, curator=case.curator)
    assert found.failures
