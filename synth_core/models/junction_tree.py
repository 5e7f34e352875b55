"""Junction trees: the order in which tables exchange messages, and what a pass over them costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError
from synth_core.models.triangulation import (
    TriangulatedGraph,
    adjacency,
    cheapest_forest,
    clique_of,
    mask_cells,
    mask_of,
)

__all__ = ["JunctionTree", "TriangulatedGraph", "junction_tree"]

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

    def separator(self, i: int) -> Clique:
        """What clique i shares with its parent; empty for a root."""
        if self.parents[i] < 0:
            return ()
        parent = set(self.cliques[self.parents[i]])
        return tuple(a for a in self.cliques[i] if a in parent)

    def children(self, i: int) -> tuple[int, ...]:
        """Positions of the cliques whose parent is clique i."""
        return tuple(k for k, parent in enumerate(self.parents) if parent == i)

    def host(self, attributes: Iterable[str]) -> int | None:
        """The smallest clique that contains all the attributes, if any does."""
        wanted = set(attributes)
        hosts = [i for i, clique in enumerate(self.cliques) if wanted.issubset(clique)]
        return min(hosts, key=lambda i: self.domain.cells(self.cliques[i]), default=None)

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


def junction_tree(
    domain: Domain, cliques: Iterable[Iterable[str]], *, limit_cells: int | None = None
) -> JunctionTree:
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


def _rooted(domain: Domain, masks: list[int], edges: list[tuple[int, int]]) -> JunctionTree:
    links: list[list[int]] = [[] for _ in masks]
    for x, y in edges:
        links[x].append(y)
        links[y].append(x)
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
