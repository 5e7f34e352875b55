"""Records that try to reach beyond themselves: a generator for the law of record-wise ingestion.

Everything a case holds follows from its number, so that a failure is run again with that number alone.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from synth_core.schema import Schema

WORDS = ["a", "1", "1.5", "True", "é", 'q"', "a,b", "2020-01-01", "2020-01-01 00:00:00", "NA", "x y", '"']
WORD = {"name": "word", "kind": "categorical", "values": WORDS, "unseen": "other", "nullable": True}
WHOLE = {
    "name": "whole",
    "kind": "categorical",
    "values": [0, 1, 7, -3, 2**53 + 1, 10**22],
    "unseen": "other",
    "nullable": True,
}
AGE = {
    "name": "age",
    "kind": "integer",
    "bins": [0, 2, 18, 100],
    "unseen": "clip",
    "not_in_universe": "N",
    "nullable": True,
}
PAY = {
    "name": "pay",
    "kind": "real",
    "bins": [-1.5, 0.0, 0.1, 1.5, 1e16],
    "unseen": "other",
    "nullable": True,
}
LOAD = {
    "name": "load",
    "kind": "categorical",
    "values": ["full", "part", "N", "1.5"],
    "compare": {"left": "age", "is": ">=", "right": "pay", "then": "full", "otherwise": "part"},
    "nullable": True,
}
STRICT = [{"name": "word", "kind": "categorical", "values": WORDS}, WHOLE | {"unseen": "refuse"}]


class Source(NamedTuple):
    """Columns of a file or frame, and what is declared of them; `extra` is not."""

    names: tuple[str, ...]
    schema: Schema


def _source(names: str, *columns: dict[str, object]) -> Source:
    return Source(tuple(names.split()), Schema.model_validate({"columns": list(columns)}))


SOURCES = [
    _source("word", WORD),
    _source("word extra", WORD),
    _source("age extra whole", WHOLE, AGE),
    _source("pay age", PAY, LOAD),
    _source("word whole", *STRICT),
]

TEXTS = ["", "a", "1", "1.5", "é", "x y", "NA", "True", "other", " a", "\ufeffa", "a\x00", "2020-01-01"]
NUMBERS = [
    "",
    "0",
    "1",
    "1.0",
    "01",
    "+7",
    "-3",
    "1.5",
    "0.1",
    "1e3",
    "99",
    "nan",
    "inf",
    "9007199254740993",
    "-0",
]
MARKS = ["N", " 1", "1 ", "one", "1_000", "0x1", "\x00", "1" * 500]
"""What an age may be and a pay may not, and what neither may be."""

BREAKERS = [
    '"',
    '"oops',
    'oops"',
    'a"b',
    '""',
    '"""',
    '"a""',
    '"a"b"',
    ',"',
    '",',
    "\r",
    "\r\r",
    '"\r"',
    "\xa0",
    "\x85",
    "\u2028",
]
"""Quotes, separators and things that some programs take for the end of a line."""

RAW = [b"", b'"', b"\xff", b"\xc3", b"\xa9", b"\xef\xbb\xbf", b"\x00", b"\r", b",", b'"""', b",,,,,"]


def csv_line(rng: random.Random, names: tuple[str, ...]) -> bytes:
    """One line without its end."""
    if rng.random() < 0.03:
        return b"".join(rng.choices(RAW, k=rng.randrange(4)))
    line = ",".join(_field(rng, name) for name in names).encode()
    if rng.random() < 0.03:
        at = rng.randrange(len(line) + 1)
        line = line[:at] + rng.choice(RAW) + line[at:]
    return line


def _field(rng: random.Random, name: str) -> str:
    draw = rng.random()
    if draw < 0.06:
        return rng.choice(BREAKERS)
    if draw < 0.07:
        return rng.choice(MARKS)
    if name == "extra":
        return rng.choice(TEXTS)
    if name == "word":
        text = rng.choice(WORDS if draw < 0.6 else TEXTS)
    else:
        text = rng.choice(["N", *NUMBERS] if name == "age" and draw > 0.9 else NUMBERS)
        text = text if name != "age" or text not in ("1.5", "0.1") else "12"
    if draw > 0.7 or any(letter in text for letter in '",'):
        return '"' + text.replace('"', '""') + '"'
    return text


LONE_SURROGATE = "\ud800"
"""A Python string that is no Unicode text."""

NOTHING = [None, float("nan"), pd.NA, pd.NaT, Decimal("NaN"), np.datetime64("NaT")]
CELLS = {
    str: ["a", "1", "1.5", "1.0", "True", "é", "", "x y", "01", "7", np.str_("a"), "9007199254740993"],
    bool: [True, False],
    int: [0, 1, 7, -3, 99, 2**53 + 1, np.int8(7), np.uint8(1), 10**22, 2**64 + 1],
    float: [0.0, -0.0, 1.0, 1.5, 7.0, 0.1, 1e16, 1e22, np.float32(1.5), np.float32(0.1), float("inf"), -2.25],
    Decimal: [
        Decimal("1"),
        Decimal("1.0"),
        Decimal("1.50"),
        Decimal("7.00"),
        Decimal("0.1"),
        Decimal("1E+2"),
    ],
    dt.date: [
        dt.date(2020, 1, 1),
        dt.datetime(2020, 1, 1),
        pd.Timestamp(2020, 1, 1),
        np.datetime64("2020-01-01"),
    ],
    object: [b"a", [1], dt.timedelta(1), dt.time(1), 1j, LONE_SURROGATE, 10**500],
}
"""What a column of Python objects may hold; the last kind has no reading."""


def frame_column(rng: random.Random, name: str, rows: int) -> list[object]:
    """Cells of one column, of few kinds."""
    kinds: list[type] = rng.choices([str, bool, int, float, Decimal], k=rng.randrange(1, 4))
    if name == "word" and rng.random() < 0.3:
        kinds.append(dt.date)
    if rng.random() < 0.01:
        kinds.append(object)
    cells = [cell for kind in kinds for cell in CELLS[kind]]
    if name in ("age", "pay"):
        cells = [cell for cell in cells if not isinstance(cell, str) or cell not in ("a", "True", "é", "", "x y")]
    if name == "age":
        cells = [cell for cell in cells if _is_whole(cell)]
    cells = cells or [1]
    return [rng.choice(NOTHING) if rng.random() < 0.15 else rng.choice(cells) for _ in range(rows)]


def _is_whole(cell: object) -> bool:
    try:
        return float(cell) == int(float(cell))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return True


def frame_series(rng: random.Random, cells: list[object]) -> pd.Series:
    """The cells as a column, of objects or of a dtype that holds each of them as it is."""
    held = [cell for cell in cells if not _is_nothing(cell)]
    kinds = {type(cell) for cell in held}
    choices = [lambda: pd.Series(cells, dtype=object)]
    if any(isinstance(cell, str) and cell == LONE_SURROGATE for cell in held):
        return choices[0]()  # pandas has no other dtype that holds it
    if not any(isinstance(cell, int) and abs(cell) > 2**53 for cell in held):
        choices.append(lambda: pd.Series(cells))
    plain = [None if _is_nothing(cell) else cell for cell in cells]
    if kinds == {str}:
        choices += [lambda: pd.Series(plain, dtype="string"), lambda: pd.Series(plain, dtype="category")]
    if kinds == {int} and all(abs(cell) < 2**63 for cell in held):
        choices += [
            lambda: pd.Series(plain, dtype="Int64"),
            lambda: pd.Series(plain, dtype="Int64").astype("category"),
        ]
    if kinds == {bool}:
        choices.append(lambda: pd.Series(plain, dtype="boolean"))
    if kinds == {Decimal}:
        choices.append(lambda: pd.Series(plain, dtype=pd.ArrowDtype(pa.decimal128(20, 4))))
    return rng.choice(choices)()


def _is_nothing(cell: object) -> bool:
    return not isinstance(cell, list) and bool(pd.isna(cell))


ARROW_TYPES = {
    "word": [
        (pa.string(), ["a", "1", "1.5", "é", "", "q"]),
        (pa.large_string(), ["a", "x y", "1.0"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "1", "é"]),
        (pa.int64(), [1, 0, 7]),
        (pa.float64(), [1.0, 1.5, 0.1, float("nan")]),
        (pa.float32(), [1.5, 1.0]),
        (pa.decimal128(9, 3), [Decimal("1"), Decimal("1.5"), Decimal("7.250")]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [dt.date(2020, 1, 1)]),
        (pa.timestamp("us"), [dt.datetime(2020, 1, 1)]),
        (pa.null(), [None]),
        (pa.binary(), [b"a"]),
        (pa.time32("s"), [dt.time(1)]),
    ],
    "number": [
        (pa.int8(), [0, 1, 7, -3, 99]),
        (pa.int64(), [0, 1, 2**53 + 1]),
        (pa.uint64(), [7, 2**64 - 1]),
        (pa.float64(), [0.0, -0.0, 1.0, 7.0, 1e16, 1e22, float("nan"), float("inf")]),
        (pa.float32(), [1.0, 7.0]),
        (pa.decimal128(12, 2), [Decimal("1"), Decimal("7.00"), Decimal("99")]),
        (pa.bool_(), [True, False]),
        (pa.string(), ["1", "01", "7.0", "-3", "+1"]),
        (pa.dictionary(pa.int8(), pa.string()), ["1", "7"]),
        (pa.dictionary(pa.int16(), pa.int64()), [1, 7]),
        (pa.null(), [None]),
        (pa.timestamp("ms"), [dt.datetime(2020, 1, 1)]),
    ],
}


def arrow_column(rng: random.Random, name: str, rows: int) -> pa.Array:
    """Cells of one column of a Parquet file."""
    kind, cells = rng.choice(ARROW_TYPES["word" if name in ("word", "extra") else "number"])
    return pa.array([None if rng.random() < 0.15 else rng.choice(cells) for _ in range(rows)], type=kind)
