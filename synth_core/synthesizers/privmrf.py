"""PrivMRF improved in its own frame at the same (epsilon, delta): the preset `default`.

What differs from the paper, and why it is allowed: one-way marginals are measured first, so that dependence can be
scored against their noisy product with sensitivity 1/2 instead of 2; marginals are chosen by the exponential
mechanism, whose noise does not grow with the number of candidates; a candidate is scored by its misfit minus
the noise its own measurement would carry; the graph is the one of what was measured and grows with it; rounds
measure few marginals at first and many at the end, different ones each; and the last fit, on pooled pairs, weighs
loss against entropy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.privacy.budget import BudgetPlan, exact_share, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Model, Scores, Structure, Synthesizer, Tools, with_options
from synth_core.synthesizers.independence import one_way_scores, products
from synth_core.synthesizers.pooling import last_fit
from synth_core.synthesizers.privmrf_paper import PaperPrivMRF
from synth_core.synthesizers.structure import (
    MEAN_ABSOLUTE,
    all_pairs,
    pair_matrix,
    proposals,
    with_clique,
    worthwhile_pairs,
)

BY_SIZE = 2 / 3
"""Budgets proportional to cells^(2/3) minimise the absolute noise summed over tables of different size."""
SECONDS_PER_CELL = 2e-6
"""Of a whole run: trees of 10^6 to 8·10^6 cells took 4 to 13 CPU seconds. Only an estimate for people."""


@dataclass(frozen=True, slots=True)
class PrivMRF:
    """One-way marginals, dependence of pairs, then rounds of choosing, measuring and refitting."""

    one_way: float = 0.08
    pairs: float = 0.02
    choices: float = 0.06
    theta: float = 10.0
    theta_small: float = 4.0  # for tables of up to SMALL_TABLE cells
    marginals_per_attribute: float = 5.0
    rounds: int = 8
    ramp: float = 8.0  # marginals of the last round for each one of the first
    proposals: int = 200
    penalty: float = 0.4
    diverse: bool = True
    sized: bool = True  # budgets by size
    pooling: int = 2  # tables of up to as many attributes are pooled for the last fit
    tau: float = 8e6  # cells of the whole junction tree …
    tau_beyond_pairs: float = 1e6  # … and up to which tables of more than two attributes may make it grow
    early_fit: float = 1.0
    last_gain: float = 0.125  # see `balanced`, of the last fit

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the marginals; a single attribute has only its own."""
        if len(domain) == 1:
            return BudgetPlan(total_mu2, (("one-way", Fraction(1)),))
        shares = [
            ("one-way", exact_share(self.one_way)),
            ("pairs", exact_share(self.pairs)),
            ("choices", exact_share(self.choices)),
        ]
        rest = 1 - sum((share for _, share in shares), Fraction(0))
        return BudgetPlan(total_mu2, (*shares, ("marginals", rest)))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """One-way marginals, then the misfit of each pair with the product of its noisy one-way marginals."""
        scores = one_way_scores(curator, plan.mu2("one-way"))
        if len(curator.domain) == 1:
            return scores
        pairs = all_pairs(curator.domain)
        queries = list(map(Misfit, pairs, products(scores, pairs)))
        misfits = curator.score(queries, plan.mu2("pairs"), purpose="dependence of pairs")
        dependence = tuple((a, b, misfit / 2) for (a, b), misfit in zip(pairs, misfits, strict=True))
        return replace(scores, pairs=dependence)

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The size up to which a table is worth measuring; post-processing."""
        if len(curator.domain) == 1:
            return Structure(scores)
        sigma = self._sigma(self._count(curator.domain, plan, scores), plan)
        cells = scores.total / (MEAN_ABSOLUTE * sigma)
        small = min(float(SMALL_TABLE), cells / self.theta_small)
        return Structure(scores, largest_table=int(max(cells / self.theta, small)))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Rounds of {choose, measure, refit}; what is measured is on a junction tree of its own, a small one."""
        domain = curator.domain
        measurements = list(structure.scores.measurements)
        model = tools.estimate(domain, measurements, until=self.early_fit)
        if len(domain) == 1:
            return model
        count = self._count(domain, plan, structure.scores)
        sizes = round_sizes(count, self.rounds, ramp=self.ramp)
        graph = TriangulatedGraph.empty(domain)
        left, weighed = plan.mu2("marginals"), 0.0
        for number, size in enumerate(sizes):
            name, done = f"round {number}", sum(sizes[: number + 1])
            limit = max(self.tau * done / count, min(self.tau, self.tau_beyond_pairs))
            queries = self._queries(model, graph, structure, number, plan=plan, limit=limit)
            budget = plan.mu2("choices") * Fraction(size, count)
            chosen = self._choose(curator, queries, budget, purpose=name, count=size)
            graph, cliques = self._grown(graph, chosen, measurements, limit=limit)
            cliques = cliques or [(attribute,) for attribute in domain]
            weights = [domain.cells(clique) ** BY_SIZE if self.sized else 1.0 for clique in cliques]
            weighed += sum(weights)
            budget = left * _share(sum(weights), weighed / done * (count - done))
            left -= budget
            measurements += curator.measure(cliques, budget, purpose=f"{name}: marginals", weights=weights)
            if number < len(sizes) - 1:
                model = tools.estimate(
                    domain, measurements, warm=model, until=self.early_fit, max_passes=MOST_PASSES
                )
            tools.progress(f"round {number + 1} of {len(sizes)}: {done} marginals measured")
        return last_fit(
            domain,
            measurements,
            tools,
            order=self.pooling,
            gain=self.last_gain,
            passes=LAST_PASSES,
            warm=model,
        )

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records, and the bounds of the work."""
        d = len(domain)
        one_way = gaussian_for(plan.mu2("one-way"), sensitivity=Fraction(1), count=d)
        lines = [("noise on each one-way count", f"sigma {math.sqrt(one_way.scale):.1f} records")]
        if d == 1:
            return lines
        pairs = gaussian_for(plan.mu2("pairs"), sensitivity=Fraction(1, 2), count=d * (d - 1) // 2)
        most = self._most(domain)
        sigma = self._sigma(most, plan)
        return [
            *lines,
            ("noise on each pair's dependence", f"sigma {math.sqrt(pairs.scale):.1f} records"),
            ("noise on each marginal count", f"sigma {sigma:.1f} records on average, less on large tables"),
            ("marginals measured", f"up to {most} in {self.rounds} rounds"),
            ("largest useful table", f"1 cell for each {self.theta * MEAN_ABSOLUTE * sigma:.0f} records"),
            ("candidates", f"up to {self.proposals} a round"),
            ("junction tree", f"up to {min(self.tau, domain.cells()):,.0f} cells"),
            (
                "time",
                f"up to about {5 + SECONDS_PER_CELL * min(self.tau, domain.cells()):.0f} CPU seconds",
            ),
        ]

    def _most(self, domain: Domain) -> int:
        return max(1, round(self.marginals_per_attribute * len(domain)))

    def _count(self, domain: Domain, plan: BudgetPlan, scores: Scores) -> int:
        """As many marginals as there are pairs worth their noise, within bounds: a small budget buys few good ones."""
        return min(len(_worthwhile(domain, plan, scores)), self._most(domain))

    def _sigma(self, count: int, plan: BudgetPlan) -> float:
        """Noise of a count if `count` marginals share their budget equally."""
        mechanism = gaussian_for(plan.mu2("marginals"), sensitivity=Fraction(1), count=count)
        return math.sqrt(mechanism.scale)

    def _queries(
        self,
        model: MarkovRandomField,
        graph: TriangulatedGraph,
        structure: Structure,
        number: int,
        *,
        plan: BudgetPlan,
        limit: float,
    ) -> list[Misfit]:
        """The candidates of a round: misfit with the model, minus the noise a measurement would put in.

        They are drawn by public numbers and seeded by the round, so that a retry asks the same again.
        """
        domain, scores = model.domain, structure.scores
        affinity = pair_matrix(domain, scores.pairs, scale=scores.total)
        sigma = self._sigma(self._count(domain, plan, scores), plan)
        pool = proposals(
            graph,
            affinity + AFFINITY_FLOOR,
            largest_table=structure.largest_table,
            largest_pair=max(map(domain.cells, _worthwhile(domain, plan, scores))),
            largest_graph=lambda members: self._room(members, limit),
            count=self.proposals,
            rng=np.random.default_rng(number),
        )
        tables = model.marginals(pool)
        typical = float(np.mean([table.size for table in tables])) if tables else 1.0
        return [
            Misfit(clique, table, self.penalty * self._noise(table, sigma, typical))
            for clique, table in zip(pool, tables, strict=True)
        ]

    def _noise(self, table: NDArray[np.float64], sigma: float, typical: float) -> float:
        """Expected absolute noise on the table, if the others measured with it have the typical size."""
        own = sigma * (typical / table.size) ** (BY_SIZE / 2) if self.sized else sigma
        return MEAN_ABSOLUTE * own * table.size

    def _choose(
        self, curator: Curator, queries: list[Misfit], budget: Fraction, *, purpose: str, count: int
    ) -> list[Clique]:
        """Choices one after the other; what overlaps an earlier choice waits for the next round's misfits."""
        chosen: list[Clique] = []
        left = queries
        for number in range(count if queries else 0):
            asked = f"{purpose}: choice {number}"
            (best,) = curator.choose(left, budget / count, purpose=asked)
            chosen.append(best.clique)
            left = [q for q in left if q.clique != best.clique]
            if self.diverse:
                left = [q for q in left if not _overlap(q.clique, best.clique)]
            left = left or queries
        return chosen

    def _grown(
        self, graph: TriangulatedGraph, chosen: list[Clique], known: Sequence[Measurement], *, limit: float
    ) -> tuple[TriangulatedGraph, list[Clique]]:
        """The graph with the chosen cliques, leaving out any with which the model's tree would be too large."""
        cliques = [m.clique for m in known]
        cells = junction_tree(graph.domain, cliques).cells
        kept: list[Clique] = []
        for clique in chosen:
            grown = junction_tree(graph.domain, [*cliques, *kept, clique]).cells
            if grown <= max(cells, self._room(len(clique), limit)):
                graph, cells = with_clique(graph, clique), grown
                kept.append(clique)
        return graph.retriangulated(), kept

    def _room(self, members: int, limit: float) -> float:
        """Cells up to which a table of so many attributes may make the junction tree grow."""
        return limit if members == 2 else min(limit, self.tau_beyond_pairs)


SMALL_TABLE = 24
"""Where noise is large, a strict bound would leave only pairs; tables this small may be measured with more of it."""
MOST_PASSES = 100
"""Passes of inference that the fit of a round may take."""
LAST_PASSES = 1000
"""Passes of the last fit."""
SHARE_GRID = 2**20
"""Shares of a budget are multiples of one part in so many."""
AFFINITY_FLOOR = 0.05
"""Added to each pair's dependence (a share of the records) when candidates are drawn: no pair is left out."""


def _worthwhile(domain: Domain, plan: BudgetPlan, scores: Scores) -> list[Clique]:
    return worthwhile_pairs(domain, scores.pairs, mu2=float(plan.mu2("marginals")))


def _share(now: float, later: float) -> Fraction:
    """How much of what is left is spent now, as a rational."""
    return Fraction(max(1, round(now / (now + later) * SHARE_GRID)), SHARE_GRID)


def build(preset: str, options: dict[str, Any]) -> Synthesizer:
    """PrivMRF by preset."""
    base: Synthesizer = PaperPrivMRF() if preset == "paper" else PrivMRF()
    built: Synthesizer = with_options(base, options, method=f"privmrf/{preset}")
    return built


def round_sizes(count: int, rounds: int, *, ramp: float) -> list[int]:
    """How many marginals each round measures: at least one, growing geometrically, `count` in all."""
    rounds = min(rounds, count)
    weights = np.geomspace(1.0, ramp, rounds)
    extra = np.diff(np.rint(np.cumsum(weights) / weights.sum() * (count - rounds)), prepend=0.0)
    return [1 + int(more) for more in extra]


def _overlap(first: Clique, second: Clique) -> bool:
    """Whether two cliques share more than half of the smaller one, and more than one attribute."""
    shared = len(set(first) & set(second))
    return shared > 1 and shared >= 1 + min(len(first), len(second)) / 2
