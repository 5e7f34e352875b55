"""Raking: the nearest model with given one-way marginals."""

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.markov_random_field import rake
from synth_core.models.maximum_entropy import estimate

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2})


def chain(seed=0):
    rng = np.random.default_rng(seed)
    tables = {clique: 100 * rng.dirichlet(np.ones(DOMAIN.cells(clique))) for clique in (("a", "b"), ("b", "c"))}
    measured = [Measurement(c, t.reshape(DOMAIN.shape(c)), 0.01) for c, t in tables.items()]
    return estimate(DOMAIN, measured, total=100.0, until=1e-3)


def joint(model):
    return model.marginal(tuple(DOMAIN)) / model.total


def test_the_marginals_are_met_and_everything_else_is_kept():
    model = chain()
    targets = {"a": np.array([10.0, 20.0, 70.0]), "c": np.array([1.0, 3.0])}
    found = rake(model, targets)
    np.testing.assert_allclose(found.marginal(("a",)), [10, 20, 70], atol=1e-4)
    np.testing.assert_allclose(found.marginal(("c",)), [25, 75], atol=1e-4)
    assert found.total == model.total
    ratio = np.log(joint(found)) - np.log(joint(model))
    interactions = ratio - ratio[:1] - ratio[:, :, :1] + ratio[:1, :, :1]
    assert np.abs(interactions).max() < 1e-9, "only single attributes were changed"
    assert np.ptp(ratio[0, :, 0]) < 1e-9, "b had no target"


@pytest.mark.slow
def test_it_is_the_nearest_of_those_that_meet_them():
    """Relative entropies of three projections add up (Pythagoras); with another point they do not."""
    model, other = chain(), chain(1)
    found = rake(model, {"a": other.marginal(("a",)), "c": other.marginal(("c",))})
    p, q, r = joint(other), joint(found), joint(model)

    def entropy(x, y):
        return float((x * np.log(x / y)).sum())

    assert abs(entropy(p, r) - entropy(p, q) - entropy(q, r)) < 1e-5
    elsewhere = joint(chain(2))
    assert abs(entropy(p, r) - entropy(p, elsewhere) - entropy(elsewhere, r)) > 1e-2


def test_a_target_without_records_asks_nothing_and_zeros_become_nearly_zero():
    model = chain()
    assert rake(model, {"a": np.zeros(3)}) is model
    found = rake(model, {"b": np.array([0.0, 1.0, 1.0, -2.0 + 2.0])})
    np.testing.assert_allclose(found.marginal(("b",)), [0, 50, 50, 0], atol=1e-4)
