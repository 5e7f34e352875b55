"""Agreement of noisy tables: the papers' hand-made examples, least squares, variances, hierarchies, negative counts."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.synthesizers.consistency import (
    make_consistent,
    nearest_non_negative,
    non_negative,
    shared_sets,
    variance_left,
)
from synth_core.synthesizers.hierarchies import by_size

SIZES = {"a": 2, "b": 3, "c": 2, "d": 4}
DOMAIN = Domain.of(SIZES)
CLIQUES = [c for k in (1, 2, 3) for c in combinations(SIZES, k)]


def paper_tables():
    """Tables 2a and 2b of PrivBayes; the rows the paper leaves out are filled so that its Tables 3 and 4 come out."""
    age = np.full(20, 0.04)
    age[1], age[19] = -0.1, 0.08
    both = np.full((20, 2), 0.76 / 34)
    both[0], both[1], both[19] = (0.02, 0.02), (-0.1, 0.0), (0.0, 0.0)
    return age, both


def normalised(table):
    positive = non_negative(table)
    return positive / positive.sum()


def test_paper_tables_2_to_3():
    age, both = map(normalised, paper_tables())
    assert age[[0, 1, 19]] == pytest.approx([0.05, 0.0, 0.1])
    assert both[[0, 1, 19]] == pytest.approx(np.array([[0.025, 0.025], [0.0, 0.0], [0.0, 0.0]]))


def test_paper_tables_3_to_4():
    age, both = map(normalised, paper_tables())
    given_age, given_both = make_consistent(
        [Measurement(("age",), age, 1.0), Measurement(("age", "higrade"), both, 1.0)]
    )
    assert given_age.noisy[[0, 1, 19]] == pytest.approx([0.05, 0.0, 0.067], abs=5e-4)
    assert given_both.noisy[[0, 1, 19]] == pytest.approx(np.array([[0.025, 0.025], [0, 0], [0.0335, 0.0335]]), abs=5e-4)


def noisy_tables(cliques, *, seed, sigmas=None):
    rng = np.random.default_rng(seed)
    joint = rng.gamma(0.5, 20.0, DOMAIN.sizes)
    found = []
    for k, clique in enumerate(cliques):
        exact = joint.sum(axis=tuple(i for i, a in enumerate(SIZES) if a not in clique))
        sigma = sigmas[k] if sigmas else 1.0 + k % 3
        found.append(Measurement(clique, exact + sigma * rng.normal(size=exact.shape), sigma))
    return found


def disagreement(measurements):
    worst = 0.0
    for one, other in combinations(measurements, 2):
        shared = [a for a in one.clique if a in other.clique]
        sums = [m.noisy.sum(axis=tuple(k for k, a in enumerate(m.clique) if a not in shared)) for m in (one, other)]
        worst = max(worst, float(np.abs(sums[0] - sums[1]).max()))
    return worst


@given(st.lists(st.sampled_from(CLIQUES), min_size=1, max_size=6), st.integers(0, 99), st.booleans())
@settings(max_examples=40, deadline=None)
def test_all_tables_agree_on_all_they_share(cliques, seed, update):
    assert disagreement(make_consistent(noisy_tables(cliques, seed=seed), update=update)) < 1e-9


def test_intersections_of_pairs_would_not_be_enough():
    """abc, abd and bcd share ab, bc and bd by pairs, and {b} only together: without it, later steps undo earlier."""
    scopes = [frozenset("abc"), frozenset("abd"), frozenset("bcd")]
    assert frozenset("b") in shared_sets(scopes)
    assert frozenset("b") not in {one & other for one, other in combinations(scopes, 2)}


@given(st.lists(st.sampled_from(CLIQUES), min_size=2, max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_without_update_it_is_least_squares(cliques, seed):
    """The best consistent tables are those of the joint table that fits all measurements best."""
    measurements = noisy_tables(cliques, seed=seed)
    cells = np.arange(DOMAIN.cells()).reshape(DOMAIN.sizes)
    rows = []
    for clique in cliques:
        codes = np.indices(DOMAIN.sizes)[[DOMAIN.position(a) for a in clique]]
        index = np.ravel_multi_index(codes, DOMAIN.shape(clique))
        rows.append((np.arange(DOMAIN.cells(clique))[:, None] == index.ravel()[cells.ravel()]).astype(float))
    weighted = np.vstack([row / m.sigma for row, m in zip(rows, measurements, strict=True)])
    seen = np.concatenate([m.noisy.ravel() / m.sigma for m in measurements])
    joint = np.linalg.lstsq(weighted, seen, rcond=None)[0]
    for row, m in zip(rows, make_consistent(measurements, update=False), strict=True):
        assert m.noisy.ravel() == pytest.approx(row @ joint, abs=1e-8)


def test_update_changes_later_weights():
    measurements = noisy_tables([("a", "b", "c"), ("a", "b"), ("a",)], seed=1)
    with_update, without = make_consistent(measurements), make_consistent(measurements, update=False)
    assert not np.allclose(with_update[0].noisy, without[0].noisy)


@pytest.mark.parametrize(("weight", "cells"), [(0.25, 6), (0.7, 1), (0.0, 3), (1.0, 4)])
def test_variance_left_is_equation_3_3_collected(weight, cells):
    other = 1 - weight
    own = (1 - other / cells) ** 2 + (other / cells) ** 2 * (cells - 1)
    others = other * weight * cells / cells**2
    assert variance_left(weight, cells=cells) == pytest.approx(own + others)


def test_reported_variance_is_that_of_the_cells():
    """Two tables that share only their totals take one step, for which (3.3) is exact."""
    rng = np.random.default_rng(0)
    sigmas, shapes, draws = (1.0, 2.0), ((3,), (2,)), 4000
    noise = [rng.normal(size=(draws, *shape)) * s for shape, s in zip(shapes, sigmas, strict=True)]
    pairs = zip(*noise, strict=True)
    results = [
        make_consistent([Measurement(("b",), b, sigmas[0]), Measurement(("a",), a, sigmas[1])]) for b, a in pairs
    ]
    for k in (0, 1):
        seen = float(np.mean([result[k].noisy ** 2 for result in results]))
        assert seen == pytest.approx(results[0][k].sigma ** 2, rel=0.03)
        assert seen < 0.94 * sigmas[k] ** 2


def test_without_update_sigma_stays():
    measurements = noisy_tables([("a", "b"), ("a",)], seed=1)
    assert [m.sigma for m in make_consistent(measurements, update=False)] == [m.sigma for m in measurements]


def test_agreement_lowers_the_error():
    cliques = [("a", "b"), ("a", "c"), ("a", "d"), ("a", "b", "c")]
    before, after = 0.0, 0.0
    for seed in range(40):
        measurements = noisy_tables(cliques, seed=seed, sigmas=[5.0] * 4)
        exact = noisy_tables(cliques, seed=seed, sigmas=[1e-9] * 4)
        for m, better, truth in zip(measurements, make_consistent(measurements), exact, strict=True):
            before += float(((m.noisy - truth.noisy) ** 2).sum())
            after += float(((better.noisy - truth.noisy) ** 2).sum())
    assert after < 0.85 * before


def test_given_total_is_the_total_of_all_tables():
    for m in make_consistent(noisy_tables([("a", "b"), ("c",), ("d",)], seed=3), total=123.0):
        assert m.noisy.sum() == pytest.approx(123.0)


def test_noisy_number_of_records_takes_part():
    count = Measurement((), np.array(1000.0), 0.01)
    tables = make_consistent([count, *noisy_tables([("a", "b"), ("c",)], seed=3)])
    assert [float(m.noisy.sum()) for m in tables] == pytest.approx([1000.0] * 3, abs=0.1)


def test_order_of_axes_does_not_matter():
    one, other = noisy_tables([("a", "b", "d"), ("b", "d")], seed=5)
    turned = Measurement(("d", "b"), other.noisy.T.copy(), other.sigma)
    straight, crossed = make_consistent([one, other]), make_consistent([one, turned])
    assert crossed[0].noisy == pytest.approx(straight[0].noisy)
    assert np.allclose(crossed[1].noisy.T, straight[1].noisy)


def test_measurements_are_left_alone():
    measurements = noisy_tables([("a", "b"), ("b",)], seed=7)
    before = [m.noisy.copy() for m in measurements]
    make_consistent(measurements)
    assert all((m.noisy == b).all() for m, b in zip(measurements, before, strict=True))


def test_versions_of_an_attribute_agree_top_down():
    """Ten codes in groups of three: the last group holds one code only."""
    hierarchies = by_size(Domain.of({"age": 10, "sex": 2}), group=3)
    rng = np.random.default_rng(2)
    fine = Measurement(("age", "sex"), rng.normal(10, 2, (10, 2)), 2.0)
    coarse = Measurement(("age/3", "sex"), rng.normal(30, 2, (4, 2)), 1.0)
    alone = Measurement(("age/3",), rng.normal(60, 2, 4), 1.0)
    new = make_consistent([fine, coarse, alone], hierarchies=hierarchies)
    regrouped = np.add.reduceat(new[0].noisy, [0, 3, 6, 9], axis=0)
    assert regrouped == pytest.approx(new[1].noisy)
    assert new[1].noisy.sum(axis=1) == pytest.approx(new[2].noisy)
    moved = new[0].noisy - fine.noisy
    assert moved[0:3] == pytest.approx(np.broadcast_to(moved[0], (3, 2)))


@given(st.lists(st.floats(-50, 100), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_negative_counts_and_the_same_total(values):
    table = np.array(values)
    for rule in (non_negative, nearest_non_negative):
        result = rule(table)
        assert (result >= 0).all()
        assert result.sum() == pytest.approx(max(table.sum(), 0.0), abs=1e-6)


def test_privmn_rule_by_hand():
    """Below 1: -3 and 0.5, together -2.5; the others (10 and 40) give up 2.5 in proportion."""
    result = non_negative(np.array([-3.0, 0.5, 10.0, 40.0]), threshold=1.0)
    assert result == pytest.approx([0.0, 0.0, 10 - 0.5, 40 - 2.0])


def test_nearest_is_nearer():
    table = np.array([-3.0, 1.0, 10.0, 40.0])
    nearest, proportional = nearest_non_negative(table), non_negative(table)
    assert nearest == pytest.approx([0.0, 0.0, 9.0, 39.0])
    assert ((nearest - table) ** 2).sum() < ((proportional - table) ** 2).sum()
