"""A privacy loss is never shown smaller than it is, what is left never larger, a declared number as it was declared."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth_core.errors import SpecError
from synth_core.privacy.budget import check_delta, epsilon_of, mu2_of, mu_of, round_down, round_up
from synth_core.privacy.wording import exact_text, left_figure, left_text, loss_figure, loss_text, scientific

ROOT = Path(__file__).resolve().parents[2]
TO_NEAREST = re.compile(
    r"""\b(?:round|int)\([^()]*epsilon      # round(epsilon, 4), round(epsilon_of(…), 6)
    |epsilon[^{}"']*:[<>^]?[\d.]*[gfe]\}    # f"{epsilon:.3g}"
    |%[\d.]*[gfe]"\s*\|\s*format\([^()]*epsilon  # "%.3g" | format(epsilon) in a template
    |delta[^{}"']*:[<>^]?[\d.]*[gfe]\}      # a delta is shown as it was declared
    """,
    re.VERBOSE,
)
LOSSES = st.floats(min_value=0, max_value=1e4, allow_nan=False)
DIGITS = st.integers(min_value=0, max_value=8)


@given(LOSSES, DIGITS)
def test_a_loss_is_rounded_up_and_what_is_left_down_by_less_than_one_digit(value, digits):
    up, down = round_up(value, digits), round_down(value, digits)
    assert down <= value <= up
    assert up - down <= 1.001 * 10.0**-digits
    assert round_up(up, digits) == up
    assert round_down(down, digits) == down


@given(LOSSES)
def test_no_text_of_a_loss_is_smaller_than_the_loss(value):
    assert float(loss_text(value)) >= value
    assert float(loss_figure(value)) >= value
    assert float(left_text(value)) <= value + 1e-7
    assert float(left_figure(value)) <= value + 1e-7


@pytest.mark.parametrize(("value", "shown"), [(0.8, "0.8"), (1.0, "1"), (0.79995, "0.8"), (0.800001, "0.8001")])
def test_a_number_of_few_digits_keeps_them(value, shown):
    assert loss_text(value) == shown
    assert round_up(value, 6) == value


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 0.8, 2.0, 8.0])
def test_an_untouched_cap_is_wholly_left(epsilon, delta):
    worth = epsilon_of(mu2_of(epsilon, delta), delta)
    assert left_text(worth) == loss_text(worth) == exact_text(epsilon)


@given(st.fractions(min_value=0, max_value=100))
def test_mu_is_never_smaller_than_the_root_of_its_square(mu2):
    assert Fraction(mu_of(mu2)) ** 2 >= mu2


@given(st.floats(min_value=1e-12, max_value=0.99))
def test_a_delta_is_shown_with_all_its_digits(delta):
    assert float(exact_text(delta)) == delta
    digits, power = scientific(delta).replace("\u00a0", "").split("×10")
    assert float(f"{digits}e{power.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}") == delta


@pytest.mark.parametrize("n", [1, 3, 7, 49, 10_000, 90_000_001])
def test_delta_may_be_a_tenth_of_one_over_n_and_no_more(n):
    check_delta(1 / (10 * n), n)
    with pytest.raises(SpecError, match=f"is too large for up to {n} records; use at most"):
        check_delta(1.01 / (10 * n), n)
    check_delta(1.01 / (10 * n), n, "a pilot on published rows")


def test_the_delta_that_a_refusal_names_is_accepted():
    with pytest.raises(SpecError) as refusal:
        check_delta(1e-5, 10_001)
    check_delta(float(str(refusal.value).split("use at most ")[1].split(",")[0]), 10_001)


def test_a_delta_without_a_number_of_records_needs_a_reason():
    with pytest.raises(SpecError, match="declare largest_n, or give a reason"):
        check_delta(1e-9, None)
    with pytest.raises(SpecError, match="declare largest_n, or give a reason"):
        check_delta(1e-9, None, "  ")
    with pytest.raises(SpecError, match="must be at least 1"):
        check_delta(1e-9, 0, "because")
    check_delta(1e-9, None, "nobody may know how many there are")


def test_no_epsilon_or_delta_is_shown_rounded_to_nearest():
    """Benchmarks name the epsilons they were asked for; everything else goes through `round_up` and its texts."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("synth_core", "plugins", "dags", "infra")
        for pattern in ("*.py", "*.j2")
        for path in sorted((ROOT / folder).rglob(pattern))
        if "bench" not in path.parts
        for match in TO_NEAREST.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert TO_NEAREST.search('f"epsilon {epsilon_of(mu2, delta):.3f}"')
    assert TO_NEAREST.search("round(epsilon_of(mu2, account.delta), 6)")
    assert TO_NEAREST.search('{{ "%.3g" | format(account.epsilon_after) }}')
