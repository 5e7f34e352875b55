"""Compiled reading of plain CSV text straight to codes: find the cells of some rows, then code them column by column.

Plain means: every declared cell is a declared value letter by letter, a decimal number of at most fifteen digits, the
word for "not in universe", or empty where that has a code. The first cell that is not ends the reading with nothing,
and the text is read again by Arrow and the codec, which know every other way to write a cell and word the refusals. So
this is only ever faster.

The loops call no other compiled function: the call would cost more than the cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.models.compiled import compiled

Text = NDArray[np.uint8]
Index = NDArray[np.int64]
Cells = NDArray[np.int64]
"""Where each cell begins and ends, without its quotes, and a mixed sum of its letters; rows, columns, these three."""

MOST_DIGITS = 15
"""Numbers below 10^15 and powers of ten up to 10^15 are exact as float64, so their quotient is rounded but once."""

_COMMA, _LINE_FEED, _RETURN, _QUOTE = 44, 10, 13, 34
_POINT, _MINUS, _ZERO, _NINE = 46, 45, 48, 57
_LEAST_LETTER, _NOT_ASCII = 32, 128
_MULTIPLIER, _MIX = np.uint32(31), np.uint64(0x9E3779B97F4A7C15)


@compiled
def letter_sum(word: Text) -> np.int64:
    """The mixed sum that `find_cells` gives to a cell with these letters."""
    total = np.uint32(0)
    for k in range(word.size):
        total = total * _MULTIPLIER + np.uint32(word[k])
    return np.int64((np.uint64(total) * _MIX) >> np.uint64(32))


@compiled
def find_cells(text: Text, at: int, fields: Index, cells: Cells) -> tuple[int, int]:
    """Find the cells of as many rows as there is room for: how many rows, and where the next begins; -1 is not plain.

    `fields` gives the column of each field, or -1.
    """
    length, last, row = text.size, fields.size - 1, 0
    while at < length and row < cells.shape[0]:
        if text[at] == _LINE_FEED or text[at] == _RETURN:  # an empty line is no row
            at += 1
            continue
        for f in range(last + 1):
            quoted = at < length and text[at] == _QUOTE
            total = np.uint32(0)
            if quoted:
                at += 1
                begin = at
                while at < length and text[at] != _QUOTE and text[at] >= _LEAST_LETTER:
                    total = total * _MULTIPLIER + np.uint32(text[at])
                    at += 1
            else:
                begin = at
                while at < length and text[at] != _COMMA and text[at] >= _LEAST_LETTER:
                    total = total * _MULTIPLIER + np.uint32(text[at])
                    at += 1
            column = fields[f]
            if column >= 0:
                cells[row, column, 0] = begin
                cells[row, column, 1] = at
                cells[row, column, 2] = np.int64((np.uint64(total) * _MIX) >> np.uint64(32))
            if quoted:
                if at >= length or text[at] != _QUOTE:
                    return -1, at
                at += 1
            if f == last and at < length and text[at] == _RETURN:
                at += 1
            if (at < length and text[at] != (_LINE_FEED if f == last else _COMMA)) or (
                at >= length and f < last
            ):
                return -1, at
            at += 1
        row += 1
    return row, at


@compiled
def code_words(
    text: Text,
    cells: Cells,
    slots: Index,
    words: Index,
    letters: Text,
    empty: int,
    unseen: int,
    codes: NDArray[Any],
) -> bool:
    """Write the codes of one column's cells by its words; whether all were plain.

    `slots` is an open hash table of numbers of `words`, which are (begin, end in `letters`, code).
    """
    mask = slots.size - 1
    for row in range(codes.size):
        begin, end = cells[row, 0], cells[row, 1]
        code = empty if begin == end else unseen
        slot = cells[row, 2] & mask
        while begin < end and slots[slot] >= 0:
            word = slots[slot]
            start, k = words[word, 0], begin
            if words[word, 1] - start == end - begin:
                while k < end and letters[start + k - begin] == text[k]:
                    k += 1
                if k == end:
                    code = words[word, 2]
                    break
            slot = (slot + 1) & mask
        if code < 0:
            return False
        if code == unseen:
            for k in range(begin, end):
                if text[k] >= _NOT_ASCII or text[k] == _QUOTE:  # perhaps no text, or written in another way
                    return False
        codes[row] = code
    return True


@compiled
def code_numbers(  # noqa: C901 - a call would cost more than the cell
    text: Text,
    cells: Cells,
    edges: NDArray[np.float64],
    whole: bool,
    clip: bool,
    word: Text,
    mark: float,
    outside: int,
    empty: int,
    unseen: int,
    codes: NDArray[Any],
) -> bool:
    """Write the codes of one column's cells by its bins; whether all were plain.

    A cell of the letters `word`, or of the number `mark`, has the code `outside`: an empty word and NaN are no cell's.
    """
    for row in range(codes.size):
        begin, end = cells[row, 0], cells[row, 1]
        if begin == end:
            if empty < 0:
                return False
            codes[row] = empty
            continue
        if end - begin == word.size:
            same = 0
            while same < word.size and text[begin + same] == word[same]:
                same += 1
            if same == word.size:
                codes[row] = outside
                continue
        negative = text[begin] == _MINUS
        first = begin + 1 if negative else begin
        value: Any = 0
        digits, scale = 0, 1.0
        point = end
        for k in range(first, end):
            letter = text[k]
            if _ZERO <= letter <= _NINE:
                value = value * 10 + np.int64(letter - _ZERO)
                digits += 1
                scale *= 10.0 if k > point else 1.0
            elif letter == _POINT and point == end and first < k < end - 1:
                point = k
            else:
                return False
        number = -value / scale if negative else value / scale
        if not 0 < digits <= MOST_DIGITS or (whole and number != np.floor(number)):
            return False
        if number == mark:
            codes[row] = outside
            continue
        # `low` becomes how many edges are at most the number; there is no branch to guess wrongly.
        low, left = 0, edges.size
        while left > 0:
            half = (left + 1) >> 1
            low += half if edges[low + half - 1] <= number else 0
            left -= half
        if clip:
            low = min(max(low, 1), edges.size - 1)
        code = low - 1 if 0 < low < edges.size else unseen
        if code < 0:
            return False
        codes[row] = code
    return True
