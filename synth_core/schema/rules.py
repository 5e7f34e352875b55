"""Edit rules: combinations that cannot occur, declared in public and decided exactly on codes.

A rule reads "when these columns hold these, those columns never hold those" (or "hold only those"), or says which
value of one column goes with which values of another. Its conditions may not cut through a bin, so each is a set of
codes: a rule is a set of empty cells for a model, a mask over rows for a check.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, StrictFloat, StrictInt, StrictStr, Tag, model_validator

from synth_core.schema.columns.base import ColumnBase, Declaration, Item, Range, Words
from synth_core.schema.value_rules import ValueRule


def _no_boolean(item: object) -> object:
    if isinstance(item, bool):
        raise ValueError("write true, false, yes, no, on and off in quotes")
    return item


def _as_items(condition: object) -> object:
    return list(map(_no_boolean, condition if isinstance(condition, list | tuple) else [condition]))


def _item_form(item: object) -> str:
    return "range" if isinstance(item, dict | Range) else "value"


TaggedItem: TypeAlias = Annotated[
    Annotated[StrictInt | StrictFloat | StrictStr | None, Tag("value")] | Annotated[Range, Tag("range")],
    Discriminator(_item_form),
]
Value: TypeAlias = Annotated[StrictInt | StrictFloat | StrictStr | None, BeforeValidator(_no_boolean)]
Condition: TypeAlias = Annotated[tuple[TaggedItem, ...], BeforeValidator(_as_items), Field(min_length=1)]
Conditions: TypeAlias = Annotated[dict[str, Condition], Field(min_length=1)]


class Clause(NamedTuple):
    """A condition on one column: it holds one of the items, or (not `holds`) none of them."""

    column: str
    items: tuple[Item, ...]
    holds: bool = True


Combination: TypeAlias = tuple[Clause, ...]
"""Conditions that no row meets all of."""


class Rule(Declaration):
    """What cannot be when every condition of `when` is met: all of `never` together, or anything but each of `only`.

    A condition lists alternatives: declared values, `null`, "OTHER" for unseen text, and for numbers ranges and what is
    declared as `not_in_universe`, which no range contains.
    For numbers and whole-number values `null` also covers unseen values, which have no other decoded form.
    """

    name: Words = Field(min_length=1)
    when: Conditions
    never: Conditions | None = None
    only: Conditions | None = None

    @model_validator(mode="after")
    def _check(self) -> Rule:
        if (self.never is None) == (self.only is None):
            raise ValueError("a rule needs either never or only")
        return self

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The combinations that cannot occur."""
        when = tuple(Clause(column, items) for column, items in self.when.items())
        if self.never is not None:
            return ((*when, *(Clause(column, items) for column, items in self.never.items())),)
        return tuple((*when, Clause(column, items, False)) for column, items in (self.only or {}).items())


class Dependency(Declaration):
    """One column decides another: `by` lists, for each value of `decides`, what `column` holds with it.

    Everything that `column` may hold is listed once, so that its value leaves no choice.
    """

    name: Words = Field(min_length=1)
    column: str
    decides: str
    by: Annotated[dict[Value, Condition], Field(min_length=1)]

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The combinations that cannot occur."""
        return tuple(
            (Clause(self.column, items), Clause(self.decides, (value,), False)) for value, items in self.by.items()
        )


def _rule_form(raw: object) -> str:
    if isinstance(raw, dict):
        return "comparison" if "compare" in raw else "dependency" if "decides" in raw else "rule"
    return "comparison" if isinstance(raw, ValueRule) else "dependency" if isinstance(raw, Dependency) else "rule"


AnyRule: TypeAlias = Annotated[
    Annotated[Rule, Tag("rule")] | Annotated[Dependency, Tag("dependency")] | Annotated[ValueRule, Tag("comparison")],
    Discriminator(_rule_form),
]


def columns_of(rule: Rule | Dependency) -> tuple[str, ...]:
    """The columns the rule speaks about, each once."""
    return tuple(dict.fromkeys(part.column for parts in rule.combinations for part in parts))


def check_complete(rule: Dependency, column: ColumnBase) -> None:
    """ValueError if something that the deciding column may hold is listed twice or not at all."""
    listed = np.sum([column.covered_codes(items) for items in rule.by.values()], axis=0)
    for code, caption in enumerate(column.captions):
        if listed[code] != 1:
            raise ValueError(f"{caption} is listed {'twice' if listed[code] else 'nowhere'}; list it once")
