"""Columns that are attached to decoded rows: public functions of published columns, exact, measured nowhere and free.

A lookup has a value for each value of a column of values; a computed column is a comparison (1 or 0) or a sum of
columns of numbers. Neither is read from the source, modelled or asked about. Where a column that it needs holds
nothing, neither does it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, StrictFloat, StrictInt, field_validator, model_validator

from synth_core.arrays import Floats
from synth_core.documents import REAL, WHOLE, read_document
from synth_core.errors import SchemaError
from synth_core.names import one_line, suggest
from synth_core.schema.columns.base import Declaration, Value
from synth_core.schema.columns.categorical import MAX_VALUES
from synth_core.schema.value_rules import Expression, read_expression

if TYPE_CHECKING:
    import pyarrow as pa

    from synth_core.schema.columns import AnyColumn


class Lookup(Declaration):
    """A value for each value of another column; `table` names a CSV file of two columns, which `load` reads."""

    column: str = Field(alias="from", min_length=1, description="the column whose values are looked up")
    values: dict[Value, StrictInt | StrictFloat | str] = Field(
        min_length=1, max_length=MAX_VALUES, description="what stands for each of them; or `table: FILE.csv`"
    )

    @model_validator(mode="after")
    def _check(self) -> Lookup:
        if len({isinstance(value, str) for value in self.values.values()}) > 1:
            raise ValueError("values: text and numbers are mixed; put all of them in quotes")
        for value in self.values.values():
            if isinstance(value, str):
                one_line(value)
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError("values: a whole number has more than 64 bits; put all of them in quotes")
            if isinstance(value, float) and not np.isfinite(value):
                raise ValueError("values: a number is infinite or none; put all of them in quotes")
        return self


class Attached(Declaration):
    """One attached column: a `lookup`, or what is `computed`."""

    name: Annotated[str, Field(min_length=1), AfterValidator(one_line)]
    lookup: Lookup | None = Field(default=None, description="a value for each value of another column")
    computed: str | None = Field(
        default=None, description="a comparison (`age >= 18`, which gives 1 or 0) or a sum (`wages + rents`) of columns"
    )

    @field_validator("computed", mode="before")
    @classmethod
    def _check_text(cls, given: object) -> object:
        if given is not None and not isinstance(given, str):
            raise ValueError("write it as text, such as age >= 18, or wages + rents")
        return given

    @cached_property
    def expression(self) -> Expression:
        """What is computed."""
        return read_expression(self.computed or "")

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of which it is a function."""
        return (self.lookup.column,) if self.lookup else tuple(self.expression.factors)

    def check(self, columns: Mapping[str, AnyColumn]) -> None:
        """Raises SchemaError if it does not fit the schema's columns."""
        if self.name in columns:
            raise SchemaError(f"attached {self.name!r}: a column of the schema has that name; give it another")
        for name in self.needs:
            if name not in columns:
                raise SchemaError(
                    f"attached {self.name!r}: column {name!r} is not in the schema{suggest(name, columns)}"
                )
        if self.lookup is None:
            self._check_numbers(columns)
            return
        column = columns[self.lookup.column]
        if column.listed is None:
            raise SchemaError(
                f"attached {self.name!r}: column {column.name!r} has no list of values; compute it instead"
            )
        for value in column.listed:
            if value not in self.lookup.values:
                raise SchemaError(f"attached {self.name!r}: {value!r} of {column.name!r} has no entry; add one")
        for value in self.lookup.values:
            if value not in column.listed:
                raise SchemaError(f"attached {self.name!r}: {value!r} is no value of {column.name!r}; remove it")

    def _check_numbers(self, columns: Mapping[str, AnyColumn]) -> None:
        largest = abs(self.expression.constant)
        for name, factor in self.expression.factors.items():
            column = columns[name].numbers
            if column is None:
                raise SchemaError(f"attached {self.name!r}: column {name!r} holds no numbers in bins")
            ends = getattr(column, "bounds", None) or (column.edges[0], column.edges[-1])
            largest += abs(factor) * max(abs(float(end)) for end in ends)
        if not largest < 2**63:
            raise SchemaError(f"attached {self.name!r}: its numbers may have more than 64 bits; write smaller factors")

    def has_missing(self, columns: Mapping[str, AnyColumn]) -> bool:
        """Whether it may hold nothing."""
        return any(columns[name].size > columns[name].declared for name in self.needs)

    def from_codes(self, column: AnyColumn, codes: NDArray[Any]) -> pa.Array:
        """Returns what is looked up for each row."""
        import pyarrow as pa

        assert self.lookup is not None  # noqa: S101 - checked by the caller
        found = [self.lookup.values[value] for value in column.listed or ()]
        if any(isinstance(value, float) for value in found):
            found = [float(value) for value in found]
        entries = pa.array([*found, *[None] * (column.size - column.declared)])
        return entries.take(pa.array(codes))

    def from_numbers(self, numbers: Mapping[str, Floats], *, whole: bool) -> pa.Array:
        """Returns what is computed from each row's numbers, NaN where there is none; whole numbers if all are whole."""
        import pyarrow as pa

        value = self.expression.value(numbers)
        whole = self.expression.comparator is not None or (whole and self.expression.is_whole)
        missing = np.isnan(value)
        kept = np.where(missing, 0, value)
        return pa.array(np.rint(kept).astype(np.int64) if whole else kept, mask=missing)

    @model_validator(mode="after")
    def _check(self) -> Attached:
        if (self.lookup is None) == (self.computed is None):
            raise ValueError("an attached column needs either lookup or computed")
        if self.computed is not None and not self.expression.factors:
            raise ValueError("computed: a column is needed")
        return self


def inline_tables(raw: dict[str, Any], folder: Path) -> None:
    """Put the values of lookup tables into a schema that was read, so that it needs no other file from then on.

    What a table holds is published with the schema, so it lies in the schema's folder or below: the author of a schema
    cannot have another file of this machine published.

    Raises:
        SchemaError: If a table lies elsewhere, or cannot be read as two columns with a header.
    """
    attached = raw.get("attached")
    for entry in attached if isinstance(attached, list) else ():
        lookup = entry.get("lookup") if isinstance(entry, dict) else None
        if isinstance(lookup, dict) and "table" in lookup:
            address = lookup.pop("table")
            try:
                path = (folder / str(address)).resolve()
                if not path.is_relative_to(folder.resolve()):
                    raise SchemaError(
                        f"attached {entry.get('name')!r}: table {address} lies outside of the schema's folder; put it "
                        "beside the schema"
                    )
                text = read_document(path).removeprefix("\ufeff")
                rows = list(csv.reader(StringIO(text, newline=""), strict=True))[1:]
                lookup["values"] = {_cell(key): _cell(value) for key, value in rows}
            except (OSError, RuntimeError, ValueError, csv.Error):
                raise SchemaError(
                    f"attached {entry.get('name')!r}: table {address} cannot be read; it is a CSV file beside the "
                    "schema, with a header and two columns, the value and what is attached"
                ) from None


def _cell(text: str) -> int | float | str:
    """Numbers as the schema itself reads them: 007 is text, as it is there."""
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if REAL.fullmatch(text) else text
