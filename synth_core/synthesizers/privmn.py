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
from synth_core.privacy.budget import BudgetPlan, Mechanism, exact_share, gaussian_for, laplace_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.privacy.wording import loss_text
from synth_core.synthesizers.base import Scores, Structure, Tools, noise_by_table, option
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
    pure_scores: bool = option(False, "Whether one-way marginals and scores get Laplace noise, as tables by `pure`.")
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
        pairs = all_pairs(curator.domain)
        scores = one_way_scores(curator, plan.mu2("one-way"), pure=self.pure_scores)
        shares = {m.clique[0]: _positive(nearest_non_negative(m.noisy)) for m in scores.measurements}
        queries = [Misfit((a, b), scores.total * np.multiply.outer(shares[a], shares[b])) for a, b in pairs]
        price, pure = plan.mu2("dependence"), self.pure_scores
        misfits = curator.score(queries, price, purpose="dependence of pairs", pure=pure)
        return replace(scores, pairs=tuple((a, b, m / 2) for (a, b), m in zip(pairs, misfits, strict=True)))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Algorithm 1 with a threshold that does not look at the data, then clusters of the triangulated graph."""
        domain = curator.domain.unruled  # what rules join is not worth a table for that alone
        thresholds = self._thresholds(domain, plan, scores.total)
        edges = [pair for pair in scores.pairs if pair[2] >= thresholds[pair[:2]]]
        useful = scores.total / (self.usefulness * self._sigmas(domain, plan)["clusters"])
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
        sigmas = self._sigmas(domain, plan)
        return noise_by_table(domain, column=sigmas["one-way"], pair=sigmas["clusters"] if len(domain) > 1 else None)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        sigmas = self._sigmas(domain, plan)
        lines = [("noise on each count of a cluster", f"sigma {sigmas['clusters']:.1f}")]
        if len(domain) > 1:
            lines.append(("noise on the dependence of a pair", f"sigma {sigmas['dependence']:.1f} records"))
        if (pure := self.pure_epsilon(domain, plan)) is not None:
            lines.append(("epsilon of one record without a delta", f"at most {loss_text(float(pure))}"))
        return lines

    def pure_epsilon(self, domain: Domain, plan: BudgetPlan) -> Fraction | None:
        """What all answers may lose of one record without a delta, at most; None where some have Gaussian noise."""
        losses = [asked.pure_epsilon() for asked in self._asked(domain, plan).values()]
        known = [loss for loss in losses if loss is not None]
        return sum(known, Fraction(0)) if len(known) == len(losses) else None

    def _thresholds(self, domain: Domain, plan: BudgetPlan, total: float) -> dict[Clique, float]:
        """For each pair the larger of what matters and what noise reaches; S is at most n (1 - 1 / smaller size)."""
        pairs = all_pairs(domain)
        if not pairs:
            return {}
        tail = self.alpha / len(pairs)
        # The quantile of a distribution with variance 1: Laplace's has the scale 1 / sqrt 2.
        quantile = math.log(1 / (2 * tail)) / math.sqrt(2) if self.pure_scores else float(ndtri(1 - tail))
        noise = self._sigmas(domain, plan)["dependence"] * quantile
        return {pair: max(self.theta * total * (1 - 1 / min(domain.shape(pair))), noise) for pair in pairs}

    def _sigmas(self, domain: Domain, plan: BudgetPlan) -> dict[str, float]:
        return {name: math.sqrt(asked.variances()[0]) for name, asked in self._asked(domain, plan).items()}

    def _asked(self, domain: Domain, plan: BudgetPlan) -> dict[str, Mechanism]:
        """What is bought with each share, with as many clusters as there can be."""

        def bought(name: str, count: int, *, pure: bool, sensitivity: Fraction = Fraction(1)) -> Mechanism:
            return (laplace_for if pure else gaussian_for)(plan.mu2(name), sensitivity=sensitivity, count=count)

        pairs = len(all_pairs(domain))
        asked = {
            "one-way": bought("one-way", len(domain), pure=self.pure_scores),
            "clusters": bought("clusters", len(domain), pure=self.pure),
        }
        if pairs:
            asked["dependence"] = bought("dependence", pairs, pure=self.pure_scores, sensitivity=PAIR_SENSITIVITY)
        return asked


def _positive(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table without negative counts as positive shares; even ones if it holds nothing."""
    return np.asarray(np.maximum(positive_shares(table), LEAST))


PRESETS = {
    "default": PrivMN(),
    "paper": PrivMN(nearest=False),
    "laplace": PrivMN(pure=True),
    "pure": PrivMN(pure=True, pure_scores=True),
}
