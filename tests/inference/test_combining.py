"""Combining rules: what covers the truth as often as it says, and which other rules do not."""

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from synth_core.errors import SpecError
from synth_core.inference import combine

RUNS, TABLES, LEVEL = 20_000, 10, 0.95
NOISE, ROWS, STATED = 1.0, 0.3, 1.5
"""Standard deviations: by noise, by drawing the rows, and what an analysis states as if rows were independent."""


@pytest.fixture(scope="module")
def drawn():
    """Estimates of many runs about a truth of 0, and about a population whose confidential table is off by STATED."""
    rng = np.random.default_rng(26)
    model = NOISE * rng.standard_normal(RUNS)
    extract = model + ROWS * rng.standard_normal(RUNS)
    spread = np.hypot(NOISE, ROWS) * rng.standard_normal((TABLES, RUNS))
    return extract, model + spread, STATED * rng.standard_normal(RUNS)


def covered(combined, truth=0.0):
    low, high = combined.interval(LEVEL)
    return np.mean((low <= truth) & (truth <= high))


STATED_VARIANCES = np.full((TABLES, RUNS), STATED**2)


def test_intervals_about_the_table_cover_it(drawn):
    extract, replicates, _ = drawn
    assert 0.945 < covered(combine(replicates, published=extract)) < 0.97  # too wide by the variance of rows
    assert 0.945 < covered(combine(replicates)) < 0.97


def test_intervals_about_the_population_cover_it(drawn):
    extract, replicates, sampled = drawn
    combined = combine(replicates, STATED_VARIANCES, published=extract, about="population")
    assert 0.945 < covered(combined, sampled) < 0.97
    assert covered(combine(replicates, published=extract), sampled) < 0.80


def test_other_rules_fail_about_the_table(drawn):
    extract, replicates, _ = drawn
    naive = np.mean(np.abs(extract) <= ndtri(0.975) * 0.5)  # one table of many rows
    assert naive < 0.70
    between, within = replicates.var(axis=0, ddof=1), STATED**2
    half = stdtrit(TABLES - 1, 0.975)
    subtracted = np.sqrt(np.maximum((1 + 1 / TABLES) * between - within, 0))
    assert np.mean(np.abs(replicates.mean(axis=0)) <= half * subtracted) < 0.30
    added = np.sqrt((1 + 1 / TABLES) * between + within)
    assert np.mean(np.abs(replicates.mean(axis=0)) <= half * added) > 0.995


def test_a_bias_of_the_fit_is_in_the_error():
    """Replicates that are all off the same way: their own spread does not show it, their distance does."""
    replicates = 2.0 + 0.01 * np.arange(5)[:, None]
    assert combine(replicates, published=np.zeros(1)).error[0] == pytest.approx(2.02, abs=0.01)
    assert combine(replicates).error[0] < 0.02


def test_a_worked_example():
    combined = combine([1.0, 3.0, 2.0, 2.0], published=2.0)
    assert combined.error == pytest.approx(np.sqrt(0.5))
    assert combined.freedom == 4
    low, high = combined.interval(0.9)
    assert high - low == pytest.approx(2 * 2.131847 * np.sqrt(0.5))
    wider = combine([1.0, 3.0, 2.0, 2.0], [0.5] * 4, published=2.0, about="population")
    assert wider.error == pytest.approx(1.0)
    assert wider.freedom == pytest.approx(16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimates": [1.0]}, "two or more"),
        ({"estimates": [1.0, np.nan]}, "not finite"),
        ({"estimates": [[1.0], [1.0, 2.0]]}, "as many for each table"),
        ({"estimates": [1.0, 2.0], "published": [1.0, 2.0]}, "different shapes"),
        ({"estimates": [1.0, 2.0], "about": "population"}, "variances that the analysis states are needed"),
        ({"estimates": [1.0, 2.0], "variances": [1.0], "about": "population"}, "one for each estimate"),
        ({"estimates": [1.0, 2.0], "variances": [1.0, -1.0], "about": "population"}, "below 0"),
    ],
)
def test_what_cannot_be_combined_is_refused(arguments, words):
    with pytest.raises(SpecError, match=words):
        combine(**arguments)
