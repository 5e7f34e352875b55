"""A Markov random field over groups of codes, and the share that each code has of its group.

What is known about rare codes is how many records have them, not what they go together with. A field over groups is
smaller by orders of magnitude where columns have hundreds of codes; a record's code is drawn inside its group,
independently of everything else: p(x) = p_groups(g(x)) * product of shares(x_a).

Groups say nothing about rules between codes, so an attribute that a rule speaks about keeps its codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes, Domain
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField, rake
from synth_core.models.sampling import code_type
from synth_core.models.stored import FittedModel, domain_header, read_domain, read_potentials, read_tree


@dataclass(frozen=True, eq=False)
class Refined(FittedModel):
    """`groups` and `shares` hold, for each attribute of `domain`, the group of each code and its share of the group."""

    FORMAT: ClassVar[str] = "synth-core/refined/1"

    domain: Domain
    field: MarkovRandomField
    groups: tuple[NDArray[np.int64], ...]
    shares: tuple[Floats, ...]

    @property
    def total(self) -> float:
        """Estimated number of records."""
        return self.field.total

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The marginals it was fitted to."""
        return self.field.cliques

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of these marginals over all codes: what depends on what, for people."""
        return junction_tree(self.domain, self.cliques)

    def _tables(self, asked: Sequence[Clique]) -> list[Floats]:
        return [self._spread(c, table) for c, table in zip(asked, self.field.marginals(asked), strict=True)]

    def _spread(self, clique: Clique, table: Floats) -> Floats:
        """Counts of groups as counts of codes."""
        places = [self.domain.position(attribute) for attribute in clique]
        table = table[np.ix_(*(self.groups[place] for place in places))]
        for axis, place in enumerate(places):
            table = table * self.shares[place].reshape([-1 if k == axis else 1 for k in range(len(places))])
        return np.asarray(table)

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes: groups by the field, then codes, as nearly by their shares of a group as they can be."""
        drawn = self.field.sample(rows, rng)
        codes = np.empty((rows, len(self.domain)), dtype=code_type(self.domain), order="F")
        for place, (group, share) in enumerate(zip(self.groups, self.shares, strict=True)):
            column = drawn[:, place]
            codes[:, place] = column if group.max() + 1 == group.size else split_groups(column, group, share, rng)
        return codes

    def rake(self, targets: Mapping[str, Floats]) -> Refined:
        """The model changed as little as possible so that single attributes follow given marginals.

        Args:
            targets: wanted counts of the codes of some attributes; only their shares matter.

        Returns:
            The field raked to the groups' counts, with the shares of the targets inside the groups.
        """
        merged: dict[str, Floats] = {}
        shares = list(self.shares)
        for name, counts in targets.items():
            place = self.domain.position(name)
            group, wanted = self.groups[place], np.maximum(counts, 0.0)
            merged[name] = np.bincount(group, weights=wanted).astype(np.float64)
            inside = merged[name][group]
            shares[place] = np.where(inside > 0, wanted / np.where(inside > 0, inside, 1.0), self.shares[place])
        return Refined(self.domain, rake(self.field, merged), self.groups, tuple(shares))

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        field = domain_header(self.field.domain) | {"cliques": self.cliques, "total": self.total}
        arrays = {"potentials": self.field.potentials, "groups": np.concatenate(self.groups)}
        return domain_header(self.domain) | {"field": field}, arrays | {"shares": np.concatenate(self.shares)}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        domain = read_domain(header)
        own, cliques, potentials = read_potentials(header["field"], stored)
        total = header["field"]["total"]
        field = MarkovRandomField(read_tree(own, cliques), cliques, potentials, total=total)
        ends = np.cumsum(domain.sizes)[:-1]
        if len(stored["groups"]) != sum(domain.sizes) or len(stored["shares"]) != sum(domain.sizes):
            raise ValueError(domain.sizes)
        groups, shares = (tuple(np.split(stored[name], ends)) for name in ("groups", "shares"))
        if [int(group.max()) + 1 for group in groups] != list(own.sizes) or min(g.min() for g in groups) < 0:
            raise ValueError(own.sizes)
        if not all(bool((share >= 0).all()) for share in shares):  # nor is one no number
            raise ValueError("a share is below 0")
        return cls(domain, field, groups, shares)


def split_groups(column: Codes, group: NDArray[np.int64], share: Floats, rng: np.random.Generator) -> Codes:
    """Draw the code of each row inside its group.

    The rows of a group are dealt in random order; a code gets the floor or the ceiling of its expected number of rows,
    and that number on average (systematic sampling).

    Args:
        column: the group of each row.
        group: the group of each code.
        share: the share of each code of its group's records.
        rng: source of randomness.

    Returns:
        The code of each row.
    """
    codes = np.empty(len(column), dtype=np.int64)
    order = np.argsort(column, kind="stable")
    ends = np.cumsum(np.bincount(column, minlength=int(group.max()) + 1))
    for number, end in enumerate(ends):
        members = np.flatnonzero(group == number)
        start = ends[number - 1] if number else 0
        if end == start:
            continue
        if len(members) == 1:
            codes[order[start:end]] = members[0]
            continue
        expected = np.cumsum(share[members])
        borders = np.floor(expected / expected[-1] * (end - start) + rng.random())
        borders[-1] = end - start
        dealt = np.repeat(members, np.diff(borders, prepend=0).astype(np.int64))
        codes[order[start:end]] = rng.permutation(dealt)
    return codes
