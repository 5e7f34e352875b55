"""What a release should answer well: marginals, prefixes and ranges along ordinal attributes.

A `Workload` is what a spec declares; its `parts` over a domain are Kronecker products of one query matrix for
each attribute. Workloads are public: nothing here looks at records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any, Literal

from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError, SpecError
from synth_core.models import linear
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import Matrix

Kind = Literal["codes", "prefixes", "ranges"]


@dataclass(frozen=True, slots=True)
class QuerySet:
    """The queries about one clique: for each attribute its single codes, all prefixes, or all ranges of codes."""

    clique: Clique
    kinds: tuple[Kind, ...]
    weight: float = 1.0

    def matrices(self, domain: Domain) -> tuple[Matrix, ...]:
        """One query matrix for each attribute."""
        return tuple(map(queries_of, self.kinds, domain.shape(self.clique)))

    def boxes(self, domain: Domain) -> list[tuple[tuple[int, int], ...]]:
        """Every query as a box: first code and the code after the last, for each attribute."""
        sides = [_intervals(kind, size) for kind, size in zip(self.kinds, domain.shape(self.clique), strict=True)]
        return list(product(*sides))


@dataclass(frozen=True, slots=True)
class Workload:
    """A declaration: these marginals, or all of `ways` attributes, with prefixes or ranges where they are declared.

    `weights` says how much each of the `marginals` matters; all the same without it.
    """

    ways: int = 2
    marginals: tuple[Clique, ...] = ()
    prefixes: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.ways < 1 or any(not clique for clique in self.marginals):
            raise SpecError("workload: a marginal has at least one attribute")
        if self.weights and (len(self.weights) != len(self.marginals) or min(self.weights) <= 0):
            raise SpecError("workload: weights need one positive number for each of the marginals")
        if both := set(self.prefixes) & set(self.ranges):
            raise SpecError(f"workload: declare {', '.join(sorted(both))} under prefixes or ranges, not both")

    @classmethod
    def parse(cls, values: object) -> Workload:
        """Read the plain values of a spec; a workload that is one already is kept."""
        if isinstance(values, Workload):
            return values
        lists = ("marginals", "prefixes", "ranges", "weights")
        if not isinstance(values, Mapping) or not set(values) <= {"ways", *lists}:
            raise SpecError(f"workload: expected keys and values (keys: ways, {', '.join(lists)})")
        read: dict[str, Any] = dict(values)
        try:
            read["ways"] = int(read.get("ways", 2))
            read["weights"] = tuple(float(weight) for weight in read.get("weights", ()))
            read["marginals"] = tuple(_names(clique) for clique in read.get("marginals", ()))
            for key in ("prefixes", "ranges"):
                read[key] = _names(read.get(key, ()))
        except (TypeError, ValueError):
            raise SpecError("workload: write lists of column names, and numbers for ways and weights") from None
        return cls(**read)

    def parts(self, domain: Domain) -> tuple[QuerySet, ...]:
        """The workload over a domain."""
        for attribute in (*self.prefixes, *self.ranges):
            domain.position(attribute)
        every = combinations(domain.attributes, min(self.ways, len(domain)))
        cliques = [domain.clique(clique) for clique in self.marginals or every]
        weights = self.weights or (1.0,) * len(cliques)
        return tuple(
            QuerySet(clique, tuple(map(self._kind, clique)), weight)
            for clique, weight in zip(cliques, weights, strict=True)
        )

    def _kind(self, attribute: str) -> Kind:
        if attribute in self.prefixes:
            return "prefixes"
        return "ranges" if attribute in self.ranges else "codes"


LIMIT_CELLS = 16_000_000
"""Upper limit of the junction tree of a workload in cells, unless a method's options say otherwise."""
LONGEST_ADVICE = 600
"""Upper limit of the letters of a workload that a refusal writes out."""


def refuse_large(parts: Iterable[QuerySet], domain: Domain, *, limit_cells: int) -> None:
    """Refuse a workload whose model would be too large, and name one that fits.

    Args:
        parts: the queries of the workload.
        domain: the attributes, their sizes and their rules.
        limit_cells: upper limit of the model's junction tree in cells.

    Raises:
        FeasibilityError: the model would be larger.
    """
    try:
        junction_tree(domain, [part.clique for part in parts], limit_cells=limit_cells)
    except FeasibilityError as refusal:
        pairs = list(pairwise(domain.attributes))
        offers = ((pairs, json.dumps({"marginals": pairs})), ((), json.dumps({"ways": 1})))
        fitting = [
            text
            for asked, text in offers
            if len(text) <= LONGEST_ADVICE and junction_tree(domain, asked).cells <= limit_cells
        ]
        remedy = f"this one fits: `workload: {fitting[0]}`" if fitting else "raise limit_cells"
        raise FeasibilityError(f"options: workload needs too large a model; {remedy} ({refusal})") from None


ALL_PAIRS = Workload(ways=2)
"""Every pair of attributes, every code."""


def queries_of(kind: Kind, size: int) -> Matrix:
    """All queries of a kind about an attribute of `size` codes."""
    return linear.ranges(size, [(first, end - 1) for first, end in _intervals(kind, size)])


def _intervals(kind: Kind, size: int) -> list[tuple[int, int]]:
    if kind == "codes":
        return [(code, code + 1) for code in range(size)]
    if kind == "prefixes":
        return [(0, code + 1) for code in range(size)]
    return [(first, last + 1) for first in range(size) for last in range(first, size)]


def _names(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)
