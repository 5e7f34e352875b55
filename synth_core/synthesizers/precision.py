"""How precisely columns must be known before pairs are asked about, and whether the pairs say anything beyond noise.

Both are decided from noisy answers alone. A small table cannot pay for everything: where one-way marginals are mostly
noise, whatever is built on them is noise as well, and where no pair is seen above the noise, columns alone are the
better table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import EarlierRelease, Measurement, total_by_inverse_variance
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator, weighted_gaussian
from synth_core.synthesizers.base import Scores, pool_tables
from synth_core.synthesizers.reuse import agrees, take_up
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE, best_batch

STEP = Fraction(1, 64)
"""Grid of the share of a budget that one-way marginals may get beside their own."""
MAX_STEPS = 40
"""Upper limit of that share in steps: five eighths."""


def one_way_weights(domain: Domain) -> list[float]:
    """Weights of the one-way marginals in a batch: larger columns get more, so that their absolute noise is least."""
    return [float(size) ** BY_SIZE for size in domain.sizes]


def measure_one_way(
    curator: Curator, plan: BudgetPlan, *, aim: float, reserve: str, earlier: Sequence[EarlierRelease] = ()
) -> Scores:
    """Measure one-way marginals, and again with a part of another budget where the first ones are mostly noise.

    Args:
        curator: answers with noise.
        plan: shares of the budget, "one-way" and the reserve among them.
        aim: mean total variation that the noise may leave in a column.
        reserve: the share of the plan from which a second measurement is paid.
        earlier: releases of the same rows; those that agree are taken up.

    Returns:
        The noisy number of records, the pooled marginals, how many steps of the reserve were spent, and what is known
        of earlier releases.
    """
    return measure_one_way_again(curator, plan, measure_one_way_once(curator, plan, earlier), aim=aim, reserve=reserve)


def measure_one_way_once(curator: Curator, plan: BudgetPlan, earlier: Sequence[EarlierRelease] = ()) -> Scores:
    """The first of both; see `measure_one_way`."""
    domain = curator.domain
    singles, weights = [(attribute,) for attribute in domain], one_way_weights(domain)
    first = curator.measure(singles, plan.mu2("one-way"), purpose="one-way marginals", weights=weights)
    agreed = [release for release in earlier if agrees(release, first)]
    columns = [column for release in agreed for column in release.columns]
    measured = pool_tables([*first, *columns], order=1) if columns else first
    scores = Scores(
        max(1.0, total_by_inverse_variance(measured)),
        (),
        tuple(measured),
        set_aside=tuple(release.release for release in earlier if release not in agreed),
    )
    return take_up(scores, agreed, domain) if agreed else scores


def measure_one_way_again(
    curator: Curator, plan: BudgetPlan, scores: Scores, *, aim: float, reserve: str, known: Collection[str] = ()
) -> Scores:
    """The second of both, where it is needed; columns that are known from elsewhere do not need it."""
    domain, measured = curator.domain, scores.measurements
    singles, weights = [(attribute,) for attribute in domain], one_way_weights(domain)
    steps = 0
    if len(domain) > 1:
        ratio = float(plan.mu2(reserve) * STEP / plan.mu2("one-way"))
        first = weighted_gaussian(plan.mu2("one-way"), len(domain), weights).variances()
        gains = [ratio * m.sigma**2 / float(own) for m, own in zip(measured, first, strict=True)]
        steps = _steps(measured, gains=gains, aim=aim, known=known)
    if not steps:
        return scores
    budget = plan.mu2(reserve) * STEP * steps
    again = curator.measure(singles, budget, purpose="one-way marginals again", weights=weights)
    pooled = tuple(pool_tables([*measured, *again], order=1))
    total = max(1.0, total_by_inverse_variance(pooled))
    return replace(scores, total=total, measurements=pooled, repeated=scores.repeated + steps)


def _steps(measured: Sequence[Measurement], *, gains: Sequence[float], aim: float, known: Collection[str]) -> int:
    """The fewest steps of the reserve after which the noise leaves at most `aim`, within MAX_STEPS.

    A step adds `gains` times the precision that each table has.
    """
    total = max(1.0, total_by_inverse_variance(measured))
    unknown = [m.clique[0] not in known for m in measured]
    noise = np.array([MEAN_ABSOLUTE / 2 * m.noisy.size * m.sigma / total for m in measured]) * unknown
    gained = np.array(gains)
    left = (float(np.minimum(noise / np.sqrt(1 + gained * steps), 1.0).mean()) for steps in range(MAX_STEPS))
    return next((steps for steps, tvd in enumerate(left) if tvd <= aim), MAX_STEPS)


def plan_after(plan: BudgetPlan, scores: Scores, *, reserve: str) -> BudgetPlan:
    """The plan with what the second measurement of one-way marginals, and of scores, left of the reserve."""
    spent = STEP * scores.repeated
    shares = [(name, share * (1 - spent) if name == reserve else share) for name, share in plan.shares]
    whole = sum((share for name, share in plan.shares if name == reserve), Fraction(0))
    return BudgetPlan(plan.total_mu2, (*shares, ("one-way again", whole * spent)))


def see_dependence(
    domain: Domain,
    misfits: Mapping[Clique, float],
    one_way: Sequence[Measurement],
    *,
    sigma: float,
    mu2: Fraction,
) -> bool:
    """Whether measuring the best pairs with `mu2` promises more than the noise it puts in.

    A pair's misfit with the product of noisy one-way marginals holds their noise and its own. The former is taken off;
    the rest is shrunk towards the mean of all pairs by how much of its spread is more than noise, as James and Stein
    do. Mean and spread are taken at the lower end of what chance leaves open: a table of independent columns must not
    look dependent because there are many pairs.

    Args:
        domain: the attributes in which the pairs would be measured.
        misfits: noisy misfit of each pair, in records.
        one_way: the marginals from which the products were made.
        sigma: standard deviation of the noise on a misfit, in records.
        mu2: what the pairs could be measured with.

    Returns:
        Whether some batch of pairs gains more than its noise.
    """
    own = {m.clique[0]: MEAN_ABSOLUTE * m.noisy.size * m.sigma for m in one_way}
    gains: dict[Clique, float] = {(a, b): misfit - math.hypot(own[a], own[b]) for (a, b), misfit in misfits.items()}
    shrunk = shrink_misfits(gains, sigma=sigma, mean_lowered=sigma / math.sqrt(max(1, len(gains))))
    return best_batch(domain, shrunk, mu2)[0] > 0


def shrink_misfits(misfits: Mapping[Clique, float], *, sigma: float, mean_lowered: float = 0.0) -> dict[Clique, float]:
    """Noisy misfits, each drawn to the mean of all by how much of their spread is noise.

    Args:
        misfits: noisy misfit of each pair, in records.
        sigma: standard deviation of their noise.
        mean_lowered: records by which the mean is taken lower than it is.

    Returns:
        What each is taken to be.
    """
    noisy = np.array(list(misfits.values()))
    chance = 1 + 2 * math.sqrt(2 / max(1, len(noisy) - 1))
    spread = max(0.0, float(noisy.var()) - chance * sigma**2)
    mean = float(noisy.mean()) - mean_lowered
    shrunk = mean + spread / (spread + sigma**2) * (noisy - mean)
    return dict(zip(misfits, shrunk.tolist(), strict=True))
