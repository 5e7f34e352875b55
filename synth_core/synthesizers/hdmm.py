"""HDMM: measure, instead of a workload, the linear queries from which it is best reconstructed, all in one go.

The strategy follows from the public workload alone (McKenna, Miklau, Hay & Machanavajjhala, PVLDB 2018; here for
Gaussian noise). The preset `default` fits a graphical model to the noisy answers; `lls` reconstructs
each measured table by its own least squares, as the variant that Private-PGM is compared with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.linear import Answered, LinearMeasurement, contract_axes, estimate_total
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.strategies import Answers, Strategy
from synth_core.synthesizers.base import Scores, Structure, Tools, option
from synth_core.synthesizers.consistency import model_in_turn, order_by_dependence
from synth_core.synthesizers.workloads import ALL_PAIRS, LIMIT_CELLS, Kind, QuerySet, Workload, queries_of, refuse_large

COEFFICIENT_BITS = 18
"""Bits of the largest coefficient of a strategy over all its attributes: the noise on it stays within the sampler's."""


@dataclass(frozen=True, slots=True)
class HDMM:
    """One batch of linear measurements, chosen before any data is opened."""

    workload: Workload = option(ALL_PAIRS, parse=Workload.parse)
    graphical: bool = option(True, "Whether a graphical model is fitted instead of least squares on each table.")
    limit_cells: int = option(LIMIT_CELLS)
    last_fit: float = option(0.8)

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """One share; a workload whose model would be too large is refused here, before anything is spent."""
        if self.graphical:
            refuse_large(self.workload.parts(domain), domain, limit_cells=self.limit_cells)
        return BudgetPlan(total_mu2, (("strategy", Fraction(1)),))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Nothing to ask: the workload is all that the strategy depends on."""
        return Scores(0.0)

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The cliques of the workload."""
        parts = self.workload.parts(curator.domain)
        return Structure(scores, tuple(part.clique for part in parts))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure the whole strategy at once and estimate."""
        domain = curator.domain
        strategies, shares = choose_strategies(self.workload.parts(domain), domain)
        answers = curator.answer(strategies, plan.mu2("strategy"), purpose="strategy", weights=shares)
        measurements = [_measurement(one) for one in answers]
        if self.graphical:
            return tools.estimate(domain, measurements, until=self.last_fit, limit_cells=self.limit_cells)
        total = max(1.0, estimate_total(measurements))
        return model_in_turn(domain, order_by_dependence(local_least_squares(answers)), total=total)

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return self.graphical

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of the reconstructed workload, in records."""
        parts = self.workload.parts(domain)
        strategies, shares = choose_strategies(parts, domain)
        weights = tuple(Fraction(share) for share in shares)
        mechanism = gaussian_for(plan.mu2("strategy"), sensitivity=Fraction(1), count=len(parts), weights=weights)
        errors = [
            error_of(part, domain, strategy) * float(variance)
            for part, strategy, variance in zip(parts, strategies, mechanism.variances(), strict=True)
        ]
        queries = sum(math.prod(map(len, part.matrices(domain))) for part in parts)
        return [
            ("queries in the workload", f"{queries:,} about {len(parts)} marginals"),
            ("queries measured", f"{sum(math.prod(strategy.shape) for strategy in strategies):,}"),
            ("noise on each answer, root mean square", f"sigma {math.sqrt(sum(errors) / queries):.1f} records"),
        ]


def choose_strategies(parts: tuple[QuerySet, ...], domain: Domain) -> tuple[list[Strategy], list[float]]:
    """A strategy for each part of the workload, and the share of the budget it is measured with.

    A part whose squared error is e at the whole budget has e / s at the share s. By Cauchy-Schwarz the weighted sum of
    w e / s over shares that add up to 1 is least where s is proportional to sqrt(w e).
    """
    strategies = [strategy_of(part, domain) for part in parts]
    needs = [
        math.sqrt(part.weight * error_of(part, domain, strategy))
        for part, strategy in zip(parts, strategies, strict=True)
    ]
    return strategies, [need / math.fsum(needs) for need in needs]


def strategy_of(part: QuerySet, domain: Domain) -> Strategy:
    """The queries to measure for a part: single codes as they are, others by `root_of`, rounded to integers."""
    rounded = sum(kind != "codes" for kind in part.kinds)
    scale = 2 ** min(8, COEFFICIENT_BITS // max(1, rounded))
    matrices = [
        np.eye(size, dtype=np.int64) if kind == "codes" else np.rint(scale * root_of(kind, size)).astype(np.int64)
        for kind, size in zip(part.kinds, domain.shape(part.clique), strict=True)
    ]
    return Strategy(part.clique, tuple(matrices))


def root_of(kind: Kind, size: int) -> NDArray[np.float64]:
    """Queries from which all queries of a kind about one attribute are reconstructed with little error.

    With noise in proportion to the largest column norm of A, the squared error is max_j X_jj * tr(G X^-1), where
    X = AᵀA and G = WᵀW. With the mean of the X_jj in place of the largest, X = sqrt(G) is optimal (Cauchy-Schwarz),
    so A = G^(1/4); dividing its columns by their norms makes the mean the largest. For prefixes and ranges of up to
    100 codes that is within 1 % of the best numerical optimum.
    """
    queries = queries_of(kind, size)
    values, vectors = np.linalg.eigh(queries.T @ queries)
    root = (vectors * np.maximum(values, 0.0) ** 0.25) @ vectors.T
    return np.asarray(root / np.linalg.norm(root, axis=0))


def error_of(part: QuerySet, domain: Domain, strategy: Strategy) -> float:
    """Squared error of all answers of a part at mu = 1: the sensitivity times a product over the attributes."""
    spreads = [
        float(((queries @ np.linalg.pinv(matrix)) ** 2).sum())
        for queries, matrix in zip(part.matrices(domain), strategy.matrices, strict=True)
    ]
    return strategy.sensitivity2 * math.prod(spreads)


def local_least_squares(answers: list[Answers[Strategy]]) -> list[tuple[Clique, NDArray[np.float64]]]:
    """Each measured table by least squares from its own answers: unbiased, neither consistent nor positive."""
    return [
        (one.strategy.clique, contract_axes(one.noisy, [np.linalg.pinv(m) for m in one.strategy.matrices]))
        for one in answers
    ]


def _measurement(answers: Answers[Strategy]) -> Answered:
    """The answers as the estimators take them; single codes of all attributes are a plain marginal."""
    strategy = answers.strategy
    if all(np.array_equal(m, np.eye(len(m))) for m in strategy.matrices):
        return Measurement(strategy.clique, answers.noisy, answers.sigma)
    matrices = tuple(m.astype(np.float64) for m in strategy.matrices)
    return LinearMeasurement(strategy.clique, matrices, answers.noisy, answers.sigma)


PRESETS = {"default": HDMM(), "lls": HDMM(graphical=False)}
