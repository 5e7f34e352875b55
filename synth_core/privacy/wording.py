"""Privacy amounts as people read them: a loss rounded up, what is left rounded down, what was declared as declared."""

from __future__ import annotations

from decimal import Decimal

from synth_core.privacy.budget import round_down, round_up

_CRUMB = 1e-7
"""A cap of 2 is worth 1.999999999 after `mu2_of` and `epsilon_of`, rounded to the safe side; a release of 2 fits."""


def loss_text(epsilon: float, digits: int = 4) -> str:
    """A privacy loss, or another bound from above, rounded up.

    Args:
        epsilon: The loss.
        digits: How many digits after the decimal point are shown at most.

    Returns:
        The number without trailing zeros.
    """
    return _plain(round_up(epsilon, digits), digits)


def left_number(epsilon: float, digits: int) -> float:
    """What may still be spent, rounded down: a release that asks for it fits.

    Args:
        epsilon: What the ledger's room is worth, as `epsilon_of` gives it.
        digits: How many digits after the decimal point are kept.

    Returns:
        The number for programs; people read `left_text` or `left_figure`.
    """
    return round_down(epsilon + _CRUMB, digits)


def left_text(epsilon: float, digits: int = 4) -> str:
    """What may still be spent, rounded down.

    Args:
        epsilon: The largest loss that still fits, as the ledger's room is worth.
        digits: How many digits after the decimal point are shown at most.

    Returns:
        The number without trailing zeros.
    """
    return _plain(left_number(epsilon, digits), digits)


def loss_figure(epsilon: float) -> str:
    """A privacy loss for tables and refusals: rounded up, with as many digits as people decide by, zeros kept."""
    digits = _deciding(epsilon)
    return f"{round_up(epsilon, digits):.{digits}f}"


def left_figure(epsilon: float) -> str:
    """What may still be spent for tables and refusals: rounded down, with as many digits as people decide by."""
    digits = _deciding(epsilon)
    return f"{left_number(epsilon, digits):.{digits}f}"


def exact_text(value: float) -> str:
    """A declared number, such as a cap or a delta, with all the digits it was declared with."""
    return repr(float(value)).removesuffix(".0")


def scientific(value: float) -> str:
    """A small declared number as people write it, with all its digits: 1 × 10⁻⁶."""
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    lead = f"{'-' * sign}{digits[0]}" + ("." + "".join(map(str, digits[1:])) if digits[1:] else "")
    return f"{lead}\u00a0×\u00a010{raised}"


def _deciding(epsilon: float) -> int:
    return 2 if epsilon >= 0.1 or epsilon == 0 else 4


def _plain(rounded: float, digits: int) -> str:
    return f"{rounded:.{digits}f}".rstrip("0").rstrip(".")
