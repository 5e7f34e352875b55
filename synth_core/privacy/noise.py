"""Exact integer noise: discrete Gaussian, discrete Laplace, and the choice of the exponential mechanism.

Given random words, all three have exactly the distribution they claim, so nothing here adds to delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synth_core.errors import SpecError, WallError
from synth_core.privacy.budget import LEAST_VARIANCE, MAX_VARIANCE
from synth_core.privacy.entropy import Entropy
from synth_core.privacy.staircase import BAND, Decay, below, draw, staircase

GRID = 256
"""Noisy counts are multiples of 1/GRID records."""

_LARGEST = 2**62
_BATCH = 1024


def discrete_gaussian(variance: Fraction, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Integers x with probability proportional to exp(-x^2 / (2 * variance)), independent and exact."""
    _require_positive(variance)
    return draw(staircase(Decay(quadratic=1 / (2 * variance), linear=Fraction(0))), size, entropy)


def discrete_laplace(scale: Fraction, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Integers x with probability proportional to exp(-|x| / scale), independent and exact."""
    _require_positive(scale)
    return draw(staircase(Decay(quadratic=Fraction(0), linear=1 / scale)), size, entropy)


def require_drawable(variance: Fraction) -> None:
    """SpecError if `grid_noise` of this variance (in squared records) cannot be drawn; nothing is drawn to find out."""
    if variance < LEAST_VARIANCE:
        raise SpecError(f"noise needs a variance of at least {LEAST_VARIANCE}; give the step a smaller share")
    staircase(Decay(quadratic=1 / (2 * variance * GRID**2), linear=Fraction(0)))


def grid_noise(variance: Fraction, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Gaussian noise of `variance` (in squared records), in units of 1/GRID records."""
    if variance < LEAST_VARIANCE:
        raise SpecError(f"noise needs a variance of at least {LEAST_VARIANCE}; give the step a smaller share")
    return discrete_gaussian(variance * GRID**2, size, entropy)


def pure_grid_noise(width: Fraction, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Laplace noise of `width` (in records), in units of 1/GRID records.

    A query of sensitivity D moves by at most D * GRID steps, so each output is at most exp(D / width) times as likely.
    """
    return discrete_laplace(width * GRID, size, entropy)


def noisy_counts(
    counts: NDArray[np.int64], variance: Fraction, entropy: Entropy, *, scale: int = 1
) -> NDArray[np.int64]:
    """Counts plus Gaussian noise of `variance` (in squared records), in units of 1/GRID records.

    No sum overflows: counts fill at most 62 bits, and the noise 58 but for an event of probability below
    2^-(2^20) (the tail of a `staircase` starts below 2^40 and falls to a half at least every 2^37).

    Counts in units of 1/`scale` records, where that is not 1, get noise in these units, integers to integers; only the
    noisy sum is rounded to the grid, which is post-processing.
    """
    if scale == 1:
        return _on_grid(counts) + grid_noise(variance, counts.size, entropy).reshape(counts.shape)
    if scale < GRID or variance * scale**2 > MAX_VARIANCE * GRID**2:
        raise SpecError("the noise would exceed every count; give the step a larger share of the budget")
    noise = discrete_gaussian(variance * scale**2, counts.size, entropy).reshape(counts.shape)
    return _rounded_to_grid(_on_grid(counts) // GRID + noise, scale)


def purely_noisy_counts(
    counts: NDArray[np.int64], width: Fraction, entropy: Entropy, *, scale: int = 1
) -> NDArray[np.int64]:
    """Counts plus Laplace noise of `width` (in records), in units of 1/GRID records; sums as of `noisy_counts`.

    A record moves one cell by GRID steps, so each output is at most exp(GRID / (GRID * width)) = exp(1 / width) times
    as likely with it as without: pure differential privacy, exactly, on integers. Counts in units of 1/`scale` records
    move by `scale` steps in all, in one cell or in several, which is the same.
    """
    steps = GRID if scale == 1 else scale
    noise = discrete_laplace(width * steps, counts.size, entropy).reshape(counts.shape)
    return _on_grid(counts) + noise if scale == 1 else _rounded_to_grid(_on_grid(counts) // GRID + noise, scale)


def _rounded_to_grid(noisy: NDArray[np.int64], scale: int) -> NDArray[np.int64]:
    """Noisy numbers in units of 1/scale records as the nearest in units of 1/GRID; halves go up."""
    whole, part = np.divmod(noisy, scale)
    rounded: NDArray[np.int64] = whole * GRID + (part * GRID + scale // 2) // scale
    return rounded


def _on_grid(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if counts.dtype != np.int64:
        raise WallError("counts must be 64-bit integers; check the counting step")
    if counts.size and max(-int(counts.min()), int(counts.max())) * GRID > _LARGEST:
        raise WallError("a count leaves no room for noise; check the counting step")
    return counts * GRID


def exponential_choice(utilities: Sequence[int], rate: Fraction, entropy: Entropy) -> int:
    """An index i with probability proportional to exp(rate * utilities[i]), exact.

    Rejection: a uniform index is accepted with probability exp(-rate * (best - utilities[i])). As in
    `staircase`, a float64 of that probability errs by less than BAND / 8 (the exponent has three roundings),
    so it settles the comparison with U outside BAND, and `below` does so inside.
    """
    if not utilities or rate <= 0:
        raise SpecError("a choice needs candidates and a positive rate; check what the step asks for")
    best = max(utilities)
    gaps = [best - utility for utility in utilities]
    accept = np.exp(-float(rate) * np.array(gaps, dtype=np.float64))
    while True:
        indices = _uniform_indices(len(gaps), entropy)
        words = entropy.words(len(indices))
        u = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        for attempt in np.flatnonzero(u <= accept[indices] + BAND):
            index, word = int(indices[attempt]), int(words[attempt])
            if u[attempt] < accept[index] - BAND:
                return index
            if below(word, 64, factor=Fraction(1), exponent=rate * gaps[index], entropy=entropy):
                return index


def _uniform_indices(n: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent indices below n: words beyond the last multiple of n are discarded, so none is favoured."""
    words = entropy.words(_BATCH)
    fair = words[words <= np.uint64(2**64 - 1 - 2**64 % n)]
    return (fair % np.uint64(n)).astype(np.int64)


def _require_positive(scale: Fraction) -> None:
    if scale <= 0:
        raise SpecError("noise needs a positive scale; a query without noise cannot be asked")
