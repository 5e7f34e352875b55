"""ABSyn (Jia et al., IEEE TIFS 2024): pairs are selected one after the other, but measured in one batch.

Numbers in the comments are those of the paper. The preset `paper` follows it with sound accounting: the scores of all
pairs are composed, and the number of records comes from noisy marginals. The preset `default` keeps the frame and
adds what docs/absyn.md explains: scores against noisy one-way marginals, which have a quarter of the sensitivity; a
count of the noise that consistency leaves instead of all of it; no measurement of edges that only triangulation
needs; and a second batch, of triples inside the cliques that the model of the pairs misses most.

Cliques may be estimated each on its own, on many workers at once, and joined into one model (Section VII). Only
tables inside a clique take part in its fit, so fits do not wait for each other's messages. They are joined by
conditional distributions along the junction tree, never by gluing rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models.calibration import Factor, split_tables
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Dependence
from synth_core.synthesizers.base import (
    NUMBER,
    SHARE,
    Fit,
    PairScores,
    Scores,
    Structure,
    Tools,
    free_parameters,
    noise_sigma,
    noise_text,
    option,
)
from synth_core.synthesizers.compression import Compression
from synth_core.synthesizers.consistency import make_consistent
from synth_core.synthesizers.correlation import (
    Terms,
    load,
    normalise_scores,
    pair_loads,
    select_pairs,
    strongest_triples,
    widen_cliques,
    worth_their_noise,
)
from synth_core.synthesizers.independent import OneWayFirst, Shares, distances
from synth_core.synthesizers.structure import BY_SIZE, all_pairs

EXACT, PARALLEL = "exact", "parallel"
RECORDS_PER_CELL = 2
"""Least number of records for each cell of a triple; a sparser table would be noise."""
ROOM = 100_000
"""Cells up to which a junction tree is widened for triples that lie in none of its cliques; larger ones stay."""


@dataclass(frozen=True, slots=True)
class ABSyn(OneWayFirst):
    """One-way marginals, scores of pairs, selection, one weighted batch of pairs, one fit; then perhaps triples."""

    one_way: float = option(0.12)
    scores: float = option(0.04, "pair_scores")
    singles: bool = option(True, "Whether one-way marginals are measured again in the batch of pairs.")
    triples: float = option(0.23, "Share of the budget for triples; more makes pairs noisier, 0 measures none.")
    triple_scores: float = option(
        0.03, "Share of the budget for misfits of triples; more chooses triples more surely.", limits=(0.0, 1.0)
    )
    noisy_reference: bool = option(True, "Whether noisy one-way marginals score the pairs (sensitivity 1/2, not 2).")
    interactions: bool = option(True, "Whether only the noise that agreement of tables leaves counts against a table.")
    fill: bool = option(False, "Whether the pairs that triangulation adds to the graph are measured too.")
    rare: float = option(3.0)
    rare_share: float = option(
        0.0075, "Upper limit of a merged code's share of the records; larger merges more codes.", limits=(0.0, 1.0)
    )
    largest_clique: float = option(
        1e6, "Upper limit of one clique in cells; larger keeps more dependence, is slower.", limits=NUMBER
    )
    largest_graph: float = option(4e6, "limit_cells")
    candidates: int = option(
        1000, "Upper limit of the triples scored; more miss less, and each score is noisier.", limits=NUMBER
    )
    depth: float = option(
        0.9, "Share of the way from expected to least loss that a fit goes; larger follows noise.", limits=SHARE
    )
    estimation: str = option(EXACT, "`exact` fits the whole junction tree, `parallel` each clique, on all workers.")
    max_passes: int = option(300, "passes")

    def __post_init__(self) -> None:
        if self.estimation not in (EXACT, PARALLEL):
            raise SpecError(f"options: estimation must be {EXACT} or {PARALLEL}, not {self.estimation!r}")
        if self.triples and not self.triple_scores:
            raise SpecError("options: triples are chosen by their scores; give triple_scores a share, or triples none")

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return self.estimation == EXACT

    def _shares(self) -> tuple[Shares, str]:
        shares = {"one-way": self.one_way, "scores": self.scores}
        if self.triples:
            shares |= {"triples": self.triples, "triple scores": self.triple_scores}
        return shares, "pairs"

    def _pairs(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> PairScores:
        """The R-scores of all pairs (Algorithm 3, lines 6-8); one-way marginals are its Algorithm 2, line 6."""
        pairs, budget = all_pairs(curator.domain), plan.mu2("scores")
        if self.noisy_reference:
            found = distances(curator, scores, pairs, budget, purpose="R-scores")
            return tuple((a, b, misfit / 2) for (a, b), misfit in found.items())
        values = curator.score([Dependence(pair) for pair in pairs], budget, purpose="R-scores")
        return tuple((a, b, value) for (a, b), value in zip(pairs, values, strict=True))

    def _structure(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Algorithm 3; post-processing.

        Triples inform about their pairs as well, so their budget counts when pairs are weighed against noise.
        """
        domain = self._compression(curator.domain, scores).domain
        budget = plan.mu2("pairs") + (plan.mu2("triples") if self.triples else 0)
        terms = Terms(
            total=scores.total,
            mu2=float(budget),
            loads=pair_loads(domain, interactions=self.interactions),
            largest_clique=self.largest_clique,
            largest_graph=self.largest_graph,
            fill_measured=self.fill,
        )
        strengths = normalise_scores(domain, scores.pairs, total=scores.total)
        return Structure(scores, select_pairs(domain, strengths, terms, begun=scores.tables))

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure all selected pairs at once, make the tables agree, estimate; then the same with triples.

        Where nothing is worth a batch, its budget makes better what is known already.
        """
        singles = [(attribute,) for attribute in curator.domain]
        compression = self._compression(curator.domain, structure.scores)
        known = list(map(compression.merged, structure.scores.measurements))
        if len(singles) > 1:
            pairs = [*structure.cliques, *(singles if self.singles or not structure.cliques else ())]
            known += self._measured(curator, compression, pairs, plan.mu2("pairs"), purpose="pairs")
            tools.progress(f"{len(structure.cliques)} pairs measured")
        model = self.estimated(compression.domain, known, tools)
        if len(singles) > 1 and self.triples:
            budget = plan.mu2("triples")
            found = self._candidates(model, structure.scores)
            if found:
                asked = plan.mu2("triple scores")
                triples = self._chosen(curator, model, found, asked, compression=compression, batch=budget)
            else:
                triples, budget = [], budget + plan.mu2("triple scores")
            known += self._measured(curator, compression, triples or pairs, budget, purpose="triples")
            tools.progress(f"{len(triples)} triples measured")
            model = self.estimated(compression.domain, known, tools)
        return compression.refined(model)

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return noise_sigma(plan.mu2("pairs"), count=len(domain))

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        d = len(domain)
        sensitivity = Fraction(1, 2) if self.noisy_reference else Fraction(2)
        dependence = noise_text(plan.mu2("scores"), count=d * (d - 1) // 2, sensitivity=sensitivity)
        lines = [
            ("noise on each pair's dependence", dependence),
            ("noise on each pair count", f"{noise_text(plan.mu2('pairs'), count=d)} if {d} pairs share it equally"),
            ("pairs measured", "as many as lower the expected error, in one batch"),
        ]
        if self.triples:
            lines.append(("triples measured", f"those worth their noise, of up to {self.candidates}"))
        most = min(self.largest_graph, domain.cells())
        lines.append(("junction tree", f"up to {most:,.0f} cells, estimation {self.estimation}"))
        return lines

    def _measured(
        self,
        curator: Curator,
        compression: Compression,
        cliques: Sequence[Clique],
        mu2: Fraction,
        *,
        purpose: str,
    ) -> list[Measurement]:
        """One batch of noisy tables of the smaller domain, its budget split by Eq. 11."""
        domain = compression.domain
        weights = [load(domain, clique, interactions=self.interactions) ** BY_SIZE for clique in cliques]
        return compression.measure(curator, cliques, mu2, purpose=purpose, weights=weights)

    def estimated(self, domain: Domain, known: list[Measurement], tools: Tools) -> MarkovRandomField:
        """A model of the tables after they were made to agree.

        Agreement by least squares loses nothing and counts nothing twice: for tables m of any model, the weighted
        squared distance from the noisy tables is that from the agreed ones plus a constant (Pythagoras), if every
        table keeps its own sigma. No table of a Markov random field has a negative cell, so none is cut beforehand.
        """
        total = total_by_inverse_variance(known)
        agreed = make_consistent(known, update=False)
        if self.estimation == PARALLEL:
            return estimate_by_clique(domain, agreed, tools, total=total, level=self._level, max_passes=self.max_passes)
        settings = {"total": total, "until": self._level(domain, agreed), "max_passes": self.max_passes}
        model = tools.estimate(domain, agreed, **settings)
        tools.note(model, Fit(domain, tuple(known), settings))
        return model

    def _level(self, domain: Domain, agreed: Sequence[Measurement]) -> float:
        """Where a fit to tables that agree may stop, in units of half their cells.

        At the truth their loss is half a unit for each free parameter on average, and 0 can be reached.
        """
        return (1 - self.depth) * _freedom(domain, agreed)

    def _candidates(self, model: MarkovRandomField, scores: Scores) -> list[Clique]:
        """Triples that cost little but their noise: the model's cliques hold them, or small ones would."""
        strengths = normalise_scores(model.domain, scores.pairs, total=scores.total)
        cliques = widen_cliques(model.tree, strengths, room=ROOM)
        largest = scores.total / RECORDS_PER_CELL
        return strongest_triples(model.domain, cliques, strengths, largest=largest, count=self.candidates)

    def _chosen(
        self,
        curator: Curator,
        model: MarkovRandomField,
        candidates: list[Clique],
        mu2: Fraction,
        *,
        compression: Compression,
        batch: Fraction,
    ) -> list[Clique]:
        """The candidates whose misfit with the model is worth the noise of measuring them with `batch`."""
        queries = list(map(compression.misfit, candidates, model.marginals(candidates)))
        misfits = curator.score(queries, mu2, purpose="misfits of triples")
        loads = [load(model.domain, clique, interactions=self.interactions) for clique in candidates]
        return [candidates[k] for k in worth_their_noise(misfits, loads, mu2=float(batch))]

    def _compression(self, domain: Domain, scores: Scores) -> Compression:
        """Codes are rare if noise hides them and, where there is much noise, if they are few as well."""
        known = scores.mergeable if self.rare else ()
        threshold = min([self.rare, *(self.rare_share * scores.total / m.sigma for m in known)])
        return Compression.from_measurements(domain, known, threshold=threshold)


PAPER = ABSyn(
    one_way=0.1,
    scores=0.1,
    singles=False,
    triples=0.0,
    triple_scores=0.0,
    noisy_reference=False,
    interactions=False,
    fill=True,
    rare=0.0,
)
"""Section VI: 0.1 / 0.1 / 0.8 of the budget; the paper leaves the clique threshold and the end of the fit open."""

PRESETS = {"default": ABSyn(), "paper": PAPER}


def _freedom(domain: Domain, measurements: Sequence[Measurement]) -> float:
    """Free parameters of the model of these tables for each of their cells."""
    cliques = {m.clique for m in measurements}
    return free_parameters(domain, cliques) / sum(map(domain.cells, cliques))


LEAST_SEPARATOR = 1e-30
"""Least probability of a separator's cell that is divided by. Where a fit goes deep, some are too small for floating
point and read 0; dividing by less than they truly have would make the impossible the likeliest of all."""


def estimate_by_clique(
    domain: Domain,
    measurements: Sequence[Measurement],
    tools: Tools,
    *,
    total: float,
    level: Callable[[Domain, Sequence[Measurement]], float],
    max_passes: int,
) -> MarkovRandomField:
    """A model of all the measurements from one fit for each clique of their junction tree.

    `level` says where the fit of some measurements may stop (the `until` of the estimator).
    """
    tree = junction_tree(domain, [m.clique for m in measurements])
    fits = []
    for clique in tree.cliques:
        inside = tuple(m for m in measurements if set(m.clique) <= set(clique))
        own = domain.project(clique)
        fits.append(Fit(own, inside, {"total": total, "until": level(own, inside), "max_passes": max_passes}))
    return join_cliques(tree, tools.estimate_each(fits), total=total)


def join_cliques(tree: JunctionTree, models: Sequence[MarkovRandomField], *, total: float) -> MarkovRandomField:
    """The distribution in which each clique follows its own model given its separator, parents first.

    That is p(x) = product over cliques C of p_C(x_C) / p_C(x_S), S being what C shares with its parent. Each factor is
    a conditional distribution, so p sums to 1 whatever the models say of S; and it is a Markov random field: the
    models' potentials added up, minus the logarithms of their separators' marginals. Drawing rows from it is
    conditional sampling along the tree.
    """
    potentials: dict[Clique, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    for i, model in enumerate(models):
        tables = split_tables(model.domain, model.cliques, model.potentials)
        separator = tree.separator(i)
        if separator:
            share = model.marginal(separator) / model.total
            tables.append(Factor(separator, -np.log(np.maximum(share, LEAST_SEPARATOR))))
        for clique, table in tables:
            potentials[clique] = potentials.get(clique, 0.0) + table
    vector = np.concatenate([table.ravel() for table in potentials.values()])
    return MarkovRandomField(tree, list(potentials), vector, total=total)
