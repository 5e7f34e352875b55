"""Two linked tables through `synthesize`: what comes back, what it costs, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from support.linked_tables import SCHEMA, TABLES, linked_frames, linked_schema

from synth_core import LinkedRelease, Schema, synthesize
from synth_core.errors import BudgetRefused, FeasibilityError, SourceError, SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.linked import write_tables
from synth_core.models.tuples import canonical_clique
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import delta_of, mu2_of
from synth_core.synthesizers.companions import candidate_tables

DELTA = 1e-6


def quiet(said):
    """Shows nothing."""


def made(frames=None, schema=SCHEMA, **more):
    settings = {"epsilon": 3.0, "delta": DELTA, "progress": quiet} | more
    return synthesize(linked_frames(1500) if frames is None else frames, schema, **settings)


@pytest.fixture(scope="module")
def release():
    return made()


def test_two_tables_come_back_joined_by_new_names(release):
    household, person = release.tables["household"], release.tables["person"]
    assert isinstance(release, LinkedRelease)
    assert list(household) == ["hid", "tenure", "area"]
    assert list(person) == ["hid", "relation", "age"]
    assert household.hid.tolist() == list(range(1, len(household) + 1))
    sizes = person.groupby("hid").size()
    assert set(sizes.index) == set(household.hid), "every household has people, and everybody a household"
    assert sizes.max() <= SCHEMA.largest
    assert abs(len(household) - 1500) < 100
    assert len(household.merge(person, on="hid")) == len(person)


def test_no_household_breaks_a_rule(release):
    assert not any(rule.any() for rule in SCHEMA.violations(release.tables).values())
    assert not any(rule.any() for rule in SCHEMA.person.violations(release.tables["person"]).values())


def test_pairs_are_better_than_those_of_independent_people(release):
    frames = linked_frames(1500)
    found, alone = release.evaluate(frames), made(pairs_share=0.0).evaluate(frames)
    loose = made(schema=linked_schema(together=[]), pairs_share=0.0).evaluate(frames)
    assert found.broken == 0
    assert found.pairs_by_size < 0.15
    assert loose.pairs > 2 * found.pairs, "with neither pairs nor rules, people are independent"
    assert alone.pairs < loose.pairs, "rules alone say something of who lives with whom"


def test_the_cost_is_that_of_a_household_and_said_for_a_person(release):
    charged = sum((Fraction(record.mu2) for record in release.records if record.state == "measured"), Fraction(0))
    assert release.cost.epsilon == 3.0
    assert release.unit == "household, accounted for nowhere"
    assert float(release.spends.mu2.sum()) <= float(mu2_of(3.0, DELTA))
    assert charged <= mu2_of(3.0, DELTA)
    mu = float(mu2_of(3.0, DELTA)) ** 0.5
    assert delta_of(2 * mu, release.person_epsilon) == pytest.approx(DELTA, rel=1e-3)
    assert "one person epsilon 7." in release.summary() or "one person epsilon 6." in release.summary()
    assert "0 households that break one" in release.summary()
    assert "LinkedRelease" in repr(release)
    assert "<table" in release._repr_html_()


def test_rules_that_no_household_of_the_rows_keeps_end_no_release():
    """Before, all was paid and the release refused: the model knew of nobody whom a rule asked for."""
    frames = linked_frames(120)
    frames["person"]["relation"] = "child"
    found = made(frames)
    assert not any(rule.any() for rule in SCHEMA.violations(found.tables).values())
    assert (found.tables["person"]["relation"] == "reference").sum() == len(found.tables["household"])


def test_the_number_of_households_may_be_given():
    assert len(made(rows=123).tables["household"]) == 123


@pytest.mark.parametrize("method", ["independent", "mst", "aim", "absyn", "privbayes"])
def test_other_methods_run_on_the_same_relation(method):
    found = made(linked_frames(400), method=method)
    assert set(found.tables) == {"household", "person"}
    assert not any(rule.any() for rule in SCHEMA.violations(found.tables).values())


def test_households_of_one_person_have_no_pairs():
    found = made(linked_frames(300), linked_schema(largest=1, together=[]))
    assert (found.tables["person"].groupby("hid").size() == 1).all()
    assert not found.spends.purpose.str.startswith("pairs").any()


def test_few_households_are_not_told_who_lives_with_whom():
    """Where every table of pairs would be noise, none is asked for."""
    found = made(linked_frames(60), epsilon=0.3)
    assert found.model.pairs == ()
    assert not any(rule.any() for rule in SCHEMA.violations(found.tables).values())


def test_no_question_is_asked_of_two_places_that_is_one_question():
    """The planted fault would be to measure one copy twice: canonical forms of candidates are all different."""
    domain = SCHEMA.domain(2)
    candidates = candidate_tables(SCHEMA, domain)
    assert len({canonical_clique(domain, clique)[0] for clique in candidates}) == len(candidates)
    assert all(any("@2" in attribute for attribute in clique) for clique in candidates)


def test_a_kept_ledger_is_charged(tmp_path):
    account = Account(dataset="census", unit="household", delta=DELTA, cap_epsilon=3.0)
    open_ledger(tmp_path, create=True).declare(account, actor="test")
    found = made(linked_frames(300), ledger=tmp_path, dataset="census")
    assert found.unit == "household"
    with pytest.raises(BudgetRefused):
        made(linked_frames(300), ledger=tmp_path, dataset="census")


@pytest.mark.parametrize("unit", [{"unit": "person"}, {"unit": "household", "rows_per_unit": 4}])
def test_an_account_of_another_unit_is_refused(tmp_path, unit):
    account = Account(dataset="census", delta=DELTA, cap_epsilon=3.0, **unit)
    open_ledger(tmp_path, create=True).declare(account, actor="test")
    with pytest.raises(SpecError, match="need an account whose unit is the household"):
        made(ledger=tmp_path, dataset="census")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"pairs_share": 1.0}, "pairs_share: Input should be less than 1"),
        ({"moments_share": 0.1}, "moments_share= is not offered"),
        ({"rows_per_unit": 3}, "rows_per_unit= is not offered"),
        ({"protect": [["x"]]}, "protect= is not offered"),
        ({"reuse": ["x"]}, "reuse= is not offered"),
        ({"largest_n": 10**9}, "too large for up to"),
        ({"frames": {"household": pd.DataFrame()}}, "two linked tables are given as"),
        ({"frames": pd.DataFrame()}, "two linked tables are given as"),
        ({"schema": Schema.from_sizes({"a": 2})}, "go with a LinkedSchema"),
    ],
)
def test_what_does_not_fit_linked_tables_is_refused(more, said):
    with pytest.raises(SpecError, match=said):
        made(**more)


def test_a_value_that_is_not_declared_is_refused_without_being_named():
    frames = linked_frames(50)
    frames["person"].loc[3, "relation"] = "lodger"
    with pytest.raises(SourceError, match="column 'relation'") as refusal:
        made(frames)
    assert "lodger" not in str(refusal.value)


def test_rules_that_leave_no_record_are_refused():
    rule = {"name": "nobody", "when": {"relation": ["reference", "partner", "child"]}, "never": {"age": {"min": 0}}}
    strict = linked_schema(person=TABLES["person"] | {"rules": [rule]})
    with pytest.raises(FeasibilityError, match="'nobody'"):
        made(schema=strict)


def test_rules_across_people_that_no_household_keeps_are_refused_before_a_charge():
    nobody = {"name": "nobody", "people": {"relation": ["reference", "partner", "child"]}, "exactly": 0}
    with pytest.raises(FeasibilityError, match="keeps the rules 'nobody'"):
        made(schema=linked_schema(together=[nobody]), frames={"household": None, "person": None})


@pytest.mark.parametrize("households", [0, 1])
def test_hardly_any_household_is_enough(households):
    """What is paid for gives tables, also where all is noise."""
    frames = {name: frame[frame.hid < households] for name, frame in linked_frames(5).items()}
    found = made(frames, rows=3)
    assert len(found.tables["household"]) == 3
    assert not any(rule.any() for rule in SCHEMA.violations(found.tables).values())
    if not households:
        with pytest.raises(SourceError, match="nothing to compare"):
            found.evaluate(frames)


def test_missing_values_stay_what_they_are_where_numbers_are_drawn_anew():
    relation, age = TABLES["person"]["columns"]
    frames = linked_frames(400)
    frames["person"] = frames["person"].astype({"age": "Int64"})
    frames["person"].loc[::5, "age"] = pd.NA
    found = made(frames, linked_schema(person={"columns": [relation, age | {"nullable": True}]}))
    ages = found.tables["person"].age
    assert str(ages.dtype) == "Int64"
    assert 0.1 < ages.isna().mean() < 0.3
    assert not any(rule.any() for rule in found.schema.violations(found.tables).values())


def test_a_seed_decides_what_is_drawn(release):
    one, again, other = (write_tables(release.model, 200, np.random.default_rng(seed))["person"] for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)
