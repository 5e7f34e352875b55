"""What one cell says, whatever the type of its column: the text, the whole number or the number that it holds.

That is a function of the cell alone: `as_text` where the declared values are text, `as_whole` where they are whole
numbers, float64 where they are numbers. A cell says the same whatever type its column has (7, 7.0 and Decimal("7.00")
are the text "7"), because libraries choose a column's type by all of its cells.

`frame_cells` turns a pandas column into Arrow cells, each from its own value alone. Arrow would choose one type for a
column of Python objects by looking at all of them, and give 1 another text beside "x" than beside 2. So only a column
whose dtype fixes its type is handed over as it is; objects become text one by one, and are then read as the text of a
CSV file is. The same cell has the same code in a column of objects or of numbers.

No library error is kept as the cause or context of a refusal, because those quote values.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from synth_core.errors import SourceError
from synth_core.schema.columns.base import MISSING, ColumnBase

NUMBER = -3
"""Mark of a cell that holds a number; its code follows from the number."""

MAX_DIGITS = 400
"""Digits of a whole number that are read; a float64 has at most 309, and Python refuses to read thousands."""

_WHOLE_TEXT = re.compile(rf"([+-]?[0-9]{{1,{MAX_DIGITS}}})(\.0*)?")

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NUMBERS = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal)
_TIMES = (pa.types.is_date, pa.types.is_timestamp)
_TYPED = "iubM"
"""Kinds of numpy dtypes whose cells Arrow takes one by one: whole numbers, truth values and times."""

_NOTHING = (type(None), type(pd.NA), type(pd.NaT))


def is_readable(kind: pa.DataType, *, times: bool) -> bool:
    """Whether cells of this Arrow type are text, numbers, truth values or nothing, or where asked dates and times."""
    held = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (*_TEXT, *_NUMBERS, pa.types.is_boolean, pa.types.is_null, *(_TIMES if times else ()))
    return any(test(held) for test in tests)


def distinct_cells(chunk: pa.Array) -> pa.DictionaryArray:
    """The cells as positions in a list of distinct ones, so that each of these is read once.

    Cells share an entry only if they are equal in Arrow, and equal cells of one type say the same.
    """
    if pa.types.is_dictionary(chunk.type):
        if chunk.type.index_type == pa.int32() and chunk.type.value_type == pa.string():
            return chunk
        # The index type may be too narrow to hold one more entry for the missing cells.
        return pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), _plain_text(chunk.dictionary))
    return _plain_text(chunk).dictionary_encode()


def _plain_text(chunk: pa.Array) -> pa.Array:
    """The same cells; Arrow's newer kind of text becomes the one that all of its functions know."""
    return chunk.cast(pa.large_string()) if pa.types.is_string_view(chunk.type) else chunk


def is_missing(value: Any) -> bool:
    """Whether a cell, as Arrow gives it, holds nothing."""
    return value is None or (isinstance(value, float) and value != value)


def as_whole(value: Any) -> int | None:
    """The whole number that a cell holds, however it is written."""
    if isinstance(value, str):
        match = _WHOLE_TEXT.fullmatch(value)
        return int(match[1]) if match else None
    if isinstance(value, Decimal) and not _is_moderate(value):
        return None
    try:
        return int(value) if value == int(value) else None
    except (TypeError, ValueError, OverflowError):
        return None


def as_text(value: Any) -> str:
    """The text that a cell holds; a number that is whole has no point, whatever its type."""
    if isinstance(value, float | Decimal) and (whole := as_whole(value)) is not None:
        return str(whole)
    if isinstance(value, Decimal) and _is_moderate(value):
        return f"{value:f}".rstrip("0")
    return str(value)


def _is_moderate(value: Decimal) -> bool:
    """Whether it can be written without an exponent in a few hundred digits."""
    return value.is_finite() and abs(value.adjusted()) < MAX_DIGITS


def read_numbers(
    chunk: pa.Array, known: Collection[tuple[int | float | str, int]], column: ColumnBase, source: str
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The cells as numbers, and for each the code of a known word or number, MISSING or NUMBER."""
    found = np.full(len(chunk), NUMBER, dtype=np.int64)
    plain = _plain_text(chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk)
    words = [(word, code) for word, code in known if isinstance(word, str)]
    if words and any(is_text(plain.type) for is_text in _TEXT):
        for word, code in words:
            found[pc.equal(plain, word).fill_null(False).to_numpy(zero_copy_only=False)] = code
        is_word = found != NUMBER
        if is_word.any():
            plain = pc.if_else(pa.array(is_word), pa.scalar(None, plain.type), plain)
    numbers = _floats(plain)
    if numbers is None:
        word = "" if column.numbers is None else ", or declare a word that it has as not_in_universe"
        column.refuse(
            source,
            "has a value that is not a number; correct the source (a point before decimals, no unit "
            f"or percent sign, nothing between thousands; a missing value is empty){word}",
        )
    for value, code in known:
        number = _known_number(value)
        if number is not None:
            found[numbers == number] = code
    found[np.isnan(numbers) & (found == NUMBER)] = MISSING
    return numbers, found


@lru_cache(maxsize=1024)
def _known_number(value: int | float | str) -> float | None:
    """The number that a declared value is, read as a cell is; None where it is a word."""
    number = _floats(pa.array([value]))
    return None if number is None else float(number[0])


def _floats(plain: pa.Array) -> NDArray[np.float64] | None:
    """The cells as float64 with NaN for missing ones, or None where one is not a number."""
    try:
        numbers = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return numbers.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def frame_cells(series: pd.Series[Any], *, numbers: bool, source: str) -> pa.Array:
    """Returns the column's cells, each as its own value says.

    Args:
        series: a column of the frame.
        numbers: whether they will be read as numbers, so that true is 1; otherwise it is the text "True".
        source: the frame's name, for the refusal.

    Raises:
        SourceError: if the dtype, or the type of a cell, is none that each cell can be read from by itself.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        held = frame_cells(pd.Series(dtype.categories, name=series.name), numbers=numbers, source=source)
        positions = series.cat.codes.to_numpy(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(positions, mask=positions < 0), held)
    if dtype == np.dtype(object):
        return _object_cells(series, numbers=numbers, source=source)
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return pa.array(series.to_numpy(np.float64), from_pandas=True)
    is_numpy = isinstance(dtype, np.dtype) and dtype.kind in _TYPED
    is_extension = isinstance(dtype, pd.StringDtype | pd.ArrowDtype | pd.DatetimeTZDtype) or (
        pd.api.types.is_extension_array_dtype(dtype) and hasattr(dtype, "numpy_dtype")
    )
    if (not is_numpy and not is_extension) or (numbers and getattr(dtype, "kind", "") == "M"):
        if not series.isna().all():
            raise _unreadable(series, source)
        return pa.nulls(len(series), pa.string())
    cells = pa.array(series, from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _object_cells(series: pd.Series[Any], *, numbers: bool, source: str) -> pa.Array:
    texts: Any = series.to_numpy()
    if pd.api.types.infer_dtype(texts, skipna=True) not in ("string", "empty"):
        texts = [_text(cell, numbers=numbers) for cell in texts]
        if any(text is NotImplemented for text in texts):
            raise _unreadable(series, source)
    try:
        return pa.array(texts, type=pa.string(), from_pandas=True)
    except (UnicodeEncodeError, pa.ArrowException):
        refusal = _unreadable(series, source)
    raise refusal  # outside of the handler, whose error quotes a cell


def _text(cell: Any, *, numbers: bool) -> Any:
    """The cell's text, None where it holds nothing, or NotImplemented where it has none."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, _NOTHING) or (isinstance(cell, float | np.floating | Decimal) and cell != cell):
        return None
    if isinstance(cell, bool | np.bool_):
        return str(int(cell)) if numbers else str(bool(cell))
    if isinstance(cell, int | np.integer):
        return str(int(cell)) if abs(int(cell)) < 10**MAX_DIGITS else NotImplemented
    if isinstance(cell, float | np.floating):
        return as_text(float(cell))
    if isinstance(cell, np.datetime64 | np.timedelta64) and np.isnat(cell):
        return None
    if isinstance(cell, np.datetime64):
        cell = pd.Timestamp(cell)
    if isinstance(cell, date) and numbers:
        return NotImplemented
    return as_text(cell) if isinstance(cell, Decimal | date) else NotImplemented


def _unreadable(series: pd.Series[Any], source: str) -> SourceError:
    return SourceError(
        f"{source}: column {series.name!r} has a type that is neither text nor numbers; convert it in the source"
    )
