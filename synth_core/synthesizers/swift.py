"""One batch of marginals on a clique tree, in the manner of SWIFT: everything is decided before anything is measured.

Noisy one-way marginals; noisy distances from independence of all pairs; a clique tree grown on the pairs, for several
prices of size, the best of which is kept; noisy distances of the larger sets inside its cliques; then one batch of
marginals with the shares that put in the least noise, and one fit. There are no rounds: counting passes
over the records twice and the estimator runs once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from synth_core.domain import Clique, Domain
from synth_core.models.mixture import Model
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.synthesizers.base import (
    NUMBER,
    SHARE,
    PairScores,
    Scores,
    Structure,
    Tools,
    last_fit,
    noise_sigma,
    noise_text,
    option,
)
from synth_core.synthesizers.independent import OneWayFirst, Shares, distances
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE, all_pairs, best_batch, graph_with

PRICES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""What a pair's expected noise counts against its distance when a tree is grown; each gives another tree."""


@dataclass(frozen=True, slots=True)
class Swift(OneWayFirst):
    """One-way marginals, distances, one batch; sets of up to `ways` attributes inside the tree are measured."""

    one_way: float = option(0.1)
    distances: float = option(
        0.05, "Share of the budget for distances from independence; more selects more surely.", limits=SHARE
    )
    ways: int = option(
        3, "Largest number of columns of a measured set; larger captures more with noisier tables.", limits=NUMBER
    )
    larger: float = option(0.4, "Weight of what sets of three or more columns add to pairs; larger measures more.")
    largest_model: float = option(1e6, "limit_cells")
    pooling: int = option(3)
    last_gain: float = option(0.125)
    passes: int = option(600)

    def _shares(self) -> tuple[Shares, str]:
        return {"one-way": self.one_way, "distances": self.distances}, "marginals"

    def _pairs(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> PairScores:
        pairs, mu2 = all_pairs(curator.domain), plan.mu2("distances") / 2
        found = distances(curator, scores, pairs, mu2, purpose="distances of pairs")
        return tuple((a, b, distance) for (a, b), distance in found.items())

    def _structure(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The tree, then the sets inside it that are worth measuring."""
        domain, mu2 = curator.domain, plan.mu2("marginals")
        pairs: dict[Clique, float] = {(a, b): distance for a, b, distance in scores.pairs}
        begun = graph_with(domain, scores.tables)
        trees = [self._tree(begun, order) for order in orders(domain, pairs, mu2)] or [begun]
        tree = max(trees, key=lambda tree: best_batch(domain, _inside(tree, pairs), mu2)[0])
        larger = self._larger(domain, tree.cliques, plan, scores)
        found = distances(curator, scores, larger, plan.mu2("distances") / 2, purpose="distances of larger sets")
        gains = _inside(tree, pairs) | {clique: self.larger * own_distance(clique, found, pairs) for clique in larger}
        return Structure(scores, tree.cliques, best_batch(domain, gains, mu2)[1])

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """Measure the batch and estimate once."""
        domain = curator.domain
        measurements = list(structure.scores.measurements)
        if structure.initial:
            weights = [domain.cells(clique) ** BY_SIZE for clique in structure.initial]
            larger = self._larger(domain, structure.cliques, plan, structure.scores)
            # What was set aside for distances of larger sets is the marginals' where there are none.
            mu2 = plan.mu2("marginals") + (0 if larger else plan.mu2("distances") / 2)
            measurements += curator.measure(structure.initial, mu2, purpose="marginals", weights=weights)
            tools.progress(f"{len(structure.initial)} marginals measured")
        return last_fit(domain, measurements, tools, order=self.pooling, gain=self.last_gain, passes=self.passes)

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float:
        return noise_sigma(plan.mu2("marginals"), count=len(all_pairs(domain)))

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        pairs = len(domain) * (len(domain) - 1) // 2
        cells = min(self.largest_model, float(domain.cells()))
        return [
            ("noise on each count if all pairs were measured", noise_text(plan.mu2("marginals"), count=pairs)),
            ("clique tree", f"up to {cells:,.0f} cells"),
        ]

    def _tree(self, tree: TriangulatedGraph, order: Sequence[Clique]) -> TriangulatedGraph:
        """Join pairs in their order, leaving out those that would make the tree too large."""
        for a, b in order:
            grown = tree.with_edge(a, b)
            if grown.cells <= self.largest_model:
                tree = grown
        return tree

    def _larger(self, domain: Domain, tree: Sequence[Clique], plan: BudgetPlan, scores: Scores) -> list[Clique]:
        """Sets of three attributes or more inside the tree's cliques whose noise would be less than the records."""
        most_cells = scores.total * math.sqrt(plan.mu2("marginals")) / MEAN_ABSOLUTE
        sets = {
            clique
            for around in tree
            for size in range(3, self.ways + 1)
            for clique in combinations(around, size)
            if domain.cells(clique) <= most_cells
        }
        return sorted(sets, key=lambda clique: [domain.position(attribute) for attribute in clique])


def orders(domain: Domain, pairs: Mapping[Clique, float], mu2: Fraction) -> list[tuple[Clique, ...]]:
    """The pairs of positive distance from the most worthwhile down, for each price of their noise; each order once."""
    noise = MEAN_ABSOLUTE / math.sqrt(mu2)
    far = [pair for pair in pairs if pairs[pair] > 0]
    found = (tuple(sorted(far, key=lambda pair: price * noise * domain.cells(pair) - pairs[pair])) for price in PRICES)
    return list(dict.fromkeys(found))


def own_distance(clique: Clique, larger: Mapping[Clique, float], pairs: Mapping[Clique, float]) -> float:
    """How much farther from independence a set is than the farthest of the known sets of one attribute less."""
    inner = (larger.get(part, pairs.get(part, 0.0)) for part in combinations(clique, len(clique) - 1))
    return larger[clique] - max(inner)


def _inside(tree: TriangulatedGraph, pairs: Mapping[Clique, float]) -> dict[Clique, float]:
    return {(a, b): distance for (a, b), distance in pairs.items() if tree.adjacent(a, b)}


PRESETS = {"default": Swift()}
