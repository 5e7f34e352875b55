"""What every kind of column declares, and how its codes are numbered."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

OTHER = "OTHER"
"""How a decoded text column shows a value that was outside the declared ones."""


def whole_or_text(value: object) -> object:
    """The value, if a table can hold it as it is written; ValueError says how to write it otherwise."""
    if isinstance(value, bool):
        raise ValueError("write true, false, yes, no, on and off in quotes")
    if value is None:
        raise ValueError("null is not a value; declare nullable: true")
    if not isinstance(value, int | str):
        raise ValueError("a value is text or a whole number; put anything else in quotes")
    if value == "":
        raise ValueError("empty text cannot be told from a missing value; declare nullable: true")
    return one_line(value) if isinstance(value, str) else value


def one_line(text: str) -> str:
    """Control characters survive neither CSV nor YAML unharmed."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("line breaks and control characters are not allowed; remove them")
    return text


Value: TypeAlias = Annotated[int | str, BeforeValidator(whole_or_text)]


class Declaration(BaseModel):
    """A frozen piece of the schema file that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnBase(Declaration):
    """What every kind of column declares."""

    name: Annotated[str, Field(min_length=1), AfterValidator(one_line)]
    nullable: bool = Field(default=False, strict=True)
    unseen: Literal["refuse", "other", "clip"] = "refuse"
    description: str = ""
    reads: str | None = Field(
        default=None,
        min_length=1,
        description="the source's column it is derived from, where the source has none of its own name",
    )

    role: Literal["area", "group", "income"] | None = Field(
        default=None,
        description="what it is for scores that need to know: a place such as a city, one of two groups such as "
        "gender, or an income in numbers",
    )

    def origins(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which of a table's columns it is read from: its own if there is one, else those it is derived from."""
        return (self.name,) if self.name in names else self.derived_from or (self.name,)

    @property
    def derived_from(self) -> tuple[str, ...]:
        """The source's columns from which it is derived; none if it is read as it stands."""
        return () if self.reads is None else (self.reads,)

    @property
    @abstractmethod
    def declared(self) -> int:
        """How many codes stand for declared values or bins."""

    @property
    def other_code(self) -> int | None:
        """The code of values outside the declared ones, where the column has one."""
        return self._code_beyond("other")

    @property
    def null_code(self) -> int | None:
        """The code of a missing value, where the column has one."""
        return self._code_beyond("missing")

    @property
    def size(self) -> int:
        """How many codes the column has, all of them."""
        return self.declared + len(self._beyond())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every code."""
        return np.min_scalar_type(self.size - 1)

    @property
    def captions(self) -> tuple[str, ...]:
        """A short public text for every code, for reports and pictures."""
        return (*self._declared_captions(), *self._beyond())

    @property
    def groups(self) -> tuple[int, ...] | None:
        """The group of every code in the declared hierarchy, each code beyond its own; None without one."""
        declared = self._declared_groups()
        if declared is None:
            return None
        return (*declared, *range(max(declared) + 1, max(declared) + 1 + self.size - len(declared)))

    def _beyond(self) -> tuple[str, ...]:
        """What the codes after the declared ones stand for."""
        return ("other",) * (self.unseen == "other") + ("missing",) * self.nullable

    def _code_beyond(self, meaning: str) -> int | None:
        beyond = self._beyond()
        return self.declared + beyond.index(meaning) if meaning in beyond else None

    @abstractmethod
    def _declared_captions(self) -> tuple[str, ...]:
        """The captions of values or bins."""

    @abstractmethod
    def _declared_groups(self) -> tuple[int, ...] | None:
        """The groups of values or bins."""
