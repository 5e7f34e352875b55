"""Attribute graphs and candidate marginals: what a method may measure, decided from public numbers alone.

Where every subset of a graph's cliques is a candidate they are listed (`Candidates`); where the graph is still to
grow, a bounded number is drawn at random, dependent attributes together (`proposals`). A clique of at most 10^7 cells
has at most 23 attributes of two or more values, so the subsets of one clique are enumerated as small bit masks,
level by level, in arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.models.junction_tree import clique_of
from synth_core.models.triangulation import TriangulatedGraph

Masks = NDArray[np.int64]

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute value of a standard normal variable."""
BY_SIZE = 2 / 3
"""Budgets proportional to cells^(2/3), or load^(2/3), minimise the absolute noise summed over a batch of tables."""
MAX_PROPOSED = 10
"""Upper limit of the attributes of a candidate."""
TRIES_PER_PROPOSAL = 6
"""Random sets drawn for each proposal wanted; in small domains most of them are repetitions."""


def all_pairs(domain: Domain) -> list[Clique]:
    """Every pair of attributes."""
    return list(combinations(domain.attributes, 2))


def attribute_graph(
    domain: Domain, pairs: Iterable[tuple[str, str, float]], *, largest_clique: float
) -> tuple[Clique, ...]:
    """Maximal cliques of a triangulated graph that joins the highest scored pairs (PrivMRF, Algorithm 1).

    Pairs are tried once, from the highest score down: a pair whose clique is too large stays too large when more
    edges are added, so going through the rest of the list again would change nothing.
    """
    graph = TriangulatedGraph.empty(domain)
    for a, b, _ in sorted(pairs, key=lambda pair: -pair[2]):
        if graph.largest_new_clique(a, b) <= largest_clique:
            graph = graph.with_edge(a, b)
    return graph.retriangulated().cliques


@dataclass(frozen=True)
class Candidates:
    """The subsets, of at most `largest_table` cells, of some cliques (PrivMRF, Algorithm 2)."""

    domain: Domain
    cliques: tuple[Clique, ...]
    largest_table: float

    @cached_property
    def _masks(self) -> list[Masks]:
        """For each clique, its subsets that no earlier clique has, as masks over the clique's own attributes."""
        found = []
        for index, clique in enumerate(self.cliques):
            masks = _subsets(self.domain.shape(clique), largest_table=self.largest_table)
            for earlier in self.cliques[:index]:
                outside = sum(1 << i for i, attribute in enumerate(clique) if attribute not in earlier)
                masks = masks[(masks & outside) != 0]
            found.append(masks)
        return found

    def __len__(self) -> int:
        return sum(len(masks) for masks in self._masks)

    def at(self, positions: Iterable[int]) -> list[Clique]:
        """The candidates at some positions of the enumeration."""
        starts = np.cumsum([0, *(len(masks) for masks in self._masks)])
        found = []
        for position in positions:
            index = int(np.searchsorted(starts, position, side="right")) - 1
            mask = int(self._masks[index][position - starts[index]])
            found.append(tuple(a for bit, a in enumerate(self.cliques[index]) if mask >> bit & 1))
        return found

    def memberships(self) -> NDArray[np.float32]:
        """A row for each candidate and a column for each attribute of the domain: 1 where it is a member."""
        rows = np.zeros((len(self), len(self.domain)), dtype=np.float32)
        start = 0
        for clique, masks in zip(self.cliques, self._masks, strict=True):
            for bit, attribute in enumerate(clique):
                rows[start : start + len(masks), self.domain.position(attribute)] = (masks >> bit) & 1
            start += len(masks)
        return rows


def proposals(
    graph: TriangulatedGraph,
    affinity: NDArray[np.float64],
    *,
    largest_table: float,
    largest_pair: float = 0.0,
    largest_graph: Callable[[int], float],
    count: int,
    rng: np.random.Generator,
) -> list[Clique]:
    """Up to `count` different random sets of attributes that the graph can still take in.

    A set starts from any attribute and takes others with probability proportional to their affinity to it, up to a
    random number of them, leaving out those with which its table would be too large; a pair, the least that shows any
    dependence, may have a limit of its own. A set is kept if it lies inside a clique of the graph or the graph has
    no more cells with it than `largest_graph` allows for a set of that size. The work is bounded by `count`
    and does not depend on how many sets there are.
    """
    domain = graph.domain
    sizes = np.array(domain.sizes)
    keys = np.log(np.maximum(affinity, 1e-12))
    fitting = int((np.cumprod(np.sort(sizes).astype(float)) <= largest_table).sum())
    most = max(2, min(fitting, MAX_PROPOSED))
    found: dict[int, bool] = {}
    for _ in range(TRIES_PER_PROPOSAL * count):
        start = int(rng.integers(len(domain)))
        order = np.argsort(-(keys[start] + rng.gumbel(size=len(domain))))
        wanted = int(rng.integers(2, most + 1))
        mask, cells, members = 1 << start, int(sizes[start]), 1
        for other in order:
            limit = largest_table if members > 1 else max(largest_table, largest_pair)
            if members < wanted and other != start and cells * sizes[other] <= limit:
                mask, cells, members = mask | 1 << int(other), cells * int(sizes[other]), members + 1
        if members > 1 and mask not in found:
            found[mask] = fits(graph, mask, largest_graph=largest_graph(members))
            if sum(found.values()) == count:
                break
    return [clique_of(domain, mask) for mask, kept in found.items() if kept]


def fits(graph: TriangulatedGraph, mask: int, *, largest_graph: float) -> bool:
    """Whether the graph takes the set in without growing beyond the limit of cells.

    Each clique of the graph with the set lies inside one of the cliques before and the set, because an edge changes
    only cliques along a path, by its two ends; and a triangulated graph has at most as many cliques as attributes.
    Mostly that is answer enough.
    """
    for clique in graph.masks:
        if not mask & ~clique:
            return True
    if graph.domain.cells() <= largest_graph:
        return True
    if len(graph.domain) * max(map(graph.size, graph.masks)) * graph.size(mask) <= largest_graph:
        return True
    return with_clique(graph, clique_of(graph.domain, mask)).cells <= largest_graph


def with_clique(graph: TriangulatedGraph, clique: Clique) -> TriangulatedGraph:
    """The graph in which all attributes of the clique are joined."""
    for a, b in combinations(clique, 2):
        graph = graph.with_edge(a, b)
    return graph


def graph_with(domain: Domain, cliques: Iterable[Clique]) -> TriangulatedGraph:
    """The graph in which the attributes of each clique are joined, and no others but those that triangulation needs."""
    return reduce(with_clique, cliques, TriangulatedGraph.empty(domain))


def best_batch(domain: Domain, gains: Mapping[Clique, float], mu2: Fraction) -> tuple[float, tuple[Clique, ...]]:
    """The sets worth measuring with `mu2`, by gain for what they cost, and their gain minus the noise put in."""
    if not gains:
        return 0.0, tuple((attribute,) for attribute in domain)
    cliques = list(gains)
    costs = [domain.cells(clique) ** BY_SIZE for clique in cliques]
    order, worth = rank_by_worth(list(gains.values()), costs, mu2=mu2)
    best = int(np.argmax(worth))
    return float(worth[best]), tuple(cliques[k] for k in order[: best + 1])


def rank_by_worth(
    gains: Sequence[float], costs: Sequence[float] | Floats, *, mu2: float | Fraction
) -> tuple[list[int], Floats]:
    """Tables by gain for each unit of cost, and for each number of them what is gained minus the noise put in.

    Costs are loads^(2/3): with shares proportional to them, which is best, the absolute noise of a batch adds up to
    sqrt(2 / pi) * (sum of costs)^(3/2) / mu.
    """
    order = np.argsort(-np.array(gains) / np.array(costs), kind="stable")
    noise = MEAN_ABSOLUTE * np.cumsum(np.array(costs)[order]) ** 1.5 / math.sqrt(mu2)
    return order.tolist(), np.cumsum(np.array(gains)[order]) - noise


def pair_matrix(domain: Domain, pairs: Iterable[tuple[str, str, float]], *, scale: float) -> NDArray[np.float64]:
    """Symmetric matrix of pair scores divided by `scale`, cut to [0, 1]; zero on the diagonal."""
    matrix = np.zeros((len(domain), len(domain)))
    for a, b, score in pairs:
        i, j = domain.position(a), domain.position(b)
        matrix[i, j] = matrix[j, i] = min(max(score / scale, 0.0), 1.0)
    return matrix


def without_subsets(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """The cliques that are not contained in another one, each once, in their order."""
    unique = list(dict.fromkeys(cliques))
    return tuple(c for c in unique if not any(set(c) < set(other) for other in unique))


def _subsets(shape: Sequence[int], *, largest_table: float) -> Masks:
    """Masks of the non-empty subsets whose cells do not exceed the limit, level by level."""
    masks = np.zeros(1, dtype=np.int64)
    cells = np.ones(1)
    last = np.full(1, -1)
    kept = []
    while len(masks):
        grown = []
        for bit, size in enumerate(shape):
            fits = (last < bit) & (cells * size <= largest_table)
            grown.append((masks[fits] | 1 << bit, cells[fits] * size, np.full(int(fits.sum()), bit)))
        masks, cells, last = (np.concatenate(column) for column in zip(*grown, strict=True))
        kept.append(masks)
    return np.concatenate(kept)
