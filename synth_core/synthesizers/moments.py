"""Sums of numbers inside their bins: the question, its answers, and what they make of densities.

For each bin of a column that declares `moments: true` the question is the sum, over the bin's records, of how far their
numbers lie from the middle of the bin's scale. The mean place in the bin is a half plus that sum over the bin's count,
which the model knows; the answers and all that is made of them are public.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.documents import parse_json
from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.privacy.curator import Curator
from synth_core.privacy.strategies import place_sums
from synth_core.schema import Schema
from synth_core.schema.codec import Marginal, guess_densities, summed_columns
from synth_core.schema.columns.inside import place_name
from synth_core.schema.densities import USUAL_STRAY, Densities

PURPOSE = "sums of numbers inside bins"
"""What the ledger says of the question."""

STEP = 0.01
"""Change of a mean place by which it is tried how far it moves the mean number of a bin."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Noisy sums of one column.

    Attributes:
        sums: For each bin, how far its records lie above the middle of its scale, in widths of the bin.
        sigma: Standard deviation of the noise of each sum, in widths of the bin.
    """

    sums: NDArray[np.float64]
    sigma: float

    def mean_places(self, counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the mean place in each bin with this many records, and the standard deviation of its noise."""
        records = np.maximum(counts, 1e-9)
        return 0.5 + self.sums / records, self.sigma / records


def summed_domain(schema: Schema) -> Domain:
    """Returns the attributes that the question is about: codes and places of each column."""
    sizes: dict[str, int] = {}
    for column in summed_columns(schema):
        sizes |= {column.name: column.size, place_name(column.name): column.place_count}
    return Domain.of(sizes)


def ask_moments(curator: Curator, schema: Schema, mu2: Fraction) -> dict[str, Moments]:
    """Ask for the sums of all columns that declare them, at equal shares.

    Args:
        curator: Knows the `summed_domain` of the schema.
        schema: The public declaration of the columns.
        mu2: What the question may cost.

    Returns:
        The noisy sums, by column.
    """
    columns = summed_columns(schema)
    asked = [
        place_sums(
            (column.name, place_name(column.name)), bins=column.declared, size=column.size, places=column.place_count
        )
        for column in columns
    ]
    answers = curator.answer(asked, mu2, purpose=PURPOSE)
    found = {}
    for column, answer in zip(columns, answers, strict=True):
        unit = 2 * column.place_count  # of the question's integers in a width of the bin
        found[column.name] = Moments(answer.noisy.reshape(-1) / unit, answer.sigma / unit)
    return found


def value_densities(schema: Schema, marginal: Marginal, moments: Mapping[str, Moments]) -> dict[str, Densities]:
    """Where in their bins numbers lie: guessed from published counts, and tilted to the means that were bought.

    Args:
        schema: The public declaration of the columns.
        marginal: Gives the counts of one column's codes, for instance a model's `marginal`.
        moments: Bought sums, by column; there may be none.

    Returns:
        The densities, by column.
    """
    found = guess_densities(schema, marginal)
    for name, own in moments.items():
        counts = np.asarray(marginal((name,)), dtype=np.float64)[: len(own.sums)]
        found[name] = found[name].with_means(*own.mean_places(counts))
    return found


def mean_deviation(densities: Densities, moments: Moments, counts: NDArray[np.float64], *, count_sigma: float) -> float:
    """Standard deviation, by noise, of the mean that a column's bought sums and noisy counts give.

    Args:
        densities: Those of the column, with its bought means.
        moments: Its bought sums.
        counts: Expected counts of its bins.
        count_sigma: Standard deviation of the noise of each of these counts.

    Returns:
        The deviation, in the column's numbers. In a bin of few records a sum is trusted less than its noise allows, and
        the deviation is that of what is trusted.
    """
    total = max(float(counts.sum()), 1.0)
    deviations = moments.mean_places(counts)[1]
    deviations = deviations * USUAL_STRAY / np.hypot(USUAL_STRAY, deviations)
    means = densities.mean_numbers()
    apart = [densities.with_exact_means(densities.means + step).mean_numbers() for step in (-STEP, STEP)]
    per_place = (apart[1] - apart[0]) / (2 * STEP)
    mean = float((means * counts).sum() / total)
    of_sums = (per_place * counts * deviations) ** 2
    of_counts = ((means - mean) * count_sigma) ** 2
    return float(np.sqrt(of_sums.sum() + of_counts.sum()) / total)


def write_moments(moments: Mapping[str, Moments]) -> str:
    """Returns the sums as a JSON text."""
    plain = {name: {"sums": own.sums.tolist(), "sigma": own.sigma} for name, own in moments.items()}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def read_moments(path: Path) -> dict[str, Moments]:
    """Read what was written; none if there is no such file.

    Raises:
        SourceError: If the file is not what `write_moments` wrote.
    """
    if not path.exists():
        return {}
    try:
        raw: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        return {
            name: Moments(np.array(own["sums"], dtype=np.float64), float(own["sigma"])) for name, own in raw.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SourceError(f"{path.name} holds no sums of numbers; run the step fit again") from None
