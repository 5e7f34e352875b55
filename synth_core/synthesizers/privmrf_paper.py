"""PrivMRF as published (Cai, Lei, Wei & Xiao, PVLDB 2021), with sound accounting: the preset `paper`.

Numbers in comments are those of the paper's sections, algorithms and equations. What the paper leaves open is decided
here and said where it is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.junction_tree import junction_tree
from synth_core.models.losses import SquaredLoss
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mirror_descent import estimate_by_loss
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Dependence, Misfit, Total
from synth_core.synthesizers.base import (
    NUMBER,
    POSITIVE,
    Scores,
    Structure,
    Tools,
    last_fit,
    noise_by_table,
    noise_sigma,
    noise_text,
    option,
)
from synth_core.synthesizers.structure import (
    MEAN_ABSOLUTE,
    Candidates,
    all_pairs,
    attribute_graph,
    pair_matrix,
    without_subsets,
)

PAPER_LAST_PASSES = 600
"""Passes of inference of the last fit; marginals of seven and more attributes need many."""
PAPER_EMPHASIS = 4.0
"""How often pairs count in the last fit, see `last_fit`."""


PLAIN_PASSES = 1000
"""Upper limit of the passes of inference of Algorithm 5, which stops before if the loss stays as it is."""


@dataclass(frozen=True, slots=True)
class PaperPrivMRF:
    """Algorithm 6 with the constants of Section 3.6."""

    theta: float = option(6.0)
    k: int = option(
        400,
        "Candidate marginals drawn in each round (Algorithm 4); more miss less with noisier misfits.",
        limits=NUMBER,
    )
    t_per_attribute: float = option(
        0.8, "Rounds for each column; more measure more marginals, each with more noise.", limits=POSITIVE
    )
    tau_c: float = option(
        1e7, "Upper limit of a clique in cells (Algorithm 1); larger keeps more dependence, slower.", limits=NUMBER
    )
    early_fit: float = option(1.2)
    last_gain: float = option(0.125)
    distinct: bool = option(
        False, "Whether each attribute's first marginal is another one, as printed, and stays if another one holds it."
    )
    empty_start: bool = option(
        False, "Whether no marginals are measured before the rounds (Section 3.4), of which there are then d more."
    )
    plain_fit: bool = option(
        False, "Whether fits take Algorithm 5's plain steps until they converge, with one step size for all cells."
    )
    independent_rows: bool = option(False, "Whether rows are drawn independently of each other (Section 3.5).")

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
        empty = self.empty_start and len(candidates) > 0  # without any candidate columns are measured alone
        return Structure(scores, cliques, () if empty else self._initial(candidates, scores), int(useful))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Algorithm 4."""
        domain = curator.domain
        candidates = Candidates(domain, structure.cliques, structure.largest_table)
        rounds = min(self._rounds(domain), max(0, len(candidates) - len(structure.initial)))
        each = plan.mu2("marginals") / (len(structure.initial) + rounds)
        measured = list(structure.initial)
        measurements: list[Measurement] = []
        model = uniform(domain, total=structure.scores.total)
        if measured:
            measurements = curator.measure(measured, each * len(measured), purpose="initial marginals")
        for number in range(rounds):
            if measurements:
                model = self._refitted(model, structure, measurements, tools, until=self.early_fit)
            drawn = self._draw(candidates, measured, number)
            queries = [Misfit(clique, table) for clique, table in zip(drawn, model.marginals(drawn), strict=True)]
            misfits = curator.score(queries, plan.mu2("choices") / rounds, purpose=f"round {number}: misfits")
            best = drawn[int(np.argmax(misfits))]
            measurements += curator.measure([best], each, purpose=f"round {number}: marginal")
            measured.append(best)
            tools.progress(f"round {number + 1} of {rounds}: measured {' × '.join(best)}")
        if self.plain_fit or not rounds:
            model = self._refitted(model, structure, measurements, tools)
        if not self.plain_fit:
            # Pairs are pooled for the last fit only: they lie inside measured marginals, so the field is the same.
            model = last_fit(
                domain,
                measurements,
                tools,
                order=2,
                gain=self.last_gain,
                passes=PAPER_LAST_PASSES,
                warm=model,
                emphasis=PAPER_EMPHASIS,
            )
        if not self.independent_rows:
            return model
        return BayesianNetwork(domain, domain, model.beliefs, total=model.total, generation="with replacement")

    def _refitted(
        self,
        model: MarkovRandomField,
        structure: Structure,
        measurements: list[Measurement],
        tools: Tools,
        *,
        until: float = 1.0,
    ) -> MarkovRandomField:
        """The model of all measurements, from the one before: Algorithm 5, or the engine's fit."""
        domain = model.domain
        limit = 4 * int(max(self.tau_c, sum(map(domain.cells, structure.cliques))))
        if not self.plain_fit:
            return tools.estimate(domain, measurements, warm=model, until=until, limit_cells=limit)
        loss = SquaredLoss.of(domain, measurements, total=total_by_inverse_variance(measurements))
        return estimate_by_loss(
            domain,
            loss,
            total=loss.problem.total,
            warm=with_zeros(model, loss.cliques),
            max_passes=PLAIN_PASSES,
            limit_cells=limit,
        )

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return not self.plain_fit and not self.independent_rows

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`; every marginal has the same noise, and columns are sums of them."""
        sigma = noise_sigma(plan.mu2("marginals"), count=self._most(domain))
        return noise_by_table(domain, column=sigma, pair=sigma)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        d, t = len(domain), self._rounds(domain)

        def sigma(share: str, sensitivity: int, count: int) -> str:
            return noise_text(plan.mu2(share), count=count, sensitivity=Fraction(sensitivity))

        lines = [("noise on n", sigma("n", 1, 1))]
        if d > 1:
            lines.append(("noise on each R-score", sigma("R-scores", 2, d * (d - 1) // 2)))
        most = self._most(domain)
        lines += [
            ("noise on each misfit", sigma("choices", 1, max(1, t) * self.k)),
            ("noise on each marginal count", sigma("marginals", 1, most)),
            ("marginals measured", f"up to {most}, {t} of them chosen round by round"),
            (
                "largest clique",
                f"{self.tau_c:,.0f} cells; the authors' code has 200,000, which is faster on many columns",
            ),
            ("largest useful table", f"1 cell for each {self.theta * self._noise(domain, plan):.0f} records"),
        ]
        return lines

    def _rounds(self, domain: Domain) -> int:
        return self._most(domain) - (0 if self.empty_start else len(domain))

    def _most(self, domain: Domain) -> int:
        """d + t, the marginals measured in all, of which an empty start leaves all to the rounds."""
        return len(domain) + math.floor(self.t_per_attribute * len(domain))

    def _noise(self, domain: Domain, plan: BudgetPlan) -> float:
        """g of Algorithm 2: the expected absolute noise on a count if d + t marginals are measured."""
        return MEAN_ABSOLUTE * noise_sigma(plan.mu2("marginals"), count=self._most(domain))

    def _initial(self, candidates: Candidates, scores: Scores) -> tuple[Clique, ...]:
        """Algorithm 3 with Eq. 8 on the scale of R/n, so that its terms |M| and R can be added.

        The sums of Eq. 8 run over the attributes of the marginal. An attribute in no useful marginal is measured
        alone. A marginal inside another one is dropped, because it would add nothing; or, if they are to be `distinct`,
        no attribute gets one that an earlier one has.
        """
        domain = candidates.domain
        r = pair_matrix(domain, scores.pairs, scale=scores.total)
        members = candidates.memberships()
        inside = np.einsum("ij,ij->i", members @ r.astype(np.float32), members)
        size = members.sum(axis=1)
        chosen: list[Clique] = []
        taken: list[int] = []
        for position, attribute in enumerate(domain):
            having = np.setdiff1d(np.flatnonzero(members[:, position]), taken)
            if len(having) == 0:
                chosen.append((attribute,))
                continue
            to_others = members[having] @ r[position].astype(np.float32)
            among_others = np.maximum(inside[having] - 2 * to_others, 0)
            rho = to_others / np.sqrt(size[having] + among_others)
            best = int(having[np.argmax(rho)])
            chosen += candidates.at([best])
            if self.distinct:
                taken.append(best)
        return tuple(chosen) if self.distinct else without_subsets(chosen)

    def _draw(self, candidates: Candidates, measured: list[Clique], number: int) -> list[Clique]:
        """Line 5 of Algorithm 4: k random candidates that were not measured yet (all, where there are fewer).

        The draw depends on nothing confidential; it is seeded by the round so that a retry asks the same again.
        """
        rng = np.random.default_rng(number)
        wanted = min(len(candidates), self.k + len(measured))
        positions = rng.choice(len(candidates), size=wanted, replace=False, shuffle=False)
        taken = set(measured)
        return [clique for clique in candidates.at(positions) if clique not in taken][: self.k]


def uniform(domain: Domain, *, total: float) -> MarkovRandomField:
    """The model in which every record is equally likely: all parameters are 0."""
    columns = [(attribute,) for attribute in domain]
    return MarkovRandomField(junction_tree(domain, columns), columns, np.zeros(sum(domain.sizes)), total=total)


def with_zeros(model: MarkovRandomField, cliques: Sequence[Clique]) -> MarkovRandomField:
    """Line 13 of Algorithm 4: the model with parameters for these cliques, those that it does not have being 0."""
    known = set(model.cliques)
    tables = [model.potential(c) if c in known else np.zeros(model.domain.shape(c)) for c in cliques]
    vector = np.concatenate([table.ravel() for table in tables])
    return MarkovRandomField(junction_tree(model.domain, cliques), cliques, vector, total=model.total)
