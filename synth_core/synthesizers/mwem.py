"""MWEM: again and again, find the marginal of a workload that the model gets most wrong, measure it, and refit.

Hardt, Ligett & McSherry (2012) refit by multiplicative weights; McKenna, Sheldon & Miklau (2019, Private-PGM) put a
graphical model in their place, which is the preset `default`. The preset `factored` keeps the weights, on
disjoint groups of attributes. Both start from measured one-way marginals, which also give the number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.budget import BudgetPlan, exact_share, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Model, Scores, Structure, Tools, with_options
from synth_core.synthesizers.independence import one_way_scores
from synth_core.synthesizers.multiplicative_weights import weights_model
from synth_core.synthesizers.workloads import ALL_PAIRS, Workload

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute value of Gaussian noise, in sigmas."""


@dataclass(frozen=True, slots=True)
class MWEM:
    """Rounds of {choose, measure, refit} over a declared workload of marginals."""

    workload: Workload = ALL_PAIRS
    rounds_per_attribute: float = 2.0
    one_way: float = 0.1
    choices: float = 0.1
    penalty: float = 1.0
    limit_cells: int = 4_000_000
    last_fit: float = 0.6
    graphical: bool = True
    passes: int = 100

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the marginals that the rounds measure."""
        one_way, choices = exact_share(self.one_way), exact_share(self.choices)
        shares = (("one-way", one_way), ("choices", choices), ("marginals", 1 - one_way - choices))
        return BudgetPlan(total_mu2, shares)

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Measure the one-way marginals: where the model starts."""
        return one_way_scores(curator, plan.mu2("one-way"))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Nothing yet: the workload is declared, and the rounds choose from it."""
        return Structure(scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Each round measures the marginal with the largest misfit beyond its own noise; it may be one again."""
        domain, total = curator.domain, structure.scores.total
        rounds, sigma = self._rounds(domain), self._sigma(domain, plan)
        cliques = list(dict.fromkeys(part.clique for part in self.workload.parts(domain)))
        measurements = list(structure.scores.measurements)
        model = self._refit(domain, measurements, total=total, warm=None, until=1.0, tools=tools)
        for number in range(1, rounds + 1):
            candidates = self._affordable(domain, cliques, measurements) if self.graphical else cliques
            queries = [
                Misfit(clique, table, penalty=self.penalty * MEAN_ABSOLUTE * sigma * table.size)
                for clique, table in zip(candidates, model.marginals(candidates), strict=True)
            ]
            (worst,) = curator.choose(
                queries, plan.mu2("choices") / rounds, purpose=f"round {number}: choice"
            )
            measurements += curator.measure(
                [worst.clique], plan.mu2("marginals") / rounds, purpose=f"round {number}: marginal"
            )
            until = self.last_fit if number == rounds else 1.0
            model = self._refit(domain, measurements, total=total, warm=model, until=until, tools=tools)
            tools.progress(f"round {number} of {rounds}: {', '.join(worst.clique)} measured")
        return model

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        one_way = gaussian_for(plan.mu2("one-way"), sensitivity=Fraction(1), count=len(domain))
        return [
            ("noise on each one-way count", f"sigma {math.sqrt(one_way.scale):.1f} records"),
            ("noise on each marginal count", f"sigma {self._sigma(domain, plan):.1f} records"),
            ("marginals measured", f"{self._rounds(domain)} of {len(self.workload.parts(domain))}"),
        ]

    def _rounds(self, domain: Domain) -> int:
        return max(1, round(self.rounds_per_attribute * len(domain)))

    def _sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        each = gaussian_for(plan.mu2("marginals"), sensitivity=Fraction(1), count=self._rounds(domain))
        return math.sqrt(each.scale)

    def _affordable(
        self, domain: Domain, cliques: list[Clique], measurements: list[Measurement]
    ) -> list[Clique]:
        """The cliques that keep the junction tree small; one that lies inside it always does."""
        measured = [m.clique for m in measurements]
        found = [clique for clique in cliques if self._fits(domain, [*measured, clique])]
        if not found:
            raise FeasibilityError(
                f"no marginal of the workload fits a model of {self.limit_cells:,} cells; raise limit_cells "
                "or declare smaller marginals"
            )
        return found

    def _fits(self, domain: Domain, cliques: list[Clique]) -> bool:
        return junction_tree(domain, cliques).cells <= self.limit_cells

    def _refit(
        self,
        domain: Domain,
        measurements: list[Measurement],
        *,
        total: float,
        warm: MarkovRandomField | None,
        until: float,
        tools: Tools,
    ) -> MarkovRandomField:
        limit = self.limit_cells
        if self.graphical:
            return tools.estimate(domain, measurements, warm=warm, until=until, limit_cells=limit)
        return weights_model(
            domain, measurements, total=total, warm=warm, passes=self.passes, limit_cells=limit
        )


def build(preset: str, options: dict[str, Any]) -> MWEM:
    """MWEM by preset; `workload` is read from the spec's plain values."""
    if "workload" in options:
        options = options | {"workload": Workload.parse(options["workload"])}
    base = MWEM() if preset == "default" else MWEM(graphical=False)
    built: MWEM = with_options(base, options, method=f"mwem/{preset}")
    return built
