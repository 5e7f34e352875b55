"""Sums of numbers: the questions, how their budget is divided, and their answers, which are public.

Two kinds of sums are asked about a column that declares `moments: true`. For each bin, over its records, how far their
numbers lie from the middle of the bin's scale: the mean place in the bin is a half plus that sum over the bin's count,
which the model knows. And over all records, how far their numbers lie from one centre: that corrects the noise of the
counts as well, where few records make most of the mean (`synthesizers.pooled_numbers` says how).

Sums inside bins are about different records, so that all of them together cost what one does, and the noise of each
is the same in widths of its bin: there is nothing to be divided between the bins of a column. The budget is divided
between columns and between both kinds of sums by what each part takes off the expected relative errors of the means,
as far as the model that is fitted by then foretells them; that is public.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.arrays import Floats
from synth_core.documents import read_json
from synth_core.domain import Domain
from synth_core.errors import SourceError, SpecError
from synth_core.privacy.budget import MARGIN, MAX_VARIANCE, BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.strategies import SUM_STEPS, LinearQuery, number_sum, place_sums
from synth_core.schema import Schema
from synth_core.schema.codec import Marginal, summed_columns
from synth_core.schema.columns.inside import place_name
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.densities import USUAL_STRAY
from synth_core.synthesizers.base import CountNoise, Synthesizer, noise_sigma

PURPOSE = "sums of numbers inside bins"
"""What the ledger says of the questions."""

UNITS = 32
"""Parts into which the budget of sums is divided, times the number of columns."""

INSIDE_UNITS = 4
"""Parts of them that each column's sums inside bins have in any case, so that shapes are known and not means alone."""

CENTRES = 64
"""Steps of a column's range at which the centre of its sum may lie."""

DIGITS = 3
"""Significant digits of the counts by which the budget is divided: the last bits of a fit do not change a question."""

LEAST_SCALE = 0.1
"""Errors of a mean are relative to it, or to this share of the standard deviation where that is more."""


@dataclass(frozen=True, slots=True)
class CountErrors:
    """How far a model's counts are off by noise, as standard deviations in records.

    Attributes:
        columns: Of a count of each column.
        records: Of the number of records.
    """

    columns: Mapping[str, float]
    records: float


@dataclass(frozen=True, slots=True)
class TotalSum:
    """A noisy sum over all records of a column.

    Attributes:
        centre: From where numbers are measured.
        answer: How far the records' numbers lie above it, in sum.
        sigma: Standard deviation of the answer's noise.
    """

    centre: float
    answer: float
    sigma: float


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Noisy sums of one column.

    Attributes:
        sums: For each bin, how far its records lie above the middle of its scale, in widths of the bin.
        sigma: Standard deviation of the noise of each sum, in widths of the bin.
        total: The sum over all records, where it was worth its price.
        count_sigma: Standard deviation, by noise, of the model's counts of bins.
        records_sigma: Standard deviation of its number of records.
    """

    sums: Floats
    sigma: float
    total: TotalSum | None = None
    count_sigma: float = 0.0
    records_sigma: float = 0.0

    def mean_places(self, counts: Floats) -> tuple[Floats, Floats]:
        """Returns the mean place in each bin with this many records, and the standard deviation of its noise."""
        records = np.maximum(counts, 1e-9)
        return 0.5 + self.sums / records, self.sigma / records


@dataclass(frozen=True, slots=True, eq=False)
class MeanVariance:
    """Of what the variance of a column's sum of numbers is made, all of it foretold from public counts.

    Attributes:
        total: Expected number of records with a number.
        mean: Expected mean.
        low: Least number of the column.
        high: Greatest number.
        scale: Errors of the mean are relative to it; 1 where all numbers are expected to be 0.
        counts: Variance that comes with the noise of counts.
        stray: Variance in each bin, without sums inside bins.
        inside: Variance of the noise of each bin's sum, at a mu^2 of 1.
        records_sigma: Standard deviation of the number of records.
    """

    total: float
    mean: float
    low: float
    high: float
    scale: float
    counts: float
    stray: Floats
    inside: Floats
    records_sigma: float

    def centre(self, mu2: float) -> float:
        """Returns from where the sum over all records is measured.

        The nearer to the middle of the range, the less one record moves the sum; the nearer to the mean, the less
        it matters how many records there are. With noise s for a reach of 1 and n off by r records, the variance
        (s (high - c))^2 + (r (c - mean))^2 is least at c = (s^2 high + r^2 mean) / (s^2 + r^2), and no further than the
        middle; above the middle it is the same from `low`.
        """
        middle, mean = (self.low + self.high) / 2, min(max(self.mean, self.low), self.high)
        end = self.high if mean <= middle else self.low
        noise, records = 1 / mu2, self.records_sigma**2
        best = (noise * end + records * mean) / (noise + records)
        best = min(best, middle) if mean <= middle else max(best, middle)
        step = (self.high - self.low) / CENTRES
        return self.low + round((best - self.low) / step) * step

    def reach(self, centre: float) -> float:
        """Returns how far numbers may lie from the centre."""
        return max(self.high - centre, centre - self.low)

    def relative(self, inside_mu2: float, total_mu2: float) -> float:
        """Returns the squared relative error of the mean with these parts of the budget."""
        noise = self.inside / inside_mu2
        both = self.stray + noise
        found = self.counts + float(
            (self.stray * np.divide(noise, both, out=np.zeros_like(both), where=both > 0)).sum()
        )
        if total_mu2 and found:
            centre = self.centre(total_mu2)
            other = self.reach(centre) ** 2 / total_mu2 + ((centre - self.mean) * self.records_sigma) ** 2
            found = found * other / (found + other)
        return found / (self.total * self.scale) ** 2


def summed_domain(schema: Schema) -> Domain:
    """Returns the attributes that the question is about: codes and places of each column."""
    sizes: dict[str, int] = {}
    for column in summed_columns(schema):
        sizes |= {column.name: column.size, place_name(column.name): column.place_count}
    return Domain.of(sizes)


def require_answerable(columns: Sequence[NumberBase], mu2: Fraction) -> None:
    """Refuse a budget of which the part of some question may be too small for noise to be drawn.

    Args:
        columns: The columns whose sums are asked for.
        mu2: What the questions may cost together.

    Raises:
        SpecError: The smallest part that `divide_units` may give a question asks for more noise than there is.
    """
    places = max(column.place_count for column in columns)
    least = {places: Fraction(INSIDE_UNITS, UNITS * len(columns)), SUM_STEPS: Fraction(1, UNITS)}
    if any(sensitivity**2 * MARGIN**2 > MAX_VARIANCE * mu2 * share for sensitivity, share in least.items()):
        raise SpecError(
            "moments_share: the noise of sums would exceed every sum; raise it, or epsilon, or leave out moments: true"
        )


def count_errors(method: Synthesizer, domain: Domain, plan: BudgetPlan, *, parts: int = 1) -> CountErrors:
    """Say beforehand how far a model's counts will be off by noise.

    Args:
        method: What fits the model; where it cannot say, all of its budget is taken to measure one-way marginals.
        domain: The attributes.
        plan: The method's budget.
        parts: Number of strata, each with noise of its own.

    Returns:
        The deviations. Those of the number of records are what one-way marginals of this noise give together: their
        sums have variances sigma^2 times the number of codes.
    """
    known = method.count_noise(domain, plan) if isinstance(method, CountNoise) else {}
    usual = noise_sigma(plan.total_mu2, count=len(domain))
    columns = {name: known.get((name,), usual) * math.sqrt(parts) for name in domain}
    records = sum(1 / (columns[name] ** 2 * domain.size(name)) for name in domain)
    return CountErrors(columns, 1 / math.sqrt(records))


def ask_moments(
    curator: Curator, schema: Schema, mu2: Fraction, *, marginal: Marginal, errors: CountErrors
) -> dict[str, Moments]:
    """Ask for the sums of all columns that declare them.

    Args:
        curator: Knows the `summed_domain` of the schema.
        schema: The public declaration of the columns.
        mu2: What the questions may cost together.
        marginal: Gives the counts of one column's codes by the fitted model.
        errors: How far these are off.

    Returns:
        The noisy sums, by column.
    """
    columns = summed_columns(schema)
    foretold = [
        foretell_variance(
            column, marginal((column.name,)), count_sigma=errors.columns[column.name], records_sigma=errors.records
        )
        for column in columns
    ]
    units = divide_units(foretold, float(mu2))
    asked: list[LinearQuery] = []
    for column in columns:
        clique = (column.name, place_name(column.name))
        asked.append(place_sums(clique, bins=column.declared, size=column.size, places=column.place_count))
    centres: dict[str, tuple[float, float]] = {}
    whole = sum(map(sum, units))
    for column, variance, (_, own) in zip(columns, foretold, units, strict=True):
        if own:
            centre = variance.centre(float(mu2) * own / whole)
            centres[column.name] = centre, variance.reach(centre)
            clique = (column.name, place_name(column.name))
            asked.append(
                number_sum(clique, column.place_numbers, size=column.size, centre=centre, reach=centres[column.name][1])
            )
    weights = [float(inside) for inside, _ in units] + [float(own) for _, own in units if own]
    answers = curator.answer(asked, mu2, purpose=PURPOSE, weights=weights)
    totals = {}
    for (name, (centre, reach)), answer in zip(centres.items(), answers[len(columns) :], strict=True):
        unit = reach / SUM_STEPS
        totals[name] = TotalSum(centre, float(answer.noisy.item()) * unit, answer.sigma * unit)
    found = {}
    for column, answer in zip(columns, answers[: len(columns)], strict=True):
        unit, name = 2 * column.place_count, column.name  # the question's integers in a width of the bin
        found[name] = Moments(
            answer.noisy.reshape(-1) / unit,
            answer.sigma / unit,
            totals.get(name),
            errors.columns[name],
            errors.records,
        )
    return found


def foretell_variance(column: NumberBase, counts: Floats, *, count_sigma: float, records_sigma: float) -> MeanVariance:
    """Foretell of what the variance of a column's sum of numbers will be made.

    Args:
        column: The column.
        counts: Expected counts of its codes.
        count_sigma: Standard deviation of the noise of each of them.
        records_sigma: Standard deviation of the number of records.
    """
    some = np.array([float(f"{count:.{DIGITS}g}") for count in np.maximum(counts, 0)[: column.declared]])
    densities = column.densities(some)
    means, per_place = column.mean_numbers(densities), densities.numbers_per_place()
    total = max(float(some.sum()), 1.0)
    mean = float((means * some).sum() / total)
    spread = math.sqrt(float(((means - mean) ** 2 * some).sum() / total))
    beyond = column.size - column.declared
    return MeanVariance(
        total=total,
        mean=mean,
        low=float(column.place_numbers.min()),
        high=float(column.place_numbers.max()),
        scale=max(abs(mean), LEAST_SCALE * spread) or 1.0,
        counts=float((((means - means.mean()) * count_sigma) ** 2).sum()),
        stray=(per_place * some * USUAL_STRAY) ** 2,
        inside=(per_place / 2) ** 2,
        records_sigma=math.hypot(records_sigma, count_sigma * math.sqrt(beyond)),
    )


def divide_units(columns: Sequence[MeanVariance], mu2: float) -> list[tuple[int, int]]:
    """Divide the budget: part by part goes where it takes most off the sum of squared relative errors.

    Args:
        columns: What is foretold of each column.
        mu2: The whole budget.

    Returns:
        For each column its parts for sums inside bins and for the sum over all records, together `UNITS` times the
        number of columns.
    """
    step, unit = len(columns), mu2 / (UNITS * len(columns))
    found = [(INSIDE_UNITS, 0)] * len(columns)

    def gain(k: int, kind: int) -> float:
        inside, total = found[k]
        more = (inside + step, total) if kind == 0 else (inside, total + step)
        before, after = (columns[k].relative(a * unit, b * unit) for a, b in (found[k], more))
        return before - after

    for _ in range(UNITS - INSIDE_UNITS):
        k, kind = max(((k, kind) for k in range(len(columns)) for kind in (0, 1)), key=lambda one: gain(*one))
        inside, total = found[k]
        found[k] = (inside + step, total) if kind == 0 else (inside, total + step)
    return found


def write_moments(moments: Mapping[str, Moments]) -> str:
    """Returns the sums as a JSON text."""
    plain = {name: asdict(own) | {"sums": own.sums.tolist()} for name, own in moments.items()}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def read_moments(path: Path) -> dict[str, Moments]:
    """Read what was written; none if there is no such file.

    Raises:
        SourceError: If the file is not what `write_moments` wrote.
    """
    if not path.exists():
        return {}
    try:
        raw: dict[str, dict[str, Any]] = read_json(path)
        return {name: _read_column(own) for name, own in raw.items()}
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError):
        raise SourceError(f"{path.name} holds no sums of numbers; run the step fit again") from None


def _read_column(own: dict[str, Any]) -> Moments:
    total = own.get("total")
    return Moments(
        np.array(own["sums"], dtype=np.float64),
        float(own["sigma"]),
        None if total is None else TotalSum(float(total["centre"]), float(total["answer"]), float(total["sigma"])),
        float(own.get("count_sigma", 0)),
        float(own.get("records_sigma", 0)),
    )
