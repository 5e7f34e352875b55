"""Exact and fast sampling of integers with weight exp(-(a*x^2 + b*|x|)), by rejection under a staircase.

Why the samples are exact, not nearly so. Let f(x) = exp(-(a*x^2 + b*x)) for x = 0, 1, 2, … The blocks
[j*w, (j+1)*w), j < K, have integer heights H_j >= C*f(j*w); f decreases, so H_j >= C*f(x) in all of block j.
All that lies beyond is one more block, the tail, with height H_K. The heights sum to exactly 2^63.

1. 63 bits choose block j with probability H_j / 2^63 (an alias table in integers, so without any rounding).
2. w is a power of two: the next bits choose x in block j with probability 1/w.
3. x is accepted with probability C*f(x) / H_j, by comparing that with a uniform number U in [0, 1).
   So x comes out with probability proportional to (H_j / 2^63) * (1/w) * (C*f(x) / H_j), that is, to f(x).
4. One bit is the sign; minus zero is rejected, so that zero does not count twice.

Only step 3 involves a real number. The compiled kernel knows the first bits of U and a float64 value of the
acceptance probability with a proved error bound, and decides only where these settle the matter. Where they
do not, or in the tail (of a Gaussian less than once in 10^11 samples), it stops, and `_decide` takes the same
words through the same four steps in rational arithmetic, with as many more digits of U and of exp as it
takes.

Error bound of the float value, with e = 2^-53: x < 2^53 is exact and the coefficients are correctly rounded,
so the exponent t = x*(a*x + b) has a relative error of at most 5e. Where t <= 64 that changes exp(-t) by less
than 2^-44, relatively; exp itself errs by less than 2^-50 (the tests check it against correctly rounded
values), the factor C/H_j and the product by e each. Where t > 64, the value is below C * e^-64 < 2^-29
because H_j >= 1, and its relative error below 2^-40 up to t = 745, where it underflows to 0. So its error is
less than BAND / 8.

`below` is the exact biased coin of step 3: is a uniform number, known by its first bits, below factor *
exp(-exponent)?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from synth_core.errors import SpecError
from synth_core.privacy.entropy import Entropy

BAND = 2.0**-40
"""How near U may come to the float64 acceptance probability before the exact path decides."""

_COLUMN_BITS = 10
_COLUMNS = 2**_COLUMN_BITS
_CAPACITY = 2 ** (63 - _COLUMN_BITS)
_MAX_SHIFT = 30
_CHUNK = 2**16


@dataclass(frozen=True, slots=True)
class Decay:
    """The weight exp(-(quadratic * x^2 + linear * |x|)) of an integer x; none negative, one positive."""

    quadratic: Fraction
    linear: Fraction

    def exponent(self, x: int) -> Fraction:
        """Minus the logarithm of the weight of x >= 0."""
        return x * (self.quadratic * x + self.linear)


class Tables(NamedTuple):
    """What the kernel reads: the decay, the blocks, the alias table, and below which U no exp is needed."""

    quadratic: float
    linear: float
    shift: int
    tail: int
    band: float
    threshold: NDArray[np.uint64]
    alias: NDArray[np.int64]
    factor: NDArray[np.float64]
    surely: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Staircase:
    """Blocks of width 2^shift over one decay, with integer heights; the last one is the tail."""

    decay: Decay
    shift: int
    scale: int
    heights: tuple[int, ...]
    tail_shift: int
    tables: Tables


def draw(stairs: Staircase, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent samples of the decay under the stairs."""
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        words = entropy.words(min(_CHUNK, 2 * (size - filled) + 16))
        used, undecided = 0, True
        while undecided:
            filled, used, undecided = _fill(out, filled, words, used, stairs.tables)
            if undecided:
                sample = _decide(stairs, int(words[used]), int(words[used + 1]), entropy=entropy)
                used += 2
                if sample is not None:
                    out[filled] = sample
                    filled += 1
    return out


@lru_cache(maxsize=256)
def staircase(decay: Decay, *, blocks: int = _COLUMNS - 1, band: float = BAND) -> Staircase:
    """Build the stairs over `decay`; their shape decides how fast samples come, never their distribution.

    Float weights are rounded up by BAND, which outdoes their error (see above), so every height is high
    enough. The slack of 4 * BAND and 2^12 in `scale` outdoes all these roundings, so the sum of heights stays
    below 2^63 and what is missing can be given to the tail.
    """
    shift = _block_shift(decay)
    tail_shift = _tail_shift(decay, blocks << shift, shift)
    coefficients = float(decay.quadratic), float(decay.linear)
    first = np.arange(blocks + 1, dtype=np.float64) * 2.0**shift
    weight = _weights(first, coefficients)
    # The blocks of the tail are W/w times wider, and their halving weights sum to twice the first's.
    weight[-1] *= 2.0 ** (tail_shift - shift + 1)
    scale = int((2.0**63 - 2.0**12) / (weight.sum() * (1 + 4 * BAND)))
    heights = [int(scale * w * (1 + BAND)) + 1 for w in weight.tolist()]
    heights[-1] += 2**63 - sum(heights)

    threshold, alias = _alias_table(heights)
    factor = np.array([scale / height for height in heights[:-1]])
    # U can lie this far above its known bits: 64 - shift are left for it, and a float keeps 53 of them.
    band += 2.0**-53 + 2.0 ** (shift - 64)
    surely = factor * _weights(first[:-1] + (2.0**shift - 1), coefficients) - band
    tables = Tables(*coefficients, shift, blocks, band, threshold, alias, factor, surely)
    return Staircase(decay, shift, scale, tuple(heights), tail_shift, tables)


def _block_shift(decay: Decay) -> int:
    """Blocks of 1/64 to 1/32 of the distribution's width, so that 98 % of the samples are accepted."""
    width = 1 / (float(decay.linear) + math.sqrt(2 * float(decay.quadratic)))
    shift = max(0, math.floor(math.log2(width)) - 5)
    if shift > _MAX_SHIFT:
        raise SpecError("the noise would exceed every count; give the step a larger share of the budget")
    return shift


def _tail_shift(decay: Decay, start: int, shift: int) -> int:
    """The log2 of a width W over which the weight falls at least to a half anywhere beyond `start`.

    The exponent is convex, so over W integers it grows by at least W * slope with slope = 2*a*start + b. Then
    W * slope >= 1 suffices, because 1/e < 1/2.
    """
    slope = 2 * decay.quadratic * start + decay.linear
    while slope * 2**shift < 1:
        shift += 1
    return shift


def _weights(x: NDArray[np.float64], coefficients: tuple[float, float]) -> NDArray[np.float64]:
    quadratic, linear = coefficients
    return np.exp(-x * (quadratic * x + linear))


def _alias_table(heights: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Walker's alias table in integers: column i means i below its threshold and alias[i] from there on.

    The heights sum to _COLUMNS * _CAPACITY. Each round fills one column to exactly _CAPACITY with a low block
    and a piece of a high one, so what is left always fits the columns left, and the last ones are just full.
    """
    rest = heights + [0] * (_COLUMNS - len(heights))
    threshold = np.full(_COLUMNS, _CAPACITY, dtype=np.uint64)
    alias = np.arange(_COLUMNS, dtype=np.int64)
    low = [i for i, height in enumerate(rest) if height < _CAPACITY]
    high = [i for i, height in enumerate(rest) if height >= _CAPACITY]
    while low:
        column, donor = low.pop(), high[-1]
        threshold[column], alias[column] = rest[column], donor
        rest[donor] -= _CAPACITY - rest[column]
        if rest[donor] < _CAPACITY:
            low.append(high.pop())
    return threshold, alias


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _fill(
    out: NDArray[np.int64], filled: int, words: NDArray[np.uint64], used: int, tables: Tables
) -> tuple[int, int, bool]:
    """Fill `out` until it is full, the words are used up, or two of them need `_decide` (then True)."""
    shift, up, down = np.int64(tables.shift), np.uint64(tables.shift), np.uint64(63 - tables.shift)
    while filled < out.size and used + 1 < words.size:
        first, second = words[used], words[used + 1]
        block = np.int64(first >> np.uint64(64 - _COLUMN_BITS))
        if (first >> np.uint64(1)) & np.uint64(_CAPACITY - 1) >= tables.threshold[block]:
            block = tables.alias[block]
        if block == tables.tail:
            return filled, used, True
        x = (block << shift) + np.int64((second >> np.uint64(1)) >> down)
        u = np.float64((second << up) >> np.uint64(11)) * 2.0**-53
        if u >= tables.surely[block]:
            real = np.float64(x)
            accept = tables.factor[block] * math.exp(-real * (tables.quadratic * real + tables.linear))
            if u > accept + tables.band:
                used += 2
                continue
            if u >= accept - tables.band:
                return filled, used, True
        used += 2
        negative = first & np.uint64(1)
        if x > 0 or not negative:
            out[filled] = -x if negative else x
            filled += 1
    return filled, used, False


def _decide(stairs: Staircase, first: int, second: int, *, entropy: Entropy) -> int | None:
    """What `_fill` would make of two words if floats were exact: a sample, or None for a rejection."""
    block, within = first >> (64 - _COLUMN_BITS), first >> 1 & (_CAPACITY - 1)
    if within >= int(stairs.tables.threshold[block]):
        block = int(stairs.tables.alias[block])
    if block == stairs.tables.tail:
        x, factor = _tail_candidate(stairs, entropy)
        prefix, bits = 0, 0
    else:
        bits = 64 - stairs.shift
        x, prefix = (block << stairs.shift) + (second >> bits), second & (2**bits - 1)
        factor = Fraction(stairs.scale, stairs.heights[block])
    if not below(prefix, bits, factor=factor, exponent=stairs.decay.exponent(x), entropy=entropy):
        return None
    if first & 1:
        return -x if x > 0 else None
    return x


def _tail_candidate(stairs: Staircase, entropy: Entropy) -> tuple[int, Fraction]:
    """A candidate x of the tail, and the factor that times f(x) is its acceptance probability.

    The tail is cut into blocks of width W; block i is chosen with probability 2^-(i+1) (i zero bits before
    the first one) and x in it with probability 1/W. To weigh C*f(x)/w like all others, x must be accepted
    with probability factor * f(x), factor = C * 2^(i+1) * (W/w) / H_K. That is at most 1, because f(x) is at
    most f(start) / 2^i (`_tail_shift`) and H_K at least 2 * C * (W/w) * f(start) (`staircase`).
    """
    index = 0
    while (word := int(entropy.words(1)[0])) == 0:
        index += 64
    index += 64 - word.bit_length()
    width = 2**stairs.tail_shift
    x = (stairs.tables.tail << stairs.shift) + index * width + int(entropy.words(1)[0]) % width
    return x, Fraction(stairs.scale * 2 ** (index + 1) * (width >> stairs.shift), stairs.heights[-1])


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
