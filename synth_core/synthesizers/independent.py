"""The independent baseline: measure every column on its own and assume nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth_core.domain import Domain
from synth_core.measurement import total_by_inverse_variance
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.synthesizers.base import Model, Scores, Structure, Tools, with_options


@dataclass(frozen=True, slots=True)
class Independent:
    """All of the budget goes to the one-way marginals."""

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """One share."""
        return BudgetPlan(total_mu2, (("one-way", Fraction(1)),))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Measure the one-way marginals."""
        singles = [(attribute,) for attribute in curator.domain]
        measurements = curator.measure(singles, plan.mu2("one-way"), purpose="one-way")
        return Scores(total_by_inverse_variance(measurements), (), tuple(measurements))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Nothing to select."""
        return Structure(scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The product of the columns' distributions."""
        return tools.estimate(curator.domain, structure.scores.measurements, total=structure.scores.total)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """What the plan means in records."""
        mechanism = gaussian_for(plan.mu2("one-way"), sensitivity=Fraction(1), count=len(domain))
        return [("noise on each one-way count", f"sigma {float(mechanism.scale) ** 0.5:.1f} records")]


def build(_: str, options: dict[str, Any]) -> Independent:
    """The baseline; it has no options."""
    built: Independent = with_options(Independent(), options, method="independent")
    return built
