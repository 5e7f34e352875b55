"""AIM: again and again, measure the marginal that a model of the workload misses most beyond the noise of measuring it.

McKenna, Mullins, Sheldon & Miklau (PVLDB 2022). A round that changes the model by less than noise would is a sign that
rounds are too cheap, so the next ones get more of the budget (annealing); the last takes all that is left, so the plan
is spent exactly. The model may grow with the budget spent. The preset `paper` has the published
constants; `default` has fewer and dearer rounds, anneals more gently and pools its tables for the last fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.models.junction_tree import mask_of
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.synthesizers.base import NUMBER, POSITIVE, Structure, Tools, last_fit, noise_sigma, option, sum_onto
from synth_core.synthesizers.mwem import Rounds
from synth_core.synthesizers.structure import MEAN_ABSOLUTE, fits, graph_with, with_clique
from synth_core.synthesizers.workloads import Workload

TRIPLES = Workload(ways=3)
"""Every three attributes, every code."""
WEIGHT_GRID = 2**16
"""Weights are multiples of 1 over this."""
TOGETHER = 2048
"""Upper limit in cells of a table whose sums give several small tables across the model's tree at once."""


@dataclass(frozen=True, slots=True)
class AIM(Rounds):
    """Rounds over all sets of attributes inside a declared workload, dearer ones where cheap ones change too little."""

    workload: Workload = option(TRIPLES, parse=Workload.parse)
    rounds_per_attribute: float = option(
        4.0, "Upper limit of rounds for each column; more begin with more noise each.", limits=POSITIVE
    )
    annealing: int = option(
        2, "Factor of a round's budget after a change within its noise; larger ends sooner.", limits=NUMBER
    )
    candidates: int = option(
        2000, "Upper limit of the candidates of a round, drawn at random; more take longer.", limits=NUMBER
    )
    largest_model: float = option(
        4e6, "Most cells of the junction tree when all is spent; larger costs memory, time.", limits=NUMBER
    )
    pooling: int = option(3)
    last_gain: float = option(0.125)
    passes: int = option(
        150, "Most passes of inference in a round, a quarter of the last fit's; more fit closer.", limits=NUMBER
    )

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The same share of choices and marginals goes to each round; `left` is what later ones may spend."""
        domain, scores = curator.domain, structure.scores
        measurements = list(scores.measurements)
        model = tools.estimate(domain, measurements)
        if len(domain) == 1:
            return model
        sets, graph, number = closure(domain, self.workload), graph_with(domain, scores.tables), 0
        weights, known = importance(domain, self.workload, sets), [Candidate.of(domain, clique) for clique in sets]
        share, left = Fraction(1, self._rounds(domain)), Fraction(1)
        while left:
            number += 1
            share = left if left < 2 * share else share
            left -= share
            noise = MEAN_ABSOLUTE * self._sigma(plan, share)
            limits = scores.total / noise, self.largest_model * float(1 - left)
            pool = self._pool(graph, known, limits, rng=np.random.default_rng(number))
            queries = self._queries(pool, tables(model, pool), noise=noise, weights=weights)
            worst, noisy = self._measure_worst(curator, plan, queries, number=number, share=share)
            measurements += noisy
            graph = with_clique(graph, worst.clique)
            model = tools.estimate(domain, measurements, warm=model, max_passes=self.passes)
            change = float(np.abs(model.marginal(worst.clique) - worst.reference).sum())
            if change <= noise * worst.reference.size:
                share *= self.annealing
            tools.progress(f"round {number}: {', '.join(worst.clique)} measured, {float(left):.0%} left")
        order, gain, passes = self.pooling, self.last_gain, 4 * self.passes
        return last_fit(domain, measurements, tools, order=order, gain=gain, passes=passes, warm=model)

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return self._sigma(plan, Fraction(1, self._rounds(domain)))

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        rounds = self._rounds(domain)
        sigma = self._sigma(plan, Fraction(1, rounds))
        candidates = min(self.candidates, len(closure(domain, self.workload)))
        return [
            ("noise on each marginal count", f"sigma {sigma:.1f} records, less after annealing"),
            ("rounds", f"up to {rounds}"),
            ("candidates", f"up to {candidates:,} a round"),
            ("junction tree", f"up to {min(self.largest_model, float(domain.cells())):,.0f} cells"),
        ]

    def _pool(
        self,
        graph: TriangulatedGraph,
        sets: Sequence[Candidate],
        limits: tuple[float, float],
        *,
        rng: np.random.Generator,
    ) -> list[Clique]:
        """Candidates of a round: sets within the limits of cells of a table and of the model with it.

        A table may not hold more noise than there are records; single attributes always may be measured again.
        Everything here is public, and the draw is seeded by the round, so that a retry asks the same again.
        """
        largest_table, largest_graph = limits
        domain = graph.domain
        worth = [one for one in sets if len(one.clique) == 1 or one.cells <= largest_table]
        order = rng.permutation(len(worth)) if len(worth) > self.candidates else range(len(worth))
        pool: list[Clique] = []
        for one in (worth[k] for k in order):
            if fits(graph, one.mask, largest_graph=largest_graph):
                pool.append(one.clique)
            if len(pool) == self.candidates:
                break
        return pool or [(attribute,) for attribute in domain]

    def _sigma(self, plan: BudgetPlan, share: Fraction) -> float:
        return noise_sigma(plan.mu2("marginals") * share, count=1)


PAPER = AIM(
    one_way=0.05625,  # d of 16 d measurements, with 0.9 of the budget
    choices=0.094375,  # 0.1 of the rest
    rounds_per_attribute=15.1,  # so that rounds begin with the noise of the one-way marginals
    annealing=4,
    largest_model=1e7,  # 80 MB
    pooling=0,
)
"""The published constants."""


class Candidate(NamedTuple):
    """A set of attributes, as a mask too, and the cells of its table."""

    clique: Clique
    mask: int
    cells: int

    @classmethod
    def of(cls, domain: Domain, clique: Clique) -> Candidate:
        """The same for a clique."""
        return cls(clique, mask_of(domain, clique), domain.cells(clique))


def closure(domain: Domain, workload: Workload) -> list[Clique]:
    """Every single attribute, and every set inside some marginal of the workload."""
    found = {(attribute,) for attribute in domain} | {
        inner
        for part in workload.parts(domain)
        for size in range(2, len(part.clique) + 1)
        for inner in combinations(part.clique, size)
    }
    return sorted(found, key=lambda clique: (len(clique), [domain.position(a) for a in clique]))


def importance(domain: Domain, workload: Workload, sets: Sequence[Clique]) -> dict[Clique, Fraction]:
    """How much the workload cares for each set, at most 1.

    With declared weights it is, as in the paper, the sum over the marginals of weight times attributes shared with the
    set, divided by the largest. Without them all sets count alike.
    """
    if not workload.weights:
        return dict.fromkeys(sets, Fraction(1))
    parts = workload.parts(domain)
    members = np.array([[attribute in part.clique for attribute in domain] for part in parts], dtype=np.float64)
    weights = np.array([part.weight for part in parts])
    shared = np.array([[attribute in clique for attribute in domain] for clique in sets]) @ (weights @ members)
    grid = np.maximum(np.rint(shared / shared.max() * WEIGHT_GRID), 1)
    return {clique: Fraction(int(w), WEIGHT_GRID) for clique, w in zip(sets, grid, strict=True)}


def tables(model: MarkovRandomField, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
    """The model's tables of many cliques; small ones that lie in no clique of its tree are asked for together.

    A table across the tree costs a variable elimination, whatever its size; one of a few more attributes costs
    little more and holds many others.
    """
    across = [clique for clique in cliques if model.tree.host(clique) is None]
    homes = dict(zip(across, unions(model.domain, across), strict=True))
    around = [homes.get(clique, clique) for clique in cliques]
    asked = list(dict.fromkeys(around))
    found = dict(zip(asked, model.marginals(asked), strict=True))
    return [sum_onto(found[home], home, clique) for home, clique in zip(around, cliques, strict=True)]


def unions(domain: Domain, cliques: Sequence[Clique]) -> list[Clique]:
    """For each clique a set that holds it, of at most TOGETHER cells or the clique itself, by first fit."""
    logs, most = np.log(domain.sizes), math.log(TOGETHER) + 1e-9
    members = np.zeros((len(cliques), len(domain)), dtype=bool)
    homes: list[int] = []
    used = 0
    for clique in cliques:
        own = np.zeros(len(domain), dtype=bool)
        own[[domain.position(attribute) for attribute in clique]] = True
        room = np.flatnonzero((members[:used] | own) @ logs <= most)
        home = int(room[0]) if len(room) else used
        used = max(used, home + 1)
        members[home] |= own
        homes.append(home)
    names = np.array(domain.attributes)
    return [tuple(names[members[home]].tolist()) for home in homes]


PRESETS = {"default": AIM(), "paper": PAPER}
