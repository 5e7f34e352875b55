"""Plain CSV text to codes by compiled loops, or nothing where the text is not plain (see `csv_kernels`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.cells import Codes, as_whole, bin_edges
from synth_core.columns import AnyColumn, Categorical, Comparison, Integer
from synth_core.schema import Schema
from synth_core.storage.csv_kernels import code_numbers, code_words, find_cells, letter_sum

BLOCK_ROWS = 4096
"""Rows whose cells are found before they are coded: their places stay in the second cache."""

Coder: TypeAlias = Callable[[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]], bool]


def plain_codes(text: bytes, names: Sequence[str], schema: Schema) -> dict[str, Codes] | None:
    """The codes of lines without their header, or None where a cell is not plain."""
    letters = np.frombuffer(text, dtype=np.uint8)
    columns = schema.columns
    origins = [column.origins(names)[0] for column in columns]
    coders = [_coder(column, names) for column in columns]
    positions = {name: k for k, name in enumerate(dict.fromkeys(origins))}
    fields = np.array([positions.get(name, -1) for name in names], dtype=np.int64)
    most = int(np.count_nonzero(letters == ord("\n"))) + 1
    codes = [np.empty(most, dtype=column.dtype) for column in columns]
    cells = np.empty((BLOCK_ROWS, len(positions), 3), dtype=np.int64)
    at = done = 0
    while at < len(letters):
        rows, at = find_cells(letters, at, fields, cells)
        if rows < 0:
            return None
        for origin, coder, own in zip(origins, coders, codes, strict=True):
            if coder is None or not coder(letters, cells[:rows, positions[origin]], own[done : done + rows]):
                return None
        done += rows
    return {column.name: own[:done] for column, own in zip(columns, codes, strict=True)}


def _coder(column: AnyColumn, names: Sequence[str]) -> Coder | None:
    """The loop that codes this column's cells, with the tables it needs, if there is one; no code for a cell is -1."""
    if isinstance(column, Categorical) and (compare := column.comparison(names)):
        return _comparing_coder(column, compare)
    empty = -1 if column.null_code is None else column.null_code
    unseen = -1 if column.other_code is None else column.other_code
    if not isinstance(column, Categorical):
        edges, whole, clip = bin_edges(column), isinstance(column, Integer), column.unseen == "clip"
        word, mark = _outside(column.not_in_universe)
        outside = -1 if column.outside_code is None else column.outside_code
        return lambda text, cells, codes: code_numbers(
            text, cells, edges, whole, clip, word, mark, outside, empty, unseen, codes
        )
    # What is no declared whole number letter by letter may still be one, written otherwise.
    other = unseen if column.is_text else -1
    slots, words, letters = _word_table({str(value): code for value, code in column.code_of.items()})
    return lambda text, cells, codes: code_words(text, cells, slots, words, letters, empty, other, codes)


def _comparing_coder(column: Categorical, compare: Comparison) -> Coder | None:
    """A comparison with a number asks in which of three bins a cell is: below, equal or above."""
    if isinstance(compare.right, str) or len(column.kept) > 1:
        return None
    edges = np.array([-np.inf, compare.right, np.nextafter(compare.right, np.inf), np.inf])
    results = [compare.then if compare.holds(side, 0) else compare.otherwise for side in (-1, 0, 1)]
    value, code = next(iter(column.kept.items()), (None, -1))
    word, mark = _outside(value)
    code_of = np.array([*(column.code_of[result] for result in results), code, column.null_code or -1])
    empty = -1 if column.null_code is None else 4

    def coder(text: NDArray[np.uint8], cells: NDArray[np.int64], codes: NDArray[Any]) -> bool:
        places = np.empty(codes.size, dtype=np.uint8)
        if not code_numbers(text, cells, edges, False, False, word, mark, 3, empty, -1, places):
            return False
        codes[:] = code_of[places]
        return True

    return coder


def _outside(declared: int | float | str | None) -> tuple[NDArray[np.uint8], float]:
    """A mark among numbers as letters and as a number; no letters and NaN are nothing that a cell holds."""
    word = declared if isinstance(declared, str) else ""
    mark = as_whole(declared) if isinstance(declared, str) else declared
    return np.frombuffer(word.encode(), dtype=np.uint8), math.nan if mark is None else float(mark)


def _word_table(values: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """An open hash table of the values, at most half full, with their codes."""
    slots = np.full(1 << (2 * len(values)).bit_length(), -1, dtype=np.int64)
    encoded = [np.frombuffer(value.encode(), dtype=np.uint8) for value in values]
    ends = np.cumsum([len(word) for word in encoded])
    words = np.column_stack([ends - [len(word) for word in encoded], ends, list(values.values())])
    for number, word in enumerate(encoded):
        slot = letter_sum(word) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = number
    return slots, words.astype(np.int64), np.concatenate(encoded)
