"""Turns tables of text and numbers into codes by a public schema, and codes back into tables.

**Record-wise ingestion**, the lemma on which every guarantee rests: the encoded table is the multiset union of what
each record gives alone, and a source is refused if and only if one of its records alone would be. It holds because
- a record is a line of a CSV file (`storage.sources` has the proof), a row of a Parquet file or a row of a frame;
- a code is a function of the record's own cells, of the declared column and of the source's header: of no type,
  dictionary, order, block or partition in which other rows have a part (`cells`, `columns`);
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

What a cell holds is read in `cells`; which code that has, and how a cell without one is refused, is the column's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from synth_core.domain import Codes
from synth_core.errors import SchemaError, SourceError
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.attached import Attached
from synth_core.schema.cells import frame_cells
from synth_core.schema.columns import AnyColumn
from synth_core.schema.columns.inside import place_name
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.densities import Densities, fit_uniform
from synth_core.schema.value_rules import RuleGroup

Marginal = Callable[[tuple[str]], NDArray[np.float64]]
"""Published or expected counts of a column's codes."""

MAX_MISSING = 5
"""Upper limit of the missing columns that a refusal names."""

NEAR = 0.75
"""Similarity, as difflib counts it, from which one name may be meant by another."""


def encode(frame: pd.DataFrame | pa.Table, schema: Schema, *, source: str = "the source") -> dict[str, Codes]:
    """The codes of every declared column, in the schema's order, each in the smallest unsigned type."""
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    check_names(names, schema, source=source)
    found = {}
    for column in schema.columns:
        cells = _cells(frame, column, source)
        found[column.name] = column.encode(cells, names=names, source=source)
    return found


def encode_numbers(frame: pd.DataFrame | pa.Table, schema: Schema, *, source: str = "the source") -> dict[str, Codes]:
    """What `encode` gives, and after it, under `place_name`, where in their bins the numbers lie."""
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    check_names(names, schema, source=source)
    found, places = {}, {}
    for column in schema.columns:
        cells = _cells(frame, column, source)
        numbers = column.numbers
        if numbers is not None and numbers.place_count > 1:
            found[column.name], places[place_name(column.name)] = numbers.encode_places(cells, source=source)
        else:
            found[column.name] = column.encode(cells, names=names, source=source)
    return found | places


def number_columns(schema: Schema) -> list[NumberBase]:
    """The schema's columns of numbers."""
    return [numbers for column in schema.columns if (numbers := column.numbers) is not None]


def summed_columns(schema: Schema) -> list[NumberBase]:
    """Those of them whose sums inside bins are bought; a bin of one number has no sum to buy."""
    return [column for column in number_columns(schema) if column.moments and column.place_count > 1]


def guess_densities(schema: Schema, marginal: Marginal) -> dict[str, Densities]:
    """Where inside their bins the numbers of each column lie, guessed from published counts.

    Args:
        schema: the public declaration of the columns.
        marginal: gives the counts of one column's codes, for instance a model's `marginal`.
    """
    return {column.name: column.densities(marginal((column.name,))) for column in number_columns(schema)}


def decode_table(
    codes: NDArray[np.integer[Any]],
    schema: Schema,
    rng: np.random.Generator,
    densities: Mapping[str, Densities] | None = None,
) -> pa.Table:
    """Rows of codes, one column for each of the schema's, as a table with the declared names and types.

    Text comes as an Arrow dictionary, whole numbers as int64, reals as float64. A number is drawn inside its bin, from
    the column's density or, without one, uniformly along the bin's scale. NULL becomes null; OTHER becomes the text
    "OTHER", or null where the column holds numbers. What is not in a number's universe is written as declared; where
    that is a word, the whole column is text. Encoding the result by `schema.as_decoded` gives the same codes again,
    except that OTHER of a nullable column without text reads as a missing value.
    """
    if codes.ndim != 2 or codes.shape[1] != len(schema.columns):
        raise SchemaError(f"codes must have one column for each of the schema's {len(schema.columns)}")
    known = densities or {}
    cells: dict[str, pa.Array] = {}
    compared = {column.name for group in schema.value_groups for column in group.columns}
    for position, column in enumerate(schema.columns):
        if column.name not in compared:
            own = np.ascontiguousarray(codes[:, position])
            cells[column.name] = column.decode(own, rng, known.get(column.name))
    for group in schema.value_groups:
        cells |= _compared_cells(group, codes, schema, rng, known)
    fields = [pa.field(c.name, cells[c.name].type, nullable=c.has_missing) for c in schema.columns]
    named = {column.name: column for column in schema.columns}
    for one in schema.attached:
        cells[one.name] = _attached_cells(one, schema, codes, cells)
        fields.append(pa.field(one.name, cells[one.name].type, nullable=one.has_missing(named)))
    return pa.Table.from_arrays([cells[field.name] for field in fields], schema=pa.schema(fields))


def _attached_cells(
    one: Attached, schema: Schema, codes: NDArray[np.integer[Any]], cells: Mapping[str, pa.Array]
) -> pa.Array:
    """What the decoded row gives of an attached column."""
    if one.lookup is not None:
        column = schema.column(one.lookup.column)
        return one.from_codes(column, codes[:, schema.domain.position(column.name)])
    numbers = {name: schema.column(name).numbers_in(cells[name].to_pandas()) for name in one.needs}
    return one.from_numbers(numbers, whole=all(schema.column(name).kind == "integer" for name in one.needs))


def _compared_cells(
    group: RuleGroup,
    codes: NDArray[np.integer[Any]],
    schema: Schema,
    rng: np.random.Generator,
    densities: Mapping[str, Densities],
) -> dict[str, pa.Array]:
    """Cells of columns that rules compare, in which the rules hold; what is drawn again has a generator of its own."""
    own = {c.name: np.ascontiguousarray(codes[:, schema.domain.position(c.name)]) for c in group.columns}
    known = {c.name: densities.get(c.name) or fit_uniform(c.scales) for c in group.columns}
    numbers = {}
    for column in group.columns:
        column.check_codes(own[column.name])
        numbers[column.name] = column.draw(own[column.name], rng, known[column.name])
    group.settle(numbers, own, rng.spawn(1)[0], known)
    return {c.name: c.written(own[c.name], numbers[c.name]) for c in group.columns}


def decode(
    codes: NDArray[np.integer[Any]],
    schema: Schema,
    rng: np.random.Generator,
    densities: Mapping[str, Densities] | None = None,
) -> pd.DataFrame:
    """`decode_table` as a pandas frame: text as str, whole numbers as int64 or, with nulls, Int64."""
    return to_frame(decode_table(codes, schema, rng, densities))


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A decoded table as a pandas frame."""
    return pd.DataFrame({name: _to_pandas(table.column(name), table.field(name)) for name in table.column_names})


def check_frame(frame: object, *, source: str) -> None:
    """Refuse what is no table, such as the path of one."""
    if not isinstance(frame, pd.DataFrame | pa.Table):
        kind = type(frame).__name__
        raise SourceError(f"{source}: a data frame is needed, not a {kind}; read a file with pandas.read_csv(path)")


def check_schema(schema: object) -> None:
    """Refuse what is no schema, such as the path of one."""
    if not isinstance(schema, DeclaredSchema):
        kind = type(schema).__name__
        raise SchemaError(f"schema: a Schema is needed, not a {kind}; read a file with Schema.load(path)")


def check_names(names: Iterable[str], schema: Schema, *, source: str) -> None:
    """Refuse a source that lacks declared columns, or has one twice.

    A file without a header has values where names are expected: none of them is quoted, but their places.
    """
    listed = list(names)
    found = Counter(listed)
    missing: dict[str, str] = {}
    for column in schema.columns:
        for origin in column.origins(found):
            if found[origin] == 0:
                own = origin == column.name
                derived = "" if own else f", and so is {origin!r}, from which it is derived"
                missing.setdefault(column.name, derived + _near_name(origin, listed, schema))
            if found[origin] > 1:
                column.refuse(source, "appears more than once; give each column its own name")
    if len(missing) == 1:
        (name, hint) = missing.popitem()
        schema.column(name).refuse(source, f"is missing{hint}; add it to the source or remove it from the schema")
    if missing:
        several = ", ".join(f"{name!r}{hint}" for name, hint in list(missing.items())[:MAX_MISSING])
        more = f" and {len(missing) - MAX_MISSING} more" if len(missing) > MAX_MISSING else ""
        raise SourceError(
            f"{source}: columns {several}{more} are missing; add them to the source or remove them from the schema"
        )


def _near_name(wanted: str, names: list[str], schema: Schema) -> str:
    """Where a column stands that may be meant, in brackets; nothing where there is none."""
    declared = {column.name for column in schema.columns}
    others = {str(name): place for place, name in enumerate(names, start=1) if name not in declared}
    alike = [name for name in others if name.strip().casefold() == wanted.strip().casefold()]
    if alike:
        return f" (column {others[alike[0]]} of the source has its name but for case or spaces)"
    near = get_close_matches(wanted, others, n=1, cutoff=NEAR)
    return f" (column {others[near[0]]} of the source has nearly its name)" if near else ""


def _cells(frame: pd.DataFrame | pa.Table, column: AnyColumn, source: str) -> list[pa.ChunkedArray]:
    if isinstance(frame, pa.Table):
        return [frame.column(origin) for origin in column.origins(frame.column_names)]
    names, numbers = frame.columns, column.reads_numbers(frame.columns)
    read = [frame_cells(frame[name], numbers=numbers, source=source) for name in column.origins(names)]
    return [pa.chunked_array([one]) for one in read]


def _to_pandas(cells: pa.ChunkedArray, field: pa.Field) -> Any:
    if pa.types.is_dictionary(field.type):
        return cells.cast(pa.string()).to_pandas()
    if field.nullable and pa.types.is_integer(field.type):
        return cells.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return cells.to_pandas()
