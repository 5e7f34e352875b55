"""True errors of two linked synthetic tables, group by group; like every true error they are confidential.

The groups are tables of household attributes and size, of person attributes, of both, and of pairs of people of one
household, each as total variation distances (half the L1 distance of shares), averaged over tables; and group queries
in the manner of PrivLava (Cai, Xiao & Cormode, SIGMOD 2023): the share of households that meet a random condition and
have at least m people who meet another, as a relative error with a sanity bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.domain import Clique, Codes
from synth_core.evaluation.classification import TargetError, split_rows, target_errors, usual_targets
from synth_core.evaluation.distances import tvd
from synth_core.evaluation.household_shares import HouseholdShares, age_gaps, describe_households, has_gaps
from synth_core.evaluation.tables import CodedTable
from synth_core.markup import table_html
from synth_core.models.tuples import UNITS, Households, count_tuples, joint_codes
from synth_core.schema.linked import SIZE, LinkedSchema
from synth_core.storage.household_partitions import Partition, count_partitions, read_households
from synth_core.storage.households import count_scale

MAX_TABLES = 200
"""Upper limit of the tables of one group; of more, that many are drawn at random, the same for every comparison."""

SEED = 20230622
"""Seed of the tables and queries that are drawn: every comparison asks the same."""


class TupleTable:
    """Published households as the table of their tuple relation: counts of tuples of people, each of its weight."""

    def __init__(
        self, partitions: Sequence[Partition], schema: LinkedSchema, cluster: Cluster, *, places: int = 1
    ) -> None:
        self.domain = schema.domain(places)
        self._partitions, self._cluster, self._places = list(partitions), cluster, places
        self._scale, self._anchor = count_scale(places, schema.largest), schema.anchor

    @cached_property
    def rows(self) -> int:
        """How many households of as many people there are."""
        (sizes,) = self.tables([(SIZE,)])
        return round(float(sizes.sum()))

    @cached_property
    def sample(self) -> Codes:
        """One person of each household of the first partition."""
        held = read_households(self._partitions[0], attributes=self.domain.attributes)
        first = np.cumsum(held.sizes) - held.sizes
        own = held.attributes | {SIZE: held.sizes - 1} | {name: codes[first] for name, codes in held.people.items()}
        return np.column_stack([own[name] for name in self.domain.attributes])

    def tables(self, cliques: Sequence[Clique]) -> Iterator[NDArray[np.float64]]:
        """Count several marginals.

        Args:
            cliques: the attributes of each marginal.

        Returns:
            Counts of each, in households.
        """
        counted = count_partitions(
            self._partitions,
            self.domain,
            cliques,
            self._cluster,
            places=self._places,
            scale=self._scale,
            anchor=self._anchor,
        )
        for table in counted:
            yield table / self._scale


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedErrors:
    """True errors of two linked tables; a number that has no other meaning is a mean total variation distance.

    Attributes:
        households: tables of three household attributes, the size among them.
        people: tables of two person attributes.
        people_3: tables of three person attributes.
        people_in_households: tables of a household attribute, or the size, and two person attributes.
        pairs: tables of an attribute of one person and one of another person of the household.
        pairs_by_size: the same within each size of household.
        groups: mean relative error of group queries.
        couples: distance of the age differences of couples; None without declared roles and ages, or without couples.
        parents_and_children: the same of parents and children.
        broken: households that break a rule across people.
        targets: what a classifier learns of each person column from all others.
        of_pairs: distance of each person attribute of one with each of another person of the household, in their order.
        across: distance of each household attribute, and then of the size, with each person attribute.
        real: the real households in shares.
        synthetic: the synthetic ones in shares.
    """

    households: float
    people: float
    people_3: float
    people_in_households: float
    pairs: float
    pairs_by_size: float
    groups: float
    couples: float | None = None
    parents_and_children: float | None = None
    broken: int = 0
    targets: tuple[TargetError, ...] = field(default=(), repr=False)
    of_pairs: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    across: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    real: HouseholdShares = field(repr=False)
    synthetic: HouseholdShares = field(repr=False)

    @property
    def numbers(self) -> dict[str, float]:
        """Every mean error by its name, those that there are."""
        named = {name: getattr(self, name) for name in NUMBERS}
        return {name: value for name, value in named.items() if value is not None}

    def _repr_html_(self) -> str:
        rows = [(name.replace("_", " "), f"{value:.4f}") for name, value in self.numbers.items()]
        rows.append(("broken", f"{self.broken:,}"))
        return table_html(rows, title="True errors, confidential, not to be published")


NUMBERS = (
    "households",
    "people",
    "people_3",
    "people_in_households",
    "pairs",
    "pairs_by_size",
    "groups",
    "couples",
    "parents_and_children",
)
"""The fields of `LinkedErrors` that hold a mean error."""


def compare_households(
    real: Households, synthetic: Households, schema: LinkedSchema, *, broken: int = 0, predictions: bool = True
) -> LinkedErrors:
    """Compare synthetic households with the real ones.

    Args:
        real: the confidential households, at least one.
        synthetic: households of the same schema, at least one.
        schema: the declaration of the tables.
        broken: how many of the synthetic ones break a rule.
        predictions: whether classifiers are trained, which takes most of the time.

    Returns:
        Every true error.
    """
    one, people = schema.domain(1), schema.person_attributes()
    kinds = (*schema.household_attributes, SIZE)
    views = [_flat(real), _flat(synthetic)]
    owned = [{a: codes[np.repeat(np.arange(len(h.sizes)), h.sizes)] for a, codes in own.items()} for h, own in views]
    households = [own for _, own in views]
    members = [{**own, **held.people} for own, (held, _) in zip(owned, views, strict=True)]

    def far(clique: Clique, rows: Sequence[dict[str, NDArray[Any]]]) -> float:
        return tvd(
            *(np.bincount(joint_codes(r, one, clique, len(r[clique[0]])), minlength=one.cells(clique)) for r in rows)
        )

    def mean(cliques: Iterable[Clique], rows: Sequence[dict[str, NDArray[Any]]]) -> float:
        return _mean(far(clique, rows) for clique in _some(cliques))

    pairs = [(a, f"{b}@2") for a, b in product(people, people) if people.index(a) <= people.index(b)]
    apart = _pair_errors(real, synthetic, schema, pairs)
    return LinkedErrors(
        households=mean(combinations(kinds, min(3, len(kinds))), households),
        people=mean(combinations(people, min(2, len(people))), members),
        people_3=mean(combinations(people, min(3, len(people))), members),
        people_in_households=mean(((a, *c) for a in kinds for c in combinations(people, min(2, len(people)))), members),
        pairs=_mean(apart),
        pairs_by_size=_mean(_pair_errors(real, synthetic, schema, [(SIZE, *pair) for pair in pairs])),
        groups=_mean(_group_errors(views, schema)),
        couples=gap_error(real, synthetic, schema, "couples"),
        parents_and_children=gap_error(real, synthetic, schema, "parents and children"),
        broken=broken,
        targets=_predicted(members, schema) if predictions else (),
        of_pairs=_symmetric(apart, len(people)),
        across=tuple(tuple(far((a, b), members) for b in people) for a in kinds),
        real=describe_households(real, schema),
        synthetic=describe_households(synthetic, schema),
    )


def gap_error(real: Households, synthetic: Households, schema: LinkedSchema, name: str) -> float | None:
    """Total variation distance of the age differences between people of one household in two roles.

    Args:
        real: the confidential households.
        synthetic: households of the same schema.
        schema: the declaration of the tables.
        name: couples, or parents and children (`GAPS`).

    Returns:
        The distance of the distributions of differences; None where the roles or ages are not declared or no person has
        them in both tables.
    """
    if not has_gaps(schema, name):
        return None
    found = [age_gaps(held, schema, name) for held in (real, synthetic)]
    if not all(map(len, found)):
        return float(any(map(len, found))) or None
    every = np.unique(np.concatenate(found))
    return tvd(*(np.bincount(np.searchsorted(every, gaps), minlength=len(every)) for gaps in found))


def _predicted(members: Sequence[dict[str, NDArray[Any]]], schema: LinkedSchema) -> tuple[TargetError, ...]:
    """What linear support vector machines learn of people, from their own columns, as in a table by itself."""
    domain = schema.person.domain
    tables = [np.column_stack([rows[f"person.{name}"] for name in domain]) for rows in members]
    real, synthetic = (CodedTable.of(codes, domain).sample for codes in tables)
    targets = usual_targets(domain)
    return target_errors(split_rows(real, synthetic), domain, targets=targets, cluster=Cluster())


def _symmetric(errors: Sequence[float], count: int) -> tuple[tuple[float, ...], ...]:
    """A matrix of which the upper triangle is listed, row by row."""
    if not errors:
        return ()
    matrix = np.zeros((count, count))
    matrix[np.triu_indices(count)] = errors
    return tuple(map(tuple, np.maximum(matrix, matrix.T).tolist()))


def _flat(held: Households) -> tuple[Households, dict[str, NDArray[Any]]]:
    """The households, with the size as one more of their attributes."""
    return held, {**{a: codes.astype(np.int64) for a, codes in held.attributes.items()}, SIZE: held.sizes - 1}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else 0.0


def _some(cliques: Iterable[Clique]) -> list[Clique]:
    found = list(cliques)
    if len(found) <= MAX_TABLES:
        return found
    chosen = np.random.default_rng(SEED).choice(len(found), MAX_TABLES, replace=False)
    return [found[k] for k in sorted(chosen)]


def _pair_errors(
    real: Households, synthetic: Households, schema: LinkedSchema, cliques: Sequence[Clique]
) -> list[float]:
    """The distance of each table of two people; none where every person lives alone."""
    if schema.largest < 2:
        return []
    domain = schema.domain(2)
    tables = [count_tuples(held, domain, cliques, places=2, scale=UNITS) for held in (real, synthetic)]
    counted = [bool(table[0].any()) for table in tables]
    if not all(counted):
        return [float(any(counted))] * len(cliques)  # every person lives alone in one of them, or in both
    return [tvd(left, right) for left, right in zip(*tables, strict=True)]


GROUP_QUERIES = 500
"""Group queries that are asked."""

MAX_MEMBERS = 3
"""Largest m of the group queries; m is drawn from 1 up to it."""
SANITY = 0.01
"""A relative error is taken of at least this share of the households."""


def _group_errors(views: Sequence[tuple[Households, dict[str, NDArray[Any]]]], schema: LinkedSchema) -> Iterable[float]:
    """Relative errors of shares of households with at least m people of two random sets of codes."""
    rng, domain, people = np.random.default_rng(SEED), schema.domain(1), schema.person_attributes()
    for _ in range(GROUP_QUERIES):
        asked = [people[k] for k in rng.choice(len(people), min(2, len(people)), replace=False)]
        person = {a: rng.random(domain.size(a)) < 0.5 for a in asked}
        own = str(rng.choice([*schema.household_attributes, SIZE]))
        kind, least = rng.random(domain.size(own)) < 0.5, int(rng.integers(1, MAX_MEMBERS + 1))
        true, found = (_share(held, attributes, person, own, kind, least) for held, attributes in views)
        yield abs(true - found) / max(true, SANITY)


def _share(
    held: Households,
    attributes: dict[str, NDArray[Any]],
    person: dict[str, NDArray[np.bool_]],
    own: str,
    kind: NDArray[np.bool_],
    least: int,
) -> float:
    met = np.ones(int(held.sizes.sum()), dtype=np.bool_)
    for attribute, codes in person.items():
        met &= codes[held.people[attribute]]
    owner = np.repeat(np.arange(len(held.sizes)), held.sizes)
    number = np.bincount(owner[met], minlength=len(held.sizes))
    return float(((number >= least) & kind[attributes[own]]).mean()) if len(held.sizes) else 0.0
