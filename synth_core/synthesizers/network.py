"""How a Bayesian network grows from noisy scores of pairs: the head first, then child after child."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.synthesizers.hierarchies import Hierarchies
from synth_core.synthesizers.structure import graph_with, with_clique


@dataclass(frozen=True, eq=False)
class Growth:
    """What decides how a network grows.

    `affinity` has a row and a column for each version of an attribute (see `shared_by_versions`). Parents are the
    coarsest versions, because finer ones leave no room for others; with `any_parent` all versions that were drawn, of
    each attribute the one of the largest score. A table holds at most `tau` cells, that of a finer version, from which
    records are drawn as it was measured, also at most `tau_finer`; it is counted from at most
    `limit_counted` cells of the attributes' finest versions, and the tables of the coarsest versions together, with
    those `begun` beforehand, make a junction tree of at most `limit_cells`.
    """

    domain: Domain
    hierarchies: Hierarchies
    affinity: NDArray[np.float64]
    tau: float
    limit_counted: float = math.inf
    limit_cells: float = math.inf
    any_parent: bool = False
    tau_finer: float = math.inf
    begun: tuple[Clique, ...] = ()

    @cached_property
    def versions(self) -> Domain:
        """The domain enlarged by its coarser versions."""
        return self.hierarchies.domain(self.domain)

    @cached_property
    def _coarsest(self) -> Clique:
        return self.hierarchies.coarsest(self.domain)

    @cached_property
    def _own(self) -> dict[str, int]:
        """Where the attribute of each version stands in the domain."""
        return {name: self.domain.position(self.hierarchies.attribute(name)) for name in self.versions}

    def families(self) -> list[Clique]:
        """The head, then every other version of an attribute after its parents, in the order of drawing."""
        head = self._head()
        found, drawn = [head], set(head)
        graph = with_clique(graph_with(self.versions, self.begun), self.versions.clique(head))
        while len(drawn) < len(self.versions):
            candidates = [(name, self._parents(name, drawn)) for name in self._open(drawn)]
            name, parents = max(candidates, key=lambda pair: self._sum(*pair))
            if name in self._coarsest:
                filled = len(drawn) / len(self.versions)
                graph, parents = self._tractable(graph, name, parents, filled=filled)
            found.append((*parents, name))
            drawn.add(name)
        return found

    def _head(self) -> Clique:
        """Algorithm 2: the attributes of the largest scores for each cell, as many as one table can hold."""
        places = [self.versions.position(name) for name in self._coarsest]
        sizes = np.array(self.versions.shape(self._coarsest), dtype=float)
        each = self.affinity[np.ix_(places, places)] / np.outer(sizes, sizes)
        np.fill_diagonal(each, -np.inf)
        first = int(np.argmax(each.max(axis=1)))
        inside, room, counted = [first], self.tau / sizes[first], self.domain.sizes[first]
        left = set(range(len(self.domain))) - {first}
        while left:
            best = max(sorted(left), key=lambda k: each[inside, k].sum())
            left.remove(best)
            fits = sizes[best] <= room and counted * self.domain.sizes[best] <= self.limit_counted
            if fits and each[inside, best].sum() > 0:
                inside.append(best)
                room /= sizes[best]
                counted *= self.domain.sizes[best]
        return tuple(self._coarsest[k] for k in inside)

    def _open(self, drawn: set[str]) -> Iterator[str]:
        """Versions that may come next: a coarse one before the finer, which is drawn within its group."""
        for attribute in self.domain:
            waiting = [name for name in self.hierarchies.versions(attribute) if name not in drawn]
            yield from waiting[-1:]

    def _parents(self, name: str, drawn: set[str]) -> Clique:
        """Algorithm 3, inner loop: parents of positive score, the largest first, while the table can hold them."""
        scores = self.affinity[self.versions.position(name)]
        tau = self.tau if name in self._coarsest else min(self.tau, self.tau_finer)
        room, counted = tau / self.versions.size(name), self.domain.sizes[self._own[name]]
        taken = {self._own[name]}
        chosen: list[str] = []
        allowed = set(self.versions if self.any_parent else self._coarsest) & drawn
        for k in map(int, np.argsort(-scores, kind="stable")):
            other = self.versions.attributes[k]
            own, size = self._own[other], self.versions.sizes[k]
            if other not in allowed or own in taken or scores[k] <= 0:
                continue
            if size <= room and counted * self.domain.sizes[own] <= self.limit_counted:
                chosen.append(other)
                taken.add(own)
                room /= size
                counted *= self.domain.sizes[own]
        return tuple(chosen)

    def _sum(self, name: str, parents: Clique) -> float:
        at = self.versions.position
        return float(self.affinity[at(name), [at(parent) for parent in parents]].sum())

    def _tractable(
        self, graph: TriangulatedGraph, name: str, parents: Clique, *, filled: float
    ) -> tuple[TriangulatedGraph, Clique]:
        """The graph with the family, less the last parents that would make its junction tree too large.

        Several parents may fill the part of the limit that falls to the share of versions drawn so far; a single one,
        which adds one small table, all of it. Else the first families could leave no parent at all to the last.
        """
        for count in range(len(parents), 0, -1):
            family = self.versions.clique((name, *parents[:count]))
            grown = with_clique(graph, family)
            if grown.cells <= self.limit_cells * (filled if count > 1 else 1.0):
                return grown, parents[:count]
        return graph, ()


def shared_by_versions(domain: Domain, hierarchies: Hierarchies, affinity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of attributes as scores of all their versions."""
    own = [domain.position(hierarchies.attribute(name)) for name in hierarchies.domain(domain)]
    return affinity[np.ix_(own, own)]
