"""The Bayesian network of PrivBayes, grown from noisy scores of pairs: public numbers in, families of names out.

Sections and algorithms are numbered as in Bao, Xiao, Zhao, Zhang & Ding (Journal of Privacy and Confidentiality, 2021).
"""

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
from synth_core.synthesizers.structure import with_clique


@dataclass(frozen=True, eq=False)
class Growth:
    """What decides how a network grows.

    `affinity` has a row and a column for each attribute of the domain; all versions of an attribute share its scores.
    A table holds at most `tau` cells, is counted from at most `limit_counted` cells of the attributes' finest versions,
    and all tables together make a junction tree of at most `limit_cells`.
    """

    domain: Domain
    hierarchies: Hierarchies
    affinity: NDArray[np.float64]
    tau: float
    limit_counted: float = math.inf
    limit_cells: float = math.inf

    @cached_property
    def versions(self) -> Domain:
        """The domain enlarged by its coarser versions."""
        return self.hierarchies.domain(self.domain)

    @cached_property
    def _coarsest(self) -> Clique:
        """The coarsest version of each attribute: finer ones would leave no room for others in a table."""
        return tuple(self.hierarchies.versions(attribute)[-1] for attribute in self.domain)

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        return np.array(self.versions.shape(self._coarsest), dtype=float)

    def families(self) -> list[Clique]:
        """The head, then every other version of an attribute after its parents, in the order of drawing."""
        head = self._head()
        found, drawn = [head], set(head)
        graph = with_clique(TriangulatedGraph.empty(self.versions), self.versions.clique(head))
        while len(drawn) < len(self.versions):
            candidates = [(name, self._parents(name, drawn)) for name in self._open(drawn)]
            name, parents = max(candidates, key=lambda pair: self._sum(*pair))
            graph, parents = self._tractable(graph, name, parents)
            found.append((*(self._coarsest[k] for k in parents), name))
            drawn.add(name)
        return found

    def _head(self) -> Clique:
        """Algorithm 2: the attributes of the largest scores for each cell, as many as one table can hold."""
        each = self.affinity / np.outer(self._sizes, self._sizes)
        np.fill_diagonal(each, -np.inf)
        first = int(np.argmax(each.max(axis=1)))
        inside, room, counted = [first], self.tau / self._sizes[first], self.domain.sizes[first]
        left = set(range(len(self.domain))) - {first}
        while left:
            best = max(sorted(left), key=lambda k: each[inside, k].sum())
            left.remove(best)
            fits = self._sizes[best] <= room and counted * self.domain.sizes[best] <= self.limit_counted
            if fits and each[inside, best].sum() > 0:
                inside.append(best)
                room /= self._sizes[best]
                counted *= self.domain.sizes[best]
        return tuple(self._coarsest[k] for k in inside)

    def _open(self, drawn: set[str]) -> Iterator[str]:
        """Versions that may come next: a coarse one before the finer, which is drawn within its group."""
        for attribute in self.domain:
            waiting = [name for name in self.hierarchies.versions(attribute) if name not in drawn]
            yield from waiting[-1:]

    def _parents(self, name: str, drawn: set[str]) -> list[int]:
        """Algorithm 3, inner loop: parents of positive score, the largest first, while the table can hold them."""
        own = self._own(name)
        room, counted = self.tau / self.versions.size(name), self.domain.sizes[own]
        chosen = []
        for k in map(int, np.argsort(-self.affinity[own], kind="stable")):
            if k == own or self._coarsest[k] not in drawn or self.affinity[own, k] <= 0:
                continue
            if self._sizes[k] <= room and counted * self.domain.sizes[k] <= self.limit_counted:
                chosen.append(k)
                room /= self._sizes[k]
                counted *= self.domain.sizes[k]
        return chosen

    def _sum(self, name: str, parents: list[int]) -> float:
        return float(self.affinity[self._own(name), parents].sum())

    def _own(self, name: str) -> int:
        return self.domain.position(self.hierarchies.attribute(name))

    def _tractable(
        self, graph: TriangulatedGraph, name: str, parents: list[int]
    ) -> tuple[TriangulatedGraph, list[int]]:
        """The graph with the family, less the last parents that would make its junction tree too large."""
        for count in range(len(parents), 0, -1):
            family = self.versions.clique((name, *(self._coarsest[k] for k in parents[:count])))
            grown = with_clique(graph, family)
            if grown.cells <= self.limit_cells:
                return grown, parents[:count]
        return graph, []
