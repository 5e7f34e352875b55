"""What households look like: how large they are, who lives in them, of which ages, and how many have whom.

Each is a share of households or of pairs of people, computed from codes; of confidential households it is confidential.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.models.tuples import Households
from synth_core.schema.linked import LinkedSchema

COMPOSITIONS = (
    "one person",
    "couple",
    "couple with children",
    "one parent with children",
    "with a parent",
    "other",
)
"""Kinds of households by the roles of their people; one with a parent may have anybody else too."""

GAPS = {"couples": ("reference", "partner"), "parents and children": ("child", "reference")}
"""Pairs of roles whose ages are compared: the second's age less the first's."""

GAP_YEARS = 5
"""Years of a class of age differences; the class of k is around k times as many."""

MEMBERS = (1, 2)
"""Numbers m of which it is said how many households have at least m people with a value."""

MAX_MEMBER_CODES = 12
"""Upper limit of a column's codes for which that is said: columns with more have too many small groups."""

Masks: TypeAlias = dict[str, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShare:
    """The share of households in which at least `least` people have a code of a person column."""

    column: str
    code: int
    least: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseholdShares:
    """The households of one table in shares.

    Attributes:
        households: how many there are.
        people: how many people they have.
        sizes: share of the households of each size, from one person on.
        compositions: share of the households of each kind of `COMPOSITIONS`; empty where no roles are declared.
        gaps: for couples, and for parents and children, the share of each class of age differences, by its middle in
            years; empty where no ages are declared.
        members: households with at least m people of a value.
        columns: for each column of households (`household.tenure`) the share of households with each code, and for
            each column of people (`person.age`) the share of people.
    """

    households: int
    people: int
    sizes: tuple[float, ...]
    compositions: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, dict[int, float]] = field(default_factory=dict)
    members: tuple[MemberShare, ...] = ()
    columns: dict[str, tuple[float, ...]] = field(default_factory=dict)


def describe_households(held: Households, schema: LinkedSchema) -> HouseholdShares:
    """Describe households in shares.

    Args:
        held: at least one household, in codes.
        schema: the declaration of the tables.

    Returns:
        The shares; those of couples and of parents and children where the schema says who they are.
    """
    number, domain = len(held.sizes), schema.domain(1)
    return HouseholdShares(
        households=number,
        people=int(held.sizes.sum()),
        sizes=_shares(held.sizes - 1, schema.largest),
        compositions=_compositions(held, schema),
        gaps={name: _gap_classes(age_gaps(held, schema, name)) for name in GAPS if has_gaps(schema, name)},
        members=_members(held, schema),
        columns={name: _shares(codes, domain.size(name)) for name, codes in (held.attributes | held.people).items()},
    )


def has_gaps(schema: LinkedSchema, name: str) -> bool:
    """Decide whether a schema says whose ages are compared.

    Args:
        schema: the declaration of the tables.
        name: one of `GAPS`.

    Returns:
        Whether both roles and the column of ages are declared.
    """
    return schema.roles is not None and schema.roles.age is not None and set(GAPS[name]) <= set(schema.roles.conditions)


def age_gaps(held: Households, schema: LinkedSchema, name: str) -> NDArray[np.float64]:
    """List the age differences of all pairs of people in two roles of one household.

    Args:
        held: households in codes.
        schema: declares both roles and the column of ages.
        name: one of `GAPS`.

    Returns:
        The second person's age less the first's, each the number that its bin stands for; people without one left out.
    """
    lower, upper = GAPS[name]
    met, values = _role_masks(held, schema), _ages(held, schema)
    starts, found = np.cumsum(held.sizes) - held.sizes, [np.zeros(0)]
    for size in np.unique(held.sizes[held.sizes > 1]):
        begin = starts[held.sizes == size]
        for i, j in product(range(size), range(size)):
            both = met[lower][begin + i] & met[upper][begin + j] if i != j else np.zeros(len(begin), np.bool_)
            found.append(values[begin[both] + j] - values[begin[both] + i])
    gaps = np.concatenate(found)
    return gaps[np.isfinite(gaps)]


def _shares(codes: NDArray[Any], size: int) -> tuple[float, ...]:
    return tuple((np.bincount(codes, minlength=size) / len(codes)).tolist())


def _gap_classes(gaps: NDArray[np.float64]) -> dict[int, float]:
    classes, counts = np.unique(np.rint(gaps / GAP_YEARS).astype(np.int64) * GAP_YEARS, return_counts=True)
    return dict(zip(classes.tolist(), (counts / max(1, len(gaps))).tolist(), strict=True))


def _ages(held: Households, schema: LinkedSchema) -> NDArray[np.float64]:
    """The number that the bin of each person's age stands for."""
    name = "" if schema.roles is None else schema.roles.age or ""
    levels = schema.person.column(name).levels
    return np.zeros(0) if levels is None else levels[held.people[f"person.{name}"]]


def _role_masks(held: Households, schema: LinkedSchema) -> Masks:
    """For each declared role, whether each person has it."""
    if schema.roles is None:
        return {}
    codes = held.people[f"person.{schema.roles.column}"]
    column = schema.person.column(schema.roles.column)
    return {name: column.covered_codes(items)[codes] for name, items in schema.roles.conditions.items()}


def _compositions(held: Households, schema: LinkedSchema) -> dict[str, float]:
    if schema.roles is None:
        return {}
    number, owner = len(held.sizes), np.repeat(np.arange(len(held.sizes)), held.sizes)
    count = {name: np.bincount(owner[mask], minlength=number) for name, mask in _role_masks(held, schema).items()}
    none = np.zeros(number, dtype=np.int64)
    partners, children, parents = (count.get(name, none) for name in ("partner", "child", "parent"))
    led, others = count["reference"] == 1, held.sizes - 1 - partners - children
    core = led & (others == 0)
    kinds = [
        held.sizes == 1,
        core & (partners == 1) & (children == 0),
        core & (partners == 1) & (children > 0),
        core & (partners == 0) & (children > 0),
        parents > 0,
    ]
    found = np.select(kinds, np.arange(len(kinds)), len(kinds))
    shares = np.bincount(found, minlength=len(COMPOSITIONS)) / number
    missing = {kind for role, names in _NEEDS.items() if role not in count for kind in names}
    return {name: float(share) for name, share in zip(COMPOSITIONS, shares, strict=True) if name not in missing}


_NEEDS = {
    "partner": ("couple", "couple with children"),
    "child": ("couple with children", "one parent with children"),
    "parent": ("with a parent",),
}
"""Kinds of households that cannot be recognised without a role."""


def _members(held: Households, schema: LinkedSchema) -> tuple[MemberShare, ...]:
    owner, found = np.repeat(np.arange(len(held.sizes)), held.sizes), []
    for column in schema.person.columns:
        if column.size > MAX_MEMBER_CODES:
            continue
        codes = held.people[f"person.{column.name}"]
        for code in range(column.size):
            number = np.bincount(owner[codes == code], minlength=len(held.sizes))
            for least in (m for m in MEMBERS if m <= schema.largest):
                share = float((number >= least).mean())
                found.append(MemberShare(column=column.name, code=code, least=least, share=share))
    return tuple(found)
