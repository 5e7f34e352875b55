"""What every kind of column declares and can do; a kind is a subclass in a file of its own.

A kind says how its declared values or bins are numbered and captioned, reads cells to codes (`_marks`), writes codes as
cells (`_cells`), and says which codes and which cells an item of a rule means (`_codes_of`, `_matches`). Everything
else calls the methods of this class. Arrow and pandas take a second to import, so methods that touch rows import them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictFloat,
    StrictInt,
    model_validator,
)

from synth_core.domain import Codes
from synth_core.errors import SchemaError, SourceError
from synth_core.names import one_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from synth_core.schema.columns.numbers import NumberBase
    from synth_core.schema.densities import Densities

OTHER = "OTHER"
"""How a decoded text column shows a value that was outside the declared ones."""

UNSEEN, MISSING = -1, -2
"""Marks of cells without a declared value or bin, in the place of their codes."""


def whole_or_text(value: object) -> object:
    """The value, if a table can hold it as it is written; ValueError says how to write it otherwise."""
    if isinstance(value, bool):
        raise ValueError("write true, false, yes, no, on and off in quotes")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None:
        raise ValueError("null is not a value; declare nullable: true")
    if not isinstance(value, int | str):
        raise ValueError("a value is text or a whole number; put anything else in quotes")
    if value == "":
        raise ValueError("empty text cannot be distinguished from a missing value; declare nullable: true")
    return one_line(value) if isinstance(value, str) else value


Value: TypeAlias = Annotated[int | str, BeforeValidator(whole_or_text)]
Words: TypeAlias = Annotated[str, AfterValidator(one_line)]
"""Text that is shown on terminals and pages: a label, or the name of a group or rule."""

TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""Words for truth values; a schema file is read as text."""


def read_truth(value: object) -> object:
    """The truth value that a word says; ValueError for another word."""
    if not isinstance(value, str):
        return value
    if value.lower() not in TRUTHS:
        raise ValueError("true or false is needed")
    return TRUTHS[value.lower()]


class Declaration(BaseModel):
    """A frozen piece of the schema file that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Range(Declaration):
    """Numbers from `min` to `max`: both included for integers, `max` excluded for reals (as in their bins).

    A real `max` at or above the column's last edge includes that edge, because the last bin does.
    """

    min: StrictInt | StrictFloat = -np.inf
    max: StrictInt | StrictFloat = np.inf

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.min == -np.inf and self.max == np.inf:
            raise ValueError("a range needs min or max")
        if not self.min <= self.max:
            raise ValueError("a range's min is above its max; exchange them")
        return self

    def __repr__(self) -> str:
        parts = [f"min: {self.min:g}"] * (self.min > -np.inf) + [f"max: {self.max:g}"] * (self.max < np.inf)
        return "{" + ", ".join(parts) + "}"


Item: TypeAlias = int | float | str | Range | None
"""What a rule may say that a column holds; None is a missing value."""


class ColumnBase(Declaration):
    """What every kind of column declares."""

    name: Annotated[str, Field(min_length=1), AfterValidator(one_line)]
    nullable: Annotated[bool, BeforeValidator(read_truth)] = Field(default=False, strict=True)
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

    unseen_remedy: ClassVar[str]
    """What a refusal says of a value that has no code."""

    _is_decoded: bool = PrivateAttr(default=False)
    """Whether it reads rows that were decoded by it, in which an empty cell may be OTHER."""

    @property
    def derived_from(self) -> tuple[str, ...]:
        """The source's columns from which it is derived; none if it is read as it stands."""
        return () if self.reads is None else (self.reads,)

    def origins(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which of a table's columns it is read from: its own if there is one, else those it is derived from."""
        return (self.name,) if self.name in names else self.derived_from or (self.name,)

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

    @cached_property
    def captions(self) -> tuple[str, ...]:
        """A short public text for every code, for reports and pictures: made once, since some ask code by code."""
        return (*self._declared_captions(), *self._beyond())

    def codes_alike(self, other: ColumnBase) -> bool:
        """Whether each code stands for the same in both columns; descriptions and hierarchies may differ."""
        same = type(self) is type(other) and self.name == other.name and self.captions == other.captions
        return same and (self.unseen, self.reads) == (other.unseen, other.reads)

    @property
    def groups(self) -> tuple[int, ...] | None:
        """The group of every code in the declared hierarchy, each code beyond its own; None without one."""
        declared = self._declared_groups()
        if declared is None:
            return None
        return (*declared, *range(max(declared) + 1, max(declared) + 1 + self.size - len(declared)))

    @property
    def levels(self) -> NDArray[np.float64] | None:
        """The number in the middle of every code's bin, NaN for codes that are no number; None without bins."""
        return None

    @property
    def private_bins(self) -> NumberBase | None:
        """The column itself if the edges of its bins are measured privately, bought or not."""
        return None

    @property
    def numbers(self) -> NumberBase | None:
        """The column itself if it holds numbers in bins."""
        return None

    @property
    def listed(self) -> tuple[Value, ...] | None:
        """Its values, if they are declared one by one."""
        return None

    @property
    def shows_other(self) -> bool:
        """Whether OTHER is written as such; otherwise it has no decoded form but a missing value."""
        return False

    @property
    def as_decoded(self) -> Self:
        """The column as its own decoded cells are read: where OTHER has no other form, an empty cell is OTHER."""
        copy = self.model_copy()
        copy._is_decoded = True  # noqa: SLF001 - its own
        return copy

    @property
    def empty_code(self) -> int | None:
        """The code of an empty cell; None where there must be none."""
        if self.null_code is None and self._is_decoded and self.has_missing:
            return self.other_code
        return self.null_code

    @property
    def has_missing(self) -> bool:
        """Whether a decoded column may hold nulls."""
        return self.nullable or (self.unseen == "other" and not self.shows_other)

    @property
    def reads_times(self) -> bool:
        """Whether dates and times may be read, as their text."""
        return False

    def reads_numbers(self, names: Iterable[str]) -> bool:
        """Whether cells of a table with these columns are read as numbers, so that a truth value is 1 or 0."""
        return True

    def looks_up(self, names: Iterable[str]) -> bool:
        """Whether each distinct cell is looked up once, so that text had best come as a dictionary."""
        return False

    def check_type(self, kind: pa.DataType, *, source: str) -> None:
        """Refuse cells of a type that has no reading of each cell by itself.

        Args:
            kind: the Arrow type of the source's column.
            source: the source's name, for the refusal.

        Raises:
            SourceError: if the column cannot be read from such cells.
        """
        from synth_core.schema.cells import is_readable

        if not is_readable(kind, times=self.reads_times):
            self.refuse(source, "has a type that is neither text nor numbers; convert it in the source")

    def encode(self, cells: Sequence[pa.ChunkedArray], *, names: Iterable[str], source: str) -> Codes:
        """Returns the codes of cells, each a function of its own record alone.

        Args:
            cells: the columns that `origins` names, in its order.
            names: all columns of the table they are from.
            source: the source's name, for the refusal.

        Raises:
            SourceError: if a cell has no code; names the column and the remedy, never the value.
        """
        parts = [np.empty(0, dtype=self.dtype)]
        for chunk in cells[0].chunks:
            self.check_type(chunk.type, source=source)
            parts.append(self._finished(self._marks(chunk, source), source))
        return np.concatenate(parts)

    def decode(self, codes: Codes, rng: np.random.Generator, densities: Densities | None = None) -> pa.Array:
        """Returns the cells that the codes stand for; `rng` draws where a code stands for many, as `densities` say.

        Raises:
            SchemaError: if there is no such code.
        """
        self.check_codes(codes)
        return self._cells(codes, rng) if densities is None else self._drawn_cells(codes, rng, densities)

    def check_codes(self, codes: Codes) -> None:
        """Raises SchemaError if there is no such code."""
        if len(codes) and not 0 <= codes.min() <= codes.max() < self.size:
            raise SchemaError(f"column {self.name!r}: a code is outside 0 … {self.size - 1}")

    def covered_codes(self, items: Iterable[Item], *, holds: bool = True) -> NDArray[np.bool_]:
        """Which codes are one of the items, or none of them; ValueError names what does not fit the column."""
        covered = np.zeros(self.size, dtype=np.bool_)
        for item in items:
            covered[self._missing_codes() if item is None else self._codes_of(item)] = True
        return covered if holds else ~covered

    def matching_rows(self, cells: pd.Series[Any], items: Collection[Item]) -> NDArray[np.bool_]:
        """Which rows of a decoded column are one of the items."""
        matching = self._matches(cells, [item for item in items if item is not None])
        return matching | cells.isna().to_numpy(dtype=np.bool_) if None in items else matching

    def numbers_in(self, cells: pd.Series[Any]) -> NDArray[np.float64]:
        """Returns the numbers of a decoded column, NaN where it holds none."""
        return np.full(len(cells), np.nan)

    def refuse(self, source: str, rule: str) -> NoReturn:
        """Say what is wrong with the column in a source, without a value or how many rows had it."""
        raise SourceError(f"{source}: column {self.name!r} {rule}")

    @abstractmethod
    def _declared_captions(self) -> tuple[str, ...]:
        """The captions of values or bins."""

    @abstractmethod
    def _declared_groups(self) -> tuple[int, ...] | None:
        """The groups of values or bins."""

    @abstractmethod
    def _marks(self, cells: pa.Array, source: str) -> NDArray[Any]:
        """The codes of cells, with UNSEEN and MISSING as int64; in the column's own dtype where there are none."""

    @abstractmethod
    def _cells(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """The cells of codes that are inside the domain."""

    def _drawn_cells(self, codes: Codes, rng: np.random.Generator, densities: Densities) -> pa.Array:
        """The same, where it is known where in their bins numbers lie."""
        return self._cells(codes, rng)

    @abstractmethod
    def _codes_of(self, item: int | float | str | Range) -> Any:
        """The codes that an item of a rule means, as an index; ValueError if it does not fit the column."""

    @abstractmethod
    def _matches(self, cells: pd.Series[Any], items: list[int | float | str | Range]) -> NDArray[np.bool_]:
        """Which decoded cells are one of the items."""

    def _beyond(self) -> tuple[str, ...]:
        """What the codes after the declared ones stand for."""
        return ("other",) * (self.unseen == "other") + ("missing",) * self.nullable

    def _code_beyond(self, meaning: str) -> int | None:
        beyond = self._beyond()
        return self.declared + beyond.index(meaning) if meaning in beyond else None

    def _missing_codes(self) -> list[int]:
        codes = [self.null_code] if self.shows_other else [self.null_code, self.other_code]
        found = [code for code in codes if code is not None]
        if not found:
            raise ValueError("null never occurs in this column; remove it or declare nullable: true")
        return found

    def _finished(self, marks: NDArray[Any], source: str) -> Codes:
        """The codes, with those of missing and unseen cells in the place of their marks."""
        if marks.dtype == self.dtype:
            return marks
        missing, unseen = marks == MISSING, marks == UNSEEN
        if missing.any():
            if self.empty_code is None:
                self.refuse(source, "has a missing value; declare nullable: true or fill it in the source")
            marks[missing] = self.empty_code
        if unseen.any():
            if self.other_code is None:
                self.refuse(source, self.unseen_remedy)
            marks[unseen] = self.other_code
        return marks.astype(self.dtype)
