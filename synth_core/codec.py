"""Turns tables of text and numbers into codes by a public schema, and codes back into tables.

How a cell is read:
- A missing cell is an Arrow or pandas null, or a NaN.
- A categorical value is compared as it stands: spaces around it and its case count. Where the declared values
  are whole numbers, 1, 1.0, "1" and "1.0" are the same value; where they are text, the number 1 reads as "1".
- A number may come as text ("12", "1e3"); spaces around it make it text that is not a number.
- Columns the schema does not declare are ignored.

A refusal names the source, the column, the rule and the remedy, never a value or how many rows had it. No
library error is kept as its cause or context, because those quote values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from synth_core.columns import OTHER, Categorical, Integer, Real
from synth_core.errors import SchemaError, SourceError
from synth_core.schema import Schema

Codes: TypeAlias = NDArray[np.unsignedinteger[Any]]
AnyColumn: TypeAlias = Categorical | Integer | Real

_UNSEEN, _MISSING = -1, -2
_CACHED_ROWS = 1 << 14
"""Numbers are drawn for so many rows at once: their steps stay in the caches."""

_WHOLE_TEXT = re.compile(r"([+-]?[0-9]+)(\.0*)?")


def encode(frame: pd.DataFrame | pa.Table, schema: Schema, *, source: str = "the source") -> dict[str, Codes]:
    """The codes of every declared column, in the schema's order, each in the smallest unsigned type."""
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    check_names(names, schema, source=source)
    return {column.name: _encode_column(frame, column, source) for column in schema.columns}


def decode_table(codes: NDArray[np.integer[Any]], schema: Schema, rng: np.random.Generator) -> pa.Table:
    """Rows of codes, one column for each of the schema's, as a table with the declared names and types.

    Text comes as an Arrow dictionary, whole numbers as int64, reals as float64. A number is drawn uniformly
    inside its bin. NULL becomes null; OTHER becomes the text "OTHER", or null where the column holds numbers.
    Encoding the result gives the same codes again, except that a number's OTHER reads as a missing value.
    """
    if codes.ndim != 2 or codes.shape[1] != len(schema.columns):
        raise SchemaError(f"codes must have one column for each of the schema's {len(schema.columns)}")
    arrays, fields = [], []
    for position, column in enumerate(schema.columns):
        array = _decode_column(np.ascontiguousarray(codes[:, position]), column, rng)
        arrays.append(array)
        fields.append(pa.field(column.name, array.type, nullable=column.has_missing))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def decode(codes: NDArray[np.integer[Any]], schema: Schema, rng: np.random.Generator) -> pd.DataFrame:
    """`decode_table` as a pandas frame: text as str, whole numbers as int64 or, with nulls, Int64."""
    table = decode_table(codes, schema, rng)
    return pd.DataFrame(
        {name: _to_pandas(table.column(name), table.field(name)) for name in table.column_names}
    )


def bin_edges(column: Integer | Real) -> NDArray[np.float64]:
    """Edges such that every bin is closed below and open above."""
    edges = np.array(column.edges, dtype=np.float64)
    if isinstance(column, Real):
        edges[-1] = np.nextafter(edges[-1], np.inf)  # the last bin is closed
    return edges


def check_names(names: Iterable[str], schema: Schema, *, source: str) -> None:
    """Refuse a source that lacks a declared column, or has it twice."""
    found = Counter(names)
    for column in schema.columns:
        origin = column.origin(found)
        if found[origin] == 0:
            derived = "" if origin == column.name else f", and so is {origin!r}, from which it is derived"
            _refuse(source, column, f"is missing{derived}; add it to the source or remove it from the schema")
        if found[origin] > 1:
            _refuse(source, column, "appears more than once; give each column its own name")


def _encode_column(frame: pd.DataFrame | pa.Table, column: AnyColumn, source: str) -> Codes:
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    parts = [_encode_chunk(chunk, column, source) for chunk in _chunks(frame, column.origin(names))]
    return np.concatenate(parts) if parts else np.empty(0, dtype=column.dtype)


def _chunks(frame: pd.DataFrame | pa.Table, name: str) -> list[pa.Array]:
    if isinstance(frame, pd.DataFrame):
        return [_series_to_arrow(frame[name])]
    chunks: list[pa.Array] = frame.column(name).chunks
    return chunks


def _series_to_arrow(series: pd.Series[Any]) -> pa.Array:
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # A column of mixed Python objects has no Arrow type, but each of its cells has a text.
        array = pa.array([None if pd.isna(cell) else str(cell) for cell in series], type=pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _encode_chunk(chunk: pa.Array, column: AnyColumn, source: str) -> Codes:
    if isinstance(column, Categorical):
        marked = _categorical_marks(chunk, column, source)
    else:
        marked = _number_marks(chunk, column, source)
    if marked.dtype == column.dtype:
        return marked
    missing = marked == _MISSING
    if missing.any():
        if column.null_code is None:
            _refuse(source, column, "has a missing value; declare nullable: true or fill it in the source")
        marked[missing] = column.null_code
    unseen = marked == _UNSEEN
    if unseen.any():
        if column.other_code is None:
            _refuse(source, column, _UNSEEN_REMEDY[column.kind])
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
        _refuse(source, column, "has a type that is neither text nor numbers; convert it in the source")
    read = _as_text if column.is_text else _as_whole
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


def _as_whole(value: Any) -> int | None:
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
    numbers = _floats(chunk)
    if numbers is None:
        _refuse(
            source, column, "has a value that is not a number; correct the source (a missing value is empty)"
        )
    missing = np.isnan(numbers)
    if isinstance(column, Integer) and np.any((numbers != np.floor(numbers)) & ~missing):
        _refuse(
            source, column, "has a value that is not a whole number; correct the source or declare kind: real"
        )
    marks = np.searchsorted(bin_edges(column), numbers, side="right") - 1
    if column.unseen == "clip":
        np.clip(marks, 0, column.declared - 1, out=marks)
    else:
        marks[(marks < 0) | (marks == column.declared)] = _UNSEEN
    marks[missing] = _MISSING
    return marks


def _floats(chunk: pa.Array) -> NDArray[np.float64] | None:
    """The cells as float64 with NaN for missing ones, or None where one is not a number."""
    try:
        plain = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
        numbers = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return numbers.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _refuse(source: str, column: AnyColumn, rule: str) -> NoReturn:
    raise SourceError(f"{source}: column {column.name!r} {rule}")


def _decode_column(codes: NDArray[np.integer[Any]], column: AnyColumn, rng: np.random.Generator) -> pa.Array:
    if len(codes) and not 0 <= codes.min() <= codes.max() < column.size:
        raise SchemaError(f"column {column.name!r}: a code is outside 0 … {column.size - 1}")
    if isinstance(column, Categorical) and column.is_text:
        words = [*column.values, *([OTHER] if column.unseen == "other" else [])]
        signed = np.promote_types(np.min_scalar_type(-len(words)), np.int8)
        empty = codes == column.null_code if column.nullable else None
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(signed), mask=empty), pa.array(words, pa.string())
        )
    empty = codes >= column.declared if column.has_missing else None
    if isinstance(column, Categorical):
        return pa.array(_padded(column.values, column, np.int64)[codes], mask=empty)
    return pa.array(_inside_bins(codes, column, rng), mask=empty)


def _inside_bins(
    codes: NDArray[np.integer[Any]], column: Integer | Real, rng: np.random.Generator
) -> NDArray[Any]:
    """A uniform draw inside each row's bin.

    With u <= 1 - 2^-53 the product u*w of a width w <= 2^53 is rounded to a float below w, so a whole number
    never leaves its bin; a real sum may round up to the upper edge, the next bin's, and is held below it.
    """
    edges = np.array(column.edges, dtype=np.int64 if isinstance(column, Integer) else np.float64)
    low_of, width_of = _padded(edges[:-1], column, edges.dtype), _padded(np.diff(edges), column, np.float64)
    drawn: NDArray[Any] = low_of[codes]
    if isinstance(column, Integer) and width_of.max() == 1:
        return drawn
    below = (
        None if isinstance(column, Integer) else _padded(np.nextafter(edges[1:], -np.inf), column, np.float64)
    )
    for start in range(0, len(codes), _CACHED_ROWS):
        own, some = drawn[start : start + _CACHED_ROWS], codes[start : start + _CACHED_ROWS]
        steps = rng.random(len(some)) * width_of[some]
        own += steps if below is not None else steps.astype(np.int64)
        if below is not None:
            np.minimum(own, below[some], out=own)
    return drawn


def _padded(values: Any, column: AnyColumn, dtype: Any) -> NDArray[Any]:
    """The values with a zero for OTHER and NULL, so that every code has an entry."""
    padded = np.zeros(column.size, dtype=dtype)
    padded[: column.declared] = values
    return padded


def _to_pandas(cells: pa.ChunkedArray, field: pa.Field) -> Any:
    if pa.types.is_dictionary(field.type):
        return cells.cast(pa.string()).to_pandas()
    if field.nullable and pa.types.is_integer(field.type):
        return cells.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return cells.to_pandas()
