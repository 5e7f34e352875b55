"""PrivMRF (Cai, Lei, Wei & Xiao, PVLDB 2021): a Markov random field over marginals chosen round by round.

What differs from the paper in the preset `default`, and why it is allowed: one-way marginals are measured first, so
that dependence can be scored against their noisy product with sensitivity 1/2 instead of 2; marginals are chosen by
the exponential mechanism, whose noise does not grow with the number of candidates; a candidate is scored by its
misfit minus the noise its own measurement would carry; the graph is the one of what was measured and grows with it;
rounds measure few marginals at first and many at the end, different ones each; and the last fit, on pooled pairs,
weighs loss against entropy.

The preset `paper` is the method as published, in `privmrf_paper`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import EarlierRelease, Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.models.reference import Reference
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator, weighted_gaussian
from synth_core.privacy.queries import Misfit, Query
from synth_core.synthesizers.base import (
    NUMBER,
    POSITIVE,
    PairScores,
    PublicCounts,
    Scores,
    Structure,
    Synthesizer,
    Tools,
    last_fit,
    noise_sigma,
    noise_text,
    option,
    run_phases,
)
from synth_core.synthesizers.compression import Compression
from synth_core.synthesizers.independent import OneWayFirst, Shares, products
from synth_core.synthesizers.precision import (
    MAX_STEPS,
    STEP,
    measure_one_way_again,
    measure_one_way_once,
    one_way_weights,
    plan_after,
    see_dependence,
    shrink_misfits,
)
from synth_core.synthesizers.prior import PublicTable, bears_out, relative_fit, sampling_noise
from synth_core.synthesizers.privmrf_paper import PaperPrivMRF
from synth_core.synthesizers.structure import (
    BY_SIZE,
    MEAN_ABSOLUTE,
    all_pairs,
    best_batch,
    graph_with,
    pair_matrix,
    proposals,
    with_clique,
)


@dataclass(frozen=True, slots=True)
class PrivMRF(OneWayFirst):
    """One-way marginals, dependence of pairs, then rounds of choosing, measuring and refitting."""

    one_way: float = option(0.08, "one_way")
    pairs: float = option(0.02, "pair_scores")
    choices: float = option(0.06, "choices")
    theta: float = option(10.0, "theta")
    theta_small: float = option(
        4.0, "The same ratio for tables of at most 24 cells; larger allows fewer of them.", limits=POSITIVE
    )
    marginals_per_attribute: float = option(
        5.0, "Upper limit of marginals for each column; more have more noise each.", limits=POSITIVE
    )
    rounds: int = option(
        8, "Rounds of choosing, measuring and refitting; more rounds adapt better and take longer.", limits=NUMBER
    )
    ramp: float = option(
        8.0, "Marginals in the last round for each one in the first; larger begins with fewer.", limits=POSITIVE
    )
    proposals: int = option(
        200, "Candidate marginals drawn in each round; more miss less and take longer.", limits=NUMBER
    )
    penalty: float = option(0.4, "penalty")
    diverse: bool = option(True, "Whether candidates that overlap a choice by more than half wait for the next round.")
    sized: bool = option(True, "sized")
    pooling: int = option(2, "pooling")
    tau: float = option(8e6, "limit_cells")
    tau_beyond_pairs: float = option(
        1e6, "The same limit for marginals of three or more columns; larger is slower.", limits=NUMBER
    )
    early_fit: float = option(1.0, "early_fit")
    last_gain: float = option(0.125, "last_gain")

    rare: float = option(3.0, "rare")
    aim: float = option(
        0.02, "Mean total variation that noise may leave in a column; larger leaves more for pairs.", limits=POSITIVE
    )
    pair_aim: float = option(
        0.03, "Noise on a pair's dependence as a share of the records; larger leaves it noisier.", limits=POSITIVE
    )
    emphasis: float = option(
        4.0, "How often small tables count in the last fit where few are measured; 1 is as is.", limits=POSITIVE
    )

    def _shares(self) -> tuple[Shares, str]:
        return {"one-way": self.one_way, "pairs": self.pairs, "choices": self.choices}, "marginals"

    @property
    def can_reuse(self) -> bool:
        """So they do from what earlier releases have measured."""
        return True

    @property
    def can_use_prior(self) -> bool:
        """So they do from a public table."""
        return True

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """One-way marginals, twice where they need it, then the dependence of pairs, with more where noise hides it."""
        return self.score_with(curator, plan, ())

    def score_with(self, curator: Curator, plan: BudgetPlan, earlier: Sequence[EarlierRelease]) -> Scores:
        """The same with what earlier releases have measured: their columns are pooled, their tables are known."""
        return self._asked(curator, plan, measure_one_way_once(curator, plan, earlier))

    def score_beside(self, curator: Curator, plan: BudgetPlan, prior: Reference) -> Scores:
        """The same with the model of a public table, of which it is asked first whether it helps."""
        scores = measure_one_way_once(curator, plan)
        if prior.joined:
            scores = self._tried(curator, plan, scores, prior)
        return scores if scores.reference is not None else self._asked(curator, plan, scores)

    def _asked(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Scores:
        """What is asked after the first one-way marginals."""
        if len(curator.domain) == 1:
            return scores
        scores = measure_one_way_again(curator, plan, scores, aim=self.aim, reserve="marginals")
        before = scores.repeated
        scores = replace(scores, repeated=before + self._pair_steps(curator.domain, plan, scores))
        budget = plan.mu2("pairs") + plan.mu2("marginals") * STEP * (scores.repeated - before)
        return replace(scores, pairs=self._dependence(curator, plan, scores, budget))

    def learn_prior(self, public: PublicCounts) -> Reference:
        """What this method makes of a public table: its own questions, answered without noise."""
        domain = public.domain
        share = self.plan(domain, Fraction(1)).mu2("marginals" if len(domain) > 1 else "one-way")
        cells = min(self.tau, PRIOR_CELLS)
        own = replace(self, rare=0.0, tau=cells, tau_beyond_pairs=cells, marginals_per_attribute=PRIOR_MARGINALS)
        marginals = Fraction(round(PRIOR_MARGINALS * len(domain))) / Fraction(sampling_noise(public.rows)) ** 2
        talk = run_phases(own, own.plan(domain, marginals / share), lambda _: cast(Curator, PublicTable(public)))
        assert isinstance(talk.model, MarkovRandomField)  # noqa: S101 - nothing was merged
        return Reference.of(talk.model, float(public.rows))

    def _tried(self, curator: Curator, plan: BudgetPlan, scores: Scores, prior: Reference) -> Scores:
        """The scores with the prior if pairs bear it out; without it a step of the marginals' budget is gone."""
        domain = curator.domain
        model = self._relative(domain, scores.measurements, prior, Tools())
        pairs = [pair for pair in all_pairs(domain) if prior.attributes.issuperset(pair)]
        singles = [Measurement(m.clique, model.marginal(m.clique), m.sigma) for m in scores.measurements]
        alone = products(replace(scores, measurements=tuple(singles)), pairs)
        queries = [*map(Misfit, pairs, model.marginals(pairs)), *map(Misfit, pairs, alone)]
        budget = plan.mu2("marginals") * STEP
        found = curator.score(queries, budget, purpose="dependence of pairs beside the prior")
        scores = replace(scores, repeated=scores.repeated + 1)
        trusted = bears_out(
            domain,
            dict(zip(pairs, found[: len(pairs)], strict=True)),
            dict(zip(pairs, found[len(pairs) :], strict=True)),
            sigma=noise_sigma(budget, count=len(queries)),
            mu2=self._rest(plan, scores).mu2("marginals"),
        )
        return self._trusting(curator, plan, scores, prior) if trusted else scores

    def _trusting(self, curator: Curator, plan: BudgetPlan, scores: Scores, prior: Reference) -> Scores:
        """The scores with the prior, and the dependence that it leaves; columns it does not have are asked as ever."""
        domain = curator.domain
        scores = measure_one_way_again(curator, plan, scores, aim=self.aim, reserve="marginals", known=prior.joined)
        model = self._relative(domain, scores.measurements, prior, Tools())
        steps = 0 if prior.joined.issuperset(domain) else self._pair_steps(domain, plan, scores)
        budget, pairs = plan.mu2("pairs") + plan.mu2("marginals") * STEP * steps, all_pairs(domain)
        queries = list(map(Misfit, pairs, model.marginals(pairs)))
        misfits = dict(zip(pairs, curator.score(queries, budget, purpose="dependence of pairs"), strict=True))
        gains = shrink_misfits(misfits, sigma=noise_sigma(budget, count=len(pairs)))
        dependence = tuple((a, b, gain / 2) for (a, b), gain in gains.items())
        return replace(scores, pairs=dependence, repeated=scores.repeated + steps, reference=prior)

    def _relative(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        reference: Reference,
        tools: Tools,
        warm: MarkovRandomField | None = None,
        **settings: Any,
    ) -> MarkovRandomField:
        """The model nearest to the reference, as far as the answers bear it out."""
        fit = relative_fit(reference, domain, measurements, **settings)
        model = tools.estimate(domain, fit.tables(), warm=warm, **fit.settings)
        tools.note(model, fit)
        return model

    def _pair_steps(self, domain: Domain, plan: BudgetPlan, scores: Scores) -> int:
        """Steps of the marginals' budget that go to the dependence of pairs, where its noise would hide most of it."""
        pairs = len(domain) * (len(domain) - 1) // 2
        sigma = noise_sigma(plan.mu2("pairs"), count=pairs, sensitivity=Fraction(1, 2))
        wanted = (sigma / (max(self.pair_aim, LEAST_AIM) * scores.total)) ** 2 - 1
        return min(max(0, math.ceil(wanted * float(plan.mu2("pairs") / plan.mu2("marginals") / STEP))), MAX_PAIR_STEPS)

    def _dependence(self, curator: Curator, plan: BudgetPlan, scores: Scores, mu2: Fraction) -> PairScores:
        """Half the misfit of each pair with the product of its noisy one-way marginals; 0 if all may be noise."""
        pairs, smaller = all_pairs(curator.domain), self._compression(curator.domain, scores)
        known = replace(scores, measurements=tuple(map(smaller.merged, scores.measurements)))
        queries = list(map(smaller.misfit, pairs, products(known, pairs)))
        misfits = curator.score(queries, mu2, purpose="dependence of pairs")
        seen = see_dependence(
            smaller.domain,
            dict(zip(pairs, misfits, strict=True)),
            known.measurements,
            sigma=noise_sigma(mu2, count=len(pairs)),
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
        domain, measurements = smaller.domain, [*map(smaller.merged, scores.measurements), *scores.earlier]
        count = self._count(domain, plan, scores)
        if not count:
            return self._columns_alone(curator, plan, scores, tools)
        model = self._early(domain, measurements, tools, scores)
        sizes = round_sizes(count, self.rounds, ramp=self.ramp)
        held = (*scores.tables, *(scores.reference.cliques if scores.reference else ()))
        graph = graph_with(domain, held)
        left, weighed = plan.mu2("marginals"), 0.0
        for number, size in enumerate(sizes):
            name, done = f"round {number}", sum(sizes[: number + 1])
            limit = max(self.tau * done / count, min(self.tau, self.tau_beyond_pairs))
            queries = self._queries(model, graph, structure, number, plan=plan, limit=limit, smaller=smaller)
            budget = plan.mu2("choices") * Fraction(size, count)
            chosen = self._choose(curator, queries, budget, purpose=name, count=size)
            graph, cliques = self._grown(graph, chosen, [*held, *(m.clique for m in measurements)], limit=limit)
            if not cliques or (number == len(sizes) - 1 and count < len(domain)):  # few tables leave columns unsaid
                cliques = list(dict.fromkeys([*cliques, *((attribute,) for attribute in domain)]))
            weights = [domain.cells(clique) ** BY_SIZE if self.sized else 1.0 for clique in cliques]
            weighed += sum(weights)
            budget = left * _share(sum(weights), weighed / done * (count - done))
            left -= budget
            measurements += smaller.measure(curator, cliques, budget, purpose=f"{name}: marginals", weights=weights)
            if number < len(sizes) - 1:
                model = self._early(domain, measurements, tools, scores, warm=model, max_passes=MAX_PASSES)
            tools.progress(f"round {number + 1} of {len(sizes)}: {done} marginals measured")
        noisy = min(1.0, (self._sigma(count, plan) / (NOISY * scores.total)) ** 2)
        emphasis = 1 + (self.emphasis - 1) * noisy * (1 - count / self._most(domain))
        if scores.reference is not None:
            last = self._relative(domain, measurements, scores.reference, tools, warm=model, max_passes=LAST_PASSES)
            return smaller.refined(last)
        return smaller.refined(self._last(domain, measurements, tools, warm=model, emphasis=emphasis))

    def _early(
        self, domain: Domain, measurements: Sequence[Measurement], tools: Tools, scores: Scores, **settings: Any
    ) -> MarkovRandomField:
        """The model by which candidates are judged."""
        if scores.reference is not None:
            return self._relative(domain, measurements, scores.reference, tools, **settings)
        return tools.estimate(domain, measurements, until=self.early_fit, **settings)

    def _columns_alone(self, curator: Curator, plan: BudgetPlan, scores: Scores, tools: Tools) -> MarkovRandomField:
        """Where no pair is worth its noise, all that is left goes to the one-way marginals."""
        domain = curator.domain
        singles = [(attribute,) for attribute in domain]
        budget = plan.mu2("choices") + plan.mu2("marginals")
        weights = one_way_weights(domain)
        measured = curator.measure(singles, budget, purpose="one-way marginals at last", weights=weights)
        tools.progress("no pair is worth its noise: one-way marginals measured")
        if scores.reference is not None:
            return self._relative(domain, [*scores.measurements, *measured], scores.reference, tools)
        return self._last(domain, [*scores.measurements, *measured], tools)

    def _last(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        tools: Tools,
        *,
        warm: MarkovRandomField | None = None,
        emphasis: float = 1.0,
    ) -> MarkovRandomField:
        return last_fit(
            domain,
            measurements,
            tools,
            order=self.pooling,
            gain=self.last_gain,
            passes=LAST_PASSES,
            warm=warm,
            emphasis=emphasis,
        )

    def _compression(self, domain: Domain, scores: Scores) -> Compression:
        given = dict(scores.groups)
        known = scores.reference.attributes if scores.reference else ()  # it tells rare codes apart
        mergeable = [m for m in scores.mergeable if m.clique[0] not in known]
        return Compression.from_measurements(domain, mergeable, threshold=self.rare, given=given)

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
            ("noise on each pair's dependence", f"{pairs}, less where that is over {self.pair_aim:.0%} of them"),
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
        self, graph: TriangulatedGraph, chosen: list[Clique], known: Sequence[Clique], *, limit: float
    ) -> tuple[TriangulatedGraph, list[Clique]]:
        """The graph with the chosen cliques, leaving out any with which the model's tree would be too large."""
        cliques = list(known)
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


NOISY = 5e-4
"""Noise of a count as a share of the records from which on small tables are emphasised in full; below it, ever less."""
LEAST_AIM = 1e-6
"""A smaller `pair_aim` is taken for this; nothing is without noise."""
MAX_PAIR_STEPS = 6
"""Upper limit of the steps of the marginals' budget that go to the dependence of pairs: less than a tenth."""
SMALL_TABLE = 24
"""Where noise is large, a strict bound would leave only pairs; tables this small may be measured with more of it."""
MAX_PASSES = 100
"""Upper limit of the passes of inference of a round's fit."""
LAST_PASSES = 1000
"""Upper limit of the passes of inference of the last fit."""
PRIOR_MARGINALS = 10.0
"""Upper limit of the marginals of a public table's model for each column: there they share no budget."""
PRIOR_CELLS = 2e6
"""Upper limit of the junction tree of a public table's model in cells: the measured tables need room beside it."""
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


PRESETS: dict[str, Synthesizer] = {"default": PrivMRF(), "paper": PaperPrivMRF()}
