"""What a query costs: mechanisms as data, their Gaussian-DP price, and (epsilon, delta) both ways.

The one currency is mu^2 of Gaussian differential privacy (Dong, Roth & Su 2022): prices add up, also when
later queries depend on earlier answers, and a running sum kept under a cap is a valid filter. mu^2 is always
an exact rational; floats appear only where a transcendental function is evaluated, rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from scipy.special import erf, erfcx, erfinv, log_ndtr, ndtr, ndtri_exp

from synth_core.errors import LedgerError, SpecError

MARGIN = Fraction(10001, 10000)
"""Safety factor: a discrete Gaussian on the grid 2^-8 is charged as if its sigma were that much smaller."""

LEAST_VARIANCE = Fraction(1, 64)
"""Least variance of noise in squared records: sigma is at least 32 steps of the grid 2^-8. From there on the tails of
the discrete Gaussian are those of a continuous one whose sigma differs by a factor of about 1 / (24 * 32^2), well
inside the margin."""

MAX_VARIANCE = Fraction(2) ** 54
"""Upper limit of the variance in squared records: larger noise exceeds every count and every table of the sampler."""

MECHANISMS = ("discrete_gaussian", "discrete_laplace", "exponential", "none")

_GRID = 2**60
_FLOAT_SLACK = 1e-12  # the special functions used here err by less than 1e-14, relatively
_EVERY_DIGIT = Context(prec=700)  # the largest float has 309 digits before the point
_DELTA_SLACK = 1e-9  # covers the cancellation in `delta_of` for mu down to 1e-4 and any epsilon up to 50


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One ledger event: `count` queries answered by one named mechanism. Its meaning never changes.

    `sensitivity` is that of one query and `scale` is the mechanism's own parameter:

    - discrete_gaussian: sensitivity in L2, `scale` the base variance sigma^2; query i gets variance
      scale / weights[i] (1 each by default). Exact price: (MARGIN * sensitivity)^2 * sum(weights) / scale.
    - discrete_laplace: sensitivity in L1, `scale` the Laplace parameter b; eps0 = sensitivity / b.
    - exponential: `scale` is eta, a choice has probability proportional to exp(eta * q / (2 * sensitivity)).
    - none: nothing was asked of the confidential data; everything is zero.
    """

    name: str
    sensitivity: Fraction
    scale: Fraction
    count: int
    weights: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        if self.name not in MECHANISMS:
            raise LedgerError(f"mechanism {self.name!r} is unknown; use one of {', '.join(MECHANISMS)}")
        if self.name == "none":
            if self.sensitivity or self.scale or self.count or self.weights is not None:
                raise LedgerError("mechanism 'none' asks nothing; leave sensitivity, scale and count at 0")
            return
        if self.sensitivity <= 0 or self.scale <= 0 or self.count < 1:
            raise LedgerError(f"mechanism {self.name!r} needs a positive sensitivity, scale and count")
        if self.weights is None:
            return
        if self.name != "discrete_gaussian":
            raise LedgerError(f"mechanism {self.name!r} takes no weights; leave them out")
        if len(self.weights) != self.count or min(self.weights) <= 0:
            raise LedgerError("mechanism 'discrete_gaussian' needs one positive weight for each query")

    def mu2(self) -> Fraction:
        """The price of all queries: exact for the Gaussian, else rounded up to a multiple of 2^-60."""
        if self.name == "none":
            return Fraction(0)
        if self.name == "discrete_gaussian":
            total = Fraction(self.count) if self.weights is None else sum(self.weights, Fraction(0))
            return (self.sensitivity * MARGIN) ** 2 * total / self.scale
        pure = self.name == "discrete_laplace"
        mu = _pure_mu(self.sensitivity / self.scale) if pure else _range_mu(self.scale)
        price = self.count * Fraction(mu) ** 2 * (1 + Fraction(_FLOAT_SLACK))
        return Fraction(math.ceil(price * _GRID), _GRID)

    def pure_epsilon(self) -> Fraction | None:
        """The epsilon of all queries together without any delta; None for Gaussian noise, which has none.

        A record moves a Laplace number by at most `sensitivity`: each outcome is at most e^(sensitivity / scale) times
        as likely. It moves each utility of a choice, by which its chance and the sum of all chances change by at most
        e^(eta / 2) each. Pure epsilons add up, whatever later queries depend on.
        """
        if self.name == "discrete_gaussian":
            return None
        each = self.sensitivity / self.scale if self.name == "discrete_laplace" else self.scale
        return self.count * each

    def variances(self) -> tuple[Fraction, ...]:
        """The noise variance of each query, in squared units of the query; of a Laplace number it is 2 b^2."""
        if self.name == "discrete_laplace":
            return (2 * self.scale**2,) * self.count
        if self.name != "discrete_gaussian":
            raise LedgerError(f"mechanism {self.name!r} has no variances; only noise on numbers has")
        weights = self.weights or (Fraction(1),) * self.count
        return tuple(self.scale / weight for weight in weights)

    def require_drawable(self) -> None:
        """SpecError if Gaussian noise is too narrow or too wide to be drawn, before anything is charged for it."""
        weights = self.weights or (Fraction(1),)
        if self.name != "discrete_gaussian":
            return
        if self.scale < LEAST_VARIANCE * max(weights):
            raise SpecError(f"noise needs a variance of at least {LEAST_VARIANCE}; give the step a smaller share")
        if self.scale > MAX_VARIANCE * min(weights):
            raise SpecError("the noise would exceed every count; give the step a larger share of the budget")

    def to_json(self) -> dict[str, Any]:
        """The event as plain data; rationals are written "p/q"."""
        return {
            "name": self.name,
            "sensitivity": fraction_text(self.sensitivity),
            "scale": fraction_text(self.scale),
            "count": self.count,
            "weights": None if self.weights is None else [fraction_text(weight) for weight in self.weights],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Mechanism:
        """Read an event back; anything missing, unknown or malformed is refused."""
        expected = {"name", "sensitivity", "scale", "count", "weights"}
        if set(record) != expected or not isinstance(record["count"], int):
            raise LedgerError(f"a mechanism record has exactly the fields {', '.join(sorted(expected))}")
        weights = record["weights"]
        try:
            return cls(
                name=record["name"],
                sensitivity=Fraction(record["sensitivity"]),
                scale=Fraction(record["scale"]),
                count=record["count"],
                weights=None if weights is None else tuple(Fraction(weight) for weight in weights),
            )
        except (ValueError, TypeError, ZeroDivisionError):
            raise LedgerError('a mechanism record writes its numbers as "p/q"') from None


NONE = Mechanism("none", sensitivity=Fraction(0), scale=Fraction(0), count=0)
"""The event of a step that asks nothing; it is recorded all the same."""


def exact_share(value: float | Fraction) -> Fraction:
    """Returns the fraction that a decimal number of a spec or an option says: 0.1 is 1/10, not the float next to it."""
    return Fraction(str(value))


def gaussian_for(
    mu2: Fraction, *, sensitivity: Fraction, count: int, weights: tuple[Fraction, ...] | None = None
) -> Mechanism:
    """The discrete Gaussian that spends exactly `mu2` on all its queries together.

    Where that would take less noise than LEAST_VARIANCE, it has that much noise and spends less.
    """
    _require_positive(mu2)
    total = Fraction(count) if weights is None else sum(weights, Fraction(0))
    scale = max((sensitivity * MARGIN) ** 2 * total / mu2, LEAST_VARIANCE * max(weights or (1,)))
    return Mechanism("discrete_gaussian", sensitivity, scale, count, weights)


def laplace_for(mu2: Fraction, *, sensitivity: Fraction, count: int) -> Mechanism:
    """The discrete Laplace of least noise that spends at most `mu2` on all its queries together."""
    # erf(mu / sqrt 8) = tanh(eps0 / 2) is `_pure_mu` solved for eps0.
    eps0 = 2 * _largest_atanh(mu2, count)
    return Mechanism("discrete_laplace", sensitivity, sensitivity / eps0, count)


def exponential_for(mu2: Fraction, *, sensitivity: Fraction, count: int) -> Mechanism:
    """The exponential mechanism of largest eta that spends at most `mu2` on all its choices together."""
    return Mechanism("exponential", sensitivity, 4 * _largest_atanh(mu2, count), count)


def group_mu2(mu2: Fraction, rows_per_unit: int) -> Fraction:
    """The price for a unit that owns up to `rows_per_unit` records.

    A chain of k neighbours, each step mu-GDP, is k*mu-GDP (Dong, Roth & Su, on group privacy).
    """
    if rows_per_unit < 1:
        raise SpecError("rows per unit must be at least 1; declare how many records a person may have")
    return mu2 * rows_per_unit**2


def parallel_mu2(per_stratum: Mapping[str, Fraction]) -> Fraction:
    """The price of queries on disjoint strata: a unit lies in one of them only, so the largest counts."""
    return max(per_stratum.values(), default=Fraction(0))


def delta_of(mu: float, epsilon: float) -> float:
    """The delta of mu-GDP at epsilon: Phi(a) - e^epsilon * Phi(b), with a, b = +-mu/2 - epsilon/mu.

    As e^epsilon * phi(b) = phi(a), both terms are phi(a) times a Mills ratio R(x) = Phi(-x) / phi(x). So
    nothing overflows, and the difference keeps about 16 - log10(|a| / mu) digits however small delta is.
    """
    if mu <= 0:
        return 0.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    first = float(ndtr(a)) if a > 0 else density * _mills(-a)
    return max(0.0, first - density * _mills(-b))


def epsilon_of(mu2: Fraction | float, delta: float) -> float:
    """The smallest epsilon for which mu-GDP implies (epsilon, delta)-DP, rounded up."""
    _require_probability(delta)
    mu = math.sqrt(mu2)
    if mu == 0 or _delta_above(mu, 0.0) <= delta:
        return 0.0
    # Phi(a) <= exp(-a^2 / 2) for a <= 0, hence delta is reached at the latest here.
    enough = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-6
    return _bisect(lambda epsilon: _delta_above(mu, epsilon) > delta, 0.0, enough)[1]


def mu2_of(epsilon: float, delta: float) -> Fraction:
    """The largest mu^2 that implies (epsilon, delta)-DP, rounded down to a multiple of 2^-60.

    `epsilon_of(mu2_of(epsilon, delta), delta) <= epsilon` always holds.
    """
    _require_probability(delta)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise SpecError("epsilon must be positive and finite; small values protect more")
    high = 1.0
    while _delta_above(high, epsilon) <= delta:
        high *= 2
    mu = _bisect(lambda mu: _delta_above(mu, epsilon) <= delta, 0.0, high)[0]
    return _floor(Fraction(mu) ** 2 * (1 - Fraction(_DELTA_SLACK)))


def round_up(value: float, digits: int) -> float:
    """A privacy loss with fewer digits, never smaller than it is: for every loss that is shown or stored.

    The shortest decimal that reads back as `value` is rounded, so that 0.8 stays 0.8.

    Args:
        value: An epsilon, a mu or another bound from above.
        digits: How many digits after the decimal point are kept.

    Returns:
        The smallest number of so few digits that is at least `value`.
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int) -> float:
    """What is left of a budget with fewer digits, never larger than it is.

    Args:
        value: An epsilon that may still be spent.
        digits: How many digits after the decimal point are kept.

    Returns:
        The largest number of so few digits that is at most `value`.
    """
    return _rounded(value, digits, ROUND_FLOOR)


def mu_of(mu2: Fraction) -> float:
    """The square root of a price, rounded up to the next float."""
    return math.nextafter(math.sqrt(mu2), math.inf) if mu2 else 0.0


def check_delta(delta: float, largest_n: int | None, reason: str = "") -> None:
    """Refuse a delta with which the promise would allow a whole record to be published now and then.

    A mechanism that publishes each record with probability delta is (0, delta)-DP, and publishes n * delta of them on
    average; below 1/(10 n) that is a tenth of a record.

    Args:
        delta: The account's delta, for its whole life.
        largest_n: A public upper bound of the number of records; None if none was declared.
        reason: Why a larger delta, or none to compare with, is accepted; it becomes part of the ledger.

    Raises:
        SpecError: If the bound is not positive, or if delta is above 1/(10 n), or n is unknown, without a reason.
    """
    if largest_n is not None and largest_n < 1:
        raise SpecError("the public bound on the number of records must be at least 1")
    if reason.strip():
        return
    if largest_n is None:
        raise SpecError(
            "delta needs a public upper bound of the number of records to be compared with; "
            "declare largest_n, or give a reason"
        )
    most = 1 / (10 * largest_n)
    if delta > most:
        shown = round_down(most, 2 - math.floor(math.log10(most)))  # three digits that count
        raise SpecError(
            f"delta {delta!r} is too large for up to {largest_n} records; "
            f"use at most {shown!r}, or give a reason for it"
        )


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """How a release divides its mu^2 among named steps: exact shares that sum to exactly 1."""

    total_mu2: Fraction
    shares: tuple[tuple[str, Fraction], ...]

    def __post_init__(self) -> None:
        _require_positive(self.total_mu2)
        names = [name for name, _ in self.shares]
        if len(set(names)) != len(names):
            raise SpecError("a budget plan names each step once; merge shares of the same name")
        if any(share < 0 for _, share in self.shares):
            raise SpecError("a budget plan has no negative shares; give every step at least 0")
        if sum((share for _, share in self.shares), Fraction(0)) != 1:
            raise SpecError("the shares of a budget plan must sum to exactly 1; write them as fractions")

    def mu2(self, name: str) -> Fraction:
        """What the named step may spend."""
        for step, share in self.shares:
            if step == name:
                return self.total_mu2 * share
        raise SpecError(f"the budget plan has no step {name!r}; add a share for it")


def _pure_mu(eps0: Fraction) -> float:
    """Mu of a pure eps0-DP query: 2 * Phi^-1(e^eps0 / (1 + e^eps0)).

    The trade-off curve of randomised response lies above that of mu-GDP, touching it in its symmetric corner.
    Small eps0 go through erf^-1(tanh(eps0 / 2)), large ones through the logarithm of the tail, so that no
    digits cancel near 1/2 or 1.
    """
    eps = float(eps0)
    if eps < 1:
        return math.sqrt(8) * float(erfinv(math.tanh(eps / 2)))
    return -2 * float(ndtri_exp(-eps - math.log1p(math.exp(-eps))))


def _range_mu(eta: Fraction) -> float:
    """Mu of a choice whose privacy loss has a range of at most eta: 2 * Phi^-1(1 / (1 + e^(-eta/2))).

    Such a choice is dominated by a two-outcome one with losses t and t - eta for some t in [0, eta] (Dong,
    Durfee & Rogers 2020). The corner of its trade-off curve needs the largest mu at t = eta/2, where it is
    the corner of randomised response with eta/2.
    """
    return _pure_mu(eta / 2)


def _largest_atanh(mu2: Fraction, count: int) -> Fraction:
    """Solve erf(mu / sqrt 8) = tanh(x) for x at the mu of one query of `count`, rounded down.

    The slack taken off here exceeds the slack `Mechanism.mu2` puts on, so the charge never exceeds `mu2`.
    """
    _require_positive(mu2)
    if count < 1:
        raise SpecError("a mechanism answers at least one query; ask for a positive count")
    affordable = _floor(mu2)
    if affordable == 0:
        raise SpecError("the share of this step is too small to be spent; give it a larger one")
    mu = math.sqrt(affordable / count)
    small = mu < 2  # beyond, erf is too near to 1
    x = math.atanh(erf(mu / math.sqrt(8))) if small else (log_ndtr(mu / 2) - log_ndtr(-mu / 2)) / 2
    return Fraction(float(x) * (1 - 4 * _FLOAT_SLACK))


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _delta_above(mu: float, epsilon: float) -> float:
    return delta_of(mu, epsilon) * (1 + _DELTA_SLACK)


def _bisect(left: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Narrow [low, high] to 1e-15, relatively, keeping `left(low)` true and `left(high)` false."""
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if left(middle) else (low, middle)
    return low, high


def _require_positive(mu2: Fraction) -> None:
    if mu2 <= 0:
        raise SpecError("a budget must be positive; raise epsilon or the step's share")


def _require_probability(delta: float) -> None:
    if not 0 < delta < 1:
        raise SpecError("delta must lie strictly between 0 and 1; use at most 1 / (10 * number of records)")


def _rounded(value: float, digits: int, way: str) -> float:
    # Rounding decimals to floats is monotone, so the result is on the asked side of `value` itself.
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(Decimal(1).scaleb(-digits), rounding=way, context=_EVERY_DIGIT))


def _floor(value: Fraction) -> Fraction:
    return Fraction(math.floor(value * _GRID), _GRID)


def fraction_text(value: Fraction) -> str:
    """An exact rational as "p/q"."""
    return f"{value.numerator}/{value.denominator}"
