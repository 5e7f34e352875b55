"""Pooled tables are unbiased with the variance they claim; the fit's level follows the free parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.estimators import estimate
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.pooling import below_noise, free_parameters, loss, loss_level, pooled

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 4})


def measured(rng, joint, cliques, sigma):
    found = []
    for clique in cliques:
        gone = tuple(k for k, a in enumerate(DOMAIN) if a not in clique)
        table = joint.sum(axis=gone)
        found.append(Measurement(clique, table + rng.normal(0, sigma, table.shape), sigma))
    return found


def test_pooled_tables_have_the_sigma_they_claim():
    rng = np.random.default_rng(0)
    joint = rng.integers(0, 50, DOMAIN.sizes).astype(float)
    cliques = [("a", "b", "c"), ("a", "b"), ("a", "b", "d")]
    truth = joint.sum(axis=(2, 3))
    z = []
    for _ in range(400):
        pair = next(m for m in pooled(measured(rng, joint, cliques, 5.0), order=2) if m.clique == ("a", "b"))
        z.append((pair.noisy - truth) / pair.sigma)
    assert abs(np.mean(z)) < 0.1
    assert abs(np.std(z) - 1) < 0.06
    assert pair.sigma == pytest.approx(5.0 * (1 / 2 + 1 + 1 / 4) ** -0.5)


@settings(max_examples=25)
@given(st.sets(st.sampled_from(DOMAIN.attributes), min_size=1).map(DOMAIN.clique), st.integers(1, 3))
def test_pooling_keeps_large_tables_and_adds_small_ones(clique, order):
    rng = np.random.default_rng(1)
    joint = np.ones(DOMAIN.sizes)
    found = {m.clique for m in pooled(measured(rng, joint, [clique], 1.0), order=order)}
    assert clique in found
    assert all(len(c) <= order or c == clique for c in found)
    assert {(a,) for a in clique} <= found


def test_free_parameters_count_each_interaction_once():
    assert free_parameters(DOMAIN, [DOMAIN.attributes]) == DOMAIN.cells()
    assert free_parameters(DOMAIN, [("a", "b"), ("b", "c")]) == 2 * 3 + 3 * 2 - 3
    assert free_parameters(DOMAIN, [("a", "b"), ("a",), ("b",)]) == 6


def test_level_lies_between_the_truth_and_the_best_fit():
    tables = measured(np.random.default_rng(2), np.ones(DOMAIN.sizes), [("a", "b"), ("a",), ("b",)], 1.0)
    assert loss_level(DOMAIN, tables, share=0.0) == 1.0
    assert loss_level(DOMAIN, tables, share=1.0) == pytest.approx(1 - 6 / 11)


def test_loss_is_that_of_the_residuals():
    rng = np.random.default_rng(3)
    tables = measured(rng, rng.integers(20, 90, DOMAIN.sizes).astype(float), [("a", "b"), ("c", "d")], 4.0)
    model = estimate(DOMAIN, tables, until=0.5)
    assert loss(model, tables) <= 0.55
    off = [Measurement(m.clique, m.noisy + 8.0, m.sigma) for m in tables]
    assert loss(model, off) > 3.0


def overlapping(seed=4, sigma=4.0):
    rng = np.random.default_rng(seed)
    joint = rng.integers(20, 90, DOMAIN.sizes).astype(float)
    return measured(rng, joint, [("a", "b", "c"), ("b", "c", "d"), ("a", "d")], sigma)


def test_the_last_fit_goes_below_the_noise():
    tables = overlapping()
    start = estimate(DOMAIN, tables)
    found = below_noise(start, tables, Tools(), order=2, share=0.6, passes=(150, 60))
    known = pooled(tables, order=2)
    assert loss(found, known) <= 1.02 * loss_level(DOMAIN, known, share=0.6)


def test_a_dead_end_is_left_for_a_fresh_start():
    tables = overlapping()
    flat = estimate(DOMAIN, [Measurement(("a",), np.full(2, 1000.0), 50.0)])
    starts = []

    def stuck_if_warm(domain, known, *, warm, **more):
        starts.append(warm)
        return flat if warm is flat else estimate(domain, known, warm=warm, **more)

    found = below_noise(flat, tables, Tools(estimate=stuck_if_warm), order=2, share=0.4, passes=(150,))
    assert starts == [flat, None]
    known = pooled(tables, order=2)
    assert loss(found, known) < loss(flat, known)


def test_a_level_that_is_not_reached_is_given_up():
    tables = overlapping()
    start = estimate(DOMAIN, tables)
    made = []

    def short_second_step(domain, known, **more):
        made.append(start if made else estimate(domain, known, **more))
        return made[-1]

    found = below_noise(
        start, tables, Tools(estimate=short_second_step), order=2, share=0.95, passes=(150, 1, 1)
    )
    assert len(made) == 2
    assert found is made[0]
