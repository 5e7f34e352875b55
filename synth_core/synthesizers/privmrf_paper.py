"""PrivMRF as published (Cai, Lei, Wei & Xiao, PVLDB 2021), with sound accounting: the preset `paper`.

Numbers in the comments are those of the paper's sections, algorithms and equations. What the paper leaves open is
decided here and said where it is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.privacy.budget import BudgetPlan, gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Dependence, Misfit, Total
from synth_core.synthesizers.base import Model, Scores, Structure, Tools
from synth_core.synthesizers.pooling import last_fit
from synth_core.synthesizers.structure import (
    MEAN_ABSOLUTE,
    Candidates,
    all_pairs,
    attribute_graph,
    pair_matrix,
    without_subsets,
)

LAST_PASSES = 600
"""Passes of inference of the last fit; marginals of seven and more attributes need many."""
EMPHASIS = 4.0
"""How often pairs count in the last fit, see `last_fit`."""


@dataclass(frozen=True, slots=True)
class PaperPrivMRF:
    """Algorithm 6 with the constants of Section 3.6."""

    theta: float = 6.0
    k: int = 400
    t_per_attribute: float = 0.8
    tau_c: float = 1e7
    early_fit: float = 1.2  # stop the fit of a round at this multiple of the loss expected from noise alone
    last_gain: float = 0.125  # see `balanced`, of the last fit; the paper says only "until it converges"

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """The split of Section 3.6: 0.10 R-scores, 0.01 n, 0.10 choices, 0.79 marginals."""
        shares = (("R-scores", 10), ("n", 1), ("choices", 10), ("marginals", 79))
        return BudgetPlan(total_mu2, tuple((name, Fraction(share, 100)) for name, share in shares))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Algorithm 1, lines 1-2, and Algorithm 2, line 1."""
        (total,) = curator.score([Total()], plan.mu2("n"), purpose="n")
        pairs = all_pairs(curator.domain)
        scores = curator.score([Dependence(pair) for pair in pairs], plan.mu2("R-scores"), purpose="R-scores")
        return Scores(max(total, 1.0), tuple((a, b, r) for (a, b), r in zip(pairs, scores, strict=True)))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Algorithm 1, lines 3-15; Algorithm 2; Algorithm 3. All of it is post-processing."""
        domain = curator.domain
        cliques = attribute_graph(domain, scores.pairs, largest_clique=self.tau_c)
        useful = scores.total / (self.theta * self._noise(domain, plan))
        candidates = Candidates(domain, cliques, useful)
        return Structure(scores, cliques, self._initial(candidates, scores), int(useful))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Algorithm 4."""
        domain = curator.domain
        candidates = Candidates(domain, structure.cliques, structure.largest_table)
        rounds = min(self._rounds(domain), max(0, len(candidates) - len(structure.initial)))
        each = plan.mu2("marginals") / (len(structure.initial) + rounds)
        measured = list(structure.initial)
        measurements = curator.measure(measured, each * len(measured), purpose="initial marginals")
        model = None
        for number in range(rounds):
            model = tools.estimate(
                domain, measurements, warm=model, until=self.early_fit, limit_cells=int(self.tau_c) * 4
            )
            drawn = self._draw(candidates, measured, number)
            queries = [
                Misfit(clique, table) for clique, table in zip(drawn, model.marginals(drawn), strict=True)
            ]
            misfits = curator.score(queries, plan.mu2("choices") / rounds, purpose=f"round {number}: misfits")
            best = drawn[int(np.argmax(misfits))]
            measurements += curator.measure([best], each, purpose=f"round {number}: marginal")
            measured.append(best)
            tools.progress(f"round {number + 1} of {rounds}: measured {' × '.join(best)}")
        if model is None:
            model = tools.estimate(domain, measurements, limit_cells=int(self.tau_c) * 4)
        # Pairs are pooled for the last fit only: they lie inside measured marginals, so the field is the same.
        return last_fit(
            domain,
            measurements,
            tools,
            order=2,
            gain=self.last_gain,
            passes=LAST_PASSES,
            warm=model,
            emphasis=EMPHASIS,
        )

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        d, t = len(domain), self._rounds(domain)

        def sigma(share: str, sensitivity: int, count: int) -> str:
            mechanism = gaussian_for(plan.mu2(share), sensitivity=Fraction(sensitivity), count=count)
            return f"sigma {math.sqrt(mechanism.scale):.1f} records"

        lines = [("noise on n", sigma("n", 1, 1))]
        if d > 1:
            lines.append(("noise on each R-score", sigma("R-scores", 2, d * (d - 1) // 2)))
        lines += [
            ("noise on each misfit", sigma("choices", 1, max(1, t) * self.k)),
            ("noise on each marginal count", sigma("marginals", 1, d + t)),
            ("marginals measured", f"up to {d + t}, {t} of them chosen round by round"),
            ("largest useful table", f"1 cell for each {self.theta * self._noise(domain, plan):.0f} records"),
        ]
        return lines

    def _rounds(self, domain: Domain) -> int:
        return math.floor(self.t_per_attribute * len(domain))

    def _noise(self, domain: Domain, plan: BudgetPlan) -> float:
        """g of Algorithm 2: the expected absolute noise on a count if d + t marginals are measured."""
        count = len(domain) + self._rounds(domain)
        return MEAN_ABSOLUTE * math.sqrt(
            gaussian_for(plan.mu2("marginals"), sensitivity=Fraction(1), count=count).scale
        )

    def _initial(self, candidates: Candidates, scores: Scores) -> tuple[Clique, ...]:
        """Algorithm 3 with Eq. 8 on the scale of R/n, so that its terms |M| and R can be added.

        The sums of Eq. 8 run over the attributes of the marginal. An attribute in no useful marginal is measured
        alone, and a marginal inside another one is dropped: it would tell nothing new.
        """
        domain = candidates.domain
        r = pair_matrix(domain, scores.pairs, scale=scores.total)
        members = candidates.memberships()
        inside = np.einsum("ij,ij->i", members @ r.astype(np.float32), members)
        size = members.sum(axis=1)
        chosen: list[Clique] = []
        for position, attribute in enumerate(domain):
            having = np.flatnonzero(members[:, position])
            if len(having) == 0:
                chosen.append((attribute,))
                continue
            to_others = members[having] @ r[position].astype(np.float32)
            among_others = np.maximum(inside[having] - 2 * to_others, 0)
            rho = to_others / np.sqrt(size[having] + among_others)
            chosen += candidates.at([int(having[np.argmax(rho)])])
        return without_subsets(chosen)

    def _draw(self, candidates: Candidates, measured: list[Clique], number: int) -> list[Clique]:
        """Line 5 of Algorithm 4: k random candidates that were not measured yet (all, where there are fewer).

        The draw depends on nothing confidential; it is seeded by the round so that a retry asks the same again.
        """
        rng = np.random.default_rng(number)
        wanted = min(len(candidates), self.k + len(measured))
        positions = rng.choice(len(candidates), size=wanted, replace=False, shuffle=False)
        taken = set(measured)
        return [clique for clique in candidates.at(positions) if clique not in taken][: self.k]
