"""Chordal graphs that grow by single edges, from which junction trees are chosen.

networkx' min-fill triangulates one graph in a quarter of the time, but its trees have 3 to 8 % more cells at 15 and 30
attributes and 4 times as many at 98, which every pass of inference pays for; and it has no update, so that a trial edge
takes it 18 to 80 times as long (tests/benchmarks/by_hand.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import TypeAlias

from synth_core.domain import Clique, Domain
from synth_core.models.junction_tree import (
    JunctionTree,
    add_links,
    adjacency,
    cheapest_forest,
    clique_of,
    mask_cells,
    mask_of,
)

Change: TypeAlias = tuple[set[int], set[int]]
"""Maximal cliques that come and that go with an edge."""


@dataclass(frozen=True, slots=True)
class TriangulatedGraph:
    """A chordal graph kept with its clique forest, so that one more edge is a local change.

    Let a and b be apart, and let C_1 … C_k be the path in the forest from the last clique with a to the first
    clique with b, with separators S_1 … S_{k-1}. Walking a along the path, that is adding the cliques
    {a} ∪ S_{i-1} ∪ S_i before the meeting separator, {b} ∪ S_{i-1} ∪ S_i behind it and {a, b} ∪ S_m at it,
    and hanging each C_i on its new clique, gives a clique forest again: the new cliques containing any attribute
    stay connected. Its graph is therefore chordal and contains the edge. The meeting point m with the smallest
    largest clique (then the fewest cells) is taken. Earlier fill is kept; `retriangulated` starts afresh.
    """

    domain: Domain
    edges: frozenset[tuple[int, int]] = frozenset()
    masks: tuple[int, ...] = ()
    links: tuple[frozenset[int], ...] = ()
    _cells: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    _changes: dict[tuple[str, str], tuple[tuple[int, ...], Change]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _places: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def empty(cls, domain: Domain) -> TriangulatedGraph:
        """The graph of the domain's rules; without rules, every attribute is its own clique."""
        masks = tuple(1 << i for i in range(len(domain)))
        graph = cls(domain, masks=masks, links=(frozenset(),) * len(masks))
        for clique in domain.rule_cliques:
            for a, b in combinations(clique, 2):
                graph = graph.with_edge(a, b)
        return graph

    @classmethod
    def of_tree(cls, tree: JunctionTree) -> TriangulatedGraph:
        """The graph that a junction tree belongs to, with the tree as its clique forest.

        Adding its edges to an empty graph could end with much larger cliques: the order decides what is filled in.
        """
        masks = tuple(mask_of(tree.domain, clique) for clique in tree.cliques)
        links = add_links([set() for _ in masks], [(i, p) for i, p in enumerate(tree.parents) if p >= 0])
        places = [map(tree.domain.position, clique) for clique in tree.cliques]
        edges = frozenset(pair for clique in places for pair in combinations(clique, 2))
        return cls(tree.domain, edges, masks, tuple(map(frozenset, links)))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The maximal cliques."""
        return tuple(clique_of(self.domain, mask) for mask in self.masks)

    @property
    def cells(self) -> int:
        """Cells of all cliques together."""
        return sum(map(self.size, self.masks))

    def adjacent(self, a: str, b: str) -> bool:
        """Whether the triangulated graph already joins the two attributes."""
        both = mask_of(self.domain, (a, b))
        return any(mask & both == both for mask in self.masks)

    def largest_new_clique(self, a: str, b: str) -> int:
        """Cells of the largest clique that adding the edge would make (0 if it makes none)."""
        route = self._route(self.domain.position(a), self.domain.position(b))
        return 0 if route is None else max(map(self.size, self._detour(route, a, b)[0]))

    def change(self, a: str, b: str) -> Change:
        """The maximal cliques that would come and go with the edge: what `with_edge` does, for less.

        It follows from the cliques along the route alone. Between two cliques of a forest there is one path, so what an
        earlier graph found holds as long as that route is a path.
        """
        known = self._changes.get((a, b))
        if known is not None and self._is_path(known[0]):
            return known[1]
        route = self._route(self.domain.position(a), self.domain.position(b))
        if route is None:
            return set(), set()
        new, old = set(self._detour(route, a, b)[0]), {self.masks[k] for k in route}
        come = {x for x in new - old if not any(x & ~y == 0 for y in new | old if y != x)}
        found = come, {y for y in old if any(y & ~x == 0 for x in come)}
        self._changes[a, b] = tuple(self.masks[k] for k in route), found
        return found

    def _is_path(self, route: Sequence[int]) -> bool:
        """Whether all these cliques are there, each linked to the next."""
        if not self._places:
            self._places.update((mask, k) for k, mask in enumerate(self.masks))
        places = [self._places.get(mask, -1) for mask in route]
        return all(x >= 0 and y in self.links[x] for x, y in pairwise(places))

    def with_edge(self, a: str, b: str) -> TriangulatedGraph:
        """The graph with the edge and the fill it needs."""
        i, j = sorted((self.domain.position(a), self.domain.position(b)))
        graph = replace(self, edges=self.edges | {(i, j)})
        route = self._route(self.domain.position(a), self.domain.position(b))
        return graph if route is None else _rewired(graph, route, *self._detour(route, a, b))

    def retriangulated(self) -> TriangulatedGraph:
        """The same edges, triangulated afresh by the cheapest elimination order if that saves cells."""
        neighbours = adjacency(len(self.domain), [1 << i | 1 << j for i, j in self.edges])
        masks, pairs = cheapest_forest(neighbours, self.domain.sizes)
        links = add_links([set() for _ in masks], pairs)
        fresh = replace(self, masks=tuple(masks), links=tuple(map(frozenset, links)))
        return fresh if fresh.cells < self.cells else self

    def size(self, mask: int) -> int:
        """Cells of the clique, computed once for this graph and all that grow from it."""
        if mask not in self._cells:
            self._cells[mask] = mask_cells(mask, self.domain.sizes)
        return self._cells[mask]

    def _route(self, a: int, b: int) -> list[int] | None:
        """Indices of the cliques from a's last to b's first; None if one clique holds both.

        Where no path exists, the route is one clique of a and one of b, whose common separator is empty.
        """
        at_a, at_b = 1 << a, 1 << b
        start = [k for k, mask in enumerate(self.masks) if mask & at_a]
        if a == b or any(self.masks[k] & at_b for k in start):
            return None
        before = dict.fromkeys(start, -1)
        queue = list(start)
        for k in queue:
            if self.masks[k] & at_b:
                route = [k]
                while before[route[-1]] >= 0:
                    route.append(before[route[-1]])
                return route[::-1]
            for other in self.links[k]:
                if other not in before:
                    before[other] = k
                    queue.append(other)
        return [start[0], next(k for k, mask in enumerate(self.masks) if mask & at_b)]

    def _detour(self, route: list[int], a: str, b: str) -> tuple[list[int], int]:
        """The new cliques along the route, in order, for the cheapest meeting point, and that point."""
        at_a, at_b = mask_of(self.domain, (a,)), mask_of(self.domain, (b,))
        separators = [self.masks[x] & self.masks[y] for x, y in pairwise(route)]
        inner = [x | y for x, y in pairwise(separators)]

        def walked(meeting: int) -> list[int]:
            before = [mask | at_a for mask in inner[:meeting]]
            behind = [mask | at_b for mask in inner[meeting:]]
            return [*before, separators[meeting] | at_a | at_b, *behind]

        def cost(meeting: int) -> tuple[int, int]:
            sizes = [self.size(mask) for mask in walked(meeting)]
            return max(sizes), sum(sizes)

        meeting = min(range(len(separators)), key=cost)
        return walked(meeting), meeting


def _rewired(graph: TriangulatedGraph, route: list[int], new: list[int], meeting: int) -> TriangulatedGraph:
    """Put the new cliques on the route's path and hang the route's inner cliques on them."""
    masks = [*graph.masks, *new]
    links = [*map(set, graph.links), *(set[int]() for _ in new)]
    for x, y in pairwise(route):
        links[x].discard(y)
        links[y].discard(x)
    added = list(range(len(graph.masks), len(masks)))
    carriers = added[:meeting] + added[meeting + 1 :]
    chain = [route[0], *added, route[-1]]
    add_links(links, [*pairwise(chain), *zip(route[1:-1], carriers, strict=True)])
    kept, remaining = _absorbed(masks, links, [*added, *route])
    return replace(graph, masks=kept, links=remaining)


def _absorbed(
    masks: list[int], links: list[set[int]], suspects: list[int]
) -> tuple[tuple[int, ...], tuple[frozenset[int], ...]]:
    """Drop each suspect that lies inside a neighbour, giving its other neighbours to that one.

    In a clique forest a clique inside any other lies inside a neighbour, by running intersection.
    """
    gone = set()
    for x in suspects:
        host = next((y for y in links[x] if masks[x] & ~masks[y] == 0), None)
        if host is None:
            continue
        gone.add(x)
        for y in links[x]:
            links[y].discard(x)
            if y != host:
                links[y].add(host)
                links[host].add(y)
        links[x] = set()
    kept = [k for k in range(len(masks)) if k not in gone]
    index = {k: i for i, k in enumerate(kept)}
    return tuple(masks[k] for k in kept), tuple(frozenset(index[y] for y in links[k]) for k in kept)
