"""Columns with a list of values."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from synth_core.schema.columns.base import OTHER, ColumnBase, Declaration, Value


def _name_or_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        raise ValueError("a column's name or a number is needed")
    if not isinstance(value, str) and not abs(value) < float("inf"):
        raise ValueError("the number must be finite")
    return value


_COMPARATORS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


class Comparison(Declaration):
    """`then` in rows in which a number of the source compares so with another, `otherwise` in the rest."""

    left: str = Field(min_length=1, description="the source's column that is compared")
    comparator: Literal["<", "<=", "==", "!=", ">=", ">"] = Field(
        alias="is", description="how it must compare"
    )
    right: Annotated[int | float | str, BeforeValidator(_name_or_number)] = Field(
        description="what it is compared with: a number, or another column of the source"
    )
    then: Value = Field(description="the column's value in rows in which that holds")
    otherwise: Value = Field(description="its value in rows in which it does not")

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that are compared."""
        return (self.left, self.right) if isinstance(self.right, str) else (self.left,)

    def holds(self, left: Any, right: Any) -> Any:
        """Whether these numbers, or arrays of them, compare as declared."""
        return _COMPARATORS[self.comparator](left, right)


class Categorical(ColumnBase):
    """A column with a list of values, all text or all whole numbers.

    `hierarchy` maps a group's name to its values; the groups partition the values. Where `compare` derives the column,
    a cell with another of its values than the two results keeps it ("not in universe" stays so), recoded where `recode`
    names it.
    """

    kind: Literal["categorical"] = "categorical"
    unseen: Literal["refuse", "other"] = "refuse"
    values: tuple[Value, ...] = Field(min_length=1)
    labels: dict[Value, str] = Field(default={})
    recode: dict[Value, Value] = Field(
        default={},
        description="values of the source that are not declared, and the declared value each becomes",
    )
    compare: Comparison | None = Field(
        default=None,
        description="derives it from a comparison of numbers, where the source has none of its own name",
    )
    hierarchy: dict[str, tuple[Value, ...]] | None = None

    @property
    def derived_from(self) -> tuple[str, ...]:
        """The source's columns from which it is derived; none if it is read as it stands."""
        return super().derived_from if self.compare is None else self.compare.columns

    @property
    def declared(self) -> int:
        """How many values are declared."""
        return len(self.values)

    @property
    def code_of(self) -> dict[int | str, int]:
        """The code of every value, declared or recoded."""
        codes: dict[int | str, int] = {value: code for code, value in enumerate(self.values)}
        return codes | {value: codes[target] for value, target in self.recode.items()}

    @property
    def kept(self) -> dict[int | str, int]:
        """The values that stay as they are where a comparison derives the column, with their codes."""
        results = () if self.compare is None else (self.compare.then, self.compare.otherwise)
        return {value: code for value, code in self.code_of.items() if value not in results}

    def comparison(self, names: Iterable[str]) -> Comparison | None:
        """The comparison that derives the column from a table with these columns; None where it is read."""
        return None if self.name in names else self.compare

    @property
    def is_text(self) -> bool:
        """Whether the values are text rather than whole numbers."""
        return isinstance(self.values[0], str)

    @property
    def has_missing(self) -> bool:
        """Whether a decoded column may hold nulls: OTHER has no whole number to stand for it."""
        return self.nullable or (self.unseen == "other" and not self.is_text)

    def _declared_captions(self) -> tuple[str, ...]:
        return tuple(self.labels.get(value, str(value)) for value in self.values)

    def _declared_groups(self) -> tuple[int, ...] | None:
        if self.hierarchy is None:
            return None
        held = [members for members in self.hierarchy.values() if members]
        of = {value: group for group, members in enumerate(held) for value in members}
        return tuple(of[value] for value in self.values)

    @model_validator(mode="after")
    def _check(self) -> Categorical:
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("values: text and whole numbers are mixed; put all of them in quotes")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"values: {_first_twice(self.values)!r} is declared twice; name each value once")
        if self.unseen == "other" and OTHER in self.values:
            raise ValueError(
                f"values: {OTHER!r} is the code of unseen values; remove it or use unseen: refuse"
            )
        for value in self.labels:
            if value not in self.values:
                raise ValueError(
                    f"labels: {value!r} is not among the values; add it there or remove its label"
                )
        self._check_recode()
        if self.compare is not None:
            self._check_comparison(self.compare)
        if self.hierarchy is not None:
            self._check_partition([value for group in self.hierarchy.values() for value in group])
        return self

    def _check_recode(self) -> None:
        for value, target in self.recode.items():
            if type(value) is not type(self.values[0]):
                raise ValueError(
                    f"recode: {value!r} is not written as the values are; text or whole numbers, as they"
                )
            if value in self.values:
                raise ValueError(f"recode: {value!r} is among the values; only undeclared ones become others")
            if target not in self.values:
                raise ValueError(f"recode: {target!r} is not among the values; add it there")

    def _check_comparison(self, compare: Comparison) -> None:
        if self.reads is not None:
            raise ValueError("compare: it names what is read itself; remove reads")
        if self.name in compare.columns:
            raise ValueError("compare: a column is not compared to derive itself; give this one another name")
        for result in (compare.then, compare.otherwise):
            if result not in self.values:
                raise ValueError(f"compare: {result!r} is not among the values; add it there")
        if compare.then == compare.otherwise:
            raise ValueError("compare: then and otherwise are the same; the comparison would say nothing")

    def _check_partition(self, grouped: list[int | str]) -> None:
        for value in grouped:
            if value not in self.values:
                raise ValueError(f"hierarchy: {value!r} is not among the values; remove it")
        if len(set(grouped)) < len(grouped):
            raise ValueError(f"hierarchy: {_first_twice(grouped)!r} is in two groups; keep it in one")
        for value in self.values:
            if value not in grouped:
                raise ValueError(f"hierarchy: {value!r} is in no group; every value needs one")


def _first_twice(values: tuple[int | str, ...] | list[int | str]) -> int | str:
    return next(value for i, value in enumerate(values) if value in values[:i])
