"""What reports show of two linked tables: true numbers inside, and none of them outside."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from support.linked_tables import ROLES, SCHEMA, linked_frames

from synth_core import synthesize
from synth_core.evaluation.household_shares import HouseholdShares
from synth_core.evaluation.linked import compare_households
from synth_core.report.households import internal_section, judge_pairs, linked_report, public_section
from synth_core.report.page import Guarantee
from synth_core.storage.households import encode_households

KEY = b"report"
GUARANTEE = Guarantee(unit="household", neighbours="one household more", epsilon=3.0, delta=1e-6, mu=0.7, spent=3.0)


@pytest.fixture(scope="module")
def made():
    frames = linked_frames(1200)
    release = synthesize(frames, ROLES, epsilon=3.0, delta=1e-6, progress=lambda said: None)
    real, synthetic = (encode_households(tables, ROLES, KEY) for tables in (frames, release.tables))
    broken = {name: int(rows.sum()) for name, rows in ROLES.violations(release.tables).items()}
    return real, synthetic, release.model, broken


@pytest.fixture(scope="module")
def internal(made):
    real, synthetic, _, broken = made
    return internal_section(ROLES, compare_households(real, synthetic, ROLES), broken=broken)


@pytest.fixture(scope="module")
def public(made):
    _, synthetic, model, broken = made
    return public_section(ROLES, synthetic, model, broken=broken)


def test_both_show_sizes_compositions_and_age_differences(internal, public):
    for section in (internal, public):
        titles = [picture.title for picture in section.pictures]
        assert titles == [
            "Size of household",
            "Who lives together",
            "Age differences of couples",
            "Age differences of parents and children",
        ]
        assert [column.title for column in section.columns] == ["tenure", "area", "relation", "age"]
        assert [row[1] for row in section.rules.rows] == ["0", "0", "0"]
        assert section.pairs is not None


def test_the_internal_one_says_how_far_off_everything_is(internal, made):
    real, synthetic, _, _ = made
    errors = compare_households(real, synthetic, ROLES, predictions=False)
    shown = dict(row[:2] for row in internal.errors.rows)
    assert shown["age differences of couples"] == f"{errors.couples:.2%}" or errors.couples >= 0.0995
    assert len(internal.across.rows) == 3
    sizes = internal.pictures[0].table.rows
    assert [row[1] for row in sizes] == [
        f"{share:.{2 if share < 0.0995 else 1}%}"
        for share in np.bincount(real.sizes, minlength=5)[1:] / len(real.sizes)
    ]
    assert internal.members.head == ("households with", "real", "synthetic", "points")


def test_the_public_one_is_made_of_synthetic_households_alone(made, public):
    """Equal synthetic households and answers give an equal section; real ones it is never given."""
    _, synthetic, model, broken = made
    assert public_section(ROLES, synthetic, model, broken=broken) == public
    assert public.errors.rows == public.across.rows == ()
    assert public.members.head == ("households with", "share")
    assert public.pictures[0].key == (("reference", "model"), ("synthetic", "synthetic"))
    html = linked_report(public, title="made up", internal=False)
    assert "INTERNAL" not in html
    assert not re.search(r">real<", html)


def test_a_page_says_whether_it_may_leave(internal, public):
    inside = linked_report(internal, title="made up", internal=True, guarantee=GUARANTEE)
    assert "do not publish" in inside
    assert "one household more" in inside
    assert 'href="#part-1"' in inside
    assert linked_report(internal, title="made up", internal=True, guarantee=GUARANTEE) == inside


def test_distance_from_noisy_tables_of_pairs_is_about_their_noise(made):
    _, synthetic, model, _ = made
    answers = judge_pairs(ROLES, synthetic, model)
    assert [answer.clique for answer in answers] == [measured.clique for measured in model.pairs]
    assert answers
    assert all(0 < answer.distance < 4 * answer.noise for answer in answers)


def test_without_roles_nothing_is_said_of_couples(made):
    real, synthetic, model, broken = made
    errors = compare_households(real, synthetic, SCHEMA, predictions=False)
    for section in (
        internal_section(SCHEMA, errors, broken=broken),
        public_section(SCHEMA, synthetic, replace(model, pairs=()), broken=broken),
    ):
        assert [picture.title for picture in section.pictures] == ["Size of household"]
    assert isinstance(errors.real, HouseholdShares)
