"""Columns with a list of values."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from synth_core.domain import Codes
from synth_core.schema.columns.base import MISSING, OTHER, UNSEEN, ColumnBase, Declaration, Range, Value, Words

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

MAX_VALUES = 100_000
"""Upper limit of the declared values of a column."""


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
    comparator: Literal["<", "<=", "==", "!=", ">=", ">"] = Field(alias="is", description="how it must compare")
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
    """A column with a list of values, all text or all whole numbers; a mapping gives each its label.

    `hierarchy` maps a group's name to its values; the groups partition the values. Where `compare` derives the column,
    a cell with another of its values than the two results keeps it ("not in universe" stays so), recoded where `recode`
    names it.
    """

    unseen_remedy: ClassVar[str] = (
        "has a value outside the declared values (spaces around a value and its case count); declare it, or use "
        "unseen: other"
    )

    kind: Literal["categorical"] = "categorical"
    unseen: Literal["refuse", "other"] = "refuse"
    values: tuple[Value, ...] = Field(min_length=1, max_length=MAX_VALUES)
    labels: dict[Value, Words] = Field(default={})
    recode: dict[Value, Value] = Field(
        default={},
        description="values of the source that are not declared, and the declared value each becomes",
    )
    compare: Comparison | None = Field(
        default=None,
        description="derives it from a comparison of numbers, where the source has none of its own name",
    )
    hierarchy: dict[Words, tuple[Value, ...]] | None = None

    @property
    def derived_from(self) -> tuple[str, ...]:
        """The source's columns from which it is derived; none if it is read as it stands."""
        return super().derived_from if self.compare is None else self.compare.columns

    @property
    def listed(self) -> tuple[Value, ...]:
        """Its values."""
        return self.values

    @property
    def declared(self) -> int:
        """How many values are declared."""
        return len(self.values)

    @cached_property
    def code_of(self) -> dict[int | str, int]:
        """The code of every value, declared or recoded."""
        codes: dict[int | str, int] = {value: code for code, value in enumerate(self.values)}
        return codes | {value: codes[target] for value, target in self.recode.items()}

    @property
    def kept(self) -> dict[int | str, int]:
        """The values that stay as they are where a comparison derives the column, with their codes."""
        results = () if self.compare is None else (self.compare.then, self.compare.otherwise)
        return {value: code for value, code in self.code_of.items() if value not in results}

    @property
    def is_text(self) -> bool:
        """Whether the values are text rather than whole numbers."""
        return isinstance(self.values[0], str)

    @property
    def shows_other(self) -> bool:
        """Whether OTHER is written as such: it has no whole number to stand for it."""
        return self.is_text

    @property
    def reads_times(self) -> bool:
        """Whether dates and times may be read, as their text."""
        return self.is_text and self.compare is None

    def reads_numbers(self, names: Iterable[str]) -> bool:
        """Whether cells of a table with these columns are read as numbers: whole values, and what is compared."""
        return not self.is_text or self._comparison(names) is not None

    def looks_up(self, names: Iterable[str]) -> bool:
        """Whether each distinct cell is looked up once, rather than compared."""
        return self._comparison(names) is None

    def encode(self, cells: Sequence[pa.ChunkedArray], *, names: Iterable[str], source: str) -> Codes:
        """Returns the codes of cells of the column, or of those that are compared to derive it; see ColumnBase."""
        compare = self._comparison(names)
        if compare is None:
            return super().encode(cells, names=names, source=source)
        return self._finished(self._compared(cells, compare, source), source)

    def _comparison(self, names: Iterable[str]) -> Comparison | None:
        """The comparison that derives the column from a table with these columns; None where it is read."""
        return None if self.name in names else self.compare

    def _compared(self, cells: Sequence[pa.ChunkedArray], compare: Comparison, source: str) -> NDArray[np.int64]:
        """What the comparison gives for cells of its left column, and of its right one if it has one.

        What is no number but another value of the column stays what it is, on the left before the right; then what is
        missing on either side is missing.
        """
        from synth_core.schema.cells import read_numbers

        sides = []
        for one in cells:
            for chunk in one.chunks:
                self.check_type(chunk.type, source=source)
            sides.append(read_numbers(one.combine_chunks(), self.kept.items(), self, source))
        holds = compare.holds(sides[0][0], compare.right if len(sides) == 1 else sides[1][0])
        marks = np.where(holds, self.code_of[compare.then], self.code_of[compare.otherwise])
        for _, found in sides:
            marks[found == MISSING] = MISSING
        for _, found in reversed(sides):
            marks = np.where(found >= 0, found, marks)
        return marks

    def _marks(self, cells: pa.Array, source: str) -> NDArray[Any]:
        """Each distinct value is looked up once.

        A dictionary may list values that no row has, so only marks that a row carries may refuse.
        """
        from synth_core.schema.cells import as_text, as_whole, distinct_cells, is_missing

        coded = distinct_cells(cells)
        read = as_text if self.is_text else as_whole
        code_of = {read(value): code for value, code in self.code_of.items()}
        marks = [MISSING if is_missing(v) else code_of.get(read(v), UNSEEN) for v in coded.dictionary.to_pylist()]
        finished = coded.indices.null_count == 0 and min(marks, default=0) >= 0
        lookup = np.array([*marks, 0 if finished else MISSING], dtype=self.dtype if finished else np.int64)
        filled = coded.indices.fill_null(len(marks)) if coded.indices.null_count else coded.indices
        indices: NDArray[np.int32] = filled.to_numpy(zero_copy_only=False)
        return lookup[indices]

    def _cells(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Text as an Arrow dictionary, whole numbers as int64."""
        import pyarrow as pa

        if not self.is_text:
            empty = codes >= self.declared if self.has_missing else None
            values = np.array([*self.values, *[0] * (self.size - self.declared)], dtype=np.int64)
            return pa.array(values[codes], mask=empty)
        words = [*self.values, *([OTHER] if self.unseen == "other" else [])]
        signed = np.promote_types(np.min_scalar_type(-len(words)), np.int8)
        empty = codes == self.null_code if self.nullable else None
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(signed), mask=empty), pa.array(words, pa.string()))

    def _codes_of(self, item: int | float | str | Range) -> int:
        if item == OTHER and self.is_text and self.other_code is not None:
            return self.other_code
        known: Mapping[Any, int] = self.code_of  # 1.0 is the whole number 1
        code = None if isinstance(item, Range) else known.get(item)
        if code is None or self.values[code] != item:  # a recoded value is no declared one
            raise ValueError(f"{item!r} is not among the column's values; use declared values")
        return code

    def _matches(self, cells: pd.Series[Any], items: list[int | float | str | Range]) -> NDArray[np.bool_]:
        return cells.isin(items).to_numpy(dtype=np.bool_)

    def _declared_captions(self) -> tuple[str, ...]:
        return tuple(self.labels.get(value, str(value)) for value in self.values)

    def _declared_groups(self) -> tuple[int, ...] | None:
        if self.hierarchy is None:
            return None
        held = [members for members in self.hierarchy.values() if members]
        of = {value: group for group, members in enumerate(held) for value in members}
        return tuple(of[value] for value in self.values)

    @model_validator(mode="before")
    @classmethod
    def _label_values(cls, raw: Any) -> Any:
        """Take `values: {1: Male, 2: Female}` as values with labels."""
        if not isinstance(raw, dict) or not isinstance(raw.get("values"), dict):
            return raw
        if raw.get("labels"):
            raise ValueError("values: they have labels already; remove the key labels, or write values as a list")
        named = raw["values"]
        labels = {value: label if isinstance(label, str) else str(label) for value, label in named.items() if label}
        return {**raw, "values": list(named), "labels": labels}

    @model_validator(mode="after")
    def _check(self) -> Categorical:
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("values: text and whole numbers are mixed; put all of them in quotes")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"values: {_first_twice(self.values)!r} is declared twice; name each value once")
        if self.unseen == "other" and OTHER in self.values:
            raise ValueError(f"values: {OTHER!r} is the code of unseen values; remove it or use unseen: refuse")
        self._check_declared("labels", self.labels, "add it there or remove its label")
        self._check_recode()
        if self.compare is not None:
            self._check_comparison(self.compare)
        if self.hierarchy is not None:
            self._check_partition([value for group in self.hierarchy.values() for value in group])
        return self

    def _check_declared(self, key: str, values: Iterable[int | str], remedy: str) -> None:
        declared = set(self.values)
        for value in values:
            if value not in declared:
                raise ValueError(f"{key}: {value!r} is not among the values; {remedy}")

    def _check_recode(self) -> None:
        declared = set(self.values) if self.recode else set()
        for value in self.recode:
            if type(value) is not type(self.values[0]):
                raise ValueError(f"recode: {value!r} is not written as the values are; text or whole numbers, as they")
            if value in declared:
                raise ValueError(f"recode: {value!r} is among the values; only undeclared ones become others")
        self._check_declared("recode", self.recode.values(), "add it there")

    def _check_comparison(self, compare: Comparison) -> None:
        if self.reads is not None:
            raise ValueError("compare: it names what is read itself; remove reads")
        if self.name in compare.columns:
            raise ValueError("compare: a column is not compared to derive itself; give this one another name")
        self._check_declared("compare", (compare.then, compare.otherwise), "add it there")
        if compare.then == compare.otherwise:
            raise ValueError("compare: then and otherwise are the same; the comparison would say nothing")

    def _check_partition(self, grouped: list[int | str]) -> None:
        self._check_declared("hierarchy", grouped, "remove it")
        in_groups = set(grouped)
        if len(in_groups) < len(grouped):
            raise ValueError(f"hierarchy: {_first_twice(grouped)!r} is in two groups; keep it in one")
        for value in self.values:
            if value not in in_groups:
                raise ValueError(f"hierarchy: {value!r} is in no group; every value needs one")


def _first_twice(values: Iterable[int | str]) -> int | str:
    seen: set[int | str] = set()
    for value in values:
        if value in seen:
            break
        seen.add(value)
    return value
