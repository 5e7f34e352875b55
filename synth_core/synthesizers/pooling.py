"""What overlapping noisy marginals say together: pooled small tables, and how far a fit may follow the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.synthesizers.base import Tools

REACHED = 1.02
"""A fit has arrived at its level if it comes this near."""


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


def loss_level(domain: Domain, measurements: Sequence[Measurement], *, share: float) -> float:
    """Where a fit should stop, as a multiple of the loss that noise alone would leave at the truth.

    The truth leaves cells / 2; the best fit takes up half a unit for each free parameter and leaves
    (cells - parameters) / 2. `share` says how much of this way to go: overlapping tables have few parameters
    for their cells, and a fit asked for less loss than they allow would chase what cannot be reached.
    """
    cliques = {m.clique for m in measurements}
    cells = sum(domain.cells(clique) for clique in cliques)
    return 1.0 - share * min(1.0, free_parameters(domain, cliques) / cells)


def loss(model: MarkovRandomField, measurements: Sequence[Measurement]) -> float:
    """The model's weighted squared residuals, as a multiple of what noise alone would leave at the truth."""
    tables = model.marginals(m.clique for m in measurements)
    squares = sum(
        float(np.square((table - m.noisy) / m.sigma).sum())
        for table, m in zip(tables, measurements, strict=True)
    )
    return squares / sum(m.noisy.size for m in measurements)


def below_noise(
    model: MarkovRandomField,
    measurements: Sequence[Measurement],
    tools: Tools,
    *,
    order: int,
    share: float,
    passes: Sequence[int],
) -> MarkovRandomField:
    """Fit pooled tables below the noise level, in steps of so many passes, as far down as the tables allow.

    Tables that contradict each other may not allow a level at all; a fit on its way to nowhere is no estimate, so
    the last one that arrived is kept. Of the first step, without which there is none, the better of a fit from `model`
    and one from nothing is taken: a start that fitted other tables well is now and then a dead end.
    """
    known = pooled(measurements, order=order)
    total = total_by_inverse_variance(list(measurements))

    def tried(start: MarkovRandomField | None, step: int) -> tuple[float, MarkovRandomField]:
        level = loss_level(model.domain, known, share=share * (step + 1) / len(passes))
        found = tools.estimate(
            model.domain, known, total=total, warm=start, until=level, max_passes=passes[step]
        )
        return loss(found, known) / level, found

    missed, best = tried(model, 0)
    if missed > REACHED:
        missed, best = min((missed, best), tried(None, 0), key=lambda fit: fit[0])
    for step in range(1, len(passes)):
        missed, found = tried(best, step)
        if missed > REACHED:
            break
        best = found
    return best
