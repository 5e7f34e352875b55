"""What a public table says of a confidential one beforehand, and how far noisy answers bear it out.

A public table over the same codes (an earlier extract, a public-use file) is modelled first: a method asks it its own
questions, which are answered exactly, with the noise of sampling stated as the noise (`PublicTable`). The model is the
reference of every later fit: where little or nothing is measured the confidential table is taken to be like the public
one, and where it is measured the answers decide.

Whether and how far it is trusted follows from noisy answers alone, and is post-processing. A small part of the budget
asks once, before anything is built on it, how far all pairs are from the public model and from independence
(`bears_out`). If the public model would not leave less to be measured, it is set aside, and the rest of the budget does
what it would have done anyway: a wrong prior costs that part and no more. Afterwards the weight of the relative entropy
is the one that the answers show (`shown_weight`): differences between noisy answers and the public
model that noise and sampling explain leave it heavy, others make it light.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement, total_by_inverse_variance, without_impossible
from synth_core.models.calibration import Factor
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.reference import Reference
from synth_core.privacy.curator import weighted_gaussian
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Fit, PublicCounts
from synth_core.synthesizers.independent import positive_shares
from synth_core.synthesizers.precision import shrink_misfits
from synth_core.synthesizers.structure import MEAN_ABSOLUTE, best_batch

SAMPLING_NOISE = 5.0
"""Standard deviation in records of the sampling noise that a public table's counts are taken to have: that of a cell of
25 records. The largest table that is modelled has about 40 in each, on average."""
LARGEST_TABLE = 2**15
"""Number of records of a public table for each of these the noise grows by one record, so that tables stay small."""
LEAST_SHARE = 1e-6
"""Share of a code whose noisy count is not positive, so that its logarithm exists."""
LEAST_GAIN = 0.2
"""Least share of what would be left of all pairs without a prior that it has to take off."""
MOST_UNEXPLAINED = 0.4
"""A prior is set aside if it is shown to leave more than this share of the dependence of pairs unexplained."""
LIGHTEST, HEAVIEST = 1e-3, 1.0
"""Limits of the weight of the relative entropy."""


class PublicTable:
    """Answers the questions of a method about a public table: exactly, saying of each answer how noisy it is taken."""

    def __init__(self, public: PublicCounts) -> None:
        """Open the table."""
        self.domain, self._count = public.domain, public.count

    def measure(
        self, cliques: Sequence[Clique], mu2: Fraction, *, purpose: str, weights: Sequence[float] | None = None
    ) -> list[Measurement]:
        """Exact counts; their noise is the one that a confidential table's would have for this share."""
        cliques = [self.domain.clique(clique) for clique in cliques]
        if not cliques:
            return []
        variances = weighted_gaussian(mu2, len(cliques), weights).variances()
        return [
            without_impossible(Measurement(clique, table.astype(np.float64), math.sqrt(variance)), self.domain)
            for clique, table, variance in zip(cliques, self._count(cliques), variances, strict=True)
        ]

    def score(self, queries: Sequence[Misfit], mu2: Fraction, *, purpose: str) -> list[float]:
        """Each misfit, less what sampling alone would make of it."""
        tables = self._count([query.clique for query in queries])
        return [
            float(np.abs(table - query.reference).sum()) - query.penalty - _sampling_misfit(query.reference)
            for query, table in zip(queries, tables, strict=True)
        ]

    def choose(self, queries: Sequence[Misfit], mu2: Fraction, *, purpose: str) -> list[Misfit]:
        """The query of the largest value; the first of several."""
        values = self.score(queries, mu2, purpose=purpose)
        return [queries[int(np.argmax(values))]] if queries else []


def _sampling_misfit(expected: Floats) -> float:
    """Mean absolute deviation of all cells from what is expected, where records are drawn at random."""
    return MEAN_ABSOLUTE * float(np.sqrt(np.maximum(expected, 0.0)).sum())


def sampling_noise(rows: int) -> float:
    """The noise that counts of a public table are taken to have, in records."""
    return max(SAMPLING_NOISE, rows / LARGEST_TABLE)


def model_of(reference: Reference, domain: Domain, total: float) -> MarkovRandomField:
    """The reference alone as a model."""
    cliques = reference.cliques
    return MarkovRandomField(junction_tree(domain, cliques), cliques, reference.on(domain, cliques), total=total)


def completed(reference: Reference, measurements: Sequence[Measurement]) -> Reference:
    """The reference with the measured shares of the columns that it does not have."""
    known = reference.attributes
    shares = {m.clique: positive_shares(m.noisy) for m in measurements if len(m.clique) == 1}
    added = [Factor(c, np.log(np.maximum(s, LEAST_SHARE))) for c, s in shares.items() if c[0] not in known]
    return Reference((*reference.tables, *added), reference.rows)


def relative_fit(reference: Reference, domain: Domain, measurements: Sequence[Measurement], **settings: Any) -> Fit:
    """The fit of the model nearest to the reference, as far as the answers bear it out.

    Tables of columns whose dependence the reference does not know have a weight of their own.
    """
    total, reference = total_by_inverse_variance(measurements), completed(reference, measurements)
    prior = model_of(reference, domain, total)
    alike = [m for m in measurements if set(m.clique) <= reference.joined]
    other = [m for m in measurements if not set(m.clique) <= reference.joined]
    own = shown_weight(prior, alike, rows=reference.rows) if alike else HEAVIEST
    further = shown_weight(prior, other, rows=reference.rows) if other else own
    given = {"total": total, "reference": reference, "ridge": own, **settings}
    return Fit(domain, tuple(measurements), given, emphasis=own / further)


def shown_weight(prior: MarkovRandomField, measurements: Sequence[Measurement], *, rows: float) -> float:
    """The weight of the relative entropy that noisy answers show.

    With weight w a cell of m records in the prior is m + N(0, m / w) beforehand. So the squared difference of a
    noisy table from the prior is, beyond its noise, total / w in expectation. Tables are combined by the inverse
    of the variance that noise alone gives to their squared difference, and one standard deviation of that is left to
    chance. Sampling makes up 1 + total / rows of 1 / w where both tables are of one population: that much is taken for
    granted.
    """
    tables = prior.marginals([m.clique for m in measurements])
    precisions = np.array([1 / (m.noisy.size * m.sigma**4) for m in measurements])
    squares = [float(((m.noisy - table) ** 2).sum()) for m, table in zip(measurements, tables, strict=True)]
    beyond = np.array(squares) - np.array([m.noisy.size * m.sigma**2 for m in measurements])
    chance = math.sqrt(2 / precisions.sum())
    found = (float((precisions * beyond).sum() / precisions.sum()) - chance) / prior.total
    return float(np.clip(1 / max(1 + prior.total / rows, found), LIGHTEST, HEAVIEST))


def left_over(domain: Domain, misfits: Mapping[Clique, float], *, sigma: float, mu2: Fraction) -> float:
    """Records of misfit, over all pairs, that stay after the best of them were measured with `mu2`; an estimate."""
    gains = shrink_misfits(misfits, sigma=sigma)
    worth, _ = best_batch(domain, gains, mu2)
    return sum(gains.values()) - max(worth, 0.0)


def bears_out(
    domain: Domain,
    with_prior: Mapping[Clique, float],
    without: Mapping[Clique, float],
    *,
    sigma: float,
    mu2: float | Fraction,
) -> bool:
    """Whether pairs would be known better after measuring with the prior than without, by more than chance explains.

    Two things more are asked, as a fit beside a reference is worse than another where it has to unlearn much, or where
    the reference says nothing of most columns: that the prior takes a share of all that would be left (`LEAST_GAIN`),
    and that it is not shown to leave most of the dependence unexplained (`MOST_UNEXPLAINED`).

    Args:
        domain: the attributes, those that the prior lacks among them.
        with_prior: noisy misfit with the public model, in records, of each pair that the prior has.
        without: the same with independence.
        sigma: standard deviation of the noise on a misfit, in records.
        mu2: what all pairs could be measured with.
    """
    share = Fraction(len(with_prior), len(domain) * (len(domain) - 1) // 2)
    chance = sigma * math.sqrt(2 * len(with_prior))
    own = Fraction(mu2) * share
    prior, alone = (left_over(domain, misfits, sigma=sigma, mu2=own) for misfits in (with_prior, without))
    gained = alone - prior > max(chance, LEAST_GAIN * alone / float(share))
    explained = sum(with_prior.values()) - 2 * chance < MOST_UNEXPLAINED * sum(without.values())
    return gained and explained
