"""Coarser versions of attributes with many codes, so that tables too large for the noise have smaller ones to use.

A level of an attribute is an attribute of its own, named like `age/8`: its codes are groups of the attribute's codes.
All of it comes from the public domain (PrivBayes, Section 3.1), so nothing here costs privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from synth_core.arrays import Floats, Index
from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One coarser version of an attribute: for each of the attribute's codes, the group it belongs to."""

    attribute: str
    groups: Index

    def __post_init__(self) -> None:
        self.groups.setflags(write=False)

    @property
    def size(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Hierarchies:
    """The levels of all attributes by name; those of one attribute are nested, finest first."""

    levels: Mapping[str, Level] = field(default_factory=lambda: MappingProxyType({}))

    def attribute(self, name: str) -> str:
        """The attribute that a name is a version of: itself, if it is no level."""
        level = self.levels.get(name)
        return name if level is None else level.attribute

    def versions(self, attribute: str) -> tuple[str, ...]:
        """The attribute and its levels, from fine to coarse."""
        return (attribute, *(name for name, level in self.levels.items() if level.attribute == attribute))

    def coarsest(self, attributes: Iterable[str]) -> Clique:
        """The last version of each attribute: itself, if it has no levels."""
        return tuple(self.versions(attribute)[-1] for attribute in attributes)

    def extended(self, clique: Clique) -> frozenset[str]:
        """The clique's attributes with every coarser version of each: all that its table informs about."""
        found: set[str] = set()
        for name in clique:
            versions = self.versions(self.attribute(name))
            found.update(versions[versions.index(name) :])
        return frozenset(found)

    def finest(self, names: frozenset[str]) -> dict[str, str]:
        """For each attribute, the finest of its versions among the names."""
        coarse_first = sorted(names, key=lambda name: (-self.versions(self.attribute(name)).index(name), name))
        return {self.attribute(name): name for name in coarse_first}

    def regrouping(self, fine: str, coarse: str) -> Index:
        """The code of one version for each code of a finer version of the same attribute."""
        groups = self.levels[coarse].groups
        if fine not in self.levels:
            return groups
        found = np.zeros(self.levels[fine].size, dtype=np.int64)
        found[self.levels[fine].groups] = groups
        return found

    def domain(self, domain: Domain) -> Domain:
        """The domain enlarged by the levels, each attribute followed by its own; without levels it is the same."""
        if not self.levels:
            return domain
        sizes: dict[str, int] = {}
        for attribute in domain:
            for name in self.versions(attribute):
                sizes[name] = self.levels[name].size if name in self.levels else domain.size(name)
        return Domain.of(sizes)


NO_HIERARCHIES = Hierarchies()
"""No attribute has a coarser version."""


def by_size(domain: Domain, *, group: int) -> Hierarchies:
    """Even groups of `group` neighbouring codes, again and again while a version has more than group^2 codes."""
    levels: dict[str, Level] = {}
    for attribute in domain:
        width, size = 1, domain.size(attribute)
        while size > group * group:
            width, size = width * group, -(-size // group)
            levels[f"{attribute}/{width}"] = Level(attribute, np.arange(domain.size(attribute)) // width)
    return Hierarchies(MappingProxyType(levels))


def with_declared(
    hierarchies: Hierarchies, domain: Domain, declared: Iterable[tuple[str, tuple[int, ...]]]
) -> Hierarchies:
    """The hierarchies, with one level instead for some attributes.

    An attribute that has levels because of its size has the groups of the schema's hierarchy instead, if there is one.
    Those `declared` here, which begin at the given codes, come before both.
    """
    large = {level.attribute for level in hierarchies.levels.values()}
    chosen = {attribute: np.array(groups, dtype=np.int64) for attribute, groups in domain.coarser if attribute in large}
    for attribute, starts in declared:
        size = domain.size(attribute)
        if starts[:1] != (0,) or list(starts) != sorted(set(starts)) or starts[-1] >= size:
            raise SpecError(
                f"options: levels of {attribute!r} must be increasing codes from 0 on, below its {size} codes"
            )
        chosen[attribute] = np.searchsorted(starts, np.arange(size), side="right").astype(np.int64) - 1
    levels = {name: level for name, level in hierarchies.levels.items() if level.attribute not in chosen}
    levels |= {f"{attribute}/declared": Level(attribute, groups) for attribute, groups in chosen.items()}
    return Hierarchies(MappingProxyType(levels))


def sum_to(table: Floats, clique: Clique, target: Mapping[str, str], *, hierarchies: Hierarchies) -> Floats:
    """The table's sums over the versions named by `target` (attribute to version), axes in the clique's order."""
    for axis in reversed(range(len(clique))):
        name = clique[axis]
        coarse = target.get(hierarchies.attribute(name))
        if coarse is None:
            table = table.sum(axis=axis)
        elif coarse != name:
            codes = hierarchies.regrouping(name, coarse)
            table = np.moveaxis(np.moveaxis(table, axis, -1) @ np.eye(codes.max() + 1)[codes], -1, axis)
    return table


def spread_from(table: Floats, clique: Clique, target: Mapping[str, str], *, hierarchies: Hierarchies) -> Floats:
    """What each cell of the clique finds in a table over `target`: `sum_to` read backwards, ready to broadcast."""
    for axis, name in enumerate(clique):
        coarse = target.get(hierarchies.attribute(name))
        if coarse is None:
            table = np.expand_dims(table, axis)
        elif coarse != name:
            table = np.take(table, hierarchies.regrouping(name, coarse), axis=axis)
    return table
