"""Junction trees: the order in which tables exchange messages.

Sets of attributes are bit masks over positions in the domain: intersection, inclusion and size are single integer
operations, which is what makes thousands of trial edges cheap (see `triangulation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError

SECONDS_PER_CELL = 5e-9
"""One pass of belief propagation on one CPU core, measured; only an estimate for people."""


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """A rooted forest of cliques with running intersection; every parent stands before its children.

    `parents` holds positions in `cliques`, -1 for the root of each component. The root of a component is its
    largest clique, because a root is visited once a pass and every other clique twice.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    _by_cells: tuple[tuple[frozenset[str], int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells = [self.domain.cells(clique) for clique in self.cliques]
        order = sorted(range(len(cells)), key=cells.__getitem__)
        object.__setattr__(self, "_by_cells", tuple((frozenset(self.cliques[i]), i) for i in order))

    def separator(self, i: int) -> Clique:
        """What clique i shares with its parent.

        Args:
            i: position of a clique.

        Returns:
            The attributes; none for a root.
        """
        if self.parents[i] < 0:
            return ()
        parent = set(self.cliques[self.parents[i]])
        return tuple(a for a in self.cliques[i] if a in parent)

    def children(self, i: int) -> tuple[int, ...]:
        """The cliques below clique i.

        Args:
            i: position of a clique.

        Returns:
            Positions of the cliques whose parent it is.
        """
        return tuple(k for k, parent in enumerate(self.parents) if parent == i)

    def host(self, attributes: Iterable[str]) -> int | None:
        """The clique that can answer about some attributes.

        Args:
            attributes: some attributes.

        Returns:
            Position of the smallest clique that contains them all; None if none does.
        """
        wanted = frozenset(attributes)
        for members, i in self._by_cells:
            if wanted <= members:
                return i
        return None

    @property
    def cells(self) -> int:
        """Cells of all cliques together."""
        return sum(self.domain.cells(clique) for clique in self.cliques)

    @property
    def largest(self) -> Clique:
        """The clique with the most cells."""
        return max(self.cliques, key=self.domain.cells)

    @property
    def bytes(self) -> int:
        """Memory of all clique tables in float64, which is the most that inference ever holds at once."""
        return 8 * self.cells

    @property
    def seconds(self) -> float:
        """Expected time of one pass of belief propagation on one core."""
        return SECONDS_PER_CELL * self.cells


def junction_tree(domain: Domain, cliques: Iterable[Iterable[str]], *, limit_cells: int | None = None) -> JunctionTree:
    """The cheapest junction tree found that covers the cliques, the domain's rules and every attribute.

    Several elimination orders are tried and the one with the fewest cells in total is kept. Nothing is
    allocated: over `limit_cells` cells in total the tree is refused.
    """
    masks = [mask_of(domain, tuple(clique)) for clique in (*cliques, *domain.rule_cliques)]
    neighbours = adjacency(len(domain), masks)
    forest, edges = cheapest_forest(neighbours, domain.sizes)
    total = sum(mask_cells(mask, domain.sizes) for mask in forest)
    if limit_cells is not None and total > limit_cells:
        worst = max(forest, key=lambda mask: mask_cells(mask, domain.sizes))
        raise FeasibilityError(
            f"the model needs {total:,} cells, over the limit of {limit_cells:,}: measured cliques"
            f"{' and rules' if domain.impossible else ''} join "
            f"{', '.join(clique_of(domain, worst))} into one clique of {mask_cells(worst, domain.sizes):,} cells; "
            "measure fewer or smaller cliques among these attributes, or raise the limit"
        )
    return _rooted(domain, forest, edges)


def affordable_cliques(
    domain: Domain, measured: Iterable[Clique], candidates: Iterable[Clique], *, limit_cells: int
) -> list[Clique]:
    """The cliques that can be measured too while the junction tree keeps within a limit.

    A tree is the cheapest of several, so one that keeps within the limit is enough, and the quickest is tried first.

    Args:
        domain: the attributes, their sizes and their rules.
        measured: what the tree covers already.
        candidates: cliques that it may have to cover, one at a time.
        limit_cells: upper limit of the tree in cells.

    Returns:
        The candidates with which `junction_tree` has at most `limit_cells` cells.
    """
    known = adjacency(len(domain), [mask_of(domain, clique) for clique in (*measured, *domain.rule_cliques)])
    found = []
    for clique in candidates:
        mask, neighbours = mask_of(domain, clique), list(known)
        for vertex in bits(mask):
            neighbours[vertex] |= mask & ~(1 << vertex)
        if any(_cells_by(rule, neighbours, domain.sizes) <= limit_cells for rule in QUICKEST_FIRST):
            found.append(clique)
    return found


def _cells_by(rule: Elimination, neighbours: Sequence[int], sizes: Sequence[int]) -> int:
    """Cells of the clique forest that a rule leads to."""
    return sum(mask_cells(clique, sizes) for clique in clique_forest(eliminate(neighbours, sizes, rule))[0])


def _rooted(domain: Domain, masks: list[int], edges: list[tuple[int, int]]) -> JunctionTree:
    links = add_links([set() for _ in masks], edges)
    order: list[int] = []
    parents: list[int] = []
    seen: set[int] = set()
    for start in sorted(range(len(masks)), key=lambda k: (-mask_cells(masks[k], domain.sizes), masks[k])):
        if start in seen:
            continue
        seen.add(start)
        queue = [(start, -1)]
        for k, parent in queue:
            parents.append(parent)
            here = len(order)
            order.append(k)
            fresh = sorted((other for other in links[k] if other not in seen), key=lambda other: masks[other])
            seen.update(fresh)
            queue.extend((other, here) for other in fresh)
    return JunctionTree(domain, tuple(clique_of(domain, masks[k]) for k in order), tuple(parents))


Elimination = Callable[[int, list[int], Sequence[int]], float]
"""Cost of eliminating a vertex next, from its position, the neighbour masks and the attribute sizes."""


def bits(mask: int) -> Iterator[int]:
    """The positions in the mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(domain: Domain, attributes: Sequence[str]) -> int:
    """The attributes as a mask."""
    mask = 0
    for attribute in attributes:
        mask |= 1 << domain.position(attribute)
    return mask


def clique_of(domain: Domain, mask: int) -> Clique:
    """The mask as a clique, in the domain's order."""
    return tuple(domain.attributes[i] for i in bits(mask))


def mask_cells(mask: int, sizes: Sequence[int]) -> int:
    """Cells of the table over the mask."""
    return math.prod(sizes[i] for i in bits(mask))


def fewest_fill_edges(vertex: int, neighbours: list[int], sizes: Sequence[int]) -> float:  # noqa: ARG001
    """Edges that eliminating the vertex adds (each counted twice)."""
    around = neighbours[vertex]
    return sum((around & ~neighbours[v]).bit_count() - 1 for v in bits(around))


def fewest_neighbours(vertex: int, neighbours: list[int], sizes: Sequence[int]) -> float:  # noqa: ARG001
    """Degree of the vertex."""
    return neighbours[vertex].bit_count()


def fewest_cells(vertex: int, neighbours: list[int], sizes: Sequence[int]) -> float:
    """Logarithm of the cells of the clique that eliminating the vertex makes."""
    return math.log(sizes[vertex]) + sum(math.log(sizes[v]) for v in bits(neighbours[vertex]))


RULES: tuple[Elimination, ...] = (fewest_fill_edges, fewest_neighbours, fewest_cells)
QUICKEST_FIRST = (fewest_neighbours, fewest_cells, fewest_fill_edges)
"""The rules in the order of what they take to compute."""


def adjacency(count: int, cliques: Sequence[int]) -> list[int]:
    """Neighbour masks of the graph in which each given mask is complete."""
    neighbours = [0] * count
    for clique in cliques:
        for vertex in bits(clique):
            neighbours[vertex] |= clique & ~(1 << vertex)
    return neighbours


def eliminate(neighbours: Sequence[int], sizes: Sequence[int], rule: Elimination) -> list[tuple[int, int]]:
    """Eliminate all vertices greedily by the rule: pairs (vertex, its clique at that moment), in order."""
    graph = list(neighbours)
    costs = {vertex: rule(vertex, graph, sizes) for vertex in range(len(graph))}
    queue = [(cost, vertex) for vertex, cost in costs.items()]
    heapify(queue)
    order = []
    while queue:
        cost, vertex = heappop(queue)
        if costs.get(vertex) != cost:
            continue  # an outdated entry, or eliminated already
        around = graph[vertex]
        order.append((vertex, around | 1 << vertex))
        del costs[vertex]
        touched = around
        for v in bits(around):
            graph[v] = (graph[v] | around) & ~(1 << v) & ~(1 << vertex)
            if rule is fewest_fill_edges:
                touched |= graph[v]
        for v in bits(touched):
            costs[v] = rule(v, graph, sizes)
            heappush(queue, (costs[v], v))
    return order


def clique_forest(order: Sequence[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Maximal cliques of an elimination and the edges of a clique forest over them.

    The clique of a vertex without the vertex lies inside the clique of its earliest later neighbour, so linking
    the two gives a tree with running intersection; a clique inside its child is absorbed by the child. Every
    clique forest of a chordal graph is a maximum-weight spanning forest of its clique graph (weight: size of the
    intersection), so this linear construction gives what the quadratic search would.
    """
    position = {vertex: i for i, (vertex, _) in enumerate(order)}
    home = list(range(len(order)))
    pairs = []
    for i, (vertex, clique) in enumerate(order):
        rest = clique & ~(1 << vertex)
        if not rest:
            continue
        parent = min(position[v] for v in bits(rest))
        pairs.append((i, parent))
        if order[parent][1] == rest and home[parent] == parent:
            home[parent] = i

    def root(i: int) -> int:
        while home[i] != i:
            i = home[i]
        return i

    kept = [i for i in range(len(order)) if home[i] == i]
    index = {i: k for k, i in enumerate(kept)}
    edges = [(index[root(i)], index[root(parent)]) for i, parent in pairs if root(i) != root(parent)]
    return [order[i][1] for i in kept], edges


def cheapest_forest(neighbours: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Triangulate by every rule and keep the clique forest with the fewest cells in total."""
    forests = [clique_forest(eliminate(neighbours, sizes, rule)) for rule in RULES]
    return min(forests, key=lambda forest: sum(mask_cells(clique, sizes) for clique in forest[0]))


def add_links(links: list[set[int]], edges: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Link both ends of each edge to each other, and return the links."""
    for x, y in edges:
        links[x].add(y)
        links[y].add(x)
    return links
