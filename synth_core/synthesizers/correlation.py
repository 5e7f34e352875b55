"""Which pairs to measure: ABSyn's conditional R-score (CR-score) and the greedy selection that it drives.

Scores are noisy and public, so all of this is post-processing. Numbers in the comments are those of Jia et al., "ABSyn"
(IEEE TIFS 2024). Adding one pair changes the triangulated graph along one path, the products of paths by one rank-one
update, and the noise by one term; nothing is ever rebuilt, which makes a hundred attributes practical.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.compiled import compiled, part_of_kernel
from synth_core.domain import Clique, Domain
from synth_core.models.junction_tree import JunctionTree, bits
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE, graph_with, pair_matrix, rank_by_worth

Edge = tuple[int, int]


def normalise_scores(domain: Domain, pairs: Iterable[tuple[str, str, float]], *, total: float) -> Floats:
    """The R-scores of Eq. 6, cut to [0, 1], from dependence 1/2 sum |c_ab - r_a s_b / n| in records.

    The paper's R is twice the dependence divided by the number of records, and at most 2 (m - 1) / m, where m is the
    smaller of the two sizes.
    """
    scores = pair_matrix(domain, pairs, scale=total)
    largest = _largest_dependence(domain)
    return np.clip(np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0), 0.0, 1.0)


def connect_paths(paths: Floats, edge: Edge, strength: float) -> Floats:
    """The largest products of normalised scores along paths (Eq. 8, Algorithm 1) when one more edge may be used.

    Scores are at most 1, so a best path is simple and crosses the new edge at most once, in one direction or the other:
    the three terms of the maximum are all there is.
    """
    i, j = edge
    across = strength * np.outer(paths[:, i], paths[j])
    return np.maximum(paths, np.maximum(across, across.T))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms pairs are selected.

    `loads` holds what a measured pair adds to the noise: the noise of a batch of squared Gaussian-DP parameter mu2,
    split in the best way, adds up to sqrt(2 / pi) * (sum of loads^(2/3))^(3/2) / mu records (Eqs. 10 and 11).
    With `fill_measured` the edges that a triangulation adds are measured too, as in Algorithm 3.
    """

    total: float
    mu2: float
    loads: Floats
    largest_clique: float
    largest_graph: float = np.inf
    fill_measured: bool = True

    def noise(self, spread: Floats) -> Floats:
        """Expected absolute noise in records over all measured pairs, from sums of loads^(2/3)."""
        return np.asarray(MEAN_ABSOLUTE * spread**1.5 / np.sqrt(self.mu2))


def load(domain: Domain, clique: Clique, *, interactions: bool) -> float:
    """What measuring a table adds to the noise: its cells (Eq. 10), or less with `interactions`.

    Where all smaller tables are known much better, the noise that matters is its projection on tables whose sums over
    any attribute are zero. Of k cells it keeps the product of (size - 1) as dimensions, so each cell's standard
    deviation falls by the square root of that ratio.
    """
    cells = domain.cells(clique)
    free = math.prod(max(1, domain.size(attribute) - 1) for attribute in clique)
    return math.sqrt(cells * free) if interactions else float(cells)


def pair_loads(domain: Domain, *, interactions: bool) -> Floats:
    """The loads of all pairs."""
    loads = np.zeros((len(domain), len(domain)))
    for (i, a), (j, b) in combinations(enumerate(domain), 2):
        loads[i, j] = loads[j, i] = load(domain, (a, b), interactions=interactions)
    return loads


def worth_their_noise(gains: Sequence[float], loads: Sequence[float], *, mu2: float) -> list[int]:
    """Positions of the tables to measure with `mu2` in one batch, by gain for each unit of noise, while it pays."""
    order, worth = rank_by_worth(gains, np.array(loads) ** BY_SIZE, mu2=mu2)
    return order[: int(np.argmax([0.0, *worth]))]


def widen_cliques(tree: JunctionTree, strengths: Floats, *, room: float) -> tuple[Clique, ...]:
    """A tree's cliques after more pairs are joined, the strongest first, while they have at most `room` cells together.

    Three columns may depend on each other though no pair of them does, or none that is not explained by others: then
    no selected pair brings them into one clique. Whatever lies inside these cliques needs no larger tree than theirs.
    """
    domain, graph = tree.domain, TriangulatedGraph.of_tree(tree)
    pairs = list(combinations(domain, 2))
    places = [[domain.position(a) for a in pair] for pair in pairs]
    for k in np.argsort([-strengths[i, j] for i, j in places], kind="stable"):
        if graph.cells + graph.largest_new_clique(*pairs[k]) <= room:
            graph = graph.with_edge(*pairs[k])
    return graph.cliques


def strongest_triples(
    domain: Domain, cliques: Iterable[Clique], strengths: Floats, *, largest: float, count: int
) -> list[Clique]:
    """Up to `count` triples inside the cliques, of at most `largest` cells: those whose pairs depend most."""
    found = {triple for clique in cliques for triple in combinations(clique, 3)}
    fitting = sorted(triple for triple in found if domain.cells(triple) <= largest)
    places = [[domain.position(attribute) for attribute in triple] for triple in fitting]
    total = [strengths[i, j] + strengths[j, k] + strengths[i, k] for i, j, k in places]
    order = np.argsort(-np.array(total), kind="stable")
    return [fitting[k] for k in order[:count]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Pairs selected so far, with all that depends on them."""

    graph: TriangulatedGraph
    measured: NDArray[np.bool_]
    paths: Floats
    spread: float
    error: float


def select_pairs(domain: Domain, scores: Floats, terms: Terms, *, begun: Iterable[Clique] = ()) -> tuple[Clique, ...]:
    """The pairs that Algorithm 3 selects: greedily the one after which the expected error is least, while it falls.

    The error, in records, is the noise on measured pairs plus the CR-scores of the others. A pair whose clique is too
    large stays too large when more edges are added, so it is dropped for good. Without fill the graph decides only
    whether a pair fits, which is then asked of the best ones until one does. The graph begins with the tables `begun`.
    """
    scale = 2 * terms.total * _largest_dependence(domain)
    np.fill_diagonal(scale, 0.0)
    none, error = np.zeros(scores.shape, dtype=np.bool_), float((scale * scores).sum() / 2)
    state = Selection(graph_with(domain, begun), none, np.eye(len(domain)), 0.0, error)
    left, loads = [pair for pair in combinations(range(len(domain)), 2) if scores[pair] > 0], terms.loads**BY_SIZE
    while left and (offers := _offers(state, left, terms)):
        starts, edges = _flat(offers)
        spreads = state.spread + np.add.reduceat(loads[edges[:, 0], edges[:, 1]], starts[:-1])
        weights = np.where(state.measured, 0.0, scale)
        errors = _left_by_each(scores, weights, state.paths, starts, edges) + terms.noise(spreads)
        order = np.argsort(errors, kind="stable")
        better = order[: np.count_nonzero(errors < state.error)].tolist()
        place = next((k for k, at in enumerate(better) if _fits(state.graph, offers[at][0], terms)), None)
        if place is None:
            break
        best, too_large = better[place], {offers[at][0] for at in better[:place]}
        state = _with(state, scores, offers[best], spread=float(spreads[best]), error=float(errors[best]))
        left = [pair for pair, *_ in offers if pair not in too_large and not state.measured[pair]]
    rows, columns = np.nonzero(np.triu(state.measured))
    names = domain.attributes
    return tuple((names[i], names[j]) for i, j in zip(rows, columns, strict=True))


def _offers(state: Selection, left: list[Edge], terms: Terms) -> list[tuple[Edge, ...]]:
    """For each pair the edges that would be measured, itself first; with fill, for each pair that fits."""
    if not terms.fill_measured:
        return [(pair,) for pair in left]
    offers = []
    for pair in left:
        if _fits(state.graph, pair, terms):
            come, _ = state.graph.change(*_named(state.graph, pair))
            inside = {edge for mask in come for edge in combinations(bits(mask), 2)}
            offers.append((pair, *sorted(edge for edge in inside if edge != pair and not state.measured[edge])))
    return offers


def _fits(graph: TriangulatedGraph, pair: Edge, terms: Terms) -> bool:
    """Whether the graph with the pair stays within the limits."""
    come, go = graph.change(*_named(graph, pair))
    new = [graph.size(mask) for mask in come]
    more = sum(new) - sum(map(graph.size, go))
    return max(new, default=0) <= terms.largest_clique and graph.cells + more <= terms.largest_graph


def _named(graph: TriangulatedGraph, pair: Edge) -> tuple[str, str]:
    names = graph.domain.attributes
    return names[pair[0]], names[pair[1]]


def _with(state: Selection, scores: Floats, edges: tuple[Edge, ...], *, spread: float, error: float) -> Selection:
    graph = state.graph.with_edge(*_named(state.graph, edges[0]))
    measured, paths = state.measured.copy(), state.paths
    for i, j in edges:
        measured[i, j] = measured[j, i] = True
        paths = connect_paths(paths, (i, j), float(scores[i, j]))
    return Selection(graph, measured, paths, spread, error)


def _flat(offers: list[tuple[Edge, ...]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each offer begins among the edges of all, and the end; and these edges, one after the other."""
    edges = [edge for offer in offers for edge in offer]
    return np.cumsum([0, *map(len, offers)]), np.array(edges, dtype=np.int64)


def _largest_dependence(domain: Domain) -> Floats:
    sizes = np.array(domain.sizes, dtype=np.float64)
    smaller = np.minimum.outer(sizes, sizes)
    return np.asarray((smaller - 1) / smaller)


@part_of_kernel
def _left_by_one(scores: Floats, weights: Floats, paths: Floats, i: int, j: int) -> float:
    """The same after one edge."""
    strength, value = scores[i, j], 0.0
    for a in range(paths.shape[0]):
        through_i, through_j = strength * paths[i, a], strength * paths[j, a]
        for b in range(a):
            path = max(paths[a, b], max(through_i * paths[j, b], through_j * paths[i, b]))
            value += weights[a, b] * max(scores[a, b] - path, 0.0)
    own: float = weights[i, j] * max(scores[i, j] - max(paths[i, j], strength), 0.0)
    return value - own


@part_of_kernel
def _connect(scores: Floats, paths: Floats, edges: NDArray[np.int64], after: Floats) -> None:
    """Put the paths with all these edges into `after`."""
    count = paths.shape[0]
    to_i, to_j = np.empty(count), np.empty(count)
    for a in range(count):
        for b in range(count):
            after[a, b] = paths[a, b]
    for k in range(edges.shape[0]):
        i, j = edges[k, 0], edges[k, 1]
        for a in range(count):
            to_i[a], to_j[a] = after[i, a], after[j, a]
        for a in range(count):
            through_i, through_j = scores[i, j] * to_i[a], scores[i, j] * to_j[a]
            for b in range(count):
                after[a, b] = max(after[a, b], max(through_i * to_j[b], through_j * to_i[b]))


@compiled
def _left_by_each(
    scores: Floats, weights: Floats, paths: Floats, starts: NDArray[np.int64], edges: NDArray[np.int64]
) -> Floats:
    """For each offer, the weighted CR-scores of pairs outside of it, after its edges were added to the paths.

    A CR-score (Eq. 7) is what paths do not explain yet of a pair's normalised score. A noisy score can fall below its
    path's product; the pair is then explained, and nothing of it is left.
    """
    left = np.empty(starts.size - 1)
    after = paths.copy()
    for offer in range(starts.size - 1):
        begin, end = starts[offer], starts[offer + 1]
        if end == begin + 1:  # the paths with one more edge are needed only once, and not kept
            value = _left_by_one(scores, weights, paths, edges[begin, 0], edges[begin, 1])
        else:
            _connect(scores, paths, edges[begin:end], after)
            value = 0.0
            for a in range(after.shape[0]):
                for b in range(a):
                    value += weights[a, b] * max(scores[a, b] - after[a, b], 0.0)
            for k in range(begin, end):
                i, j = edges[k, 0], edges[k, 1]
                value -= weights[i, j] * max(scores[i, j] - after[i, j], 0.0)
        left[offer] = value
    return left
