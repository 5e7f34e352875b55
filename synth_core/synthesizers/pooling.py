"""What overlapping noisy marginals say together: pooled small tables, and the last fit to them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.synthesizers.base import Tools


def pooled(measurements: Sequence[Measurement], *, order: int) -> list[Measurement]:
    """The measurements, with every table of at most `order` attributes replaced by all that is known of it.

    A small table is estimated by the sum of each measured table around it; estimates are combined by inverse
    variance. Each pooled table is a true summary, so adding it is post-processing; it makes low-order
    dependence cheap for an estimator of greatest entropy, which otherwise shrinks it as much as the high-order one.
    """
    sums: dict[Clique, Any] = {}
    precisions: dict[Clique, float] = {}
    for measurement in measurements:
        for size in range(1, order + 1):
            for clique in combinations(measurement.clique, size):
                gone = tuple(k for k, a in enumerate(measurement.clique) if a not in clique)
                table = measurement.noisy.sum(axis=gone)
                precision = table.size / (measurement.sigma**2 * measurement.noisy.size)
                sums[clique] = sums.get(clique, 0.0) + precision * table
                precisions[clique] = precisions.get(clique, 0.0) + precision
    large = [m for m in measurements if len(m.clique) > order]
    small = [
        Measurement(clique, sums[clique] / precision, precision**-0.5)
        for clique, precision in precisions.items()
    ]
    return [*large, *small]


def free_parameters(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Dimension of the log-linear model with these cliques: one interaction for each set inside some clique."""
    sets = {
        inner for clique in cliques for size in range(len(clique) + 1) for inner in combinations(clique, size)
    }
    return sum(math.prod(domain.size(a) - 1 for a in inner) for inner in sets)


def last_fit(
    domain: Domain,
    measurements: Sequence[Measurement],
    tools: Tools,
    *,
    order: int,
    gain: float,
    passes: int,
    warm: MarkovRandomField | None = None,
    emphasis: float = 1.0,
) -> MarkovRandomField:
    """The model of the pooled tables in which loss and entropy are balanced.

    With an emphasis small tables count so many times: where the others are few and large, almost all answers are cells
    of theirs that hold more noise than records.
    """
    known = pooled(measurements, order=order)
    return tools.estimate(
        domain,
        [replace(m, sigma=m.sigma / math.sqrt(emphasis)) if len(m.clique) <= order else m for m in known],
        total=total_by_inverse_variance(list(measurements)),
        warm=warm,
        gain=gain,
        max_passes=passes,
    )
