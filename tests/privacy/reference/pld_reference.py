"""Compute epsilons of typical plans by privacy loss distributions, independently of the product's accountant.

Needs only dp-accounting (0.6 or later), in an environment of its own: `python pld_reference.py` writes
pld_reference.json beside this file. The tests compare those numbers with the accountant's and never run this.

A choice of the exponential mechanism is replaced by the two-outcome choices that dominate it (losses t and t - eta);
the worst of several t is recorded.
Gaussian and Laplace losses are discretised by connecting dots, those of choices are rounded up; neither
understates epsilon. Many choices of small eta, as DualQuery makes them, would add up too much rounding: there the
interval is finer, and eta is rounded up to a multiple of four intervals, so that no loss need be rounded. PLANS have
the shape and size of the methods' plans at the size of the reference tables; what each method really asked in one
run is added from method_events.json, its Gaussians composed into one (exactly: their squared ratios of sensitivity
and sigma add up).
"""

import json
import math
from fractions import Fraction
from pathlib import Path

from dp_accounting.pld import privacy_loss_distribution as pld

INTERVAL = 1e-4
FINE = 1e-6
"""Interval for plans with choices of less than 20 times `INTERVAL`."""

GAUSSIAN, LAPLACE, EXPONENTIAL = "discrete_gaussian", "discrete_laplace", "exponential"

# Each event: mechanism, sensitivity of one query, scale (variance, b or eta), count.
PLANS = {
    "privmrf paper preset, 15 attributes, 27 marginals": [
        (GAUSSIAN, "2", "87616", 105),
        (GAUSSIAN, "1", "2116", 1),
        (GAUSSIAN, "1", "1004004", 4800),
        (GAUSSIAN, "1", "71289/100", 27),
    ],
    "privmrf default preset: 1-way, pair scores, 27 choices, 42 marginals": [
        (GAUSSIAN, "1", "3138", 15),
        (GAUSSIAN, "1/2", "13724", 105),
        (EXPONENTIAL, "1", "1/62", 27),
        (GAUSSIAN, "1", "706", 27),
    ],
    "absyn: 1-way, 105 pair scores, weighted 2-way": [
        (GAUSSIAN, "1", "1568", 15),
        (GAUSSIAN, "1", "21952", 105),
        (GAUSSIAN, "1", "1046", 40),
    ],
    "privbayes: noisy n, 14 choices, 15 tables": [
        (GAUSSIAN, "1", "4181", 1),
        (EXPONENTIAL, "2", "1/25", 14),
        (GAUSSIAN, "1", "400", 15),
    ],
    "privmn with Laplace tables": [
        (GAUSSIAN, "1", "3138", 15),
        (GAUSSIAN, "1/2", "13724", 105),
        (LAPLACE, "1", "40", 10),
    ],
    "mwem: 20 rounds of one choice and one table": [
        (EXPONENTIAL, "1", "1/20", 20),
        (GAUSSIAN, "1", "800", 20),
    ],
    "mst: 1-way, 14 choices, 14 pairs": [
        (GAUSSIAN, "1", "940", 15),
        (EXPONENTIAL, "1", "1/20", 14),
        (GAUSSIAN, "1", "880", 14),
    ],
    "aim: 1-way, 30 choices, 30 tables": [
        (GAUSSIAN, "1", "3000", 15),
        (EXPONENTIAL, "1", "3/100", 30),
        (GAUSSIAN, "1", "700", 30),
    ],
    "mwem choices alone": [(EXPONENTIAL, "1", "1/5", 20)],
    "one strong choice": [(EXPONENTIAL, "1", "2", 1)],
    "four strong choices": [(EXPONENTIAL, "1", "1", 4)],
    "one Laplace number": [(LAPLACE, "1", "1", 1)],
    "thirty Laplace numbers": [(LAPLACE, "1", "5", 30)],
    "a strong mixture": [(GAUSSIAN, "1", "4", 3), (LAPLACE, "1", "2", 2), (EXPONENTIAL, "1", "1/2", 5)],
}
DELTAS = (1e-5, 1e-9)


def outcome_pair(eta: float, t: float, interval: float) -> pld.PrivacyLossDistribution:
    """The choice between two outcomes whose privacy losses are t and t - eta."""
    q = math.expm1(eta - t) / math.expm1(eta)
    upper = {0: math.log(q) + t, 1: math.log1p(-q) + t - eta}
    lower = {0: math.log(q), 1: math.log1p(-q)}
    return pld.from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=interval, symmetric=False
    )


def one_query(
    name: str, sensitivity: Fraction, scale: Fraction, t_share: float, interval: float
) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution of one query."""
    if name == GAUSSIAN:
        sigma = math.sqrt(scale / sensitivity**2)
        return pld.from_gaussian_mechanism(sigma, value_discretization_interval=interval)
    if name == LAPLACE:
        return pld.from_laplace_mechanism(float(scale / sensitivity), value_discretization_interval=interval)
    eta = float(scale)
    if interval == FINE:
        eta = math.ceil(eta / (4 * FINE)) * 4 * FINE
    return outcome_pair(eta, round(eta * t_share / interval) * interval, interval)


def epsilons(plan: list[tuple[str, str, str, int]]) -> dict[str, float]:
    """The largest epsilon over the shares t / eta, for each delta."""
    shares = (0.25, 0.5, 0.75) if any(event[0] == EXPONENTIAL for event in plan) else (0.5,)
    worst = dict.fromkeys(DELTAS, 0.0)
    small = any(event[0] == EXPONENTIAL and Fraction(event[2]) < 20 * INTERVAL for event in plan)
    for share in shares:
        total = None
        for name, sensitivity, scale, count in plan:
            part = one_query(name, Fraction(sensitivity), Fraction(scale), share, FINE if small else INTERVAL)
            part = part.self_compose(count) if count > 1 else part
            total = part if total is None else total.compose(part)
        worst = {delta: max(worst[delta], total.get_epsilon_for_delta(delta)) for delta in DELTAS}
    return {f"{delta:g}": round(epsilon, 6) for delta, epsilon in worst.items()}


def record(event: tuple[str, str, str, int]) -> dict[str, object]:
    """An event in the ledger's notation."""
    name, sensitivity, scale, count = event
    p, q = Fraction(sensitivity), Fraction(scale)
    return {
        "name": name,
        "sensitivity": f"{p.numerator}/{p.denominator}",
        "scale": f"{q.numerator}/{q.denominator}",
        "count": count,
        "weights": None,
    }


def composed(events: list[dict]) -> list[tuple[str, str, str, int]]:
    """The events of one run, with all Gaussians in one and equal choices together."""
    ratio, counts = Fraction(0), {}
    for event in events:
        sensitivity, scale = Fraction(event["sensitivity"]), Fraction(event["scale"])
        if event["name"] == GAUSSIAN:
            weights = [Fraction(weight) for weight in event["weights"] or [1] * event["count"]]
            ratio += sensitivity**2 * sum(weights) / scale
        else:
            kind = event["name"], str(sensitivity), str(scale)
            counts[kind] = counts.get(kind, 0) + event["count"]
    gaussian = [(GAUSSIAN, "1", str(1 / ratio), 1)] if ratio else []
    return [*gaussian, *((*kind, count) for kind, count in counts.items())]


if __name__ == "__main__":
    reference = [
        {"plan": title, "events": [record(event) for event in plan], "epsilon": epsilons(plan)}
        for title, plan in PLANS.items()
    ]
    recorded = json.loads(Path(__file__).with_name("method_events.json").read_text(encoding="utf-8"))
    reference += [
        {"plan": title, "events": events, "epsilon": epsilons(composed(events))} for title, events in recorded.items()
    ]
    Path(__file__).with_suffix(".json").write_text(json.dumps(reference, indent=1) + "\n", encoding="utf-8")
