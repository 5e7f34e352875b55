"""Noise has the distribution it claims: the right one is accepted, 0.7 and 1.3 times the scale are rejected."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri_exp
from scipy.stats import chi2, ks_2samp
from support.seeded_entropy import SeededEntropy

from synth_core.errors import SpecError, WallError
from synth_core.privacy import noise, staircase
from synth_core.privacy.budget import MARGIN
from synth_core.privacy.entropy import SystemEntropy

SAMPLES = 200_000
LEAST_P = 1e-5


def gaussian(sigma):
    return lambda x: x**2 / (2 * sigma**2)


def laplace(scale):
    return lambda x: np.abs(x) / scale


def chi_square_p(samples, exponent, spread):
    """The p-value of the samples against weights exp(-exponent(x)), in about 60 equally likely bins."""
    support = np.arange(-math.ceil(40 * spread) - 2, math.ceil(40 * spread) + 3, dtype=np.float64)
    probability = np.exp(-exponent(support))
    cumulative = np.cumsum(probability / probability.sum())
    edges = np.unique(np.searchsorted(cumulative, np.linspace(0.01, 0.99, 60)))
    edges = edges[cumulative[edges] < 0.9999]
    expected = np.diff(np.concatenate([[0.0], cumulative[edges], [1.0]])) * len(samples)
    seen = np.bincount(np.searchsorted(support[edges], samples), minlength=len(expected))
    return chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1)


@pytest.mark.parametrize("sigma", [0.5, 1.7, 30.0, 33.0, 6912.0, 2.0e7])
def test_discrete_gaussian(sigma):
    if sigma > 10_000:  # too wide for a table of probabilities: compare on a coarser grid, where rounding is invisible
        samples = noise.discrete_gaussian(Fraction(sigma) ** 2, SAMPLES, SeededEntropy(1)) // 10_000
        sigma /= 10_000
    else:
        samples = noise.discrete_gaussian(Fraction(sigma) ** 2, SAMPLES, SeededEntropy(1))
    shift = 0.5 if sigma == 2000.0 else 0.0  # floor division moves the coarse grid by half a step
    for factor, accepted in [(1.0, True), (0.7, False), (1.3, False)]:
        p = chi_square_p(samples, lambda x, f=factor: gaussian(f * sigma)(x + shift), sigma)
        assert bool(p > LEAST_P) is accepted, f"p = {p:.3g} at {factor} times sigma"


@pytest.mark.parametrize("scale", [0.4, 3.3, 500.0])
def test_discrete_laplace(scale):
    samples = noise.discrete_laplace(Fraction(scale), SAMPLES, SeededEntropy(2))
    for factor, accepted in [(1.0, True), (0.7, False), (1.3, False)]:
        p = chi_square_p(samples, laplace(factor * scale), scale)
        assert bool(p > LEAST_P) is accepted, f"p = {p:.3g} at {factor} times the scale"


def test_system_entropy_gives_the_same_distribution():
    samples = noise.discrete_gaussian(Fraction(100), SAMPLES, SystemEntropy())
    assert chi_square_p(samples, gaussian(10.0), 10.0) > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "agrees"), [(20.0, True), (14.0, False), (26.0, False)])
def test_agrees_with_opendp(sigma, agrees):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    oracle = np.array(dp.m.make_gaussian(*space, scale=20.0)([0] * 20_000))
    ours = noise.discrete_gaussian(Fraction(sigma) ** 2, SAMPLES, SeededEntropy(3))
    assert bool(ks_2samp(ours, oracle).pvalue > 1e-7) is agrees


def test_samples_are_not_correlated():
    samples = noise.discrete_gaussian(Fraction(10_000), SAMPLES, SeededEntropy(4)).astype(float)
    for lag in (1, 2, 3, 64):
        correlation = np.corrcoef(samples[lag:], samples[:-lag])[0, 1]
        assert abs(correlation) * math.sqrt(SAMPLES) < 5


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(2)])
def test_exponential_choice(rate):
    utilities = [5, 3, 4, 5, 0, -2]
    entropy = SeededEntropy(5)
    chosen = np.array([noise.exponential_choice(utilities, rate, entropy) for _ in range(6000)])
    seen = np.bincount(chosen, minlength=len(utilities))
    for factor, accepted in [(1.0, True), (0.7, False), (1.3, False)]:
        weights = np.exp(factor * float(rate) * np.array(utilities, dtype=float))
        expected = weights / weights.sum() * len(chosen)
        kept = expected > 4
        statistic = ((seen - expected)[kept] ** 2 / expected[kept]).sum()
        assert bool(chi2.sf(statistic, kept.sum() - 1) > LEAST_P) is accepted


def test_exponential_choice_takes_huge_utilities_and_many_candidates():
    utilities = [0] * 3000 + [10**30]
    assert noise.exponential_choice(utilities, Fraction(1, 10**20), SeededEntropy(6)) == 3000


def test_exponential_choice_decides_the_same_in_floats_and_exactly(monkeypatch):
    utilities, rate = [0, 1, 2, 3, 4], Fraction(3, 4)
    fast = [noise.exponential_choice(utilities, rate, SeededEntropy(seed)) for seed in range(40)]
    monkeypatch.setattr(noise, "BAND", 2.0)
    exact = [noise.exponential_choice(utilities, rate, SeededEntropy(seed)) for seed in range(40)]
    assert fast == exact
    assert len(set(fast)) > 2


def test_noisy_counts_are_on_the_grid_and_keep_their_shape():
    counts = np.arange(60_000, dtype=np.int64).reshape(3, 100, 200)
    noisy = noise.noisy_counts(counts, Fraction(4), SeededEntropy(7))
    assert noisy.shape == counts.shape
    assert noisy.dtype == np.int64
    z = (noisy / noise.GRID - counts) / 2
    assert abs(z.mean()) < 0.02
    assert z.var() == pytest.approx(1, abs=0.03)
    assert len(np.unique((noisy - counts * noise.GRID) % noise.GRID)) == noise.GRID


def test_noisy_counts_of_nothing():
    assert noise.noisy_counts(np.empty((0, 4), dtype=np.int64), Fraction(1), SeededEntropy(0)).shape == (0, 4)


def needed_mu(sigma, shift):
    """The mu that the trade-off curve of a discrete Gaussian and its shifted twin needs, over all its corners.

    Saying "shifted" from m on is wrong with probability P[X >= m] = P[X <= -m] without the shift and with
    P[X <= m - shift - 1] with it. A corner (alpha, beta) needs mu = -(z(alpha) + z(beta)), z the normal quantile.
    """
    reach = 50 * math.ceil(sigma)
    log_weights = -(np.arange(-reach, reach + 1) ** 2.0) / (2 * sigma**2)
    log_below = np.logaddexp.accumulate(log_weights - np.logaddexp.reduce(log_weights))
    lower = ndtri_exp(log_below[:reach])  # of P[X <= k] for k < 0; above, P[X <= k] = 1 - P[X <= -k - 1]
    z = np.concatenate([lower, -lower[::-1]])
    needed = -(z[: len(z) - shift] + z[::-1][shift:])
    return float(needed[(np.abs(z[: len(z) - shift]) < 30)].max())


@pytest.mark.parametrize(("sigma", "covered"), [(256.0, True), (64.0, True), (32.0, True), (6.0, False)])
@pytest.mark.parametrize("shift", [64, 128, 256])
def test_the_margin_covers_the_grid_from_the_least_variance_on(sigma, covered, shift):
    """Where sigma is at least 32 grid steps, mu = MARGIN * shift / sigma lies below every corner of the curve."""
    assert sigma >= noise.GRID * math.sqrt(noise.LEAST_VARIANCE) or not covered
    mu = float(MARGIN) * shift / sigma
    assert (needed_mu(sigma, shift) <= mu) is covered


def test_on_a_fine_grid_the_needed_mu_is_that_of_the_gaussian():
    assert needed_mu(2000.0, 3000) == pytest.approx(1.5, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda e: noise.discrete_gaussian(Fraction(0), 1, e), SpecError, "positive scale"),
        (lambda e: noise.discrete_laplace(Fraction(-1), 1, e), SpecError, "positive scale"),
        (lambda e: noise.discrete_gaussian(Fraction(2) ** 90, 1, e), SpecError, "exceed every count"),
        (lambda e: noise.exponential_choice([], Fraction(1), e), SpecError, "candidates"),
        (lambda e: noise.exponential_choice([1], Fraction(0), e), SpecError, "positive rate"),
        (lambda e: noise.noisy_counts(np.zeros(1, np.int64), Fraction(1, 65), e), SpecError, "at least 1/64"),
        (lambda e: noise.noisy_counts(np.zeros(1), Fraction(1), e), WallError, "64-bit integers"),
        (lambda e: noise.noisy_counts(np.array([2**55]), Fraction(1), e), WallError, "no room"),
        (lambda e: noise.noisy_counts(np.array([-(2**63)]), Fraction(1), e), WallError, "no room"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(SeededEntropy(0))


def test_wide_noise_just_below_the_refusal_is_drawn():
    samples = noise.discrete_gaussian(Fraction(2) ** 71, 1000, SeededEntropy(8))
    assert samples.astype(float).std() / 2**35.5 == pytest.approx(1, abs=0.1)
    assert staircase.staircase(staircase.Decay(Fraction(1, 2**72), Fraction(0))).shift <= 30
