"""Turns tables of text and numbers into codes by a public schema, and codes back into tables.

**Record-wise ingestion**, the lemma on which every guarantee rests: the encoded table is the multiset union of what
each record gives alone, and a source is refused if and only if one of its records alone would be. It holds because
- a record is a line of a CSV file (`storage.csv_lines` has the proof), a row of a Parquet file or a row of a frame;
- a code is a function of the record's own cells, of the declared column and of the source's header: of no type,
  dictionary, order, block or partition in which other rows have a part (`cells`, `frame_cells`);
- a file is read once, however often it is named (`storage.locations.distinct_files`).
So one record more is one row of codes more, and no other row changes. Assumed is that whatever wrote the source wrote
each record as it was (what a database rounded, or a spreadsheet merged, cannot be seen here), that the header and the
types of Parquet columns were chosen without looking at the rows, and that a source does not change while it is read.
Which rows of a unit are kept (`storage.contribution`) depends on the rows of that unit alone.

How a cell is read:
- A missing cell is an Arrow or pandas null, or a NaN.
- A categorical value is compared as it stands: spaces around it and its case count. Where the declared values
  are whole numbers, 1, 1.0, "1" and "1.0" are the same value; where they are text, the numbers 1 and 1.0 read as "1".
- A truth value is the number 1 or 0, or the text "True" or "False". A date is its ISO text, and no number.
- A number may come as text ("12", "1e3"); spaces around it make it text that is not a number.
- Columns the schema does not declare are ignored.

How cells are read to codes and refused is in `cells`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from synth_core.errors import SchemaError
from synth_core.schema import Schema
from synth_core.schema.cells import Codes, encode_cells, encode_comparison, refuse
from synth_core.schema.columns import OTHER, AnyColumn, Categorical, Integer, Real
from synth_core.schema.frame_cells import frame_cells

__all__ = ["Codes", "check_names", "decode", "decode_table", "encode"]

_CACHED_ROWS = 1 << 14
"""Numbers are drawn for so many rows at once: their steps stay in the caches."""


def encode(frame: pd.DataFrame | pa.Table, schema: Schema, *, source: str = "the source") -> dict[str, Codes]:
    """The codes of every declared column, in the schema's order, each in the smallest unsigned type."""
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    check_names(names, schema, source=source)
    return {column.name: _encode_column(frame, column, source) for column in schema.columns}


def decode_table(codes: NDArray[np.integer[Any]], schema: Schema, rng: np.random.Generator) -> pa.Table:
    """Rows of codes, one column for each of the schema's, as a table with the declared names and types.

    Text comes as an Arrow dictionary, whole numbers as int64, reals as float64. A number is drawn uniformly
    inside its bin. NULL becomes null; OTHER becomes the text "OTHER", or null where the column holds numbers. What is
    not in a number's universe is written as declared; where that is a word, the whole column is text.
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


def check_names(names: Iterable[str], schema: Schema, *, source: str) -> None:
    """Refuse a source that lacks a declared column, or has it twice."""
    found = Counter(names)
    for column in schema.columns:
        for origin in column.origins(found):
            own = origin == column.name
            if found[origin] == 0:
                derived = "" if own else f", and so is {origin!r}, from which it is derived"
                refuse(
                    source, column, f"is missing{derived}; add it to the source or remove it from the schema"
                )
            if found[origin] > 1:
                refuse(source, column, "appears more than once; give each column its own name")


def _encode_column(frame: pd.DataFrame | pa.Table, column: AnyColumn, source: str) -> Codes:
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    origins = column.origins(names)
    if isinstance(column, Categorical) and (compare := column.comparison(names)):
        compared = [_joined(_chunks(frame, origin, numbers=True, source=source)) for origin in origins]
        return encode_comparison(compared, column, compare, source=source)
    (origin,) = origins
    numbers = not (isinstance(column, Categorical) and column.is_text)
    chunks = _chunks(frame, origin, numbers=numbers, source=source)
    parts = [encode_cells(chunk, column, source=source) for chunk in chunks]
    return np.concatenate(parts) if parts else np.empty(0, dtype=column.dtype)


def _chunks(frame: pd.DataFrame | pa.Table, name: str, *, numbers: bool, source: str) -> list[pa.Array]:
    if isinstance(frame, pd.DataFrame):
        return [frame_cells(frame[name], numbers=numbers, source=source)]
    chunks: list[pa.Array] = frame.column(name).chunks
    return chunks


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """One array of all chunks: those of two columns may be cut at different rows."""
    return pa.chunked_array(chunks).combine_chunks() if chunks else pa.array([], pa.float64())


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
    if isinstance(column, Categorical):
        empty = codes >= column.declared if column.has_missing else None
        return pa.array(_padded(column.values, column, np.int64)[codes], mask=empty)
    outside = column.outside_code
    nameless = column.declared if outside is None else outside + 1
    numbers = pa.array(
        _inside_bins(codes, column, rng), mask=codes >= nameless if column.has_missing else None
    )
    if not isinstance(column.not_in_universe, str):
        return numbers
    return pc.if_else(pa.array(codes == outside), column.not_in_universe, numbers.cast(pa.string()))


def _inside_bins(
    codes: NDArray[np.integer[Any]], column: Integer | Real, rng: np.random.Generator
) -> NDArray[Any]:
    """A uniform draw inside each row's bin.

    With u <= 1 - 2^-53 the product u*w of a width w <= 2^53 is rounded to a float below w, so a whole number
    never leaves its bin; a real sum may round up to the upper edge, the next bin's, and is held below it.
    """
    edges = np.array(column.edges, dtype=np.int64 if isinstance(column, Integer) else np.float64)
    outside = 0 if isinstance(column.not_in_universe, str | None) else column.not_in_universe
    low_of = _padded(edges[:-1], column, edges.dtype, outside=outside)
    width_of = _padded(np.diff(edges), column, np.float64)
    drawn: NDArray[Any] = low_of[codes]
    if isinstance(column, Integer) and width_of.max() == 1:
        return drawn
    below = None
    if isinstance(column, Real):
        below = _padded(np.nextafter(edges[1:], -np.inf), column, np.float64, outside=outside)
    for start in range(0, len(codes), _CACHED_ROWS):
        own, some = drawn[start : start + _CACHED_ROWS], codes[start : start + _CACHED_ROWS]
        steps = rng.random(len(some)) * width_of[some]
        own += steps if below is not None else steps.astype(np.int64)
        if below is not None:
            np.minimum(own, below[some], out=own)
    return drawn


def _padded(values: Any, column: AnyColumn, dtype: Any, *, outside: float = 0) -> NDArray[Any]:
    """The values, then `outside` for what is not in universe and zero for OTHER and NULL: every code has an entry."""
    padded = np.zeros(column.size, dtype=dtype)
    padded[: column.declared] = values
    if not isinstance(column, Categorical) and column.outside_code is not None:
        padded[column.outside_code] = outside
    return padded


def _to_pandas(cells: pa.ChunkedArray, field: pa.Field) -> Any:
    if pa.types.is_dictionary(field.type):
        return cells.cast(pa.string()).to_pandas()
    if field.nullable and pa.types.is_integer(field.type):
        return cells.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return cells.to_pandas()
