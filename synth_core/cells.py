"""Reads one column's cells to codes, and words the refusal of a cell that has none.

A refusal names the source, the column, the rule and the remedy, never a value or how many rows had it. No
library error is kept as its cause or context, because those quote values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from synth_core.columns import AnyColumn, Categorical, Comparison, Integer, Real
from synth_core.errors import SourceError

Codes: TypeAlias = NDArray[np.unsignedinteger[Any]]

_UNSEEN, _MISSING, _NUMBER = -1, -2, -3
_WHOLE_TEXT = re.compile(r"([+-]?[0-9]+)(\.0*)?")


def encode_cells(chunk: pa.Array, column: AnyColumn, *, source: str) -> Codes:
    """The codes of cells that hold the column itself, or what it is derived from by reading it."""
    if isinstance(column, Categorical):
        return _finished(_categorical_marks(chunk, column, source), column, source)
    return _finished(_number_marks(chunk, column, source), column, source)


def encode_comparison(
    chunks: Sequence[pa.Array], column: Categorical, compare: Comparison, *, source: str
) -> Codes:
    """The codes of a column that `compare` derives from cells of its left column, and of its right one if it has one.

    What is no number but another value of the column stays what it is, on the left before the right; then what is
    missing on either side is missing.
    """
    sides = [_numbers(chunk, column.kept.items(), column, source) for chunk in chunks]
    holds = compare.holds(sides[0][0], compare.right if len(sides) == 1 else sides[1][0])
    marks = np.where(holds, column.code_of[compare.then], column.code_of[compare.otherwise])
    for _, found in sides:
        marks[found == _MISSING] = _MISSING
    for _, found in reversed(sides):
        marks = np.where(found >= 0, found, marks)
    return _finished(marks, column, source)


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


def _categorical_marks(chunk: pa.Array, column: Categorical, source: str) -> NDArray[Any]:
    """Codes with marks for unseen and missing cells; finished codes where there can be neither.

    Each distinct value is looked up once. A dictionary may list values that no row has, so only marks that a
    row carries may refuse.
    """
    coded = _dictionary(chunk)
    if coded is None:
        refuse(source, column, "has a type that is neither text nor numbers; convert it in the source")
    read = _as_text if column.is_text else as_whole
    code_of = {read(value): code for value, code in column.code_of.items()}
    marks = [
        _MISSING if _is_missing(v) else code_of.get(read(v), _UNSEEN) for v in coded.dictionary.to_pylist()
    ]
    finished = coded.indices.null_count == 0 and min(marks, default=0) >= 0
    lookup = np.array([*marks, 0 if finished else _MISSING], dtype=column.dtype if finished else np.int64)
    indices: NDArray[np.int32] = coded.indices.fill_null(len(marks)).to_numpy(zero_copy_only=False)
    return lookup[indices]


def _dictionary(chunk: pa.Array) -> pa.DictionaryArray | None:
    if pa.types.is_dictionary(chunk.type):
        # The index type may be too narrow to hold one more entry for the missing cells.
        return pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), chunk.dictionary)
    try:
        return chunk.dictionary_encode()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def as_whole(value: Any) -> int | None:
    """The whole number that a cell holds, however it is written."""
    if isinstance(value, str):
        match = _WHOLE_TEXT.fullmatch(value)
        return int(match[1]) if match else None
    try:
        return int(value) if value == int(value) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _as_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


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
    plain = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
    words = [(word, code) for word, code in known if isinstance(word, str)]
    if words and (pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)):
        for word, code in words:
            found[pc.equal(plain, word).fill_null(False).to_numpy(zero_copy_only=False)] = code
        plain = pc.if_else(pa.array(found == _NUMBER), plain, pa.scalar(None, plain.type))
    numbers = _floats(plain)
    if numbers is None:
        refuse(
            source, column, "has a value that is not a number; correct the source (a missing value is empty)"
        )
    for value, code in known:
        number = as_whole(value) if isinstance(value, str) else value
        if number is not None:
            found[numbers == number] = code
    found[np.isnan(numbers) & (found == _NUMBER)] = _MISSING
    return numbers, found


def _floats(plain: pa.Array) -> NDArray[np.float64] | None:
    """The cells as float64 with NaN for missing ones, or None where one is not a number."""
    try:
        numbers = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return numbers.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
