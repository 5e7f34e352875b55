"""PrivMN, made sound: a dependence graph from noisy scores, noisy tables of its clusters, records.

Zhang, Zhao, Wei & Chen (EAI Endorsed Transactions, 2019) print an algorithm that does not keep the epsilon it states;
see `REFUSAL`. This one keeps its steps and asks every question with noise of its own, but for the loopy calibration of
Section 4.3: clusters come from a triangulated graph, and the conditional distributions of (14) that records are drawn
by are left by calibration as they are (by at most 4e-16, see the tests). Numbers are those of the paper's sections and
equations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan, exact_share, gaussian_for, laplace_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Scores, Structure, Tools, noise_by_table, noise_sigma, option
from synth_core.synthesizers.consistency import (
    make_consistent,
    model_in_turn,
    nearest_non_negative,
    non_negative,
    reconcile,
)
from synth_core.synthesizers.independent import one_way_scores, positive_shares
from synth_core.synthesizers.structure import all_pairs, attribute_graph

REFUSAL = (
    "the printed PrivMN algorithm does not keep the epsilon it states: one Laplace draw serves all pairs, so what "
    "their thresholds lose grows with their number, and exact counts are calibrated before any noise is added, for "
    "which there is no bound. Use algorithm 'sound', which has noise of its own on every answer"
)
PAIR_SENSITIVITY = Fraction(1, 2)
"""Of S(A, B), half of a misfit against public one-way marginals."""
CLOSE = 0.02
"""How near a field with rules comes to the agreed tables, as a share of the loss that their noise would leave."""
LEAST = 1e-12
"""Share of a cell without records: no product of one-way marginals is 0."""


@dataclass(frozen=True, slots=True)
class PrivMN:
    """Dependence graph, clusters, noisy cluster tables, and the product of their conditional distributions.

    A pair is joined if its score exceeds both `theta` of the largest possible dependence and what noise alone would
    reach in any pair with probability `alpha`. A cluster holds at most n / (usefulness * sigma) cells.
    """

    one_way: float = option(0.1)
    dependence: float = option(0.1, "pair_scores")
    theta: float = option(0.05, "Least share of the largest possible dependence of a joined pair; larger joins fewer.")
    alpha: float = option(0.05, "Probability that noise alone joins any independent pair; larger joins more pairs.")
    usefulness: float = option(4.0)
    pure: bool = option(False, "Whether tables get Laplace noise, which is private without a delta and costs more.")
    nearest: bool = option(
        True, "Whether the nearest non-negative table, in turns with agreement, is taken instead of the paper's rule."
    )
    algorithm: str = option("sound", "Always `sound`; `printed` is refused, because it loses more than it states.")

    def __post_init__(self) -> None:
        if self.algorithm == "printed":
            raise SpecError(REFUSAL)
        if self.algorithm != "sound":
            raise SpecError("options: algorithm must be 'sound'")
        shares = (self.one_way, self.dependence, 1 - self.one_way - self.dependence)
        if min(shares) <= 0 or not 0 < self.alpha < 1 or self.usefulness <= 0:
            raise SpecError("options: shares, alpha and usefulness must be positive, with something left over")

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """One-way marginals, dependence of pairs, cluster tables."""
        one_way, dependence = exact_share(self.one_way), exact_share(self.dependence)
        if len(domain) == 1:
            one_way, dependence = one_way + dependence, Fraction(0)
        shares = (("one-way", one_way), ("dependence", dependence), ("clusters", 1 - one_way - dependence))
        return BudgetPlan(total_mu2, shares)

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Section 4.2: how far each pair is from independence, against noisy one-way marginals."""
        pairs, scores = all_pairs(curator.domain), one_way_scores(curator, plan.mu2("one-way"))
        shares = {m.clique[0]: _positive(nearest_non_negative(m.noisy)) for m in scores.measurements}
        queries = [Misfit((a, b), scores.total * np.multiply.outer(shares[a], shares[b])) for a, b in pairs]
        misfits = curator.score(queries, plan.mu2("dependence"), purpose="dependence of pairs")
        return replace(scores, pairs=tuple((a, b, m / 2) for (a, b), m in zip(pairs, misfits, strict=True)))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Algorithm 1 with a threshold that does not look at the data, then clusters of the triangulated graph."""
        domain = curator.domain.unruled  # what rules join is not worth a table for that alone
        edges = [pair for pair in scores.pairs if pair[2] >= self._threshold(domain, plan, scores.total, pair)]
        useful = scores.total / (self.usefulness * self._sigma(domain, plan, count=len(domain)))
        clusters = attribute_graph(domain, edges, largest_clique=useful)
        return Structure(scores, junction_tree(domain, clusters).cliques, largest_table=int(useful))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Section 4.4: noisy tables are made consistent; then (14)."""
        domain, scores, clusters = curator.domain, structure.scores, structure.cliques
        measured = curator.measure(clusters, plan.mu2("clusters"), purpose="cluster tables", pure=self.pure)
        ready = self._ready([*measured, *scores.measurements])[: len(clusters)]
        # The product of (14), given rules, would have other columns: a field is fitted instead.
        if domain.impossible:
            return tools.estimate(domain, ready, total=scores.total, until=CLOSE)
        tools.progress(f"{len(clusters)} clusters measured")
        return model_in_turn(domain, [(m.clique, m.noisy) for m in ready], total=scores.total)

    def _ready(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Tables that agree, (12) and (13), without negative counts."""
        if self.nearest:
            return reconcile(measurements)
        agreed = make_consistent(measurements)
        return [Measurement(m.clique, non_negative(m.noisy), m.sigma) for m in agreed]

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return bool(domain.impossible)  # otherwise its model is a product, see `fit`

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`."""
        column, table = (
            noise_sigma(plan.mu2("one-way"), count=len(domain)),
            self._sigma(domain, plan, count=len(domain)),
        )
        return noise_by_table(domain, column=column, pair=table if len(domain) > 1 else None)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        lines = [("noise on each count of a cluster", f"sigma {self._sigma(domain, plan, count=len(domain)):.1f}")]
        if len(domain) > 1:
            lines.append(("noise on the dependence of a pair", f"sigma {self._noise(domain, plan):.1f} records"))
        return lines

    def _threshold(self, domain: Domain, plan: BudgetPlan, total: float, pair: tuple[str, str, float]) -> float:
        """The larger of what matters and what noise reaches; S is at most n (1 - 1 / smaller size)."""
        matters = self.theta * total * (1 - 1 / min(domain.shape(pair[:2])))
        noise = self._noise(domain, plan) * float(ndtri(1 - self.alpha / len(all_pairs(domain))))
        return max(matters, noise)

    def _noise(self, domain: Domain, plan: BudgetPlan) -> float:
        return noise_sigma(plan.mu2("dependence"), count=len(all_pairs(domain)), sensitivity=PAIR_SENSITIVITY)

    def _sigma(self, domain: Domain, plan: BudgetPlan, *, count: int) -> float:
        mechanism = laplace_for if self.pure else gaussian_for
        return math.sqrt(mechanism(plan.mu2("clusters"), sensitivity=Fraction(1), count=count).variances()[0])


def _positive(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table without negative counts as positive shares; even ones if it holds nothing."""
    return np.asarray(np.maximum(positive_shares(table), LEAST))


PRESETS = {"default": PrivMN(), "paper": PrivMN(nearest=False), "laplace": PrivMN(pure=True)}
