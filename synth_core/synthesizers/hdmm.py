"""HDMM: measure, instead of a workload, the linear queries from which it is best reconstructed, all in one go.

The strategy follows from the public workload alone (McKenna, Miklau, Hay & Machanavajjhala, PVLDB 2018; here for
Gaussian noise). The preset `default` fits a graphical model to the noisy answers; `lls` reconstructs
each measured table by its own least squares, as the variant that Private-PGM is compared with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import Answered, LinearMeasurement, contracted, total_of
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.strategies import Answers, IntegerMatrix, Strategy
from synth_core.synthesizers.base import Model, Scores, Structure, Tools, with_options
from synth_core.synthesizers.conditionals import by_dependence, in_turn
from synth_core.workloads import ALL_PAIRS, Kind, Part, Workload, queries_of

SCALE = 256
"""Strategies are rounded to multiples of 1/SCALE of a column's norm; the error is within 1 % of the unrounded one."""


@dataclass(frozen=True, slots=True)
class HDMM:
    """One batch of linear measurements, chosen before any data is opened."""

    workload: Workload = ALL_PAIRS
    graphical: bool = True
    limit_cells: int = 16_000_000
    last_fit: float = 1.0

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """One share; a workload whose model would be too large is refused here, before anything is spent."""
        if self.graphical:
            cliques = [part.clique for part in self.workload.parts(domain)]
            junction_tree(domain, cliques, limit_cells=self.limit_cells)
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
        strategies, shares = chosen(self.workload.parts(domain), domain)
        answers = curator.answer(strategies, plan.mu2("strategy"), purpose="strategy", weights=shares)
        measurements = [_measurement(one) for one in answers]
        if self.graphical:
            return tools.estimate(domain, measurements, until=self.last_fit, limit_cells=self.limit_cells)
        total = max(1.0, total_of(measurements))
        return in_turn(domain, by_dependence(local_least_squares(answers)), total=total)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of the reconstructed workload, in records."""
        parts = self.workload.parts(domain)
        strategies, shares = chosen(parts, domain)
        weights = tuple(Fraction(share) for share in shares)
        mechanism = gaussian_for(
            plan.mu2("strategy"), sensitivity=Fraction(1), count=len(parts), weights=weights
        )
        errors = [cost(part, domain) * float(v) for part, v in zip(parts, mechanism.variances(), strict=True)]
        queries = sum(math.prod(map(len, part.matrices(domain))) for part in parts)
        return [
            ("queries in the workload", f"{queries:,} about {len(parts)} marginals"),
            ("queries measured", f"{sum(math.prod(strategy.shape) for strategy in strategies):,}"),
            (
                "noise on each answer, root mean square",
                f"sigma {math.sqrt(sum(errors) / queries):.1f} records",
            ),
        ]


def chosen(parts: tuple[Part, ...], domain: Domain) -> tuple[list[Strategy], list[float]]:
    """A strategy for each part of the workload, and the share of the budget it is measured with.

    A part whose squared error is e at the whole budget has e / s at the share s. By Cauchy-Schwarz the weighted sum of
    w e / s over shares that add up to 1 is least where s is proportional to sqrt(w e).
    """
    strategies = [
        Strategy(part.clique, tuple(map(strategy_of, part.kinds, domain.shape(part.clique))))
        for part in parts
    ]
    needs = [math.sqrt(part.weight * cost(part, domain)) for part in parts]
    return strategies, [need / math.fsum(needs) for need in needs]


def strategy_of(kind: Kind, size: int) -> IntegerMatrix:
    """Integer queries from which all queries of a kind about one attribute are reconstructed with little error.

    With noise in proportion to the largest column norm of A, the squared error is max_j X_jj * tr(G X^-1), where
    X = AᵀA and G = WᵀW. With the mean of the X_jj in place of the largest, X = sqrt(G) is optimal (Cauchy-Schwarz),
    so A = G^(1/4); dividing its columns by their norms makes the mean the largest. For prefixes and ranges of up to
    100 codes that is within 1 % of the best numerical optimum. For single codes G and A are the identity.
    """
    if kind == "codes":
        return np.eye(size, dtype=np.int64)
    queries = queries_of(kind, size)
    values, vectors = np.linalg.eigh(queries.T @ queries)
    root = (vectors * np.maximum(values, 0.0) ** 0.25) @ vectors.T
    return np.asarray(np.rint(SCALE * root / np.linalg.norm(root, axis=0)), dtype=np.int64)


def cost(part: Part, domain: Domain) -> float:
    """Squared error of all answers of a part at sigma = sensitivity: a product over its attributes."""
    return math.prod(map(_cost, part.kinds, domain.shape(part.clique)))


def local_least_squares(answers: list[Answers]) -> list[tuple[Clique, NDArray[np.float64]]]:
    """Each measured table by least squares from its own answers: unbiased, neither consistent nor positive."""
    return [
        (one.strategy.clique, contracted(one.noisy, [np.linalg.pinv(m) for m in one.strategy.matrices]))
        for one in answers
    ]


def build(preset: str, options: dict[str, Any]) -> HDMM:
    """HDMM by preset; `workload` is read from the spec's plain values."""
    if "workload" in options:
        options = options | {"workload": Workload.parse(options["workload"])}
    built: HDMM = with_options(HDMM(graphical=preset == "default"), options, method=f"hdmm/{preset}")
    return built


def _cost(kind: Kind, size: int) -> float:
    strategy = strategy_of(kind, size)
    sensitivity2 = float((strategy**2).sum(axis=0).max())
    return sensitivity2 * float(((queries_of(kind, size) @ np.linalg.pinv(strategy)) ** 2).sum())


def _measurement(answers: Answers) -> Answered:
    """The answers as the estimators take them; single codes of all attributes are a plain marginal."""
    strategy = answers.strategy
    if all(np.array_equal(m, np.eye(len(m))) for m in strategy.matrices):
        return Measurement(strategy.clique, answers.noisy, answers.sigma)
    matrices = tuple(m.astype(np.float64) for m in strategy.matrices)
    return LinearMeasurement(strategy.clique, matrices, answers.noisy, answers.sigma)
