"""What bought sums make of numbers: where in their bins they lie, and which codes a few rows have.

A mean can be off in two ways: by the mean places inside bins, which the sums inside bins correct, and by the counts of
bins, in which a few records more or less at a high number matter much. The sum over all records sees both. It is
pooled with what model and sums inside bins say by inverse variance, and what it corrects is divided by least squares:
in proportion to the variance that the counts and the places contribute. Places are corrected by tilting densities.
Counts are corrected by exchanging rows: a row of a code of which there are too many becomes a copy of a row of a code
of which there are too few, a possible record like any other. No more rows change than the counts are off by noise.
All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Codes, Domain
from synth_core.schema import Schema
from synth_core.schema.codec import Marginal, guess_densities, number_columns
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.densities import USUAL_STRAY, Densities
from synth_core.synthesizers.moments import Moments

HEAPING_PASSES = 8
"""Passes in which a density is tilted until heaping moves its mean to the one that was bought."""


@dataclass(frozen=True, slots=True, eq=False)
class PooledNumbers:
    """How numbers of rows are drawn.

    Attributes:
        densities: Where in their bins they lie, by column.
        changes: What each bin gains, as a share of all rows, by column; they sum to 0.
        deviations: Standard deviations, by noise, of the means of columns whose sums were bought.
    """

    densities: dict[str, Densities]
    changes: dict[str, Floats]
    deviations: dict[str, float]

    def exchange_rows(self, codes: Codes, domain: Domain, rng: np.random.Generator) -> Codes:
        """Returns the rows, a few of them copies of others, so that bins have the counts that the sums give.

        Args:
            codes: Drawn rows, a column for each attribute; they are not changed.
            domain: The attributes.
            rng: Where rows are exchanged, a generator of its own is spawned from it: the next draws stay the same.
        """
        if not self.changes:
            return codes
        own, found = rng.spawn(1)[0], codes.copy()
        for name, shares in self.changes.items():
            _exchange(found, domain.position(name), shares * len(found), own)
        return found


def pool_numbers(schema: Schema, marginal: Marginal, moments: Mapping[str, Moments]) -> PooledNumbers:
    """Pool published counts and bought sums.

    Args:
        schema: The public declaration of the columns.
        marginal: Gives the counts of one column's codes, for instance a model's `marginal`.
        moments: Bought sums, by column; there may be none.

    Returns:
        How numbers are drawn; without sums, by densities that are guessed from counts.
    """
    found = PooledNumbers(guess_densities(schema, marginal), {}, {})
    columns = {column.name: column for column in number_columns(schema)}
    for name, own in moments.items():
        every = np.maximum(np.asarray(marginal((name,)), dtype=np.float64), 0)
        _pool_column(found, columns[name], own, counts=every[: len(own.sums)], rows=float(every.sum()))
    return found


def _pool_column(found: PooledNumbers, column: NumberBase, own: Moments, *, counts: Floats, rows: float) -> None:
    """Tilt the density of one column, and say what its bins gain."""
    name, (noisy, noise) = column.name, own.mean_places(counts)
    densities = found.densities[name].with_means(noisy, noise)
    found.densities[name] = _without_shifts(column, densities)
    total = max(float(counts.sum()), 1.0)
    means, per_place = column.mean_numbers(densities), densities.numbers_per_place()
    strays = counts * noise * USUAL_STRAY / np.hypot(USUAL_STRAY, noise)  # of the sum of places, as far as trusted
    of_places = (per_place * strays) ** 2
    of_counts = (_from_middle(means, counts > 0) * own.count_sigma) ** 2
    variance = float(of_places.sum() + of_counts.sum())
    found.deviations[name] = float(np.sqrt(variance)) / total
    if own.total is None or not variance:
        return
    centre, mean = own.total.centre, float((means * counts).sum()) / total
    other = own.total.sigma**2 + ((centre - mean) * own.records_sigma) ** 2
    gap = (own.total.answer + (centre - mean) * total) * variance / (variance + other)
    shift = np.divide(gap * of_places / variance, counts * per_place, out=np.zeros_like(counts), where=of_places > 0)
    found.densities[name] = _without_shifts(column, densities.with_exact_means(densities.means + shift))
    found.changes[name] = _changed_counts(means, counts, gap * float(of_counts.sum()) / variance) / max(rows, 1.0)
    found.deviations[name] = float(np.sqrt(variance * other / (variance + other))) / total


def _without_shifts(column: NumberBase, densities: Densities) -> Densities:
    """The densities such that after heaping the means of bins are what theirs were before."""
    if column.heaping is None:
        return densities
    per_place, found = densities.numbers_per_place(), densities
    for _ in range(HEAPING_PASSES):
        shifts = column.heaping_shifts(found)
        wanted = np.divide(shifts, per_place, out=np.zeros_like(shifts), where=per_place > 0)
        found = densities.with_exact_means(densities.means - wanted)
    return found


def _from_middle(means: Floats, bins: NDArray[np.bool_]) -> Floats:
    """How far the means of these bins lie from the plain mean of them, 0 for other bins."""
    return np.where(bins, means - means[bins].mean(), 0.0) if bins.any() else np.zeros_like(means)


def _changed_counts(means: Floats, counts: Floats, gap: float) -> Floats:
    """The smallest changes of counts, by squares, that sum to 0 and add `gap` to the sum of numbers.

    A bin that would have fewer than no records keeps its count instead.
    """
    bins = counts > 0
    for _ in range(len(counts)):
        along = _from_middle(means, bins)
        size = float((along**2).sum())
        if not size:
            break
        changes: Floats = along * (gap / size)
        short = bins & (counts + changes < 0)
        if not short.any():
            return changes
        bins &= ~short
    return np.zeros_like(counts)


def _exchange(codes: Codes, position: int, gains: Floats, rng: np.random.Generator) -> None:
    """Make rows of codes that lose copies of rows of codes that gain; fractions are rounded at random, in sum to 0."""
    ends = np.cumsum(gains)
    ends[-1] = 0.0
    wanted = np.diff(np.floor(ends + rng.random()).astype(np.int64), prepend=0)
    column, gone, come = codes[:, position], [], []
    for code in np.flatnonzero(wanted):
        rows = np.flatnonzero(column == code)
        if wanted[code] < 0:
            gone.append(rng.choice(rows, min(len(rows), -int(wanted[code])), replace=False))
        elif len(rows):
            come.append(rng.choice(rows, int(wanted[code])))
    if gone and come:
        left, made = rng.permutation(np.concatenate(gone)), rng.permutation(np.concatenate(come))
        several = min(len(left), len(made))
        codes[left[:several]] = codes[made[:several]]
