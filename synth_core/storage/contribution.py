"""Bound how many rows one unit (a person, a household) contributes, so that its privacy can be promised.

Which rows of a unit are kept is decided by a keyed hash of the rows themselves, unit by unit. So the choice does not
depend on the order of the file, nor on any other unit: adding or removing a unit adds or removes at most `most` rows
and changes no others. Units are told apart by a keyed 128-bit hash of their names; that two of n units share one has a
probability below n^2 / 2^129, under 10^-20 for a billion units.

What is one name is declared in the schema (`unit_kind`): of kind integer, 7, "7", "007" and "7.0" are one unit; of kind
text, cells are compared as they stand, and a number is its text. Every door of the product bounds units by these
functions: `bound_for`, then `unit_hashes` and `kept_rows`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from synth_core.domain import Codes
from synth_core.errors import SourceError, SpecError
from synth_core.privacy.accounts import Account
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.cells import as_text, as_whole, distinct_cells, frame_cells, is_missing, is_readable
from synth_core.schema.columns.inside import is_place

MAX_EXACT = 2.0**53
"""Floating-point numbers up to here tell neighbouring whole numbers apart."""

UNIT_COLUMNS = ("unit hash, high half", "unit hash, low half")
"""Columns of a partition under construction; they are gone when it is finished."""


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """At most `most` rows of each unit, named in `column` of the source, are kept.

    It does not show its key, because what is shown may end in a log.
    """

    column: str
    most: int
    key: bytes = field(repr=False)
    kind: Literal["text", "integer"] = "text"


def bound_for(schema: Schema, account: Account, key: bytes) -> ContributionBound | None:
    """Returns the bound under which a release of this account encodes its rows.

    Args:
        schema: says which column names the unit, and of which kind it is.
        account: says how many rows one unit may have.
        key: the secret that decides which rows are kept.

    Returns:
        None where the schema names no unit column: each record is then a unit, as the account declares.

    Raises:
        SpecError: if the account allows several rows of one unit and the schema does not say whose they are.
    """
    check_unit_declared(schema, account)
    if schema.unit_column is None:
        return None
    return ContributionBound(schema.unit_column, account.rows_per_unit, key, schema.unit_kind)


def check_unit_declared(schema: DeclaredSchema, account: Account) -> None:
    """Raises SpecError if the account allows several rows of one unit and the schema does not say whose they are."""
    if account.rows_per_unit > 1 and schema.unit_column is None:
        raise SpecError(
            f"dataset {account.dataset!r} allows {account.rows_per_unit} rows of one {account.unit}; "
            "the schema must say which column names the unit (unit_column), so that more are not used"
        )


def check_unit_column(names: Sequence[str], column: str, *, source: str) -> None:
    """Raises SourceError unless exactly one of the source's columns has the name of the unit column."""
    if names.count(column) != 1:
        raise SourceError(f"{source}: column {column!r}, which names the unit of each row, must be there exactly once")


def check_unit_type(kind: pa.DataType, column: str, *, source: str) -> None:
    """Raises SourceError if units cannot be named by cells of this Arrow type."""
    if not is_readable(kind, times=False):
        raise SourceError(
            f"{source}: column {column!r} names the unit of each row and is neither text nor numbers; convert it"
        )


def bounded_frame(
    frame: pd.DataFrame, codes: dict[str, Codes], bound: ContributionBound, *, source: str
) -> dict[str, Codes]:
    """Returns the codes of those rows of a frame that the bound keeps.

    Args:
        frame: the rows, with the column that names their units.
        codes: what they were encoded to, in the same order.
        bound: how many rows of a unit are kept.
        source: the frame's name, for the refusal.

    Raises:
        SourceError: if the unit column is missing, or a unit has no name that can be read.
    """
    check_unit_column(list(frame.columns), bound.column, source=source)
    series = frame[bound.column]
    if series.dtype == np.dtype(object) and any(map(_is_rounded, series)):
        raise _rounded(bound, source)
    cells = frame_cells(series, numbers=bound.kind == "integer", source=source)
    (kept,) = kept_rows([codes | unit_hashes(cells, bound, source=source)], bound)
    return {name: column[kept] for name, column in codes.items()}


def unit_hashes(
    cells: pa.Array | pa.ChunkedArray, bound: ContributionBound, *, source: str
) -> dict[str, NDArray[np.uint64]]:
    """Returns keyed hashes of the units' names, in two halves under the names of UNIT_COLUMNS.

    Args:
        cells: the column that names the unit of each row.
        bound: its name, its kind and the key.
        source: the source's name, for the refusal.

    Raises:
        SourceError: if a name is missing, or is no whole number where it should be.
    """
    check_unit_type(cells.type, bound.column, source=source)
    chunks = cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]
    key = hashlib.blake2b(bound.key, person=b"unit").digest()
    halves = np.concatenate([np.empty((0, 2), "<u8"), *(_hashed(chunk, bound, key, source) for chunk in chunks)])
    return {name: np.ascontiguousarray(halves[:, i]) for i, name in enumerate(UNIT_COLUMNS)}


def _hashed(chunk: pa.Array, bound: ContributionBound, key: bytes, source: str) -> NDArray[np.uint64]:
    """The hashes of one chunk; each distinct name that a row has is hashed once."""
    coded = distinct_cells(chunk)
    if coded.indices.null_count:
        raise _nameless(bound, source)
    places, indices = np.unique(coded.indices.to_numpy(zero_copy_only=False), return_inverse=True)
    names = (_unit_name(name, bound, source) for name in coded.dictionary.take(pa.array(places)).to_pylist())
    digests = b"".join(hashlib.blake2b(name.encode(), key=key, digest_size=16).digest() for name in names)
    found: NDArray[np.uint64] = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)[indices]
    return found


def _unit_name(cell: Any, bound: ContributionBound, source: str) -> str:
    """The one way to write this unit's name."""
    if is_missing(cell) or cell == "":
        raise _nameless(bound, source)
    if _is_rounded(cell):
        raise _rounded(bound, source)
    if bound.kind == "text":
        return as_text(cell)
    whole = as_whole(cell)
    if whole is None:
        raise SourceError(
            f"{source}: column {bound.column!r} names the unit of each row and has a value that is no whole number; "
            "correct it or declare unit_kind: text"
        )
    return str(whole)


def _is_rounded(cell: Any) -> bool:
    """Whether a cell is a number that may have been another before it became a floating-point number."""
    return isinstance(cell, float | np.floating) and abs(float(cell)) > MAX_EXACT


def _rounded(bound: ContributionBound, source: str) -> SourceError:
    return SourceError(
        f"{source}: column {bound.column!r} names units by floating-point numbers beyond 2^53, which may be rounded; "
        "store them as whole numbers or text"
    )


def _nameless(bound: ContributionBound, source: str) -> SourceError:
    return SourceError(f"{source}: column {bound.column!r} names the unit of each row and is empty in some; fill it")


def kept_rows(parts: Iterable[dict[str, NDArray[Any]]], bound: ContributionBound) -> list[NDArray[np.bool_]]:
    """For each part of a table with unit hashes, which of its rows are kept; one part is looked at a time."""
    hashes = [
        (*(part[name] for name in UNIT_COLUMNS), _row_hashes(part, bound.key), _place_hashes(part, bound.key))
        for part in parts
    ]
    high, low, rank, places = (np.concatenate(column) for column in zip(*hashes, strict=True))
    order = np.lexsort((places, rank, low, high))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    at = np.arange(len(order))
    within_unit = at - np.maximum.accumulate(np.where(first, at, 0))
    kept = np.empty(len(order), dtype=np.bool_)
    kept[order] = within_unit < bound.most
    ends = np.cumsum([len(halves[0]) for halves in hashes])
    return np.split(kept, ends[:-1])


def _place_hashes(part: dict[str, NDArray[Any]], key: bytes) -> NDArray[np.uint64]:
    """Keyed numbers for the places of each row, so that neither order nor size decides among rows of equal codes."""
    digest = hashlib.blake2b(key, person=b"place", digest_size=8).digest()
    factor = np.uint64(int.from_bytes(digest, "little") | 1)
    found = np.zeros(len(part[UNIT_COLUMNS[0]]), dtype=np.uint64)
    for name, own in part.items():
        if is_place(name):
            found = (found + own + np.uint64(1)) * factor
    return found


def _row_hashes(part: dict[str, NDArray[Any]], key: bytes) -> NDArray[np.uint64]:
    """Keyed hashes of the rows' codes: equal rows have equal hashes, and which of them is kept their places say."""
    codes = [own for name, own in part.items() if name not in UNIT_COLUMNS and not is_place(name)]
    rows = np.column_stack(codes).astype("<u4")
    width, data = rows.shape[1] * 4, rows.tobytes()
    key = hashlib.blake2b(key, person=b"row").digest()
    digests = b"".join(
        hashlib.blake2b(data[start : start + width], key=key, digest_size=8).digest()
        for start in range(0, len(data), width)
    )
    return np.frombuffer(digests, dtype="<u8")
