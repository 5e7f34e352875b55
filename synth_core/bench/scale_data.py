"""Made-up census tables of any length and width, the same for the same numbers, written a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.schema import Schema
from synth_core.schema.codec import decode_table

BLOCK_ROWS = 250_000
COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 20},
    {"name": "class_of_worker", "values": 9},
    {"name": "education", "values": 16},
    {"name": "marital", "values": 7},
    {"name": "occupation", "values": 15},
    {"name": "relation", "values": 6},
    {"name": "ancestry", "values": 5},
    {"name": "sex", "values": 2},
    {"name": "birthplace", "values": 42},
    {"name": "hours", "kind": "integer", "bounds": [0, 79], "bins": 16},
    {"name": "income", "kind": "integer", "bounds": [0, 49_999], "bins": 20},
    {"name": "rent", "kind": "integer", "bounds": [0, 1999], "bins": 10},
    {"name": "tenure", "values": 5},
    {"name": "veteran", "values": 2},
    {"name": "vehicles", "values": 4},
)
"""The first fifteen columns, of sizes like those of the Adult table; wider tables repeat them."""


def census_schema(columns: int) -> Schema:
    """A schema of that many columns."""
    return Schema.model_validate({"columns": [_column(k) for k in range(columns)]})


def census_blocks(rows: int, columns: int, *, seed: int = 0) -> Iterator[NDArray[np.uint8]]:
    """Codes, one row for each record; each column leans on the one before it and on something all share."""
    sizes = np.array(census_schema(columns).domain.sizes)
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([seed, number])
        count = min(BLOCK_ROWS, rows - start)
        shared = rng.random(count, dtype=np.float32)
        before = shared
        codes = np.empty((columns, count), dtype=np.uint8)
        for k, size in enumerate(sizes):
            own = rng.random(count, dtype=np.float32)
            before = 0.3 * shared + 0.4 * before + 0.3 * own * own
            codes[k] = np.minimum(before * before * np.float32(size * 1.2), np.float32(size - 1))
        yield codes.T


def write_source(path: Path, rows: int, columns: int, *, seed: int = 0) -> None:
    """Write the table as text and numbers, to CSV or Parquet by the name's ending."""
    schema = census_schema(columns)
    writer = None
    for number, codes in enumerate(census_blocks(rows, columns, seed=seed)):
        block = decode_table(codes, schema, np.random.default_rng([seed, number, 1]))
        if writer is None:
            writer = (
                _csv_writer(path, block.schema)
                if path.name.endswith(".csv")
                else pq.ParquetWriter(path, block.schema)
            )
        writer.write_table(block)
    if writer is not None:
        writer.close()


def _csv_writer(path: Path, schema: Any) -> Any:
    return pa_csv.CSVWriter(path, schema, write_options=pa_csv.WriteOptions(quoting_style="needed"))


def _column(number: int) -> dict[str, Any]:
    turn, kind = divmod(number, len(COLUMNS))
    column = dict(COLUMNS[kind])
    if isinstance(column.get("values"), int):
        column |= {
            "kind": "categorical",
            "values": [f"{column['name'][:4]}-{k}" for k in range(column["values"])],
        }
    return column | ({"name": f"{column['name']}_{turn + 1}"} if turn else {})
