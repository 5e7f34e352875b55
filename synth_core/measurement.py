"""A noisy marginal: the only form in which counts leave the wall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """Noisy counts of one clique's cells, with the standard deviation of the noise on each cell.

    `noisy` has one axis for each attribute of `clique`, in the clique's order, in units of records.
    It is public: anything computed from it is post-processing.
    """

    clique: Clique
    noisy: NDArray[np.float64]
    sigma: float

    def __post_init__(self) -> None:
        if self.noisy.ndim != len(self.clique):
            raise ValueError(f"measurement of {self.clique} needs {len(self.clique)} axes")
        if not self.sigma > 0:
            raise ValueError(f"measurement of {self.clique} needs a positive sigma")
        self.noisy.setflags(write=False)


def total_by_inverse_variance(measurements: list[Measurement]) -> float:
    """Estimate the number of records from the measurements alone (Private-PGM, E.1).

    The sum of one noisy table estimates n with variance cells * sigma^2; independent estimates are combined
    with weights inverse to their variances, which is the linear unbiased combination of least variance.
    """
    if not measurements:
        raise ValueError("the total cannot be estimated without measurements")
    variances = np.array([m.noisy.size * m.sigma**2 for m in measurements])
    sums = np.array([m.noisy.sum() for m in measurements])
    return float((sums / variances).sum() / (1.0 / variances).sum())
