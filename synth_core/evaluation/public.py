"""Quality that may be published: computed from noisy answers and the synthetic table, never from real rows.

A synthetic table that follows its answers is as far from them as the noise alone would put it. It was fitted to
the same answers, so this says nothing about marginals that were not asked for; those are judged only by errors
that were bought from the curator (`BoughtError`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from synth_core.domain import Clique, Codes, Domain
from synth_core.errors import SourceError
from synth_core.evaluation.distances import Z95, tvd
from synth_core.measurement import Measurement, merge_codes
from synth_core.privacy.answer_form import Groups

_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


MAX_TIED_CELLS = 4_000_000
"""Cells up to which the table of a pair is formed whole to see how far its columns depend on each other."""

MergedMarginal: TypeAlias = tuple[Measurement, Groups]
"""A noisy marginal for which codes were merged first, and the group of each code, by attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMarginal:
    """One marginal that was measured: TVD of the synthetic table from the noisy answer, and of noise alone."""

    clique: Clique
    cells: int
    sigma: float
    distance: float
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAnswer:
    """The best noisy estimate of the shares of a column's codes, in their order, with the noise on each."""

    shares: tuple[float, ...]
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtError:
    """A noisy mean TVD of the synthetic from the real table over marginals of `alpha` columns, 95 % within `margin`."""

    alpha: int
    marginals: int
    mean: float
    margin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanError:
    """The mean of a column's published numbers, and within how much the true one is, 95 % of the time.

    The margin is that of the noise of the bought sums and of the counts of bins, and of drawing finitely many rows. By
    what the model's counts of bins are off beyond their noise is not in it.
    """

    column: str
    mean: float
    margin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicQuality:
    """What a release may say of its own quality.

    Of two linked tables, `rows` are households, `columns` and all tables those of one person of each household, which
    counts as much as any other whatever its size; `people` are counted by themselves, and `pairs` are tables of two.

    `synthetic` holds the shares of each column's codes in the synthetic table, `ties` each pair's TVD from independence
    in it, `means` those whose sums inside bins were bought. `answers_used` is the number of stored answers that
    `measured` was made of, `answers_unused` how many could not be compared with a table, by their kind.
    """

    total: float
    rows: int
    columns: dict[str, ColumnAnswer]
    synthetic: dict[str, tuple[float, ...]]
    measured: tuple[MeasuredMarginal, ...]
    ties: tuple[tuple[float, ...], ...]
    bought: tuple[BoughtError, ...]
    violations: dict[str, int]
    means: tuple[MeanError, ...] = ()
    answers_used: int = 0
    answers_unused: dict[str, int] = field(default_factory=dict)
    people: int = 0
    pairs: tuple[MeasuredMarginal, ...] = ()

    def to_json(self) -> str:
        """The quality as one JSON text; equal qualities give equal texts."""
        plain = asdict(self)
        if not self.people:  # one table
            del plain["people"], plain["pairs"]
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> PublicQuality:
        """Read what `to_json` wrote."""
        try:
            return _QUALITY.validate_json(text)
        except ValidationError:
            raise SourceError("the stored quality cannot be read; run the evaluate step again") from None


_QUALITY = TypeAdapter(PublicQuality)


class CountedTable(Protocol):
    """What is needed of a synthetic table: its counts."""

    @property
    def domain(self) -> Domain:
        """The attributes."""

    @property
    def rows(self) -> int:
        """How many records there are."""

    @property
    def sample(self) -> Codes:
        """Some rows of codes."""

    def tables(self, cliques: Sequence[Clique]) -> Iterator[NDArray[Any]]:
        """Counts of several marginals."""


def judge_marginals(
    synthetic: CountedTable, measurements: Sequence[Measurement], *, total: float, scale: float
) -> list[MeasuredMarginal]:
    """Compare a synthetic table with noisy marginals.

    Args:
        synthetic: the table.
        measurements: the marginals, of all codes.
        total: the noisy number of records.
        scale: records that a synthetic one stands for.

    Returns:
        How far the table is from each, and how far noise alone would put it.
    """
    counted = synthetic.tables([measurement.clique for measurement in measurements])
    return [
        judge_answer(measurement, counts.astype(np.float64) * scale, total)
        for measurement, counts in zip(measurements, counted, strict=True)
    ]


def public_quality(
    synthetic: CountedTable,
    *,
    measurements: Sequence[Measurement],
    merged: Sequence[MergedMarginal] = (),
    total: float,
    bought: Sequence[BoughtError] = (),
    means: Sequence[MeanError] = (),
    violations: Mapping[str, int] | None = None,
    answers_used: int | None = None,
    answers_unused: Mapping[str, int] | None = None,
    people: int = 0,
    pairs: Sequence[MeasuredMarginal] = (),
) -> PublicQuality:
    """Judge a synthetic table by the noisy answers it was made from.

    Args:
        synthetic: the table.
        measurements: noisy marginals.
        merged: noisy marginals of merged codes; the table's codes are merged the same way before it is compared.
        total: the noisy number of records.
        bought: errors that were bought from the curator.
        means: means whose sums were bought.
        violations: how many rows break each declared rule.
        answers_used: number of stored answers behind the marginals; as many as there are marginals unless given.
        answers_unused: number of other stored answers, by kind.
        people: number of people, where the table is one of households.
        pairs: marginals of two people of one household, already judged.
    """
    domain = synthetic.domain
    answers: list[MergedMarginal] = [*((m, (None,) * m.noisy.ndim) for m in measurements), *merged]
    counted = synthetic.tables([measurement.clique for measurement, _ in answers])
    scale = total / synthetic.rows
    return PublicQuality(
        total=total,
        rows=synthetic.rows,
        columns={name: answer for name in domain if (answer := _column_answer(name, answers, total))},
        synthetic={name: tuple(shares.tolist()) for name, shares in _shares(synthetic).items()},
        measured=tuple(
            judge_answer(measurement, merge_codes(counts, groups).astype(np.float64) * scale, total)
            for (measurement, groups), counts in zip(answers, counted, strict=True)
        ),
        ties=_ties(synthetic),
        bought=tuple(bought),
        means=tuple(means),
        violations=dict(violations or {}),
        answers_used=len(answers) if answers_used is None else answers_used,
        answers_unused=dict(answers_unused or {}),
        people=people,
        pairs=tuple(pairs),
    )


def bought_error(alpha: int, misfits: Sequence[float], *, sigma: float, total: float) -> BoughtError:
    """The mean of noisy misfits (L1 distances in records, noise `sigma` on each) as a TVD.

    The mean of m answers has noise sigma / sqrt(m), and half of it over the total is a TVD. With a budget mu shared by
    m misfits of sensitivity 1, sigma is sqrt(m) / mu, so the mean is as precise as if it alone had been asked.
    """
    scale = 2 * total
    margin = Z95 * sigma / math.sqrt(len(misfits)) / scale
    mean = max(0.0, float(np.mean(misfits)) / scale)
    return BoughtError(alpha=alpha, marginals=len(misfits), mean=mean, margin=margin)


def judge_answer(measurement: Measurement, expected: NDArray[np.float64], total: float) -> MeasuredMarginal:
    """Compare a synthetic table of counts with a noisy answer.

    Args:
        measurement: the answer.
        expected: the same table of the synthetic records, scaled to `total` of them.
        total: the noisy number of records.

    Returns:
        How far they are apart, and how far noise alone would put them.
    """
    cells = measurement.noisy.size
    return MeasuredMarginal(
        clique=measurement.clique,
        cells=cells,
        sigma=measurement.sigma,
        distance=float(np.abs(measurement.noisy - expected).sum() / (2 * total)),
        noise=cells * measurement.sigma * _MEAN_ABSOLUTE / (2 * total),
    )


def _column_answer(name: str, answers: Sequence[MergedMarginal], total: float) -> ColumnAnswer | None:
    """All answers that hold the column with all its codes, summed down to it and combined by inverse variance."""
    weights, sums = [], []
    for measurement, groups in answers:
        axis = measurement.clique.index(name) if name in measurement.clique else -1
        if axis >= 0 and groups[axis] is None:
            others = tuple(place for place in range(measurement.noisy.ndim) if place != axis)
            counts = measurement.noisy.sum(axis=others)
            weights.append(counts.size / (measurement.noisy.size * measurement.sigma**2))
            sums.append(counts)
    if not weights:
        return None
    best: NDArray[np.float64] = np.average(sums, axis=0, weights=weights) / total
    return ColumnAnswer(shares=tuple(best.tolist()), sigma=1 / math.sqrt(sum(weights)) / total)


def _shares(table: CountedTable) -> dict[str, NDArray[np.float64]]:
    columns = table.tables([(name,) for name in table.domain])
    return {name: counts / table.rows for name, counts in zip(table.domain, columns, strict=True)}


def _ties(synthetic: CountedTable) -> tuple[tuple[float, ...], ...]:
    domain, shares = synthetic.domain, _shares(synthetic)
    matrix = np.zeros((len(domain), len(domain)))
    pairs = [pair for pair in combinations(domain, 2) if domain.cells(pair) <= MAX_TIED_CELLS]
    for (a, b), counts in zip(pairs, synthetic.tables(pairs), strict=True):
        matrix[domain.position(a), domain.position(b)] = tvd(counts, np.outer(shares[a], shares[b]))
    for a, b in combinations(domain, 2):
        if domain.cells((a, b)) > MAX_TIED_CELLS:
            matrix[domain.position(a), domain.position(b)] = _sampled_tie(synthetic, a, b, shares)
    return tuple(tuple(row) for row in (matrix + matrix.T).tolist())


def _sampled_tie(synthetic: CountedTable, a: str, b: str, shares: Mapping[str, NDArray[np.float64]]) -> float:
    """The same distance of a pair with very many cells, in a sample of the rows: no cell without rows is formed.

    Cells without rows add what independence gives them, which is all that it does not give the others.
    """
    domain, rows = synthetic.domain, synthetic.sample
    first, second = (rows[:, domain.position(name)].astype(np.int64) for name in (a, b))
    cells, counts = np.unique(first * domain.size(b) + second, return_counts=True)
    alone = shares[a][cells // domain.size(b)] * shares[b][cells % domain.size(b)]
    return float(np.abs(counts / len(rows) - alone).sum() + 1 - alone.sum()) / 2
