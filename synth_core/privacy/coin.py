"""An exact biased coin: is a uniform number, known by its first bits, below factor * exp(-exponent)?"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context
from fractions import Fraction

from synth_core.privacy.entropy import Entropy

_FIRST_DIGITS = 30


def below(prefix: int, bits: int, *, factor: Fraction, exponent: Fraction, entropy: Entropy) -> bool:
    """Whether U < factor * exp(-exponent), for the uniform U whose first `bits` binary digits are `prefix`.

    U lies in [prefix, prefix + 1) / 2^bits and the bound in an interval of `_enclose`. Where these are
    disjoint the answer is certain. Where not, U gets 64 more digits from `entropy` and the bound twice as
    many decimals; both intervals shrink to points, which differ with probability 1, so the loop ends and its
    answer is exact.
    """
    digits = _FIRST_DIGITS
    while True:
        low, high = _enclose(factor, exponent, digits)
        if Fraction(prefix + 1, 2**bits) <= low:
            return True
        if Fraction(prefix, 2**bits) >= high:
            return False
        prefix, bits = prefix << 64 | int(entropy.words(1)[0]), bits + 64
        digits *= 2


def _enclose(factor: Fraction, exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Rationals around factor * exp(-exponent), for exponent >= 0, that close in on it as `digits` grows.

    An exponent above 2.4 * digits gives 0 < exp(-exponent) < 10^-digits, as ln 10 < 2.4. Else, with u =
    10^(1-digits): the quotient of two integers has a relative error of at most u/2, which changes exp by at
    most exponent * u, relatively; the decimal module rounds exp correctly, which adds at most u/2.
    """
    if exponent > Fraction(12, 5) * digits:
        return Fraction(0), factor / 10**digits
    context = Context(prec=digits, rounding=ROUND_HALF_EVEN)
    quotient = context.divide(exponent.numerator, exponent.denominator)
    value = factor * Fraction(context.exp(-quotient))
    error = (exponent + 2) * Fraction(10, 10**digits)
    return value * (1 - error), value * (1 + error)
