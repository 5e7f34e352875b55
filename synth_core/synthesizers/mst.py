"""MST: one-way marginals, a spanning tree of the most dependent pairs, and those pairs.

McKenna, Miklau & Sheldon (2021), the method that won NIST's contest of 2018. The tree grows edge by edge as Kruskal's
does, by the exponential mechanism; rare codes are merged before pairs are measured (see `compression`). The preset
`paper` gives each of the three questions a third of the budget; `default` gives choosing less, as large
dependence is easily distinguished from small, and larger pairs more.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Scores, Structure, Tools, noise_sigma, noise_text, option
from synth_core.synthesizers.compression import Compression
from synth_core.synthesizers.independent import OneWayFirst, Shares, products
from synth_core.synthesizers.structure import all_pairs


@dataclass(frozen=True, slots=True)
class MST(OneWayFirst):
    """A tree of pairs; `rare` says below how many sigmas a code is merged with others."""

    one_way: float = option(0.25)
    choices: float = option(0.05, "Share of the budget for the tree's edges; more chooses dependent pairs more surely.")
    rare: float = option(3.0)
    by_size: float = option(2 / 3, "Power of a pair's cells in its budget; 0 is even, larger favours large pairs.")
    last_fit: float = option(0.3)

    def _shares(self) -> tuple[Shares, str]:
        one_way, choices = (Fraction(share).limit_denominator(1000) for share in (self.one_way, self.choices))
        return {"one-way": one_way, "choices": choices}, "pairs"

    def _structure(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Grow the tree: each edge is chosen among the pairs that join two parts, by misfit with independence."""
        domain = curator.domain
        queries = list(map(Misfit, all_pairs(domain), products(scores, all_pairs(domain))))
        part = {attribute: attribute for attribute in domain}
        edges: list[Clique] = []
        while len(edges) < len(domain) - 1:
            joining = [q for q in queries if part[q.clique[0]] != part[q.clique[1]]]
            each = plan.mu2("choices") / (len(domain) - 1)
            (best,) = curator.choose(joining, each, purpose=f"edge {len(edges) + 1}")
            edges.append(best.clique)
            kept, gone = (part[attribute] for attribute in best.clique)
            part = {attribute: kept if name == gone else name for attribute, name in part.items()}
        return Structure(scores, initial=tuple(edges))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure the tree's pairs, rare codes together, and estimate."""
        known, edges = structure.scores.measurements, structure.initial
        smaller = Compression.from_measurements(curator.domain, structure.scores.mergeable, threshold=self.rare)
        pairs: list[Measurement] = []
        if edges:
            weights = [smaller.domain.cells(edge) ** self.by_size for edge in edges]
            pairs = smaller.measure(curator, edges, plan.mu2("pairs"), purpose="pairs of the tree", weights=weights)
            tools.progress(f"{len(pairs)} pairs measured")
        model = tools.estimate(smaller.domain, [*map(smaller.encode, known), *pairs], until=self.last_fit)
        return smaller.refined(model)

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return noise_sigma(plan.mu2("pairs"), count=len(domain) - 1)

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        return [("noise on each count of a pair, about", noise_text(plan.mu2("pairs"), count=len(domain) - 1))]


PRESETS = {"default": MST(), "paper": MST(one_way=1 / 3, choices=1 / 3, by_size=0.0)}
