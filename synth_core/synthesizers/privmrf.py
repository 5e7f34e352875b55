"""PrivMRF improved in its own frame at the same (epsilon, delta): the preset `default`.

What differs from the paper, and why it is allowed: one-way marginals are measured first, so that dependence can be
scored against their noisy product with sensitivity 1/2 instead of 2; marginals are chosen by the exponential
mechanism over all candidates, whose noise does not grow with their number; a candidate is scored by its misfit minus
the noise its own measurement would carry; several marginals are measured a round; and the last fit goes below
the noise level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import Model, Scores, Structure, Synthesizer, Tools, with_options
from synth_core.synthesizers.privmrf_paper import MEAN_ABSOLUTE, PaperPrivMRF
from synth_core.synthesizers.structure import Candidates, all_pairs, attribute_graph, pair_matrix


@dataclass(frozen=True, slots=True)
class PrivMRF:
    """One-way marginals, dependence of pairs, then rounds of choosing, measuring and refitting."""

    one_way: float = 0.10
    pairs: float = 0.04
    choices: float = 0.06
    theta: float = 4.0
    marginals_per_attribute: float = 1.8
    rounds: int = 10
    most_candidates: int = 1000
    penalty: float = 1.0
    tau_c: float = 4e6
    early_fit: float = 1.0
    last_fit: float = 0.6

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the marginals."""
        shares = [
            ("one-way", Fraction(str(self.one_way))),
            ("pairs", Fraction(str(self.pairs))),
            ("choices", Fraction(str(self.choices))),
        ]
        rest = 1 - sum((share for _, share in shares), Fraction(0))
        return BudgetPlan(total_mu2, (*shares, ("marginals", rest)))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """One-way marginals, then the misfit of each pair with the product of its noisy one-way marginals."""
        domain = curator.domain
        singles = [(attribute,) for attribute in domain]
        measured = curator.measure(singles, plan.mu2("one-way"), purpose="one-way marginals")
        total = max(1.0, total_by_inverse_variance(measured))
        shares = {m.clique[0]: _shares(m) for m in measured}
        pairs = all_pairs(domain)
        queries = [Misfit(pair, total * np.outer(shares[pair[0]], shares[pair[1]])) for pair in pairs]
        misfits = curator.score(queries, plan.mu2("pairs"), purpose="dependence of pairs")
        dependence = tuple((a, b, misfit / 2) for (a, b), misfit in zip(pairs, misfits, strict=True))
        return Scores(total, dependence, tuple(measured))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The attribute graph and the size up to which a table is worth measuring; post-processing."""
        domain = curator.domain
        cliques = attribute_graph(domain, scores.pairs, largest_clique=self.tau_c)
        useful = scores.total / (self.theta * MEAN_ABSOLUTE * self._sigma(domain, plan))
        return Structure(scores, cliques, (), int(useful))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Rounds of {choose, measure, refit}; what is measured is on a junction tree of its own, a small one."""
        domain, scores = curator.domain, structure.scores
        candidates = self._candidates(domain, structure, self._sigma(domain, plan))
        count = min(self._count(domain), len(candidates))
        measurements = list(scores.measurements)
        limit = int(self.tau_c) * 4
        model = tools.estimate(domain, measurements, until=self.early_fit, limit_cells=limit)
        each_choice, each_table = plan.mu2("choices") / max(count, 1), plan.mu2("marginals") / max(count, 1)
        sizes = _round_sizes(count, self.rounds)
        for number, size in enumerate(sizes):
            tables = model.marginals(candidates)
            queries = [
                Misfit(
                    c, table, penalty=self.penalty * MEAN_ABSOLUTE * self._sigma(domain, plan) * table.size
                )
                for c, table in zip(candidates, tables, strict=True)
            ]
            name = f"round {number}"
            chosen = curator.choose(queries, each_choice * size, purpose=f"{name}: choice", count=size)
            cliques = [query.clique for query in chosen]
            measurements += curator.measure(cliques, each_table * size, purpose=f"{name}: marginals")
            candidates = [clique for clique in candidates if clique not in set(cliques)]
            last = number == len(sizes) - 1
            model = tools.estimate(
                domain,
                measurements,
                warm=model,
                until=self.last_fit if last else self.early_fit,
                limit_cells=limit,
            )
            tools.progress(
                f"round {number + 1} of {len(sizes)}: {sum(sizes[: number + 1])} marginals measured"
            )
        return model

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        d = len(domain)
        one_way = gaussian_for(plan.mu2("one-way"), sensitivity=Fraction(1), count=d)
        lines = [("noise on each one-way count", f"sigma {math.sqrt(one_way.scale):.1f} records")]
        if d > 1:
            pairs = gaussian_for(plan.mu2("pairs"), sensitivity=Fraction(1, 2), count=d * (d - 1) // 2)
            lines.append(("noise on each pair's dependence", f"sigma {math.sqrt(pairs.scale):.1f} records"))
        sigma = self._sigma(domain, plan)
        return [
            *lines,
            ("noise on each marginal count", f"sigma {sigma:.1f} records"),
            ("marginals measured", f"up to {self._count(domain)} in {self.rounds} rounds"),
            ("largest useful table", f"1 cell for each {self.theta * MEAN_ABSOLUTE * sigma:.0f} records"),
        ]

    def _count(self, domain: Domain) -> int:
        return max(1, round(self.marginals_per_attribute * len(domain)))

    def _sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        """Noise on a marginal's counts if as many are measured as planned."""
        mechanism = gaussian_for(plan.mu2("marginals"), sensitivity=Fraction(1), count=self._count(domain))
        return math.sqrt(mechanism.scale)

    def _candidates(self, domain: Domain, structure: Structure, sigma: float) -> list[Clique]:
        """The candidates that the pair scores make most promising, so that each round scores only as many."""
        candidates = Candidates(domain, structure.cliques, structure.largest_table, smallest=2)
        if len(candidates) <= self.most_candidates:
            return candidates.at(range(len(candidates)))
        members = candidates.memberships()
        r = pair_matrix(domain, structure.scores.pairs, scale=structure.scores.total).astype(np.float32)
        dependence = np.einsum("ij,ij->i", members @ r, members) * structure.scores.total
        worth = dependence - MEAN_ABSOLUTE * sigma * candidates.cells()
        size = members.sum(axis=1).astype(int)
        levels = range(2, size.max() + 1)
        kept: list[int] = []
        for number, level in enumerate(levels):
            # Large sets outrank the small ones inside them, so each size has a share of the places of its own.
            share = (self.most_candidates - len(kept)) // (len(levels) - number)
            having = np.flatnonzero(size == level)
            kept += having[np.argsort(-worth[having], kind="stable")[:share]].tolist()
        return candidates.at(sorted(kept))


def build(preset: str, options: dict[str, Any]) -> Synthesizer:
    """PrivMRF by preset."""
    base: Synthesizer = PaperPrivMRF() if preset == "paper" else PrivMRF()
    built: Synthesizer = with_options(base, options, method=f"privmrf/{preset}")
    return built


def _shares(measurement: Measurement) -> Any:
    positive = np.maximum(measurement.noisy, 0.0)
    whole = positive.sum()
    return positive / whole if whole > 0 else np.full(positive.shape, 1.0 / positive.size)


def _round_sizes(count: int, rounds: int) -> list[int]:
    """How many marginals each round measures: equal parts, the first ones take the remainder."""
    rounds = min(rounds, count)
    return [count // rounds + (number < count % rounds) for number in range(rounds)] if rounds else []
