"""Columns with a list of values."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from synth_core.columns.base import OTHER, ColumnBase, Value


class Categorical(ColumnBase):
    """A column with a list of values, all text or all whole numbers.

    `hierarchy` maps a group's name to its values; the groups partition the values.
    """

    kind: Literal["categorical"] = "categorical"
    unseen: Literal["refuse", "other"] = "refuse"
    values: tuple[Value, ...] = Field(min_length=1)
    labels: dict[Value, str] = Field(default={})
    recode: dict[Value, Value] = Field(
        default={},
        description="values of the source that are not declared, and the declared value each becomes",
    )
    hierarchy: dict[str, tuple[Value, ...]] | None = None

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
