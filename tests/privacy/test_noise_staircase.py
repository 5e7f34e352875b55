"""The sampler's proof, step by step: heights, alias table, float error, exact path, tail, and the exact coin."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from support.seeded_entropy import FixedWords, SeededEntropy

from synth_core.privacy import staircase
from synth_core.privacy.staircase import BAND, Decay, draw

ZERO = Fraction(0)
steepness = st.fractions(min_value=Fraction(1, 10**9), max_value=100)
decays = steepness.map(lambda a: Decay(a, ZERO)) | steepness.map(lambda b: Decay(ZERO, b))
GAUSSIANS = [Decay(1 / (2 * Fraction(variance)), ZERO) for variance in (Fraction(1, 3), 40, 6912**2)]
LAPLACES = [Decay(ZERO, 1 / Fraction(scale)) for scale in (Fraction(1, 2), 20, 5000)]


@settings(max_examples=25, deadline=None)
@given(decays, st.integers(1, 1023))
def test_heights_cover_the_weights_and_sum_to_a_power_of_two(decay, blocks):
    stairs = staircase.staircase(decay, blocks=blocks)
    assert sum(stairs.heights) == 2**63
    for block in {0, 1, blocks // 3, blocks // 2, blocks - 1} & set(range(blocks)):
        _, above = staircase._enclose(Fraction(stairs.scale), decay.exponent(block << stairs.shift), 40)
        assert stairs.heights[block] >= above
    ratio = 2 ** (stairs.tail_shift - stairs.shift + 1)
    _, above = staircase._enclose(Fraction(stairs.scale * ratio), decay.exponent(blocks << stairs.shift), 40)
    assert stairs.heights[-1] >= above


@settings(max_examples=25, deadline=None)
@given(decays, st.integers(1, 1023), st.integers(0, 10**6))
def test_the_weight_halves_over_each_block_of_the_tail(decay, blocks, further):
    stairs = staircase.staircase(decay, blocks=blocks)
    x, width = (blocks << stairs.shift) + further, 2**stairs.tail_shift
    assert decay.exponent(x + width) - decay.exponent(x) >= 1


@settings(max_examples=25, deadline=None)
@given(decays, st.integers(1, 1023))
def test_alias_table_gives_each_block_exactly_its_height(decay, blocks):
    stairs = staircase.staircase(decay, blocks=blocks)
    columns = len(stairs.tables.threshold)
    mass = [0] * columns
    for column in range(columns):
        own = int(stairs.tables.threshold[column])
        mass[column] += own
        mass[int(stairs.tables.alias[column])] += 2**63 // columns - own
    assert mass == [*stairs.heights, *[0] * (columns - len(stairs.heights))]


@pytest.mark.slow
@pytest.mark.parametrize("decay", GAUSSIANS + LAPLACES)
def test_the_exact_path_makes_the_same_samples_of_the_same_words(decay):
    """With a band as wide as [0, 1] every single comparison goes through rational arithmetic."""
    fast = draw(staircase.staircase(decay), 1500, SeededEntropy(11))
    exact = draw(staircase.staircase(decay, band=2.0), 1500, SeededEntropy(11))
    np.testing.assert_array_equal(fast, exact)
    wrong = draw(staircase.staircase(Decay(decay.quadratic * 2, decay.linear * 2)), 1500, SeededEntropy(11))
    assert (fast != wrong).any()


@pytest.mark.parametrize("band", [2.0**-8, 2.0**-14])
def test_kernel_and_exact_path_take_turns(band):
    decay = GAUSSIANS[2]
    expected = draw(staircase.staircase(decay), 20_000, SeededEntropy(12))
    np.testing.assert_array_equal(draw(staircase.staircase(decay, band=band), 20_000, SeededEntropy(12)), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decay", "blocks"), [(GAUSSIANS[1], 6), (GAUSSIANS[2], 40), (LAPLACES[1], 15), (LAPLACES[2], 40)]
)
def test_samples_from_the_tail_have_the_right_weights(decay, blocks):
    """With few blocks most samples lie in the tail, which otherwise is met once in a million years."""
    stairs = staircase.staircase(decay, blocks=blocks)
    samples = np.abs(draw(stairs, 3000, SeededEntropy(13)))
    assert (samples >= blocks << stairs.shift).mean() > 0.15
    support = np.arange(0, 50 * 64 << stairs.shift)
    weights = np.exp(-support * (float(decay.quadratic) * support + float(decay.linear)))
    weights[1:] *= 2
    cumulative = np.cumsum(weights) / weights.sum()
    edges = np.unique(np.searchsorted(cumulative, np.linspace(0.02, 0.98, 40)))
    expected = np.diff(np.concatenate([[0.0], cumulative[edges], [1.0]])) * len(samples)
    for factor, accepted in [(1.0, True), (1.3, False)]:
        seen = np.bincount(np.searchsorted(edges, samples * factor), minlength=len(expected))
        p = chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1)
        assert bool(p > 1e-5) is accepted


@numba.njit
def compiled_exp(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = math.exp(x[i])
    return out


@pytest.mark.parametrize("exp", [compiled_exp, np.exp])
def test_exp_keeps_its_error_bound(exp):
    """Both exps err by less than 2^-50, relatively, wherever the value matters."""
    arguments = -np.concatenate([np.linspace(0, 1, 1000), np.random.default_rng(0).uniform(0, 64, 4000)])
    with localcontext() as context:
        context.prec = 40
        for argument, value in zip(arguments.tolist(), exp(arguments).tolist(), strict=True):
            exact = Decimal(argument).exp()
            assert abs(Decimal(value) - exact) < exact / 2**50


@pytest.mark.parametrize("decay", GAUSSIANS + LAPLACES)
def test_float_acceptance_probabilities_stay_far_inside_the_band(decay):
    stairs = staircase.staircase(decay)
    coefficients = float(decay.quadratic), float(decay.linear)
    generator = np.random.default_rng(1)
    for block in generator.integers(0, stairs.tables.tail, 60).tolist():
        x = (block << stairs.shift) + int(generator.integers(0, 2**stairs.shift))
        value = stairs.tables.factor[block] * staircase._weights(np.array([float(x)]), coefficients)[0]
        low, high = staircase._enclose(Fraction(stairs.scale, stairs.heights[block]), decay.exponent(x), 40)
        assert low - Fraction(BAND / 8) < Fraction(float(value)) < high + Fraction(BAND / 8)
        assert 0 <= high <= 1


@given(
    st.fractions(min_value=0, max_value=400),
    st.fractions(min_value=Fraction(1, 100), max_value=1),
    st.integers(0, 2**64 - 1),
)
def test_coin_agrees_with_high_precision(exponent, factor, prefix):
    with localcontext() as context:
        context.prec = 400
        bound = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        bound *= Decimal(factor.numerator) / Decimal(factor.denominator)
        below = (Decimal(prefix) + Decimal("0.5")) / 2**64 < bound
    half = 2**63
    assert staircase.below(prefix, 64, factor=factor, exponent=exponent, entropy=FixedWords(half, half)) is below


@pytest.mark.parametrize(("words", "below"), [((0,), True), ((2**64 - 1,), False)])
def test_coin_asks_for_more_bits_where_the_known_ones_do_not_settle_it(words, below):
    prefix = int(Decimal(-1).exp() * 2**64)  # just the first 64 bits of 1/e
    assert staircase.below(prefix, 64, factor=Fraction(1), exponent=Fraction(1), entropy=FixedWords(*words)) is below


def test_coin_settles_a_hopeless_bound_without_computing_it():
    assert not staircase.below(1, 64, factor=Fraction(1), exponent=Fraction(10**12), entropy=FixedWords())
    assert not staircase.below(0, 64, factor=Fraction(1), exponent=Fraction(10**12), entropy=FixedWords(2**63))


@given(st.fractions(min_value=0, max_value=3000), st.integers(20, 60))
def test_enclosure_holds_and_tightens(exponent, digits):
    low, high = staircase._enclose(Fraction(1), exponent, digits)
    inner_low, inner_high = staircase._enclose(Fraction(1), exponent, 4 * digits)
    assert low <= inner_high
    assert inner_low <= high
    assert inner_high - inner_low < high - low
