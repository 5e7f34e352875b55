"""The compiled loop that draws numbers inside their bins; imported where rows are decoded, since compiling is slow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.compiled import compiled


@compiled
def draw_offsets(
    codes: NDArray[Any],
    uniform: Floats,
    low: Floats,
    width: Floats,
    logarithmic: NDArray[np.bool_],
    keep: Floats,
    other: NDArray[np.int64],
    slopes: Floats,
    out: Floats,
) -> None:
    """How far above the lower end of its bin each number lies, from one uniform draw; 0 for codes beyond the bins.

    One part of the bin is chosen by its alias table; what is left of the uniform draw says where in the part.

    In a part of slope c the density 1 + c (2x - 1) has the distribution function (1 - c) x + c x^2, which is
    solved for x. With keep 0.25 at part 3 of 32 and a draw of 3.1 / 32: 0.1 < 0.25, so it is part 3, at 0.1 / 0.25.
    """
    bins, parts = keep.shape
    for r in range(codes.size):
        b = codes[r]
        if b >= bins:
            out[r] = 0.0
            continue
        y = uniform[r] * parts
        j = int(y)
        f = y - j
        kept = keep[b, j]
        if f < kept:
            f /= kept
        else:
            f = (f - kept) / (1.0 - kept)
            j = other[b, j]
        c = slopes[b, j]
        x = 2.0 * f / (1.0 - c + math.sqrt((1.0 - c) * (1.0 - c) + 4.0 * c * f) + 1e-300)
        place = (j + x) * (width[b] / parts)
        out[r] = low[b] * math.expm1(place) if logarithmic[b] else place
