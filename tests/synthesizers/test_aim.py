"""AIM: candidates, tables in one go, annealing that ends exactly at the plan, and the bounds of the work."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import chain, conversation

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers import aim
from synth_core.synthesizers.aim import AIM, closure, importance, tables, unions
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.workloads import Workload


def test_candidates_are_all_sets_inside_the_workload():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 2})
    found = closure(domain, Workload(marginals=(("a", "b", "d"), ("b", "c"))))
    assert found == [
        *[("a",), ("b",), ("c",), ("d",)],
        *[("a", "b"), ("a", "d"), ("b", "c"), ("b", "d"), ("a", "b", "d")],
    ]
    assert len(closure(domain, Workload(ways=3))) == 4 + 6 + 4


@settings(max_examples=30)
@given(st.lists(st.integers(2, 30), min_size=3, max_size=9), st.integers(1, 3))
def test_unions_hold_their_cliques_within_the_limit(sizes, ways):
    domain = Domain.of({f"x{k}": size for k, size in enumerate(sizes)})
    cliques = list(combinations(domain.attributes, ways))
    for clique, union in zip(cliques, unions(domain, cliques), strict=True):
        assert set(clique) <= set(union)
        assert union == clique or domain.cells(union) <= aim.TOGETHER


def test_tables_are_the_marginals_with_fewer_eliminations(monkeypatch):
    domain, codes = chain([2, 3, 2, 3, 2, 3, 2], 500)
    measurements = []
    for a, b in pairwise(domain.attributes):
        table = np.ones(domain.shape((a, b)))
        np.add.at(table, (codes[a], codes[b]), 1)
        measurements.append(Measurement((a, b), table, 1.0))
    model = estimate(domain, measurements)
    sets = closure(domain, Workload(ways=3))
    for left, right in zip(tables(model, sets), model.marginals(sets), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    eliminations = []
    across = type(model)._across
    monkeypatch.setattr(
        type(model), "_across", lambda self, clique: eliminations.append(clique) or across(self, clique)
    )
    tables(model, sets)
    assert len(eliminations) < 5 < sum(model.tree.host(clique) is None for clique in sets)


@pytest.mark.parametrize(("annealing", "copied"), [(2, 0.7), (4, 0.7), (2, 0.0), (4, 0.0), (7, 0.2)])
def test_annealing_ends_exactly_at_the_plan(annealing, copied):
    domain, codes = chain([3, 4, 2, 3], 1500, copied=copied)
    plan, _, _, records = conversation(AIM(annealing=annealing, rounds_per_attribute=5.3), domain, codes)
    gaussian = [r.mechanism.mu2() for r in records if r.mechanism.name == "discrete_gaussian"]
    chosen = [r.mechanism.mu2() for r in records if r.mechanism.name == "exponential"]
    assert sum(gaussian) == plan.mu2("one-way") + plan.mu2("marginals")
    assert plan.mu2("choices") * Fraction(9999, 10000) < sum(chosen) <= plan.mu2("choices")
    rounds = gaussian[1:]
    assert len(rounds) == len(chosen) <= 21
    assert all(later >= earlier for earlier, later in pairwise(rounds))


@pytest.mark.slow
def test_noise_makes_rounds_dearer_and_dependence_does_not():
    """Where nothing depends on anything no round gains more than noise, so few are needed.

    One conversation takes 3.5 rounds without dependence and 9.0 with it, standard deviations 0.8 and 1.3 (60 runs of
    each): the sums of five lie 5.6 and 6.0 of theirs from the bound.
    """
    nothing = chain([3, 4, 3, 3, 2], 3000, copied=0.0)
    strong = chain([3, 4, 3, 3, 2], 3000, copied=0.9)
    method = AIM(rounds_per_attribute=6.0, annealing=4)
    rounds = [
        sum(r.mechanism.name == "exponential" for _ in range(5) for r in conversation(method, *data).measured)
        for data in (nothing, strong)
    ]
    assert rounds[0] < 5 * 5.5 < rounds[1]


def test_the_model_stays_within_its_limit():
    domain, codes = chain([3, 4, 2, 5, 3, 2], 4000)
    small = conversation(AIM(largest_model=40.0), domain, codes).model
    large = conversation(AIM(), domain, codes).model
    assert small.tree.cells <= 40 < large.tree.cells  # the chain's pairs alone have 51


def test_more_candidates_than_allowed_are_drawn_the_same_again():
    domain, codes = chain([2] * 8, 1000)
    method = AIM(candidates=10, rounds_per_attribute=1.0)
    asked = [r.asked for r in conversation(method, domain, codes).measured if r.mechanism.name == "exponential"]
    assert {len(cliques) for cliques in asked} == {10}
    assert asked[0] == next(
        r.asked for r in conversation(method, domain, codes).measured if r.mechanism.name == "exponential"
    )


def test_workloads_are_read():
    pairs = synthesizer("aim", "default", {"workload": {"ways": 2}})
    assert pairs.workload == Workload(ways=2)
    weighted = synthesizer("aim", "paper", {"workload": {"marginals": [["a", "b"]], "weights": [2.0]}})
    assert weighted.workload.weights == (2.0,)


def test_a_set_matters_by_the_weights_of_what_it_shares():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 2})
    workload = Workload(marginals=(("a", "b"), ("b", "c", "d")), weights=(4.0, 1.0))
    found = importance(domain, workload, closure(domain, workload))
    shared = {("a",): 4, ("b",): 5, ("c",): 1, ("a", "b"): 9, ("b", "c"): 6, ("b", "c", "d"): 7}
    for clique, value in shared.items():
        assert float(found[clique]) == pytest.approx(value / 9, abs=1e-4)
    assert max(found.values()) == 1
    alike = Workload(marginals=workload.marginals)
    assert set(importance(domain, alike, closure(domain, alike)).values()) == {1}


def test_what_matters_most_is_measured_first():
    """Two pairs depend equally; the heavier one is asked about in the first round."""
    domain, codes = chain([4, 4, 4, 4], 4000)
    pairs = (("x00", "x01"), ("x02", "x03"))
    for heavy in pairs:
        workload = Workload(marginals=pairs, weights=tuple(50.0 if pair == heavy else 1.0 for pair in pairs))
        told = conversation(AIM(workload=workload), domain, codes)
        rounds = [r.asked[0] for r in told.measured if r.purpose.endswith("marginal")]
        assert rounds[0] == heavy


def test_paper_starts_rounds_with_the_noise_of_the_one_way_marginals():
    domain = Domain.of({f"x{k}": 3 for k in range(20)})
    paper = synthesizer("aim", "paper")
    lines = dict(paper.preview(domain, paper.plan(domain, mu2_of(0.8, 1e-5))))
    one_way, rounds = lines["noise on each one-way count"], lines["noise on each marginal count"]
    assert float(one_way.split()[1]) == pytest.approx(float(rounds.split()[1]), rel=0.01)
    assert lines["candidates"] == "up to 1,350 a round"


@pytest.mark.slow
def test_many_attributes_stay_within_bounds():
    domain, codes = chain([4] * 60, 5000)
    method = AIM(rounds_per_attribute=0.15, candidates=150, largest_model=1e5)
    told = conversation(method, domain, codes)
    model = told.model
    rounds = [record for record in told.measured if record.purpose.endswith("marginal")]
    assert 0 < len(rounds) <= 0.15 * len(domain) + 1
    assert model.tree.cells <= 2e5  # of what was measured the tree is found anew, by rules of thumb
    assert model.sample(100, np.random.default_rng(0)).shape == (100, 60)
