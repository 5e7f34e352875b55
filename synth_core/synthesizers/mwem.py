"""MWEM: again and again, find the marginal of a workload that the model gets most wrong, measure it, and refit.

Hardt, Ligett & McSherry (2012) refit by multiplicative weights; McKenna, Sheldon & Miklau (2019, Private-PGM) put a
graphical model in their place, which is the preset `default`. The preset `factored` keeps the weights, on
disjoint groups of attributes. Both start from measured one-way marginals, which also give the number of records.

With weights (`weights_model`), the distribution is a product of one full table for each group (Hardt, Ligett &
McSherry 2012). A measurement that spans several groups joins them, so overlapping measurements soon need a table of
the whole domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import log_softmax

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain, forbidden_cells
from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import affordable_cliques, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import NUMBER, POSITIVE, Structure, Tools, noise_sigma, noise_text, option
from synth_core.synthesizers.independent import OneWayFirst, Shares
from synth_core.synthesizers.structure import MEAN_ABSOLUTE
from synth_core.synthesizers.workloads import ALL_PAIRS, Workload


@dataclass(frozen=True, slots=True)
class Rounds(OneWayFirst):
    """Rounds of {choose, measure, refit} over a declared workload of marginals."""

    workload: Workload = option(ALL_PAIRS, parse=Workload.parse)
    rounds_per_attribute: float = option(
        2.0, "Rounds for each column, a marginal each; more cover more, noisier.", limits=POSITIVE
    )
    one_way: float = option(0.1)
    choices: float = option(0.1)
    penalty: float = option(1.0)

    def _shares(self) -> tuple[Shares, str]:
        return {"one-way": self.one_way, "choices": self.choices}, "marginals"

    def _rounds(self, domain: Domain) -> int:
        return max(1, round(self.rounds_per_attribute * len(domain)))

    def _queries(
        self,
        cliques: Sequence[Clique],
        tables: Sequence[Floats],
        *,
        noise: float,
        weights: Mapping[Clique, Fraction] | None = None,
    ) -> list[Misfit]:
        """How far the model's tables are off, beyond `noise` in each cell: the mean of what measuring them adds."""
        whole = Fraction(1)
        return [
            Misfit(clique, table, self.penalty * noise * table.size, whole if weights is None else weights[clique])
            for clique, table in zip(cliques, tables, strict=True)
        ]

    def _measure_worst(
        self, curator: Curator, plan: BudgetPlan, queries: Sequence[Misfit], *, number: int, share: Fraction
    ) -> tuple[Misfit, list[Measurement]]:
        """Choose the query with the largest misfit and measure its marginal, with this share of both budgets."""
        (worst,) = curator.choose(queries, plan.mu2("choices") * share, purpose=f"round {number}: choice")
        mu2 = plan.mu2("marginals") * share
        return worst, curator.measure([worst.clique], mu2, purpose=f"round {number}: marginal")


@dataclass(frozen=True, slots=True)
class MWEM(Rounds):
    """A fixed number of rounds; the model is refitted from all measurements in each."""

    limit_cells: int = option(4_000_000)
    last_fit: float = option(0.6)
    graphical: bool = option(True, "Whether a graphical model is refitted each round, not multiplicative weights.")
    passes: int = option(
        100, "Passes of multiplicative weights over measurements in a round; more fit closer, slower.", limits=NUMBER
    )

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the marginals that the rounds measure, of a single attribute too."""
        return self._divided(total_mu2)

    def can_protect(self, domain: Domain) -> bool:
        """Multiplicative weights would need one table of the whole of what overlaps."""
        return False

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Each round measures the marginal with the largest misfit beyond its own noise; it may be one again."""
        domain, total = curator.domain, structure.scores.total
        rounds, sigma = self._rounds(domain), self._sigma(domain, plan)
        cliques = list(dict.fromkeys(part.clique for part in self.workload.parts(domain)))
        measurements = list(structure.scores.measurements)
        model = self._refit(domain, measurements, total=total, warm=None, until=1.0, tools=tools)
        for number in range(1, rounds + 1):
            candidates = self._affordable(domain, cliques, measurements) if self.graphical else cliques
            queries = self._queries(candidates, model.marginals(candidates), noise=MEAN_ABSOLUTE * sigma)
            worst, noisy = self._measure_worst(curator, plan, queries, number=number, share=Fraction(1, rounds))
            measurements += noisy
            until = self.last_fit if number == rounds else 1.0
            model = self._refit(domain, measurements, total=total, warm=model, until=until, tools=tools)
            tools.progress(f"round {number} of {rounds}: {', '.join(worst.clique)} measured")
        return model

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return self.graphical

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        return [
            ("noise on each one-way count", noise_text(plan.mu2("one-way"), count=len(domain))),
            ("noise on each marginal count", f"sigma {self._sigma(domain, plan):.1f} records"),
            ("marginals measured", f"{self._rounds(domain)} of {len(self.workload.parts(domain))}"),
        ]

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return self._sigma(domain, plan)

    def _sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return noise_sigma(plan.mu2("marginals"), count=self._rounds(domain))

    def _affordable(self, domain: Domain, cliques: list[Clique], measurements: list[Measurement]) -> list[Clique]:
        """The cliques that keep the junction tree small; one that lies inside it always does."""
        measured = [m.clique for m in measurements]
        found = affordable_cliques(domain, measured, cliques, limit_cells=self.limit_cells)
        if not found:
            raise FeasibilityError(
                f"no marginal of the workload fits a model of {self.limit_cells:,} cells; raise limit_cells "
                "or declare smaller marginals"
            )
        return found

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
        return weights_model(domain, measurements, total=total, warm=warm, passes=self.passes, limit_cells=limit)


EXCLUDED = -1e4
"""Potential of an excluded cell: finite, because potentials are multiplied by marginals of 0; the rules do the rest."""


def weights_model(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float,
    warm: MarkovRandomField | None,
    passes: int,
    limit_cells: int,
) -> MarkovRandomField:
    """Go through all measurements `passes` times, from the uniform distribution or from an earlier model of this kind.

    The cells of one marginal are disjoint queries, so their updates p ∝ p exp(q (y - q·p) / 2n) commute and are made
    together, one measurement after the other.
    """
    cliques = [*domain.rule_cliques, *(m.clique for m in measurements)]
    groups = join_groups(domain, cliques, limit_cells=limit_cells)
    tables: list[Floats] = []
    for group in groups:
        inside = [m for m in measurements if set(m.clique) <= set(group)]
        table = _start(domain, group, warm)
        for _ in range(passes):
            for measurement in inside:
                table = _updated(table, group, measurement, total)
        tables.append(np.maximum(log_softmax(table), EXCLUDED))
    potentials = np.concatenate([table.ravel() for table in tables])
    return MarkovRandomField(junction_tree(domain, groups), groups, potentials, total=total)


def join_groups(domain: Domain, cliques: Sequence[Clique], *, limit_cells: int) -> tuple[Clique, ...]:
    """The smallest disjoint groups such that every clique lies inside one; too large a group is refused."""
    groups: list[Clique] = [(attribute,) for attribute in domain]
    for clique in cliques:
        touched = [group for group in groups if set(group) & set(clique)]
        union = domain.clique(attribute for group in touched for attribute in group)
        if domain.cells(union) > limit_cells:
            raise FeasibilityError(
                f"measuring {', '.join(clique)} joins {', '.join(union)} into one table of {domain.cells(union):,} "
                f"cells, over the limit of {limit_cells:,}; use the preset 'default', which needs no such table"
            )
        groups = [group for group in groups if group not in touched] + [union]
    return tuple(groups)


def _start(domain: Domain, group: Clique, warm: MarkovRandomField | None) -> Floats:
    """The product of the earlier groups that this one joins, or what the rules leave of the uniform distribution."""
    table = np.where(forbidden_cells(domain, group), -np.inf, 0.0)
    if warm is None:
        return table
    for earlier in warm.cliques:
        if set(earlier) <= set(group):
            shape = [domain.size(attribute) if attribute in earlier else 1 for attribute in group]
            table += warm.potential(earlier).reshape(shape)  # cliques are in the domain's order
    return table


def _updated(table: Floats, group: Clique, measurement: Measurement, total: float) -> Floats:
    others = tuple(axis for axis, attribute in enumerate(group) if attribute not in measurement.clique)
    shares = np.exp(log_softmax(table)).sum(axis=others, keepdims=True)
    step = (measurement.noisy.reshape(shares.shape) / total - shares) / 2
    return np.asarray(table + step)


PRESETS = {"default": MWEM(), "factored": MWEM(graphical=False)}
