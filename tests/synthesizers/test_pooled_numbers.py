"""Means from counts and bought sums: what is pooled, which rows are exchanged, and how the budget is divided."""

from __future__ import annotations

import numpy as np
import pytest

from synth_core.schema import Schema
from synth_core.synthesizers.moments import INSIDE_UNITS, UNITS, Moments, TotalSum, divide_units, foretell_variance
from synth_core.synthesizers.pooled_numbers import PooledNumbers, pool_numbers

GAIN = {"name": "gain", "kind": "integer", "bins": [0, 10, 30, 100], "atoms": [0, 99], "moments": True}
SEX = {"name": "sex", "kind": "categorical", "values": ["f", "m"]}
SCHEMA = Schema.model_validate({"columns": [GAIN, SEX]})
TRUE = np.array([9000.0, 300, 400, 100, 200])
NUMBERS = np.array([0.0, 5, 19.5, 64, 99])
COUNT_SIGMA, TOTAL_SIGMA, CENTRE = 60.0, 5000.0, 20.0


def pooled(counts, total, *, count_sigma=COUNT_SIGMA, total_sigma=TOTAL_SIGMA):
    """Of a column whose sums inside bins say that its numbers lie in the middle."""
    own = Moments(np.zeros(5), 0.5, TotalSum(CENTRE, total, total_sigma), count_sigma, 0.0)
    return pool_numbers(SCHEMA, lambda clique: counts if clique == ("gain",) else np.ones(2), {"gain": own})


def mean_of(found, counts):
    column = SCHEMA.column("gain")
    after = counts + found.changes["gain"] * counts.sum()
    return float((column.mean_numbers(found.densities["gain"]) * after).sum() / after.sum()), after


def test_a_pooled_mean_has_the_error_that_is_stated_and_less_than_each_of_its_sources():
    rng = np.random.default_rng(5)
    truth = float((TRUE * NUMBERS).sum() / TRUE.sum())
    errors, alone, by_sum, stated = [], [], [], []
    for _ in range(150):
        noise = rng.normal(0, COUNT_SIGMA, 5)
        counts = TRUE + noise - noise.mean()
        counts = np.maximum(counts, 1.0)
        total = float((TRUE * (NUMBERS - CENTRE)).sum() + rng.normal(0, TOTAL_SIGMA))
        found = pooled(counts, total)
        mean, after = mean_of(found, counts)
        assert found.changes["gain"].sum() == pytest.approx(0, abs=1e-9)
        assert after.min() >= 0
        errors.append(mean - truth)
        alone.append((counts * NUMBERS).sum() / counts.sum() - truth)
        by_sum.append(CENTRE + total / TRUE.sum() - truth)
        stated.append(found.deviations["gain"])
    deviation = np.std(errors)
    assert np.mean(stated) == pytest.approx(deviation, rel=0.15)
    assert deviation < 0.8 * min(np.std(alone), np.std(by_sum))
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(len(errors))


def test_a_sum_that_is_all_noise_changes_nothing_and_an_exact_one_decides():
    counts = TRUE + np.array([-60.0, 0, 0, 0, 60])
    total = float((TRUE * (NUMBERS - CENTRE)).sum())
    assert np.abs(pooled(counts, total, total_sigma=1e9).changes["gain"]).max() < 1e-9
    found = pooled(counts, total, total_sigma=1e-3)
    mean, after = mean_of(found, counts)
    assert mean == pytest.approx((TRUE * NUMBERS).sum() / TRUE.sum(), rel=2e-3)
    assert abs(after[4] - TRUE[4]) < abs(counts[4] - TRUE[4])
    assert np.abs(pooled(counts, total, count_sigma=0.0, total_sigma=1e-3).changes["gain"]).max() == 0


def test_round_numbers_leave_a_bought_mean_where_it_is():
    from synth_core.schema.codec import decode

    edges, counts = np.array([0, 20, 45, 50, 60, 100]), np.array([4000.0, 20_000, 3000, 6000, 2000])
    places = np.array([0.6, 0.8, 0.3, 0.2, 0.3])
    hours = {"name": "hours", "kind": "integer", "bins": edges.tolist(), "moments": True, "tail": "uniform"}
    plain, heaped = (
        Schema.model_validate({"columns": [{**hours, "heaping": heaping}]})
        for heaping in (None, {"every": 5, "share": 0.8})
    )
    codes = np.repeat(np.arange(5), counts.astype(int))[:, None].astype(np.uint8)
    wanted, errors = edges[:-1] + places * np.diff(edges) - 0.5, []
    for schema in (heaped, plain):  # of densities that know of heaping, and of some that do not
        found = pool_numbers(schema, lambda _: counts, {"hours": Moments(counts * (places - 0.5), 1e-6)})
        drawn = decode(codes, heaped, np.random.default_rng(1), found.densities)["hours"].to_numpy()
        assert (drawn % 5 == 0).mean() > 0.8
        errors.append(np.abs(np.bincount(codes[:, 0], weights=drawn) / counts - wanted) / np.diff(edges))
    assert errors[0].max() < 0.05
    assert errors[1].max() > 0.1


def test_few_rows_become_copies_of_others_and_no_new_records_are_made():
    rng = np.random.default_rng(3)
    codes = np.column_stack([rng.choice(5, 10_000, p=TRUE / TRUE.sum()), np.zeros(10_000)]).astype(np.uint8)
    codes[:, 1] = codes[:, 0] > 2  # a rule that copies keep
    shares = np.array([0.004, 0.001, 0.0, -0.001, -0.004])
    found = PooledNumbers({}, {"gain": shares}, {}).exchange_rows(codes, SCHEMA.domain, np.random.default_rng(1))
    before, after = (np.bincount(rows[:, 0], minlength=5) for rows in (codes, found))
    assert np.abs(after - before - shares * len(codes)).max() <= 1
    assert (found[:, 1] == (found[:, 0] > 2)).all()
    assert (found != codes).any(axis=1).sum() <= 52
    again = PooledNumbers({}, {"gain": shares}, {}).exchange_rows(codes, SCHEMA.domain, np.random.default_rng(1))
    assert np.array_equal(found, again)


def test_fractions_of_rows_are_right_over_many_shards():
    codes = np.repeat(np.arange(5), 20)[:, None].astype(np.uint8)
    numbers = PooledNumbers({}, {"gain": np.array([0.003, 0.0, 0.0, 0.0, -0.003])}, {})
    domain = Schema.model_validate({"columns": [GAIN]}).domain
    gained = [
        int((numbers.exchange_rows(codes, domain, np.random.default_rng(shard))[:, 0] == 0).sum()) - 20
        for shard in range(500)
    ]
    assert set(gained) == {0, 1}
    assert np.mean(gained) == pytest.approx(0.3, abs=0.08)


def test_without_a_sum_over_all_records_the_same_codes_are_published():
    codes = np.arange(5)[:, None].astype(np.uint8)
    inside = Moments(np.zeros(5), 0.5, None, COUNT_SIGMA, 0.0)
    for moments in ({}, {"gain": inside}):
        found = pool_numbers(SCHEMA, lambda clique: TRUE if clique == ("gain",) else np.ones(2), moments)
        rng = np.random.default_rng(2)
        assert found.exchange_rows(codes, SCHEMA.domain, rng) is codes
        assert rng.random() == np.random.default_rng(2).random()


def test_the_next_draws_are_the_same_where_rows_are_exchanged():
    rng = np.random.default_rng(2)
    codes = np.zeros((10, 2), dtype=np.uint8)
    PooledNumbers({}, {"gain": np.zeros(5)}, {}).exchange_rows(codes, SCHEMA.domain, rng)
    assert rng.random() == np.random.default_rng(2).random()


def test_the_budget_goes_where_means_are_uncertain():
    column = SCHEMA.column("gain")
    uneven = foretell_variance(column, TRUE, count_sigma=COUNT_SIGMA, records_sigma=40.0)
    even = foretell_variance(column, np.full(5, 2000.0), count_sigma=COUNT_SIGMA, records_sigma=40.0)
    units = divide_units([uneven, even], 0.01)
    assert sum(map(sum, units)) == 2 * UNITS
    assert min(inside for inside, _ in units) >= INSIDE_UNITS
    assert units[0][1] > units[1][1]
    before, after = (sum(v.relative(a, b) for v in (uneven, even)) for a, b in ((0.005, 0.0), (0.0025, 0.0025)))
    own = sum(v.relative(a * 0.01 / 64, b * 0.01 / 64) for v, (a, b) in zip((uneven, even), units, strict=True))
    assert own < min(before, after)


def test_the_last_bits_of_a_model_change_no_question():
    column = SCHEMA.column("gain")
    asked = []
    for factor in (1.0, 1 + 1e-12):
        own = foretell_variance(column, TRUE * factor + 0.123, count_sigma=COUNT_SIGMA, records_sigma=40.0)
        asked.append((divide_units([own], 0.01), own.centre(0.005), own.reach(own.centre(0.005))))
    assert asked[0] == asked[1]


@pytest.mark.parametrize(("mean", "low", "high"), [(1.0, 0.0, 99.0), (98.0, 0.0, 99.0), (50.0, 0.0, 99.0)])
def test_the_centre_is_where_noise_and_number_of_records_matter_least(mean, low, high):
    from dataclasses import replace

    column = SCHEMA.column("gain")
    own = foretell_variance(column, TRUE, count_sigma=COUNT_SIGMA, records_sigma=10.0)
    own = replace(own, mean=mean, low=low, high=high)
    mu2 = 0.01

    def variance(centre):
        return own.reach(centre) ** 2 / mu2 + ((centre - mean) * own.records_sigma) ** 2

    best = min(map(variance, np.linspace(low, high, 2000)))
    assert variance(own.centre(mu2)) <= 1.01 * best
