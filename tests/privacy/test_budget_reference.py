"""The accountant against privacy loss distributions computed by another library (see reference/)."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from synth_core.privacy import budget
from synth_core.privacy.budget import Mechanism
from synth_core.synthesizers.methods import METHODS

REFERENCE = json.loads((Path(__file__).parent / "reference" / "pld_reference.json").read_text(encoding="utf-8"))
CASES = [(case, delta) for case in REFERENCE for delta in case["epsilon"]]
GAUSSIAN_CASES = [
    (case, delta) for case, delta in CASES if all(e["name"] == "discrete_gaussian" for e in case["events"])
]
NAMES = [f"{case['plan']} at {delta}" for case, delta in CASES]


def price(case):
    return sum((Mechanism.from_json(event).mu2() for event in case["events"]), Fraction(0))


@pytest.mark.parametrize(("case", "delta"), CASES, ids=NAMES)
def test_accountant_never_promises_more_than_the_loss_distribution_keeps(case, delta):
    assert case["epsilon"][delta] <= budget.epsilon_of(price(case), float(delta)) + 1e-3


@pytest.mark.parametrize(("case", "delta"), GAUSSIAN_CASES)
def test_a_price_too_low_by_a_hundredth_would_be_noticed(case, delta):
    """Where all noise is Gaussian the price is exact; that of pure-DP queries is conservative and leaves room."""
    assert budget.epsilon_of(price(case), float(delta)) == pytest.approx(case["epsilon"][delta], abs=1e-3)
    assert case["epsilon"][delta] > budget.epsilon_of(price(case) * Fraction(99, 100), float(delta)) + 1e-3


def test_every_method_and_preset_has_a_reference():
    """A method that is added without one: run reference/method_events.py, then reference/pld_reference.py."""
    known = {case["plan"] for case in REFERENCE}
    variants = {f"{name}/{preset}" for name, method in METHODS.items() for preset in method.presets}
    assert variants <= known
