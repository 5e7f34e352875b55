"""The accountant: prices, conversions, plans, and the refusals of each."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import norm

from synth_core.errors import LedgerError, SpecError
from synth_core.privacy import budget
from synth_core.privacy.budget import MARGIN, BudgetPlan, Mechanism

ONE = Fraction(1)
prices = st.fractions(min_value=Fraction(1, 10**12), max_value=100, max_denominator=10**12)
counts = st.integers(1, 200)
sensitivities = st.fractions(min_value=Fraction(1, 100), max_value=100, max_denominator=1000)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(0.8, 1e-5, 0.218686), (0.1, 1e-5, 0.032521), (3.2, 1e-5, 0.761132), (1.0, 1e-9, 0.181975)],
)
def test_published_check_values(epsilon, delta, mu):
    assert math.sqrt(budget.mu2_of(epsilon, delta)) == pytest.approx(mu, abs=5e-7)


def test_twelve_releases_compose_far_below_the_sum_of_epsilons():
    assert budget.epsilon_of(12 * budget.mu2_of(0.8, 1e-5), 1e-5) == pytest.approx(3.18, abs=5e-3)


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 9.0])
def test_delta_is_the_hockey_stick_divergence_of_two_gaussians(mu, epsilon):
    def excess(x):
        return max(0.0, norm.pdf(x, loc=mu) - math.exp(epsilon) * norm.pdf(x))

    start = epsilon / mu + mu / 2
    integral, _ = quad(excess, start, start + 12, epsabs=1e-15, epsrel=1e-10, limit=200)
    assert budget.delta_of(mu, epsilon) == pytest.approx(integral, rel=1e-7, abs=1e-14)


def test_delta_keeps_its_digits_in_the_far_tail():
    from decimal import Decimal, getcontext

    getcontext().prec = 60

    def tail(x: Decimal) -> Decimal:  # Phi(-x) for large x by the continued fraction of the Mills ratio
        fraction = x
        for k in range(2000, 0, -1):
            fraction = x + k / fraction
        return (
            (-x * x / 2).exp()
            / (2 * Decimal("3.14159265358979323846264338327950288419716939937510582")).sqrt()
            / fraction
        )

    mu, epsilon = 0.0625, 1.0
    a, b = Decimal(mu) / 2 - Decimal(epsilon) / Decimal(mu), -Decimal(mu) / 2 - Decimal(epsilon) / Decimal(mu)
    exact = tail(-a) - Decimal(epsilon).exp() * tail(-b)
    assert float(exact) < 1e-50
    assert budget.delta_of(mu, epsilon) == pytest.approx(float(exact), rel=1e-11)


def test_no_privacy_loss_without_a_spend():
    assert budget.delta_of(0.0, 1.0) == 0.0
    assert budget.epsilon_of(Fraction(0), 1e-9) == 0.0
    assert budget.epsilon_of(Fraction(1, 10**6), 0.5) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.floats(-3, math.log10(50)), st.floats(-30, -1))
def test_conversion_there_and_back_never_gains(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    back = budget.epsilon_of(budget.mu2_of(epsilon, delta), delta)
    assert back <= epsilon
    assert back == pytest.approx(epsilon, rel=1e-5)
    assert budget.delta_of(math.sqrt(budget.mu2_of(epsilon, delta)), epsilon) <= delta


@settings(max_examples=60, deadline=None)
@given(prices, st.floats(-30, -1), st.floats(1.001, 3))
def test_epsilon_grows_with_the_spend(mu2, log_delta, factor):
    small, large = (budget.epsilon_of(spend, 10**log_delta) for spend in (mu2, mu2 * Fraction(factor)))
    assert small <= large


@pytest.mark.slow
@given(prices, sensitivities, counts, st.data())
def test_gaussian_spends_exactly_what_it_was_given(mu2, sensitivity, count, data):
    positive = st.integers(1, 2500).map(lambda number: Fraction(number, 50))
    weights = data.draw(st.none() | st.lists(positive, min_size=count, max_size=count).map(tuple))
    mechanism = budget.gaussian_for(mu2, sensitivity=sensitivity, count=count, weights=weights)
    if min(mechanism.variances()) == budget.LEAST_VARIANCE:
        assert mechanism.mu2() <= mu2
        return
    assert min(mechanism.variances()) > budget.LEAST_VARIANCE
    assert mechanism.mu2() == mu2
    singly = [(sensitivity * MARGIN) ** 2 / variance for variance in mechanism.variances()]
    assert sum(singly) == mu2


@settings(max_examples=60, deadline=None)
@given(prices, sensitivities, counts, st.sampled_from([budget.laplace_for, budget.exponential_for]))
def test_pure_mechanisms_spend_nearly_all_and_never_more(mu2, sensitivity, count, mechanism_for):
    spent = mechanism_for(mu2, sensitivity=sensitivity, count=count).mu2()
    assert spent <= mu2
    assert spent >= mu2 * (1 - Fraction(1, 10**9)) - Fraction(4, 2**60)


@pytest.mark.parametrize("eps0", [1e-6, 0.1, 0.999, 1.001, 5.0])
def test_pure_dp_price_is_the_quantile_formula(eps0):
    mechanism = Mechanism("discrete_laplace", sensitivity=ONE, scale=1 / Fraction(eps0), count=1)
    formula = (2 * ndtri(1 / (1 + math.exp(-eps0)))) ** 2
    assert float(mechanism.mu2()) == pytest.approx(formula, rel=1e-9)


def test_pure_epsilons_are_those_of_all_queries_and_gaussian_noise_has_none():
    assert Mechanism("discrete_laplace", Fraction(1, 2), Fraction(10), 6).pure_epsilon() == Fraction(3, 10)
    assert Mechanism("exponential", Fraction(2), Fraction(1, 5), 3).pure_epsilon() == Fraction(3, 5)
    assert budget.gaussian_for(ONE, sensitivity=ONE, count=1).pure_epsilon() is None
    assert budget.NONE.pure_epsilon() == 0


@pytest.mark.parametrize("eta", [0.1, 1.0, 4.0])
def test_a_choice_loses_up_to_its_pure_epsilon_and_no_more(eta):
    """Every utility of a choice among 2 to 200 moves by 1 at most; the worst is one up and all the others down."""
    pure = float(Mechanism("exponential", sensitivity=ONE, scale=Fraction(eta), count=1).pure_epsilon())
    rng = np.random.default_rng(0)

    def losses(utilities, moved):
        chances = [np.exp(eta * u / 2) / np.exp(eta * u / 2).sum() for u in (utilities, moved)]
        return np.abs(np.log(chances[1] / chances[0])).max()

    for _ in range(200):
        utilities = rng.normal(0, 3, rng.integers(2, 20))
        assert losses(utilities, utilities + rng.uniform(-1, 1, utilities.size)) <= pure
    one = np.array([-8.0 / eta, *np.zeros(199)])
    assert losses(one, one + np.where(np.arange(200) == 0, 1, -1)) == pytest.approx(pure, rel=0.02)


def test_small_eta_costs_two_fifths_of_its_square():
    mechanism = Mechanism("exponential", sensitivity=ONE, scale=Fraction(1, 1000), count=7)
    assert float(mechanism.mu2()) == pytest.approx(7 * (0.6266571 * 1e-3) ** 2, rel=1e-6)


@pytest.mark.parametrize("eta", [0.01, 0.5, 2.0, 8.0])
def test_bounded_range_price_covers_every_two_outcome_choice_and_no_less_would(eta):
    """The corner of the trade-off curve of losses (t, t - eta) needs mu = Phi^-1(q e^t) - Phi^-1(q)."""
    price = math.sqrt(Mechanism("exponential", sensitivity=ONE, scale=Fraction(eta), count=1).mu2())

    def needed(t):
        q = math.expm1(eta - t) / (math.exp(eta) - 1)
        return ndtri(q * math.exp(t)) - ndtri(q)

    worst = max(needed(eta * step / 1000) for step in range(1, 1000))
    assert worst <= price * (1 + 1e-9)
    assert worst == pytest.approx(price, rel=1e-6)


@pytest.mark.parametrize("eta", [0.01, 0.5, 2.0])
def test_the_zcdp_price_of_a_choice_would_overspend(eta):
    """A symmetric choice has delta(0) = tanh(eta / 4); pricing it as mu = eta / 2 (rho = eta^2 / 8) promises less."""
    price = math.sqrt(Mechanism("exponential", sensitivity=ONE, scale=Fraction(eta), count=1).mu2())
    assert budget.delta_of(price, 0.0) == pytest.approx(math.tanh(eta / 4), rel=1e-9)
    assert budget.delta_of(eta / 2, 0.0) < math.tanh(eta / 4)


@given(prices, sensitivities, counts, st.sampled_from(["gaussian_for", "laplace_for", "exponential_for"]))
def test_mechanism_survives_json(mu2, sensitivity, count, mechanism_for):
    mechanism = getattr(budget, mechanism_for)(mu2, sensitivity=sensitivity, count=count)
    assert Mechanism.from_json(json.loads(json.dumps(mechanism.to_json()))) == mechanism


def test_weights_survive_json_and_none_is_free():
    weighted = budget.gaussian_for(ONE, sensitivity=ONE, count=2, weights=(ONE, Fraction(1, 3)))
    assert Mechanism.from_json(weighted.to_json()) == weighted
    assert Mechanism.from_json(budget.NONE.to_json()) == budget.NONE
    assert budget.NONE.mu2() == 0


def test_totals_groups_and_strata():
    spends = [budget.gaussian_for(Fraction(part, 10), sensitivity=ONE, count=1) for part in (1, 2, 3)]
    assert sum(spend.mu2() for spend in [*spends, budget.NONE]) == Fraction(6, 10)
    assert budget.group_mu2(Fraction(1, 10), 3) == Fraction(9, 10)
    assert budget.parallel_mu2({"north": Fraction(1, 3), "south": Fraction(1, 2)}) == Fraction(1, 2)
    assert budget.parallel_mu2({}) == 0


def test_plan_divides_exactly():
    plan = BudgetPlan(Fraction(1, 7), (("score", Fraction(1, 3)), ("fit", Fraction(2, 3)), ("select", Fraction(0))))
    assert plan.mu2("score") + plan.mu2("fit") == Fraction(1, 7)
    assert plan.mu2("select") == 0


GOOD_RECORD = {"name": "discrete_laplace", "sensitivity": "1/1", "scale": "2/1", "count": 1, "weights": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gaussian_v2"}, "unknown"),
        ({"sensitivity": "0/1"}, "positive"),
        ({"scale": "-1/2"}, "positive"),
        ({"count": 0}, "positive"),
        ({"weights": ["1/1"]}, "takes no weights"),
        ({"name": "discrete_gaussian", "weights": ["1/1", "1/1"]}, "one positive weight"),
        ({"name": "discrete_gaussian", "weights": ["0/1"]}, "one positive weight"),
        ({"name": "none"}, "asks nothing"),
        ({"scale": "two"}, "p/q"),
        ({"scale": "1/0"}, "p/q"),
        ({"count": "1"}, "exactly the fields"),
        ({"epsilon": 1}, "exactly the fields"),
    ],
)
def test_malformed_mechanisms_are_refused(change, message):
    Mechanism.from_json(GOOD_RECORD)
    with pytest.raises(LedgerError, match=message):
        Mechanism.from_json(GOOD_RECORD | change)


def test_only_noise_on_numbers_has_variances():
    assert Mechanism.from_json(GOOD_RECORD).variances() == (Fraction(8),)
    with pytest.raises(LedgerError, match="no variances"):
        Mechanism.from_json(GOOD_RECORD | {"name": "exponential"}).variances()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: budget.gaussian_for(Fraction(0), sensitivity=ONE, count=1), "positive"),
        (lambda: budget.laplace_for(Fraction(-1), sensitivity=ONE, count=1), "positive"),
        (lambda: budget.exponential_for(ONE, sensitivity=ONE, count=0), "at least one query"),
        (lambda: budget.exponential_for(Fraction(1, 2**61), sensitivity=ONE, count=1), "too small"),
        (lambda: budget.group_mu2(ONE, 0), "rows per unit"),
        (lambda: budget.epsilon_of(ONE, 0.0), "delta"),
        (lambda: budget.mu2_of(1.0, 1.0), "delta"),
        (lambda: budget.mu2_of(0.0, 1e-5), "epsilon"),
        (lambda: budget.mu2_of(math.inf, 1e-5), "epsilon"),
        (lambda: BudgetPlan(Fraction(0), (("fit", ONE),)), "positive"),
        (lambda: BudgetPlan(ONE, (("fit", Fraction(1, 2)), ("fit", Fraction(1, 2)))), "once"),
        (lambda: BudgetPlan(ONE, (("fit", Fraction(3, 2)), ("score", Fraction(-1, 2)))), "negative"),
        (lambda: BudgetPlan(ONE, (("fit", Fraction(999, 1000)),)), "exactly 1"),
        (lambda: BudgetPlan(ONE, (("fit", ONE),)).mu2("score"), "no step 'score'"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(SpecError, match=message):
        call()
