"""Questions about a release in the words of its schema: counts, shares and means by some columns, with intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from synth_core.arrays import Floats
from synth_core.errors import SpecError
from synth_core.files import escape_formula
from synth_core.inference.uncertain import LEVEL, ROUNDING, Uncertain, UncertainTable
from synth_core.markup import table_html
from synth_core.names import suggest
from synth_core.schema import Schema
from synth_core.schema.columns import AnyColumn
from synth_core.schema.columns.numbers import NumberBase

if TYPE_CHECKING:
    import pandas as pd

Measure = Literal["count", "share", "mean"]
CodeMeans = Callable[[NumberBase], Floats]
"""The mean number of each code of a column."""

MAX_CELLS = 5_000_000
"""Cells up to which a table is answered; a larger one cannot be read."""
MODELLED = "modelled, not measured"


@dataclass(frozen=True, eq=False, repr=False)
class AskedTable:
    """An answered question: one row for each cell, in the words of the schema.

    Attributes:
        by: the columns.
        measure: what each value is.
        level: share of the true values that the intervals are to hold.
        cells: the words of each row, one for each column.
        values: the answers.
        low: lower ends of the intervals; NaN where nothing is known of the error.
        high: upper ends.
        measured: whether noisy answers about all the columns together are behind it.
        sampled: whether it was counted in a large sample of the model.
    """

    by: tuple[str, ...]
    measure: Measure
    level: float
    cells: tuple[tuple[str, ...], ...]
    values: Floats
    low: Floats
    high: Floats
    measured: bool
    sampled: bool

    @property
    def notes(self) -> list[str]:
        """What a reader has to know, one sentence each."""
        known = not np.isnan(self.low).all()
        said = [
            "measured: noisy answers about these columns together are behind the numbers"
            if self.measured
            else f"{MODELLED}: no answer was about these columns together; intervals are wider by what measuring "
            "changed in other pairs",
        ]
        if self.sampled:
            said.append("counted in a sample of the model, whose error the intervals include")
        if known:
            said.append(f"intervals are to hold the true value in {self.level:.0%} of all cases")
        else:
            said.append("errors are unknown: the release has no replicates of its model")
        return said

    def to_frame(self) -> pd.DataFrame:
        """The answer as a frame.

        Returns:
            One row for each cell: the columns, the value, the ends of its interval, and whether it was measured.
        """
        import pandas as pd

        columns: dict[str, Any] = {name: [cell[place] for cell in self.cells] for place, name in enumerate(self.by)}
        columns |= {self.measure: self.values, "low": self.low, "high": self.high}
        return pd.DataFrame({**columns, "measured": np.full(len(self.values), self.measured)})

    def to_csv(self) -> str:
        """The same as CSV with a header; an apostrophe stands before what a spreadsheet would run as a formula."""
        frame = self.to_frame().rename(columns=escape_formula)
        for name in map(escape_formula, self.by):
            frame[name] = frame[name].map(escape_formula)
        return str(frame.to_csv(index=False))

    def to_json(self) -> str:
        """The same as one JSON object, with what was asked; an unknown error is null."""
        rows = [
            {
                **dict(zip(self.by, cell, strict=True)),
                self.measure: _number(value),
                "low": _number(low),
                "high": _number(high),
            }
            for cell, value, low, high in zip(self.cells, self.values, self.low, self.high, strict=True)
        ]
        asked = {"by": self.by, "measure": self.measure, "level": self.level}
        return json.dumps({**asked, "measured": self.measured, "sampled": self.sampled, "rows": rows}, indent=1)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head, rows = self._words()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        texts = len(self.by)
        lines = [
            "  ".join(
                word.ljust(width) if place < texts else word.rjust(width)
                for place, (word, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (head, *rows)
        ]
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        head, rows = self._words()
        return table_html(rows, title="; ".join(self.notes), head=head)

    def _words(self) -> tuple[list[str], list[list[str]]]:
        head = [*self.by, self.measure, "±", "from", "to"]
        form = {"count": "{:,.0f}", "share": "{:.2%}", "mean": "{:,.4g}"}[self.measure]
        rows = []
        for cell, value, low, high in zip(self.cells, self.values, self.low, self.high, strict=True):
            numbers = (value, (high - low) / 2, low, high)
            rows.append([*cell, *("–" if np.isnan(number) else form.format(number) for number in numbers)])
        return head, rows


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def ask(
    uncertain: Uncertain,
    schema: Schema,
    by: Sequence[str],
    *,
    where: Mapping[str, str | int | Collection[str | int]] | None = None,
    measure: Measure = "count",
    mean_of: str | None = None,
    code_means: CodeMeans | None = None,
    level: float = LEVEL,
) -> AskedTable:
    """Answer a question about a release.

    Args:
        uncertain: the model and its replicates.
        schema: the schema as it was run.
        by: columns of the table; none for one number.
        where: values that records have in some columns, in the schema's words.
        measure: counts, shares of the records that meet the condition, or means.
        mean_of: the column of numbers whose mean is asked for.
        code_means: the mean number of each code of that column.
        level: share of the true values that the intervals are to hold.

    Returns:
        The answer.

    Raises:
        SpecError: a column or a value is unknown, or the question makes no sense; names it and what may be meant.
    """
    if not 0 < level < 1:
        raise SpecError(f"level {level:g} is no share of cases; use one between 0 and 1, such as 0.9")
    names = [_column(schema, name) for name in by]
    if len({column.name for column in names}) < len(names):
        raise SpecError("a column is named twice; name each once")
    condition = {name: _codes(_column(schema, name), values) for name, values in (where or {}).items()}
    inner = tuple(column.name for column in names)
    number = _number_column(schema, mean_of, inner) if measure == "mean" else None
    cells = uncertain.domain.cells([*inner, *([number.name] if number else [])])
    if cells > MAX_CELLS:
        raise SpecError(
            f"a table by {', '.join(inner)} has {cells:,} cells, at most {MAX_CELLS:,}; ask for fewer columns"
        )
    asked = (*inner, number.name) if number is not None else inner
    table = uncertain.table(asked, where=condition)
    if number is not None and code_means is not None:
        values, low, high = _means(table, code_means(number), level)
    elif measure == "share":
        values, low, high = _shares(table, level)
    else:
        values, (low, high) = table.values, table.interval(level)
    kept = [[code for code in range(column.size) if code in condition.get(column.name, (code,))] for column in names]
    inside = np.ix_(*kept) if kept else ()
    words = [[column.captions[code] for code in codes] for column, codes in zip(names, kept, strict=True)]
    values, low, high = (np.asarray(one)[inside].ravel() for one in (values, low, high))
    return AskedTable(inner, measure, level, _product(words), values, low, high, table.measured, table.sampled)


def _product(words: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    rows: list[tuple[str, ...]] = [()]
    for axis in words:
        rows = [(*row, word) for row in rows for word in axis]
    return tuple(rows)


def _shares(table: UncertainTable, level: float) -> tuple[Floats, Floats, Floats]:
    """Shares of all records of the table, which move with it."""
    total = max(float(table.values.sum()), 1.0)
    each = tuple(range(1, table.draws.ndim))
    values = table.values / total
    draws = table.draws / np.maximum(table.draws.sum(axis=each, keepdims=True), 1.0)
    width = table.quantile(level) * _spread(values, draws, (table.extra + ROUNDING) / total**2)
    return values, np.maximum(values - width, 0.0), np.minimum(values + width, 1.0)


def _means(table: UncertainTable, numbers: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    """Means of a column on the last axis; codes without a number take no part."""
    weights = np.where(np.isnan(numbers), 0.0, numbers)
    counted = ~np.isnan(numbers)

    def mean(counts: Floats) -> Floats:
        records = (counts * counted).sum(axis=-1)
        return np.asarray(np.where(records > 0, counts @ weights / np.where(records > 0, records, 1.0), np.nan))

    values = mean(table.values)
    records = np.maximum((table.values * counted).sum(axis=-1), 1.0)
    # The variance of a quotient: that of the sum of what each record is off its mean, by the number squared.
    off = np.where(counted, weights - np.nan_to_num(values)[..., None], 0.0)
    extra = (table.extra * off**2).sum(axis=-1) / records**2
    width = table.quantile(level) * _spread(values, mean(table.draws), extra)
    return values, values - width, values + width


def _spread(values: Floats, draws: Floats, extra: Floats) -> Floats:
    if not len(draws):
        return np.full_like(values, np.nan)
    known = ~np.isnan(draws)  # a mean of no records is none, in a replicate too
    squares = np.where(known, (draws - values) ** 2, 0.0).sum(axis=0)
    return np.asarray(np.sqrt(squares / np.where(known.any(axis=0), known.sum(axis=0), np.nan) + extra))


def _column(schema: Schema, name: str) -> AnyColumn:
    known = {column.name: column for column in schema.columns}
    if name not in known:
        raise SpecError(
            f"column {name!r} is not in the release{suggest(name, known) or '; it has: ' + ', '.join(known)}"
        )
    return known[name]


def _number_column(schema: Schema, name: str | None, by: Sequence[str]) -> NumberBase:
    if name is None:
        raise SpecError("a mean is asked of no column; name one with numbers")
    column = _column(schema, name)
    if not isinstance(column, NumberBase):
        raise SpecError(f"column {name!r} has no numbers; ask for counts or shares by it")
    if name in by:
        raise SpecError(f"column {name!r} cannot be averaged by itself; leave it out of the table's columns")
    return column


def _codes(column: AnyColumn, values: str | int | Collection[str | int]) -> list[int]:
    """The codes that values in the schema's words have."""
    places = {caption: code for code, caption in enumerate(column.captions)}
    places = {**_plain_values(column), **places}
    found = []
    for value in list(values) if isinstance(values, Collection) and not isinstance(values, str) else [values]:
        if str(value) not in places:
            few = ", ".join(column.captions[:8])
            raise SpecError(
                f"column {column.name!r} has no value {str(value)!r}{suggest(value, places) or '; it has: ' + few}"
            )
        found.append(places[str(value)])
    return found


def _plain_values(column: AnyColumn) -> dict[str, int]:
    """Declared values as they are written in the data, where they have labels."""
    return {str(value): code for code, value in enumerate(getattr(column, "values", None) or ())}
