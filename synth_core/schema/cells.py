"""Reads one column's cells to codes, each cell by itself, and words the refusal of a cell that has none.

What a cell says is a function of that cell alone: `as_text` where the declared values are text, `as_whole` where they
are whole numbers, float64 where they are numbers. A cell says the same whatever type its column has (7, 7.0 and
Decimal("7.00") are the text "7"), because libraries choose a column's type by all of its cells.

A refusal names the source, the column, the rule and the remedy, never a value or how many rows had it. No
library error is kept as its cause or context, because those quote values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from synth_core.errors import SourceError
from synth_core.schema.columns import AnyColumn, Categorical, Comparison, Integer, Real

Codes: TypeAlias = NDArray[np.unsignedinteger[Any]]

_UNSEEN, _MISSING, _NUMBER = -1, -2, -3
MAX_DIGITS = 400
"""Digits of a whole number that are read; a float64 has at most 309, and Python refuses to read thousands."""

_WHOLE_TEXT = re.compile(rf"([+-]?[0-9]{{1,{MAX_DIGITS}}})(\.0*)?")

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NUMBERS = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal)
_TIMES = (pa.types.is_date, pa.types.is_timestamp)


def encode_cells(chunk: pa.Array, column: AnyColumn, *, source: str) -> Codes:
    """The codes of cells that hold the column itself, or what it is derived from by reading it."""
    check_type(chunk.type, column, source=source)
    if isinstance(column, Categorical):
        return _finished(_categorical_marks(chunk, column), column, source)
    return _finished(_number_marks(chunk, column, source), column, source)


def encode_comparison(
    chunks: Sequence[pa.Array], column: Categorical, compare: Comparison, *, source: str
) -> Codes:
    """The codes of a column that `compare` derives from cells of its left column, and of its right one if it has one.

    What is no number but another value of the column stays what it is, on the left before the right; then what is
    missing on either side is missing.
    """
    for chunk in chunks:
        check_type(chunk.type, column, source=source)
    sides = [_numbers(chunk, column.kept.items(), column, source) for chunk in chunks]
    holds = compare.holds(sides[0][0], compare.right if len(sides) == 1 else sides[1][0])
    marks = np.where(holds, column.code_of[compare.then], column.code_of[compare.otherwise])
    for _, found in sides:
        marks[found == _MISSING] = _MISSING
    for _, found in reversed(sides):
        marks = np.where(found >= 0, found, marks)
    return _finished(marks, column, source)


def check_type(kind: pa.DataType, column: AnyColumn, *, source: str) -> None:
    """Refuse cells of a type that has no reading of each cell by itself; dates and times are read as text alone.

    Args:
        kind: the Arrow type of the source's column.
        column: the declared column that is read from it.
        source: the source's name, for the refusal.

    Raises:
        SourceError: if the column cannot be read from such cells.
    """
    text = isinstance(column, Categorical) and column.is_text and column.compare is None
    if not is_readable(kind, times=text):
        refuse(source, column, "has a type that is neither text nor numbers; convert it in the source")


def is_readable(kind: pa.DataType, *, times: bool) -> bool:
    """Whether cells of this Arrow type are text, numbers, truth values or nothing, or where asked dates and times."""
    held = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (*_TEXT, *_NUMBERS, pa.types.is_boolean, pa.types.is_null, *(_TIMES if times else ()))
    return any(test(held) for test in tests)


def bin_edges(column: Integer | Real) -> NDArray[np.float64]:
    """Edges such that every bin is closed below and open above."""
    edges = np.array(column.edges, dtype=np.float64)
    if isinstance(column, Real):
        edges[-1] = np.nextafter(edges[-1], np.inf)  # the last bin is closed
    return edges


def refuse(source: str, column: AnyColumn, rule: str) -> NoReturn:
    """Say what is wrong with the column's cells."""
    raise SourceError(f"{source}: column {column.name!r} {rule}")


def _finished(marked: NDArray[Any], column: AnyColumn, source: str) -> Codes:
    """The codes, with those of missing and unseen cells in the place of their marks."""
    if marked.dtype == column.dtype:
        return marked
    missing = marked == _MISSING
    if missing.any():
        if column.null_code is None:
            refuse(source, column, "has a missing value; declare nullable: true or fill it in the source")
        marked[missing] = column.null_code
    unseen = marked == _UNSEEN
    if unseen.any():
        if column.other_code is None:
            refuse(source, column, _UNSEEN_REMEDY[column.kind])
        marked[unseen] = column.other_code
    return marked.astype(column.dtype)


_UNSEEN_REMEDY = {
    "categorical": "has a value outside the declared values (spaces around a value count); declare it or use"
    " unseen: other",
    "integer": "has a value outside the declared bins; widen them or use unseen: other or clip",
    "real": "has a value outside the declared bins; widen them or use unseen: other or clip",
}


def _categorical_marks(chunk: pa.Array, column: Categorical) -> NDArray[Any]:
    """Codes with marks for unseen and missing cells; finished codes where there can be neither.

    Each distinct value is looked up once. A dictionary may list values that no row has, so only marks that a
    row carries may refuse.
    """
    coded = distinct_cells(chunk)
    read = as_text if column.is_text else as_whole
    code_of = {read(value): code for value, code in column.code_of.items()}
    marks = [
        _MISSING if is_missing(v) else code_of.get(read(v), _UNSEEN) for v in coded.dictionary.to_pylist()
    ]
    finished = coded.indices.null_count == 0 and min(marks, default=0) >= 0
    lookup = np.array([*marks, 0 if finished else _MISSING], dtype=column.dtype if finished else np.int64)
    filled = coded.indices.fill_null(len(marks)) if coded.indices.null_count else coded.indices
    indices: NDArray[np.int32] = filled.to_numpy(zero_copy_only=False)
    return lookup[indices]


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


def _number_marks(chunk: pa.Array, column: Integer | Real, source: str) -> NDArray[np.int64]:
    mark = column.not_in_universe
    known = [] if mark is None or column.outside_code is None else [(mark, column.outside_code)]
    numbers, found = _numbers(chunk, known, column, source)
    plain = found == _NUMBER
    if isinstance(column, Integer) and np.any((numbers != np.floor(numbers)) & plain):
        refuse(
            source, column, "has a value that is not a whole number; correct the source or declare kind: real"
        )
    marks = np.searchsorted(bin_edges(column), numbers, side="right") - 1
    if column.unseen == "clip":
        np.clip(marks, 0, column.declared - 1, out=marks)
    else:
        marks[(marks < 0) | (marks == column.declared)] = _UNSEEN
    return np.where(plain, marks, found)


def _numbers(
    chunk: pa.Array, known: Collection[tuple[int | float | str, int]], column: AnyColumn, source: str
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The cells as numbers, and for each the code of a known word or number, _MISSING or _NUMBER."""
    found = np.full(len(chunk), _NUMBER, dtype=np.int64)
    plain = _plain_text(chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk)
    words = [(word, code) for word, code in known if isinstance(word, str)]
    if words and any(is_text(plain.type) for is_text in _TEXT):
        for word, code in words:
            found[pc.equal(plain, word).fill_null(False).to_numpy(zero_copy_only=False)] = code
        is_word = found != _NUMBER
        if is_word.any():
            plain = pc.if_else(pa.array(is_word), pa.scalar(None, plain.type), plain)
    numbers = _floats(plain)
    if numbers is None:
        refuse(
            source, column, "has a value that is not a number; correct the source (a missing value is empty)"
        )
    for value, code in known:
        number = _known_number(value)
        if number is not None:
            found[numbers == number] = code
    found[np.isnan(numbers) & (found == _NUMBER)] = _MISSING
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
