"""The attributes of a table, how many codes each may take, in one fixed order, and which records cannot exist."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from synth_core.errors import FeasibilityError, SchemaError

T = TypeVar("T")

Clique: TypeAlias = tuple[str, ...]
"""A set of attributes, written in the domain's order."""

Codes: TypeAlias = NDArray[np.integer[Any]]
"""Encoded records: one column of them, or a table with a row for each record and a column for each attribute."""

LARGEST_RULE = 2_000_000
"""Cells of the largest table that rules about one set of columns may need; every pass of inference goes over it."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """Records that a public rule excludes: those in which each of these attributes has one of these codes."""

    rule: str
    codes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes the rule speaks about."""
        return tuple(attribute for attribute, _ in self.codes)


@dataclass(frozen=True, slots=True)
class Domain:
    """Attribute names with their sizes; a table over it holds codes 0 … size-1 in each column.

    What is `impossible` is part of the domain, so whatever is built on it keeps those records out. `coarser` holds, for
    attributes with a declared hierarchy, the group of each code; it is a hint for methods and makes no other domain.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    impossible: tuple[Impossible, ...] = ()
    coarser: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {attribute: k for k, attribute in enumerate(self.attributes)})
        if len(self.attributes) != len(self.sizes):
            raise SchemaError("a domain needs one size for each attribute")
        if len(set(self.attributes)) != len(self.attributes):
            twice = sorted({a for a in self.attributes if self.attributes.count(a) > 1})
            raise SchemaError(f"duplicate column names: {', '.join(twice)}; name each column once")
        for attribute, size in zip(self.attributes, self.sizes, strict=True):
            if size < 1:
                raise SchemaError(f"column {attribute!r} has no values; declare at least one")
        for excluded in self.impossible:
            for attribute, codes in excluded.codes:
                if not all(0 <= code < self.size(attribute) for code in codes):
                    raise SchemaError(
                        f"rule {excluded.rule!r} names a code that {attribute!r} has not; use declared values"
                    )
        for attribute, groups in self.coarser:
            if len(groups) != self.size(attribute) or set(groups) != set(range(len(set(groups)))):
                raise SchemaError(f"the hierarchy of {attribute!r} needs one group for each of its codes")

    @classmethod
    def of(cls, sizes: dict[str, int]) -> Domain:
        """Build a domain from a mapping of attribute to size, in the mapping's order."""
        return cls(tuple(sizes), tuple(int(size) for size in sizes.values()))

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __contains__(self, attribute: object) -> bool:
        return attribute in self._places

    def size(self, attribute: str) -> int:
        """How many codes the attribute has."""
        return self.sizes[self.position(attribute)]

    def position(self, attribute: str) -> int:
        """Where the attribute stands in the domain's order."""
        try:
            return self._places[attribute]
        except KeyError:
            raise SchemaError(f"column {attribute!r} is not in the schema") from None

    def clique(self, attributes: Iterable[str]) -> Clique:
        """The attributes as a clique: each once, in the domain's order."""
        return tuple(sorted(set(attributes), key=self.position))

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Sizes of the clique's attributes, in the clique's own order."""
        sizes, position = self.sizes, self.position
        return tuple([sizes[position(attribute)] for attribute in clique])

    def cells(self, clique: Iterable[str] | None = None) -> int:
        """Number of cells of the clique's table (of the whole domain without an argument)."""
        return math.prod(self.sizes if clique is None else self.shape(clique))

    def project(self, attributes: Iterable[str]) -> Domain:
        """The domain of some of the attributes, in this domain's order, with the rules that speak about them alone."""
        clique = self.clique(attributes)
        inside = tuple(excluded for excluded in self.impossible if set(excluded.attributes) <= set(clique))
        return Domain(clique, self.shape(clique), inside, self._coarser(clique))

    def given(self, attribute: str, code: int) -> Domain:
        """Returns the domain of the other attributes in the records that have this code.

        Args:
            attribute: The attribute that is fixed.
            code: Its code.
        """
        others = tuple(other for other in self.attributes if other != attribute)
        left = []
        for excluded in self.impossible:
            codes = dict(excluded.codes)
            if code in codes.pop(attribute, (code,)):
                left.append(Impossible(excluded.rule, tuple(codes.items())))
        return Domain(others, self.shape(others), tuple(left), self._coarser(others))

    @property
    def unruled(self) -> Domain:
        """The same attributes, every record possible."""
        return Domain(self.attributes, self.sizes, (), self.coarser)

    @property
    def rule_cliques(self) -> tuple[Clique, ...]:
        """The sets of attributes that rules speak about, each once."""
        return tuple(dict.fromkeys(self.clique(excluded.attributes) for excluded in self.impossible))

    def _coarser(self, attributes: Iterable[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        kept = set(attributes)
        return tuple((attribute, groups) for attribute, groups in self.coarser if attribute in kept)


MAX_OF_ONE = 3
"""Entries of a list of the worst that may speak of the same attribute, unless there are no others."""


def pick_varied(ranked: Sequence[T], attributes: Callable[[T], Iterable[str]], *, count: int) -> list[T]:
    """The first of a ranking, none of whose attributes is in more than MAX_OF_ONE of them.

    Args:
        ranked: from the worst down.
        attributes: what an entry speaks of.
        count: how many are picked, if there are as many.

    Returns:
        Those picked, in the order of the ranking; where there are too few, the ones passed over fill the list.
    """
    picked: list[int] = []
    seen: Counter[str] = Counter()
    for place, one in enumerate(ranked):
        own = set(attributes(one))
        if len(picked) < count and all(seen[name] < MAX_OF_ONE for name in own):
            picked.append(place)
            seen.update(own)
    chosen = set(picked)
    passed_over = [place for place in range(len(ranked)) if place not in chosen]
    return [ranked[place] for place in sorted([*picked, *passed_over[: count - len(picked)]])]


def forbidden_cells(domain: Domain, clique: Clique) -> NDArray[np.bool_]:
    """The clique's cells that rules about its own attributes exclude, one axis for each attribute."""
    forbidden = np.zeros(domain.shape(clique), dtype=np.bool_)
    for excluded in domain.impossible:
        if set(excluded.attributes) <= set(clique):
            codes = dict(excluded.codes)
            forbidden[np.ix_(*(codes.get(a, range(domain.size(a))) for a in clique))] = True
    return forbidden


def forbidden_tables(domain: Domain) -> list[tuple[Clique, NDArray[np.bool_]]]:
    """For each set of attributes that rules speak about, the cells they exclude; too large a table is refused."""
    for excluded in domain.impossible:
        cells = domain.cells(excluded.attributes)
        if cells > LARGEST_RULE:
            raise FeasibilityError(
                f"rule {excluded.rule!r} joins {', '.join(excluded.attributes)} into a table of {cells:,} cells, "
                f"over the limit of {LARGEST_RULE:,}; give these columns coarser bins, or name fewer of them"
            )
    own = {clique: domain.project(clique) for clique in domain.rule_cliques}
    return [(clique, forbidden_cells(local, clique)) for clique, local in own.items()]


def breaking_rows(codes: NDArray[Any], domain: Domain, *, rule: str | None = None) -> NDArray[np.bool_]:
    """Which rows of codes break the rule of this name, or any rule."""
    breaking = np.zeros(len(codes), dtype=np.bool_)
    for excluded in domain.impossible:
        if rule in (None, excluded.rule):
            breaking |= _among(codes, domain, excluded)
    return breaking


def _among(codes: NDArray[Any], domain: Domain, excluded: Impossible) -> NDArray[np.bool_]:
    rows = np.ones(len(codes), dtype=np.bool_)
    for attribute, values in excluded.codes:
        listed = np.zeros(domain.size(attribute), dtype=np.bool_)
        listed[list(values)] = True
        rows &= listed[codes[:, domain.position(attribute)]]
    return rows
