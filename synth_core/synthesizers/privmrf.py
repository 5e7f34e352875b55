"""PrivMRF (Cai, Lei, Wei & Xiao, PVLDB 2021): a Markov random field over marginals chosen round by round.

What differs from the paper in the preset `default`, and why it is allowed: one-way marginals are measured first, so
that dependence can be scored against their noisy product with sensitivity 1/2 instead of 2; marginals are chosen by
the exponential mechanism, whose noise does not grow with the number of candidates; a candidate is scored by its
misfit minus the noise its own measurement would carry; the graph is the one of what was measured and grows with it;
rounds measure few marginals at first and many at the end, different ones each; and the last fit, on pooled pairs,
weighs loss against entropy.

The preset `paper` is the method as published, with sound accounting. Numbers in its comments are those of the paper's
sections, algorithms and equations. What the paper leaves open is decided here and said where it is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import TriangulatedGraph, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator, weighted_gaussian
from synth_core.privacy.queries import Dependence, Misfit, Query, Total
from synth_core.synthesizers.base import (
    PairScores,
    Scores,
    Structure,
    Synthesizer,
    Tools,
    last_fit,
    noise_by_table,
    noise_sigma,
    noise_text,
    option,
)
from synth_core.synthesizers.compression import Compression
from synth_core.synthesizers.independent import OneWayFirst, one_way_plan, products
from synth_core.synthesizers.precision import (
    MAX_STEPS,
    STEP,
    measure_one_way,
    one_way_weights,
    plan_after,
    see_dependence,
)
from synth_core.synthesizers.structure import (
    BY_SIZE,
    MEAN_ABSOLUTE,
    Candidates,
    all_pairs,
    attribute_graph,
    best_batch,
    graph_with,
    pair_matrix,
    proposals,
    with_clique,
    without_subsets,
)


@dataclass(frozen=True, slots=True)
class PrivMRF(OneWayFirst):
    """One-way marginals, dependence of pairs, then rounds of choosing, measuring and refitting."""

    one_way: float = option(0.08, "one_way")
    pairs: float = option(0.02, "pair_scores")
    choices: float = option(0.06, "choices")
    theta: float = option(10.0, "theta")
    theta_small: float = option(4.0, "The same ratio for tables of at most 24 cells; larger allows fewer of them.")
    marginals_per_attribute: float = option(5.0, "Upper limit of marginals for each column; more have more noise each.")
    rounds: int = option(8, "Rounds of choosing, measuring and refitting; more rounds adapt better and take longer.")
    ramp: float = option(8.0, "Marginals in the last round for each one in the first; larger begins with fewer.")
    proposals: int = option(200, "Candidate marginals drawn in each round; more miss less and take longer.")
    penalty: float = option(0.4, "penalty")
    diverse: bool = option(True, "Whether candidates that overlap a choice by more than half wait for the next round.")
    sized: bool = option(True, "sized")
    pooling: int = option(2, "pooling")
    tau: float = option(8e6, "limit_cells")
    tau_beyond_pairs: float = option(1e6, "The same limit for marginals of three or more columns; larger is slower.")
    early_fit: float = option(1.0, "early_fit")
    last_gain: float = option(0.125, "last_gain")

    rare: float = option(3.0, "rare")
    aim: float = option(0.02, "Mean total variation that noise may leave in a column; larger leaves more for pairs.")

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the marginals; a single attribute has only its own."""
        shares = {"one-way": self.one_way, "pairs": self.pairs, "choices": self.choices}
        return one_way_plan(domain, total_mu2, shares, rest="marginals")

    def can_protect(self, domain: Domain) -> bool:
        """The rounds go on from whatever was measured before."""
        return True

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """One-way marginals, twice where they need it, then the dependence of pairs."""
        scores = measure_one_way(curator, plan, aim=self.aim, reserve="marginals")
        return scores if len(curator.domain) == 1 else replace(scores, pairs=self._pairs(curator, plan, scores))

    def _pairs(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> PairScores:
        """Half the misfit of each pair with the product of its noisy one-way marginals; 0 if all may be noise."""
        pairs, smaller = all_pairs(curator.domain), self._compression(curator.domain, scores)
        known = replace(scores, measurements=tuple(map(smaller.merged, scores.measurements)))
        queries = list(map(smaller.misfit, pairs, products(known, pairs)))
        misfits = curator.score(queries, plan.mu2("pairs"), purpose="dependence of pairs")
        seen = see_dependence(
            smaller.domain,
            dict(zip(pairs, misfits, strict=True)),
            known.measurements,
            sigma=noise_sigma(plan.mu2("pairs"), count=len(pairs)),
            mu2=self._rest(plan, scores).mu2("marginals"),
        )
        return tuple((a, b, misfit / 2 if seen else 0.0) for (a, b), misfit in zip(pairs, misfits, strict=True))

    def _structure(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The size up to which a table is worth measuring; post-processing."""
        plan, domain = self._rest(plan, scores), self._compression(curator.domain, scores).domain
        cells = scores.total / (MEAN_ABSOLUTE * self._sigma(max(1, self._count(domain, plan, scores)), plan))
        small = min(float(SMALL_TABLE), cells / self.theta_small)
        return Structure(scores, largest_table=int(max(cells / self.theta, small)))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Rounds of {choose, measure, refit}; what is measured is on a junction tree of its own, a small one."""
        scores = structure.scores
        if len(curator.domain) == 1:
            return tools.estimate(curator.domain, scores.measurements, until=self.early_fit)
        plan, smaller = self._rest(plan, scores), self._compression(curator.domain, scores)
        domain, measurements = smaller.domain, list(map(smaller.merged, scores.measurements))
        count = self._count(domain, plan, scores)
        if not count:
            return self._columns_alone(curator, plan, scores, tools)
        model = tools.estimate(domain, measurements, until=self.early_fit)
        sizes = round_sizes(count, self.rounds, ramp=self.ramp)
        graph = graph_with(domain, scores.tables)
        left, weighed = plan.mu2("marginals"), 0.0
        for number, size in enumerate(sizes):
            name, done = f"round {number}", sum(sizes[: number + 1])
            limit = max(self.tau * done / count, min(self.tau, self.tau_beyond_pairs))
            queries = self._queries(model, graph, structure, number, plan=plan, limit=limit, smaller=smaller)
            budget = plan.mu2("choices") * Fraction(size, count)
            chosen = self._choose(curator, queries, budget, purpose=name, count=size)
            graph, cliques = self._grown(graph, chosen, measurements, limit=limit)
            if not cliques or (number == len(sizes) - 1 and count < len(domain)):  # few tables leave columns unsaid
                cliques = list(dict.fromkeys([*cliques, *((attribute,) for attribute in domain)]))
            weights = [domain.cells(clique) ** BY_SIZE if self.sized else 1.0 for clique in cliques]
            weighed += sum(weights)
            budget = left * _share(sum(weights), weighed / done * (count - done))
            left -= budget
            measurements += smaller.measure(curator, cliques, budget, purpose=f"{name}: marginals", weights=weights)
            if number < len(sizes) - 1:
                model = tools.estimate(domain, measurements, warm=model, until=self.early_fit, max_passes=MAX_PASSES)
            tools.progress(f"round {number + 1} of {len(sizes)}: {done} marginals measured")
        return smaller.refined(self._last(domain, measurements, tools, warm=model))

    def _columns_alone(self, curator: Curator, plan: BudgetPlan, scores: Scores, tools: Tools) -> MarkovRandomField:
        """Where no pair is worth its noise, all that is left goes to the one-way marginals."""
        domain = curator.domain
        singles = [(attribute,) for attribute in domain]
        budget = plan.mu2("choices") + plan.mu2("marginals")
        weights = one_way_weights(domain)
        measured = curator.measure(singles, budget, purpose="one-way marginals at last", weights=weights)
        tools.progress("no pair is worth its noise: one-way marginals measured")
        return self._last(domain, [*scores.measurements, *measured], tools)

    def _last(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        tools: Tools,
        *,
        warm: MarkovRandomField | None = None,
    ) -> MarkovRandomField:
        order, gain = self.pooling, self.last_gain
        return last_fit(domain, measurements, tools, order=order, gain=gain, passes=LAST_PASSES, warm=warm)

    def _compression(self, domain: Domain, scores: Scores) -> Compression:
        return Compression.from_measurements(domain, scores.mergeable, threshold=self.rare)

    def _rest(self, plan: BudgetPlan, scores: Scores) -> BudgetPlan:
        return plan_after(plan, scores, reserve="marginals")

    def _column_sigmas(self, domain: Domain, plan: BudgetPlan) -> list[float]:
        spent = weighted_gaussian(plan.mu2("one-way"), len(domain), one_way_weights(domain))
        return [math.sqrt(variance) for variance in spent.variances()]

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        d = len(domain)
        pairs = noise_text(plan.mu2("pairs"), count=d * (d - 1) // 2, sensitivity=Fraction(1, 2))
        most = self._most(domain)
        sigma = self._sigma(most, plan)
        again = (
            f"with up to {float(MAX_STEPS * STEP):.0%} of the marginals' share, where noise leaves over {self.aim:.0%}"
        )
        return [
            ("one-way marginals, again", again),
            ("noise on each pair's dependence", pairs),
            ("noise on each marginal count", f"sigma {sigma:.1f} records on average, less on large tables"),
            ("marginals measured", f"up to {most} in {self.rounds} rounds"),
            ("largest useful table", f"1 cell for each {self.theta * MEAN_ABSOLUTE * sigma:.0f} records"),
            ("candidates", f"up to {self.proposals} a round"),
            ("junction tree", f"up to {min(self.tau, domain.cells()):,.0f} cells"),
        ]

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return self._sigma(self._most(domain), plan)

    def _most(self, domain: Domain) -> int:
        return max(1, round(self.marginals_per_attribute * len(domain)))

    def _count(self, domain: Domain, plan: BudgetPlan, scores: Scores) -> int:
        """As many marginals as there are pairs worth their noise, within bounds: a small budget buys few good ones."""
        return min(len(_worthwhile(domain, plan, scores)), self._most(domain))

    def _sigma(self, count: int, plan: BudgetPlan) -> float:
        """Noise of a count if `count` marginals share their budget equally."""
        return noise_sigma(plan.mu2("marginals"), count=count)

    def _queries(
        self,
        model: MarkovRandomField,
        graph: TriangulatedGraph,
        structure: Structure,
        number: int,
        *,
        plan: BudgetPlan,
        limit: float,
        smaller: Compression,
    ) -> list[Query]:
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
        pool += [(attribute,) for attribute in domain]
        tables = model.marginals(pool)
        typical = float(np.mean([table.size for table in tables]))
        return [
            smaller.misfit(clique, table, self.penalty * self._noise(table, sigma, typical))
            for clique, table in zip(pool, tables, strict=True)
        ]

    def _noise(self, table: NDArray[np.float64], sigma: float, typical: float) -> float:
        """Expected absolute noise on the table, if the others measured with it have the typical size."""
        own = sigma * (typical / table.size) ** (BY_SIZE / 2) if self.sized else sigma
        return MEAN_ABSOLUTE * own * table.size

    def _choose(
        self, curator: Curator, queries: list[Query], budget: Fraction, *, purpose: str, count: int
    ) -> list[Clique]:
        """Choices one after the other; what overlaps an earlier choice waits for the next round's misfits."""
        chosen: list[Clique] = []
        left = queries
        for number in range(count):
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
        """Cells up to which a table of this many attributes may make the junction tree grow."""
        return limit if members == 2 else min(limit, self.tau_beyond_pairs)


SMALL_TABLE = 24
"""Where noise is large, a strict bound would leave only pairs; tables this small may be measured with more of it."""
MAX_PASSES = 100
"""Upper limit of the passes of inference of a round's fit."""
LAST_PASSES = 1000
"""Upper limit of the passes of inference of the last fit."""
SHARE_GRID = 2**20
"""Denominator of the shares of a budget."""
AFFINITY_FLOOR = 0.05
"""Added to each pair's dependence (a share of the records) when candidates are drawn: no pair is left out."""


def _worthwhile(domain: Domain, plan: BudgetPlan, scores: Scores) -> tuple[Clique, ...]:
    gain, pairs = best_batch(domain, {(a, b): 2 * score for a, b, score in scores.pairs}, plan.mu2("marginals"))
    return pairs if gain > 0 else ()


def _share(now: float, later: float) -> Fraction:
    """How much of what is left is spent now, as a rational."""
    return Fraction(max(1, round(now / (now + later) * SHARE_GRID)), SHARE_GRID)


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


PAPER_LAST_PASSES = 600
"""Passes of inference of the last fit; marginals of seven and more attributes need many."""
PAPER_EMPHASIS = 4.0
"""How often pairs count in the last fit, see `last_fit`."""


@dataclass(frozen=True, slots=True)
class PaperPrivMRF:
    """Algorithm 6 with the constants of Section 3.6."""

    theta: float = option(6.0, "theta")
    k: int = option(400, "Candidate marginals drawn in each round (Algorithm 4); more miss less with noisier misfits.")
    t_per_attribute: float = option(0.8, "Rounds for each column; more measure more marginals, each with more noise.")
    tau_c: float = option(1e7, "Upper limit of a clique in cells (Algorithm 1); larger keeps more dependence, slower.")
    early_fit: float = option(1.2, "early_fit")
    last_gain: float = option(0.125, "last_gain")
    distinct: bool = option(
        False, "Whether each attribute's first marginal is another one, as printed, and stays if another one holds it."
    )

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
            queries = [Misfit(clique, table) for clique, table in zip(drawn, model.marginals(drawn), strict=True)]
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
            passes=PAPER_LAST_PASSES,
            warm=model,
            emphasis=PAPER_EMPHASIS,
        )

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`; every marginal has the same noise, and columns are sums of them."""
        sigma = noise_sigma(plan.mu2("marginals"), count=len(domain) + self._rounds(domain))
        return noise_by_table(domain, column=sigma, pair=sigma)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records."""
        d, t = len(domain), self._rounds(domain)

        def sigma(share: str, sensitivity: int, count: int) -> str:
            return noise_text(plan.mu2(share), count=count, sensitivity=Fraction(sensitivity))

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
        return MEAN_ABSOLUTE * noise_sigma(plan.mu2("marginals"), count=len(domain) + self._rounds(domain))

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


PRESETS: dict[str, Synthesizer] = {"default": PrivMRF(), "paper": PaperPrivMRF()}
