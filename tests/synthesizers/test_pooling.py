"""Pooled tables are unbiased with the variance they claim; the last fit uses what they know together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate
from synth_core.synthesizers.base import Tools, free_parameters, last_fit, pool_tables

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
        pair = next(m for m in pool_tables(measured(rng, joint, cliques, 5.0), order=2) if m.clique == ("a", "b"))
        z.append((pair.noisy - truth) / pair.sigma)
    assert abs(np.mean(z)) < 0.1
    assert abs(np.std(z) - 1) < 0.06
    assert pair.sigma == pytest.approx(5.0 * (1 / 2 + 1 + 1 / 4) ** -0.5)


@settings(max_examples=25)
@given(st.sets(st.sampled_from(DOMAIN.attributes), min_size=1).map(DOMAIN.clique), st.integers(1, 3))
def test_pooling_keeps_large_tables_and_adds_small_ones(clique, order):
    rng = np.random.default_rng(1)
    joint = np.ones(DOMAIN.sizes)
    found = {m.clique for m in pool_tables(measured(rng, joint, [clique], 1.0), order=order)}
    assert clique in found
    assert all(len(c) <= order or c == clique for c in found)
    assert {(a,) for a in clique} <= found


def test_free_parameters_count_each_interaction_once():
    assert free_parameters(DOMAIN, [DOMAIN.attributes]) == DOMAIN.cells()
    assert free_parameters(DOMAIN, [("a", "b"), ("b", "c")]) == 2 * 3 + 3 * 2 - 3
    assert free_parameters(DOMAIN, [("a", "b"), ("a",), ("b",)]) == 6


def test_the_last_fit_is_nearer_to_the_truth_than_one_at_the_level_of_noise():
    """It uses what small tables know together, and follows large ones further than noise alone would ask for."""
    rng = np.random.default_rng(4)
    joint = rng.gamma(0.7, 60.0, DOMAIN.sizes)
    cliques = [("a", "b", "c"), ("b", "c", "d"), ("a", "d")]
    wanted = [("a", "b"), ("b", "d"), ("c", "d"), ("a", "d")]

    def error(model):
        gone = [tuple(k for k, a in enumerate(DOMAIN) if a not in clique) for clique in wanted]
        pairs = zip(model.marginals(wanted), gone, strict=True)
        return sum(np.abs(table - joint.sum(axis=axes)).sum() for table, axes in pairs)

    errors = []
    for _ in range(20):
        tables = measured(rng, joint, cliques, 12.0)
        start = estimate(DOMAIN, tables)
        found = last_fit(DOMAIN, tables, Tools(), order=2, gain=0.125, passes=200, warm=start)
        errors.append((error(found), error(start)))
    last, first = np.mean(errors, axis=0)
    assert last < 0.9 * first


def test_small_tables_count_as_often_as_the_emphasis_says():
    rng = np.random.default_rng(5)
    tables = measured(rng, rng.gamma(0.7, 60.0, DOMAIN.sizes), [("a", "b", "c"), ("b", "c", "d")], 12.0)
    given = []

    def remembered(domain, known, **settings):
        given.append({m.clique: m for m in known})
        return estimate(domain, known, max_passes=1)

    for emphasis in (1.0, 4.0):
        tools = Tools(estimate=remembered)
        last_fit(DOMAIN, tables, tools, order=2, gain=0.125, passes=1, emphasis=emphasis)
    plain, emphasised = given
    for clique, table in plain.items():
        assert emphasised[clique].sigma == pytest.approx(table.sigma / (2 if len(clique) <= 2 else 1))
        assert np.array_equal(emphasised[clique].noisy, table.noisy)
