"""What one column of a table may hold, and which code stands for what.

Codes of a column run 0 … size-1: first the declared values or bins in their declared order, then OTHER
(where `unseen: other`), then NULL (where `nullable: true`). All of it is declared in public, never read from
the data.
"""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

OTHER = "OTHER"
"""How a decoded text column shows a value that was outside the declared ones."""

WHOLE_LIMIT = 2**52
"""Integers up to here, and the widths of bins between them, are exact as float64."""

REAL_LIMIT = 1e300
"""Keeps the width of every bin finite."""

MOST_BINS = 1_000_000


def _whole_or_text(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("write true, false, yes, no, on and off in quotes")
    if value is None:
        raise ValueError("null is not a value; declare nullable: true")
    if not isinstance(value, int | str):
        raise ValueError("a value is text or a whole number; put anything else in quotes")
    if value == "":
        raise ValueError("empty text cannot be told from a missing value; declare nullable: true")
    return _one_line(value) if isinstance(value, str) else value


def _one_line(text: str) -> str:
    """Control characters survive neither CSV nor YAML unharmed."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("line breaks and control characters are not allowed; remove them")
    return text


Value: TypeAlias = Annotated[int | str, BeforeValidator(_whole_or_text)]
Whole: TypeAlias = Annotated[int, Field(strict=True, ge=-WHOLE_LIMIT, le=WHOLE_LIMIT)]
Finite: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-REAL_LIMIT, le=REAL_LIMIT)]


def _bins_form(value: object) -> str:
    return "edges" if isinstance(value, list | tuple) else "count"


Count: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MOST_BINS), Tag("count")]
WholeBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Whole, ...], Tag("edges")],
    Discriminator(_bins_form),
]
FiniteBins: TypeAlias = Annotated[
    Count | Annotated[tuple[Finite, ...], Tag("edges")],
    Discriminator(_bins_form),
]


class Declaration(BaseModel):
    """A frozen piece of the schema file that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnBase(Declaration):
    """What every kind of column declares."""

    name: Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
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

    def origin(self, names: Iterable[str]) -> str:
        """Which of a table's columns it is read from."""
        return self.name if self.reads is None or self.name in names else self.reads

    @property
    @abstractmethod
    def declared(self) -> int:
        """How many codes stand for declared values or bins."""

    @property
    def other_code(self) -> int | None:
        """The code of values outside the declared ones, where the column has one."""
        return self.declared if self.unseen == "other" else None

    @property
    def null_code(self) -> int | None:
        """The code of a missing value, where the column has one."""
        return self.declared + (self.unseen == "other") if self.nullable else None

    @property
    def size(self) -> int:
        """How many codes the column has, OTHER and NULL included."""
        return self.declared + (self.unseen == "other") + self.nullable

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every code."""
        return np.min_scalar_type(self.size - 1)

    @property
    def captions(self) -> tuple[str, ...]:
        """A short public text for every code, for reports and pictures."""
        return (
            *self._declared_captions(),
            *(["other"] if self.unseen == "other" else []),
            *(["missing"] if self.nullable else []),
        )

    @property
    def groups(self) -> tuple[int, ...] | None:
        """The group of every code in the declared hierarchy, OTHER and NULL each its own; None without one."""
        declared = self._declared_groups()
        if declared is None:
            return None
        return (*declared, *range(max(declared) + 1, max(declared) + 1 + self.size - len(declared)))

    @abstractmethod
    def _declared_captions(self) -> tuple[str, ...]:
        """The captions of values or bins."""

    @abstractmethod
    def _declared_groups(self) -> tuple[int, ...] | None:
        """The groups of values or bins."""


class Categorical(ColumnBase):
    """A column with a list of values, all text or all whole numbers.

    `hierarchy` maps a group's name to its values; the groups partition the values.
    """

    kind: Literal["categorical"] = "categorical"
    unseen: Literal["refuse", "other"] = "refuse"
    values: tuple[Value, ...] = Field(min_length=1)
    labels: dict[Value, str] = {}
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
        for value, target in self.recode.items():
            if type(value) is not type(self.values[0]):
                raise ValueError(
                    f"recode: {value!r} is not written as the values are; text or whole numbers, as they"
                )
            if value in self.values:
                raise ValueError(f"recode: {value!r} is among the values; only undeclared ones become others")
            if target not in self.values:
                raise ValueError(f"recode: {target!r} is not among the values; add it there")
        if self.hierarchy is not None:
            self._check_partition([value for group in self.hierarchy.values() for value in group])
        return self

    def _check_partition(self, grouped: list[int | str]) -> None:
        for value in grouped:
            if value not in self.values:
                raise ValueError(f"hierarchy: {value!r} is not among the values; remove it")
        if len(set(grouped)) < len(grouped):
            raise ValueError(f"hierarchy: {_first_twice(grouped)!r} is in two groups; keep it in one")
        for value in self.values:
            if value not in grouped:
                raise ValueError(f"hierarchy: {value!r} is in no group; every value needs one")


class NumberBase(ColumnBase):
    """A column of numbers cut into bins.

    Either `bins` lists the edges, or `bounds` and a number of equal `bins` give them. `unseen: clip` moves a
    number outside the edges into the nearest bin. `hierarchy` lists coarser edges, a part of the fine ones
    with the same first and last.
    """

    bounds: tuple[Any, Any] | None = None
    bins: Any
    hierarchy: tuple[Any, ...] | None = None

    @cached_property
    def edges(self) -> tuple[Any, ...]:
        """The edges of the bins, one more than there are bins."""
        if isinstance(self.bins, tuple) or self.bounds is None:
            return tuple(self.bins)
        return self._equal_edges(*self.bounds, count=self.bins)

    @property
    def declared(self) -> int:
        """How many bins are declared."""
        return len(self.edges) - 1

    @property
    def has_missing(self) -> bool:
        """Whether a decoded column may hold nulls: OTHER has no number to stand for it."""
        return self.nullable or self.unseen == "other"

    def _declared_groups(self) -> tuple[int, ...] | None:
        if self.hierarchy is None:
            return None
        return tuple(bisect_right(self.hierarchy, low) - 1 for low in self.edges[:-1])

    @abstractmethod
    def _equal_edges(self, low: Any, high: Any, *, count: int) -> tuple[Any, ...]:
        """The edges of `count` bins of equal width."""

    @model_validator(mode="after")
    def _check(self) -> NumberBase:
        if isinstance(self.bins, tuple) and self.bounds is not None:
            raise ValueError(
                "bounds: bins already lists the edges; give bounds with a number of bins, or edges alone"
            )
        if not isinstance(self.bins, tuple) and self.bounds is None:
            raise ValueError("bins: a number of bins needs bounds: [low, high]; add them or list the edges")
        if len(self.edges) < 2:
            raise ValueError("bins: at least two edges are needed")
        if any(low >= high for low, high in pairwise(self.edges)):
            key = (
                "bins: edges must increase"
                if self.bounds is None
                else "bounds: there is no room for so many bins"
            )
            raise ValueError(f"{key}; each bin needs a width above zero")
        if self.hierarchy is not None:
            self._check_coarser(self.hierarchy)
        return self

    def _check_coarser(self, coarse: tuple[Any, ...]) -> None:
        if any(low >= high for low, high in pairwise(coarse)):
            raise ValueError("hierarchy: edges must increase")
        if not set(coarse) <= set(self.edges):
            raise ValueError("hierarchy: every coarser edge must be an edge of the bins")
        if len(coarse) < 2 or (coarse[0], coarse[-1]) != (self.edges[0], self.edges[-1]):
            raise ValueError("hierarchy: the coarser edges must begin and end where the bins do")


class Integer(NumberBase):
    """Whole numbers: bin i holds e_i … e_{i+1}-1, also the last; `bounds` are the least and greatest value.

    So `bins: [0, 18, 65, 100]` holds the values 0–17, 18–64 and 65–99, and `bounds: [0, 99]` with `bins: 10`
    the values 0–9, 10–19, … 90–99. Where the number of values is no multiple of `bins`, widths differ by one.
    """

    kind: Literal["integer"] = "integer"
    bounds: tuple[Whole, Whole] | None = None
    bins: WholeBins
    hierarchy: tuple[Whole, ...] | None = None

    def _equal_edges(self, low: int, high: int, *, count: int) -> tuple[int, ...]:
        return tuple(low + i * (high + 1 - low) // count for i in range(count + 1))

    def _declared_captions(self) -> tuple[str, ...]:
        return tuple(str(a) if b - a == 1 else f"{a}–{b - 1}" for a, b in pairwise(self.edges))


class Real(NumberBase):
    """Real numbers: bin i is [e_i, e_{i+1}), the last one [e_{k-1}, e_k]; `bounds` are the outer edges."""

    kind: Literal["real"] = "real"
    bounds: tuple[Finite, Finite] | None = None
    bins: FiniteBins
    hierarchy: tuple[Finite, ...] | None = None

    def _equal_edges(self, low: float, high: float, *, count: int) -> tuple[float, ...]:
        return (*(low + (high - low) * (i / count) for i in range(count)), high)

    def _declared_captions(self) -> tuple[str, ...]:
        *inner, last = pairwise(self.edges)
        return (*(f"[{a:g}, {b:g})" for a, b in inner), f"[{last[0]:g}, {last[1]:g}]")


Column: TypeAlias = Annotated[Categorical | Integer | Real, Field(discriminator="kind")]


def _first_twice(values: tuple[int | str, ...] | list[int | str]) -> int | str:
    return next(value for i, value in enumerate(values) if value in values[:i])
