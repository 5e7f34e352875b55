"""The public declaration of two linked tables: households, the people in them, and rules across people.

    tables:
      link: household_id
      largest: 8
      household:
        columns:
          - {name: tenure, kind: categorical, values: [owned, rented]}
      person:
        columns:
          - {name: relation, kind: categorical, values: [reference, partner, child, other]}
          - {name: age, kind: integer, bounds: [0, 99], bins: 20}
      together:
        - {name: one reference person, people: {relation: reference}, exactly: 1}
        - {name: one partner at most, people: {relation: partner}, at_most: 1}
        - {name: children are younger, column: age, lower: {relation: child}, upper: {relation: reference}, by: 12}
      roles: {column: relation, reference: reference, partner: partner, child: child, age: age}

Each table is declared as a table by itself is (`schema.schema`); `link` names the column by which they are joined. It
is in both, and what stands in it is published in neither. A rule of `together` is about the people of one household.
`roles` says who is what in a household (`schema.roles`): reports and errors then speak of couples and their children.

**The tuple relation.** For a number t of places, each household of s >= t people stands for all ordered t-tuples of
different people of it, with equal weights that sum to 1. `LinkedSchema.domain` has the attributes of such a tuple:
`household.tenure`, `size`, `person.age` for the first place, `person.age@2` for the second, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from synth_core.documents import Unreadable, parse_document, read_document
from synth_core.domain import Domain, Impossible
from synth_core.errors import SchemaError
from synth_core.names import TABLES as TABLES
from synth_core.names import one_line
from synth_core.schema.checks import describe_errors
from synth_core.schema.columns.base import Declaration, Words, read_truth
from synth_core.schema.roles import Roles
from synth_core.schema.rules import Conditions
from synth_core.schema.schema import DeclaredSchema, Schema, declaration_digest

if TYPE_CHECKING:
    import pandas as pd

MAX_LARGEST = 10
"""Upper limit of the people of a household: the grid of the counts grows with the least common multiple of sizes."""

SIZE = "size"
"""The attribute that holds how many people a household has."""


REFERENCE = "reference"
"""What tells the attributes of a reference person from those of any other place: `person.age@reference`."""


class CountRule(Declaration):
    """How many people of a household may meet some conditions, all of them."""

    name: Words = Field(min_length=1)
    people: Conditions
    exactly: Annotated[int, Field(strict=True, ge=0)] | None = None
    at_least: Annotated[int, Field(strict=True, ge=0)] = 0
    at_most: Annotated[int, Field(strict=True, ge=0)] | None = None
    even: Annotated[bool, BeforeValidator(read_truth)] = Field(default=False, strict=True)

    @model_validator(mode="after")
    def _check(self) -> CountRule:
        low, high = self.limits
        if self.exactly is not None and (self.at_least or self.at_most is not None):
            raise ValueError("exactly stands alone; drop at_least and at_most")
        if low == 0 and math.isinf(high) and not self.even:
            raise ValueError("a rule about people needs exactly, at_least, at_most or even: true")
        if low > high:
            raise ValueError("at_least is above at_most; exchange them")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number of such people."""
        if self.exactly is not None:
            return float(self.exactly), float(self.exactly)
        return float(self.at_least), math.inf if self.at_most is None else float(self.at_most)


class GapRule(Declaration):
    """In a column of numbers, everybody who meets `lower` is at least `by` below everybody else who meets `upper`."""

    name: Words = Field(min_length=1)
    column: str
    lower: Conditions
    upper: Conditions
    by: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


def _rule_form(raw: object) -> str:
    if isinstance(raw, dict):
        return "gap" if {"column", "lower", "upper", "by"} & set(raw) else "people"
    return "gap" if isinstance(raw, GapRule) else "people"


TogetherRule: TypeAlias = Annotated[
    Annotated[CountRule, Tag("people")] | Annotated[GapRule, Tag("gap")], Discriminator(_rule_form)
]


class LinkedTables(Declaration):
    """What stands under the key `tables`."""

    link: Annotated[str, Field(min_length=1), AfterValidator(one_line)] = Field(
        description="the column by which the tables are joined, in both of them; it is published in neither"
    )
    link_kind: str = Field(default="text", pattern="^(text|integer)$", description="how it is read, as `unit_kind`")
    largest: Annotated[int, Field(strict=True, ge=1, le=MAX_LARGEST)] = Field(
        description="most people of a household that are used; of larger households as many are kept by a keyed rule"
    )
    household: Schema
    person: Schema
    together: tuple[TogetherRule, ...] = Field(default=(), description="rules about the people of one household")
    roles: Roles | None = Field(default=None, description="who is what in a household, for reports and errors")

    @field_validator("household", "person", mode="wrap")
    @classmethod
    def _named(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except SchemaError as wrong:
            raise SchemaError(f"{info.field_name}: {wrong}") from None


class LinkedSchema(Declaration):
    """Two tables in which every column has its codes, and what the people of a household may have in common."""

    tables: LinkedTables

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a schema file of two tables.

        Args:
            path: a YAML file with the key `tables`.

        Returns:
            The schema.

        Raises:
            SchemaError: if it cannot be read or declares something wrong; begins with the file's name.
        """
        try:
            text = read_document(path)
            raw = parse_document(text, words=True)
            if not isinstance(raw, dict):
                raise SchemaError("a schema file of two tables is a mapping with the key tables")
            return cls.model_validate(raw)
        except (Unreadable, SchemaError) as wrong:
            raise SchemaError(f"{path}: {wrong}") from None

    def save(self, path: str | Path) -> None:
        """Write the schema as YAML that `load` reads back to an equal schema.

        Args:
            path: the file to write.
        """
        Path(path).write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """The schema as YAML."""
        return yaml.safe_dump(self._plain(), sort_keys=False, allow_unicode=True, width=110)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read what `text` gave.

        Args:
            text: the schema as YAML.

        Returns:
            The schema.

        Raises:
            SchemaError: if the text declares something wrong.
        """
        return cls.model_validate(parse_document(text, words=True))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal for equal declarations, however the file is laid out."""
        return declaration_digest(self._plain())

    def _plain(self) -> dict[str, Any]:
        """The declaration as lists and mappings, defaults left out but each column's kind kept."""
        raw = self.model_dump(exclude_defaults=True, by_alias=True)["tables"]
        for name in TABLES:
            columns = self.table(name).columns
            given = raw[name]["columns"]
            raw[name]["columns"] = [{"name": c.name, "kind": c.kind, **g} for c, g in zip(columns, given, strict=True)]
        return {"tables": raw}

    @property
    def declaration(self) -> Self:
        """The schema as a person wrote it: it has no bins to buy."""
        return self

    def table(self, name: str) -> Schema:
        """The declaration of one of the two tables.

        Args:
            name: `household` or `person`.

        Returns:
            The declaration.
        """
        found: Schema = getattr(self.tables, name)
        return found

    @cached_property
    def flat(self) -> Schema:
        """The columns of a tuple of one person, named as the attributes are: what the method's questions are about."""
        columns = [c.model_copy(update={"name": f"household.{c.name}"}) for c in self.household.columns]
        size = {"kind": "categorical", "name": SIZE, "values": range(1, self.largest + 1)}
        people = [c.model_copy(update={"name": f"person.{c.name}"}) for c in self.person.columns]
        return Schema.model_validate({"columns": [*columns, size, *people]})

    def captions(self, clique: Sequence[str]) -> list[tuple[str, ...]]:
        """What the codes of each attribute of a table stand for; sizes begin with its number of places.

        Args:
            clique: attributes of a tuple.

        Returns:
            For each attribute what its codes stand for, in words.
        """
        placed = [name.rpartition("@") for name in clique if name.startswith("person.") and "@" in name]
        own = {f"{name}@{place}": name for name, _, place in placed}
        places = max([1, *(2 if place == REFERENCE else int(place) for *_, place in placed)])
        named = [(name, self.flat.column(own.get(name, name)).captions) for name in clique]
        return [words[places - 1 :] if name == SIZE else words for name, words in named]

    @property
    def household(self) -> Schema:
        """The declaration of the table of households."""
        return self.tables.household

    @property
    def person(self) -> Schema:
        """The declaration of the table of people."""
        return self.tables.person

    @property
    def link(self) -> str:
        """The column by which the tables are joined."""
        return self.tables.link

    @property
    def largest(self) -> int:
        """Most people of a household."""
        return self.tables.largest

    @property
    def has_pairs(self) -> bool:
        """Whether there are households of two people."""
        return self.largest > 1

    @property
    def together(self) -> tuple[CountRule | GapRule, ...]:
        """The rules about the people of one household."""
        return self.tables.together

    @property
    def as_decoded(self) -> Self:
        """The schema as its own decoded tables are read (`Schema.as_decoded`)."""
        own = {name: getattr(self.tables, name).as_decoded for name in TABLES}
        return self.model_copy(update={"tables": self.tables.model_copy(update=own)})

    @property
    def roles(self) -> Roles | None:
        """Who is what in a household, where that is declared."""
        return self.tables.roles

    @cached_property
    def household_attributes(self) -> tuple[str, ...]:
        """The attributes of a tuple that its household has, its size left out."""
        return tuple(f"household.{column.name}" for column in self.household.columns)

    def person_attributes(self, place: int = 1) -> tuple[str, ...]:
        """Name the attributes of one place of a tuple.

        Args:
            place: the place, counted from 1.

        Returns:
            Their names, in the order of the columns.
        """
        return tuple(place_name(f"person.{column.name}", place) for column in self.person.columns)

    @cached_property
    def anchor(self) -> tuple[str, NDArray[np.bool_]] | None:
        """The attribute of roles and which of its codes are reference persons, where a household has exactly one.

        That must be a rule of the schema: then pairs of the reference person and another have a relation of their own.
        """
        if self.roles is None or self.largest == 1:
            return None
        reference = {self.roles.column: self.roles.reference}
        counts = [rule for rule in self.together if isinstance(rule, CountRule)]
        if not any(rule.exactly == 1 and rule.people == reference for rule in counts):
            return None
        return f"person.{self.roles.column}", self.meeting_codes(reference)[self.roles.column]

    def reference_attributes(self) -> tuple[str, ...]:
        """Name the attributes of the reference person in pairs with another: all but the role.

        Returns:
            Their names, in the order of the columns; none where no rule says that there is exactly one.
        """
        if self.anchor is None:
            return ()
        return tuple(f"{name}@{REFERENCE}" for name in self.person_attributes() if name != self.anchor[0])

    def domain(self, places: int) -> Domain:
        """The attributes of the tuple relation; every place has the same rules, and the sizes begin at `places`.

        Args:
            places: how many people a tuple has, from 1 up to the largest household.

        Returns:
            The domain: household attributes, the size, and the person attributes of each place; for two places also
            those of the reference person, in whose relation with others it stands for the first place.
        """
        household, person = self.household.domain, self.person.domain
        names = [*self.household_attributes, SIZE]
        sizes = [*household.sizes, self.largest - places + 1]
        excluded = [_renamed(one, "household.{}".format) for one in household.impossible]
        coarser = [(f"household.{name}", groups) for name, groups in household.coarser]
        for place in range(1, places + 1):

            def own(name: str, place: int = place) -> str:
                return place_name(f"person.{name}", place)

            names += map(own, person.attributes)
            sizes += person.sizes
            excluded += [_renamed(one, own) for one in person.impossible]
            coarser += [(own(name), groups) for name, groups in person.coarser]
        if places == 2:
            own_of = {name: person.size(name.removeprefix("person.")) for name in self.person_attributes()}
            anchored = self.reference_attributes()
            names += anchored
            sizes += [own_of[name.removesuffix(f"@{REFERENCE}")] for name in anchored]
            coarser += [
                (f"person.{name}@{REFERENCE}", groups)
                for name, groups in person.coarser
                if f"person.{name}@{REFERENCE}" in anchored
            ]
        return Domain(tuple(names), tuple(sizes), tuple(excluded), tuple(coarser))

    def violations(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, NDArray[np.bool_]]:
        """Find the households that break a rule across people.

        Args:
            tables: the two tables by name, in the schema's own values and with the linking column, such as synthetic
                ones.

        Returns:
            For each rule by name, whether each household of the table of households breaks it.
        """
        import pandas as pd

        household, person = (tables[name] for name in TABLES)
        place = pd.Index(household[self.link]).get_indexer(pd.Index(person[self.link]))
        order = np.argsort(place, kind="stable")
        order = order[place[order] >= 0]
        sizes = np.bincount(place[order], minlength=len(household))
        return self.broken_rules(person.iloc[order], sizes)

    def broken_rules(self, people: pd.DataFrame, sizes: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Find the households that break a rule, from their people alone.

        Args:
            people: decoded people, household by household.
            sizes: how many people each household has.

        Returns:
            For each rule by name, whether each household breaks it.
        """
        owner = np.repeat(np.arange(len(sizes)), sizes)
        found = {}
        for rule in self.together:
            if isinstance(rule, CountRule):
                number = np.bincount(owner[self._meeting(people, rule.people)], minlength=len(sizes))
                found[rule.name] = breaks_count(rule, number)
                continue
            values = self.person.column(rule.column).numbers_in(people[rule.column])
            lower, upper = self._meeting(people, rule.lower), self._meeting(people, rule.upper)
            broken = np.zeros(len(sizes), dtype=np.bool_)
            starts = np.cumsum(sizes) - sizes
            for size in np.unique(sizes[sizes > 1]):
                own = np.flatnonzero(sizes == size)
                at = starts[own][:, None] + np.arange(size)
                gaps = values[at][:, None, :] - values[at][:, :, None]  # of the upper (last) over the lower
                pairs = lower[at][:, :, None] & upper[at][:, None, :] & ~np.eye(size, dtype=np.bool_)
                broken[own] = (pairs & (gaps < rule.by)).any(axis=(1, 2))
            found[rule.name] = broken
        return found

    def meeting_codes(self, conditions: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[np.bool_]]:
        """Translate the conditions of a rule across people to codes.

        Args:
            conditions: items by column of the table of people.

        Returns:
            For each column, which of its codes meet the condition.
        """
        return {name: self.person.column(name).covered_codes(items) for name, items in conditions.items()}

    def _meeting(self, people: pd.DataFrame, conditions: Mapping[str, Sequence[Any]]) -> NDArray[np.bool_]:
        met = np.ones(len(people), dtype=np.bool_)
        for name, items in conditions.items():
            met &= self.person.column(name).matching_rows(people[name], items)
        return met

    @model_validator(mode="wrap")
    @classmethod
    def _one_line(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise SchemaError(describe_errors(error, data, text=None, keys=_KEYS)) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in TABLES:
            own: Schema = getattr(self.tables, name)
            if self.link in own.domain:
                raise SchemaError(
                    f"link {self.link!r} is also a column of {name}; it is published anew, so drop it there"
                )
            if own.unit_column is not None:
                raise SchemaError(f"{name}: unit_column: link names the household of each row; leave unit_column out")
            summed = [c.name for c in own.columns if c.numbers is not None and c.numbers.moments]
            if summed:
                raise SchemaError(
                    f"{name}: column {summed[0]!r}: moments are not bought for linked tables; leave them out"
                )
        for column in self.person.columns:
            if "@" in column.name:
                raise SchemaError(f"person: column {column.name!r}: @ tells the people of a household apart; rename it")
        seen: set[str] = set()
        for rule in self.together:
            if rule.name in seen:
                raise SchemaError(f"together: rule {rule.name!r}: declared twice; give each rule its own name")
            seen.add(rule.name)
            self._check_rule(rule)
        if self.roles:
            for items in self.roles.conditions.values():
                self._check_conditions("roles", {self.roles.column: items})
            if self.roles.age is not None:
                self._check_numbers("roles", self.roles.age)
        return self

    def _check_rule(self, rule: CountRule | GapRule) -> None:
        where = f"together: rule {rule.name!r}"
        for conditions in (rule.people,) if isinstance(rule, CountRule) else (rule.lower, rule.upper):
            self._check_conditions(where, conditions)
        if isinstance(rule, GapRule):
            self._check_numbers(where, rule.column)
        elif rule.limits[0] > 1 and not rule.even:
            raise SchemaError(
                f"{where}: households of one person have not {rule.limits[0]:g} such people; "
                "say at most 1, or even: true"
            )

    def _check_conditions(self, where: str, conditions: Mapping[str, Sequence[Any]]) -> None:
        for name, items in conditions.items():
            self._check_column(where, name)
            try:
                self.person.column(name).covered_codes(items)
            except ValueError as error:
                raise SchemaError(f"{where}: column {name!r}: {error}") from None

    def _check_numbers(self, where: str, name: str) -> None:
        self._check_column(where, name)
        if self.person.column(name).numbers is None:
            raise SchemaError(f"{where}: column {name!r} holds no numbers in bins; declare it as integer")

    def _check_column(self, where: str, name: str) -> None:
        if name not in {column.name for column in self.person.columns}:
            raise SchemaError(f"{where}: column {name!r} is not one of person's")


AnySchema: TypeAlias = DeclaredSchema | LinkedSchema
"""What a release's schema file may declare."""


def load_schema(path: str | Path) -> AnySchema:
    """Read a schema file of one table, or of two linked ones.

    Args:
        path: a YAML file; the key `tables` says that it declares two.

    Returns:
        The schema.

    Raises:
        SchemaError: if it cannot be read or declares something wrong; begins with the file's name.
    """
    try:
        raw = parse_document(read_document(path), words=True)
    except Unreadable:
        raw = None
    return LinkedSchema.load(path) if isinstance(raw, dict) and "tables" in raw else DeclaredSchema.load(path)


def planned_schema(schema: AnySchema) -> Schema:
    """The columns that a method is asked about, with as many bins as are to be bought."""
    return schema.flat if isinstance(schema, LinkedSchema) else schema.planned


def asked_domain(schema: AnySchema) -> Domain:
    """Their domain, with what the rules exclude."""
    return schema.domain(1) if isinstance(schema, LinkedSchema) else schema.planned.domain


def breaks_count(rule: CountRule, number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Decide whether numbers of people break a rule.

    Args:
        rule: the rule.
        number: how many people of each household meet its conditions.

    Returns:
        Whether each household breaks it.
    """
    low, high = rule.limits
    broken: NDArray[np.bool_] = (number < low) | (number > high)
    return broken | (number % 2 == 1) if rule.even else broken


def place_name(attribute: str, place: int) -> str:
    """Name an attribute of a place: that of the first is the attribute's own.

    Args:
        attribute: the attribute of the first place.
        place: the place, counted from 1.

    Returns:
        The name.
    """
    return attribute if place == 1 else f"{attribute}@{place}"


def _renamed(one: Impossible, named: Any) -> Impossible:
    return Impossible(one.rule, tuple((named(name), codes) for name, codes in one.codes))


_KEYS = {key for kind in (LinkedSchema, LinkedTables, CountRule, GapRule, Roles) for key in kind.model_fields}
