"""Tables that a spec protects are measured and kept, by every method that says so, and paid from their own share."""

from fractions import Fraction

import numpy as np
import pytest

from synth_core.domain import Domain, Impossible
from synth_core.errors import SpecError
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers.methods import METHODS, synthesizer
from synth_core.synthesizers.protection import SHARE
from tests.support.conversations import chain, conversation

RARE = ("sex", "veteran")
TRIPLE = ("sex", "veteran", "x01")
ABLE = [("privmrf", "default"), ("absyn", "default"), ("absyn", "paper"), ("privbayes", "default")]
ABLE += [("privbayes", "pgm"), ("aim", "default"), ("mst", "default"), ("swift", "default"), ("independent", "default")]
UNABLE = [(name, preset) for name, method in METHODS.items() for preset in method.presets]
UNABLE = [one for one in UNABLE if one not in [*ABLE, ("aim", "paper"), ("mst", "paper")]]


@pytest.fixture(scope="module")
def people():
    """Six columns that follow each other, and a rare relation: 311 of 347 veterans of one war are men."""
    domain, codes = chain((4, 3, 5, 3), 8000, copied=0.8)
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, 8000).astype(np.uint8)
    veteran = np.zeros(8000, dtype=np.uint8)
    veteran[np.flatnonzero(sex == 0)[:311]] = 1
    veteran[np.flatnonzero(sex == 1)[:36]] = 1
    veteran[np.flatnonzero(sex == 1)[36:400]] = 2
    sizes = dict(zip(domain.attributes, domain.sizes, strict=True))
    return Domain.of({**sizes, "sex": 2, "veteran": 3}), {**codes, "sex": sex, "veteran": veteran}


def exact(codes, clique, domain):
    table = np.zeros(domain.shape(clique))
    np.add.at(table, tuple(codes[name] for name in clique), 1)
    return table


@pytest.mark.parametrize(("method", "preset"), ABLE, ids=lambda value: value)
def test_a_protected_table_is_kept(people, method, preset):
    """Within five standard deviations of the noise with which it was measured, in every cell."""
    domain, codes = people
    built = synthesizer(method, preset, protect=[RARE])
    told = conversation(built, domain, codes, epsilon=1.0)
    (sigma,) = built.noise(domain, told.plan).values()
    off = told.model.marginal(RARE) - exact(codes, RARE, domain)
    assert np.abs(off).max() < 5 * sigma < 100
    charged = sum((record.mu2 for record in told.measured), Fraction(0))
    assert 0.999 * told.plan.total_mu2 < charged <= told.plan.total_mu2
    asked = [record for record in told.measured if record.purpose == "protected tables"]
    assert sum((record.mu2 for record in asked), Fraction(0)) == told.plan.mu2(SHARE)


@pytest.mark.parametrize(("method", "preset"), ABLE, ids=lambda value: value)
def test_a_protected_column_is_kept(people, method, preset):
    domain, codes = people
    built = synthesizer(method, preset, protect=[("veteran",)])
    told = conversation(built, domain, codes, epsilon=1.0)
    (sigma,) = built.noise(domain, told.plan).values()
    off = told.model.marginal(("veteran",)) - exact(codes, ("veteran",), domain)
    assert np.abs(off).max() < 5 * sigma < 70


def test_one_measurement_is_left_of_a_column_that_is_asked_about_twice(people):
    """It has less noise than either answer, and the plan says so."""
    domain, codes = people
    built = synthesizer("swift", protect=[("veteran",), RARE])
    told = conversation(built, domain, codes, epsilon=1.0)
    (pooled,) = (m for m in told.structure.scores.measurements if m.clique == ("veteran",))
    sigma = built.count_noise(domain, told.plan)["veteran",]
    assert pooled.sigma == pytest.approx(sigma, rel=1e-3)
    assert sigma < min(
        built.noise(domain, told.plan)["veteran",], synthesizer("swift").count_noise(domain, told.plan)["veteran",]
    )


def test_what_is_not_protected_is_lost(people):
    """Two columns that are made independent give each sex half of the veterans; the bound above would not hold."""
    domain, codes = people
    told = conversation(synthesizer("independent"), domain, codes, epsilon=1.0)
    assert np.abs(told.model.marginal(RARE) - exact(codes, RARE, domain)).max() > 100


def test_rare_codes_of_a_protected_column_are_not_merged(people):
    """mst merges what noise hides; a protected column keeps all of its codes."""
    domain, codes = people
    built = synthesizer("mst", protect=[RARE], options={"rare": 60.0})
    told = conversation(built, domain, codes, epsilon=1.0)
    (sigma,) = built.noise(domain, told.plan).values()
    assert np.abs(told.model.marginal(RARE) - exact(codes, RARE, domain)).max() < 5 * sigma


@pytest.mark.parametrize(("method", "preset"), UNABLE, ids=lambda value: value)
def test_a_method_that_cannot_refuses_by_name(method, preset, people):
    with pytest.raises(SpecError, match=rf"^protect: method '{method}[^']*' cannot keep tables"):
        synthesizer(method, preset, protect=[RARE]).plan(people[0], mu2_of(0.5, 1e-6))


def test_a_network_refuses_where_no_graphical_model_is_fitted():
    """privbayes makes coarser versions of columns with many codes, and then has no graphical model."""
    domain = Domain.of({"sex": 2, "veteran": 3, "job": 200})
    with pytest.raises(SpecError, match="privbayes/default"):
        synthesizer("privbayes", protect=[RARE]).plan(domain, mu2_of(0.5, 1e-6))


def test_the_plan_gives_the_tables_their_share_and_the_method_the_rest(people):
    domain, total = people[0], mu2_of(0.5, 1e-6)
    plan = synthesizer("privmrf", protect=[RARE, TRIPLE], protect_share=0.25).plan(domain, total)
    plain = synthesizer("privmrf").plan(domain, total)
    assert plan.mu2(SHARE) == total / 4
    assert [(name, plan.mu2(name)) for name, _ in plain.shares] == [
        (name, plain.mu2(name) * Fraction(3, 4)) for name, _ in plain.shares
    ]


def test_the_preview_names_the_tables_with_their_noise(people):
    built = synthesizer("privmrf", protect=[RARE, ("veteran", "sex"), TRIPLE])
    plan = built.plan(people[0], mu2_of(0.5, 1e-6))
    lines = dict(built.preview(people[0], plan))
    assert lines["protected sex × veteran"].startswith("6 cells, sigma ")
    assert "protected x01 × sex × veteran" in lines
    sigmas = built.noise(people[0], plan)
    assert len(sigmas) == 2  # a table that is named twice is measured once
    assert sigmas["x01", "sex", "veteran"] < sigmas["sex", "veteran"]  # larger tables get more


def test_an_unknown_column_is_refused_with_what_was_meant(people):
    with pytest.raises(
        SpecError, match=r"^protect: column 'vetaran' is not among those modelled; did you mean 'veteran'"
    ):
        synthesizer("privmrf", protect=[("sex", "vetaran")]).plan(people[0], mu2_of(0.5, 1e-6))


def test_tables_that_need_too_large_a_model_are_refused():
    domain = Domain.of({"a": 300, "b": 300, "c": 300})
    with pytest.raises(SpecError, match=r"need a model of 27,000,000 cells, at most 1,000,000"):
        synthesizer("privmrf", protect=[("a", "b", "c")]).plan(domain, mu2_of(0.5, 1e-6))


def test_rules_that_need_a_large_model_anyway_are_no_reason_to_refuse():
    excluded = Impossible("wide", (("a", (0,)), ("b", (0,)), ("c", (0,))))
    domain = Domain(("a", "b", "c"), (120, 120, 120), (excluded,))
    assert "protected" in dict(synthesizer("privmrf", protect=[("a", "b")]).plan(domain, mu2_of(0.5, 1e-6)).shares)


def test_without_tables_it_is_the_method_itself():
    assert synthesizer("swift", protect=[]) == synthesizer("swift")
