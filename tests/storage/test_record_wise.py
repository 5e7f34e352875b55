"""Record-wise ingestion: the codes of a source are the union of the codes of each of its records alone.

Case by case, hostile records are encoded together and one by one. Either both give the same multiset of rows, or both
are refused. `make test` runs 20,000 cases; `make soak-ingest CASES=1000000` runs more of them.
"""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import hostile, seeding

from synth_core.errors import SourceError
from synth_core.schema.codec import encode_numbers
from synth_core.storage import sources
from synth_core.storage.sources import encoded_batches, pieces

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("RECORD_WISE_CASES", "20000"))
"""How many cases all forms of a source have together."""

FIRST = int(os.environ.get("RECORD_WISE_FIRST", seeding.SEED * 1_000_000))
"""Number of the first case of each form; another seed of the tests has other cases."""

REFUSED = "refused"


def cases(share: float) -> range:
    return range(FIRST, FIRST + max(1, round(CASES * share)))


def rows_of(parts):
    """The rows of codes as a multiset."""
    found = Counter()
    for codes in parts:
        found.update(zip(*(column.tolist() for column in codes.values()), strict=True))
    return found


def file_rows(path, schema):
    try:
        return rows_of(codes for piece in pieces(str(path), schema) for codes in encoded_batches(piece, schema))
    except SourceError:
        return REFUSED


def union(alone):
    return REFUSED if REFUSED in alone else sum(alone, Counter())


def small_blocks(monkeypatch, rng):
    """Borders of blocks, pieces and batches fall anywhere."""
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", rng.choice([12, 40, 1 << 20, 1 << 20]))
    monkeypatch.setattr(sources, "_LINE_BYTES", rng.choice([5, 1 << 16]))
    monkeypatch.setattr(sources, "PARSED_BYTES", rng.choice([1, 20, 1 << 20, 1 << 20]))
    monkeypatch.setattr(sources, "PARQUET_BATCH_ROWS", rng.choice([1, 2, 100]))


class Tally:
    """Counts the outcomes, so that a law that is never put to the test does not pass."""

    def __init__(self):
        self.of = Counter()

    def check(self, number, together, alone, shown):
        assert together == union(alone), f"case {number}: {shown}"
        self.of[together == REFUSED] += 1

    def finish(self):
        total = sum(self.of.values())
        assert total < 100 or min(self.of[True], self.of[False]) > total / 20, self.of


@lru_cache(maxsize=100_000)
def lone_line(number, line):
    """What a line gives alone, with its end, in the source of that number."""
    names, schema = hostile.SOURCES[number]
    try:
        table = sources.parse_lines(line, names, sources._csv_types(schema, names), address="one line")
        return rows_of([encode_numbers(table, schema)])
    except SourceError:
        return REFUSED


@pytest.mark.parametrize(("ending", "share"), [("csv", 0.6), ("csv.gz", 0.31)])
def test_lines_together_give_what_each_gives_alone(tmp_path, monkeypatch, ending, share):
    path, tally = tmp_path / f"all.{ending}", Tally()
    for number in cases(share):
        rng = random.Random(number)
        small_blocks(monkeypatch, rng)
        kind = rng.randrange(len(hostile.SOURCES))
        names, schema = hostile.SOURCES[kind]
        lines = [hostile.csv_line(rng, names) for _ in range(rng.randrange(1, 6))]
        lines += rng.choices(lines, k=rng.randrange(3))
        end = rng.choice([b"\n", b"\r\n"])
        open_end = rng.random() < 0.3 and lines[-1].strip(b"\r") == lines[-1] != b""
        text = ",".join(names).encode() + b"\n" + end.join(lines) + (b"" if open_end else end)
        text = (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + text
        path.unlink(missing_ok=True)  # a file that is written over waits for the disk
        path.write_bytes(packed(rng, text) if ending == "csv.gz" else text)
        tally.check(number, file_rows(path, schema), [lone_line(kind, line + end) for line in lines], text)
    tally.finish()


def packed(rng, text):
    """The text as one or two members of a gzip file, cut anywhere."""
    at = rng.randrange(len(text) + 1)
    members = [text] if rng.random() < 0.5 else [text[:at], text[at:]]
    return b"".join(gzip.compress(member, 1, mtime=0) for member in members)


ROWS = {}
"""What rows of objects gave alone, by their source and the types and texts of their cells, which say all of them."""


def lone_rows(frame, kind):
    """What each row gives alone, as a frame of objects, in the source of that number."""
    found = []
    for cells in zip(*frame.values(), strict=True):
        known = kind, tuple((type(cell), repr(cell)) for cell in cells)
        if known not in ROWS:
            if len(ROWS) >= 100_000:  # a soak meets millions
                ROWS.clear()
            row = {name: pd.Series([cell], dtype=object) for name, cell in zip(frame, cells, strict=True)}
            ROWS[known] = frame_rows(pd.DataFrame(row), hostile.SOURCES[kind].schema)
        found.append(ROWS[known])
    return found


def frame_rows(frame, schema):
    try:
        return rows_of([encode_numbers(frame, schema)])
    except SourceError:
        return REFUSED


def test_rows_of_a_frame_together_give_what_each_gives_alone():
    tally = Tally()
    for number in cases(0.05):
        rng = random.Random(number)
        kind = rng.choice(range(len(hostile.SOURCES)))
        names, schema = hostile.SOURCES[kind]
        size = rng.randrange(1, 5)
        cells = {name: hostile.frame_column(rng, name, size) for name in names}
        objects = {name: np.empty(size, dtype=object) for name in cells}
        for name, column in cells.items():
            objects[name][:] = column
        frame = pd.DataFrame({name: hostile.frame_series(rng, column) for name, column in cells.items()})
        tally.check(number, frame_rows(frame, schema), lone_rows(objects, kind), (cells, frame.dtypes.to_dict()))
    tally.finish()


def test_rows_of_a_parquet_file_together_give_what_each_gives_alone(tmp_path, monkeypatch):
    path, tally = tmp_path / "all.parquet", Tally()
    for number in cases(0.04):
        rng = random.Random(number)
        small_blocks(monkeypatch, rng)
        kind = rng.choice(range(len(hostile.SOURCES)))
        names, schema = hostile.SOURCES[kind]
        size = rng.randrange(1, 5)
        table = pa.table({name: hostile.arrow_column(rng, name, size) for name in names})
        path.unlink(missing_ok=True)
        pq.write_table(table, path, row_group_size=rng.choice([1, 2, 10]), use_dictionary=rng.random() < 0.5)
        typed = [frame_rows(table.slice(row, 1), schema) for row in range(size)]
        tally.check(number, file_rows(path, schema), typed, table)
        if REFUSED not in typed:
            objects = {name: table.column(name).to_pylist() for name in table.column_names}
            assert typed == lone_rows(objects, kind), f"case {number}: {table}"
    tally.finish()
