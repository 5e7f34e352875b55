"""Streams the declared columns of a CSV or Parquet file, a bounded piece at a time.

In a CSV file the first line names the columns, the comma separates them, the text is UTF-8, and an empty
field, quoted or not, is a missing value; no other text is ("NA" is a value like any other). Files ending in
.gz are unpacked on the way.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from synth_core.codec import Codes, check_names, encode
from synth_core.columns import Categorical
from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.storage.contribution import ContributionBound, unit_hashes

CSV_BLOCK_BYTES = 8 << 20
PARQUET_BATCH_ROWS = 131_072

_CSV_ENDINGS = (".csv", ".csv.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")


def encoded_batches(
    path: Path, schema: Schema, bound: ContributionBound | None = None
) -> Iterator[dict[str, Codes]]:
    """The file's rows as codes, in their order, with hashes of their units where contributions are bounded.

    A refusal names the file and the column.
    """
    for batch in table_batches(path, schema):
        codes = encode(batch, schema, source=str(path))
        yield codes if bound is None else codes | unit_hashes(batch, bound, source=str(path))


def table_batches(path: Path, schema: Schema) -> Iterator[pa.Table]:
    """The file's declared columns as they stand, in bounded pieces."""
    name = path.name.lower()
    if name.endswith(_CSV_ENDINGS):
        batches = _csv_batches(path, schema)
    elif name.endswith(_PARQUET_ENDINGS):
        batches = _parquet_batches(path, schema)
    else:
        raise SourceError(
            f"{path}: unknown kind of file; a source is {', '.join(_CSV_ENDINGS + _PARQUET_ENDINGS)}"
        )
    return _without_library_errors(batches, path)


def _without_library_errors(batches: Iterator[pa.Table], path: Path) -> Iterator[pa.Table]:
    """Replace what a reader says about a broken file, which may quote its rows, by a fixed text."""
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error):
            break
        if batch is None:
            return
        yield batch
    raise SourceError(f"{path}: the file cannot be read as what its name says; check that it is complete")


def _csv_batches(path: Path, schema: Schema) -> Iterator[pa.Table]:
    with pa.input_stream(str(path), compression="detect") as stream:
        header = next(csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline="")), [])
    _check_header(header, schema, path)
    # Categories come as dictionaries, so that each distinct text is looked at once; numbers come as text, so
    # that the codec decides what is a number and the refusal can name the column.
    types = {
        column.name: pa.dictionary(pa.int32(), pa.string())
        if isinstance(column, Categorical)
        else pa.string()
        for column in schema.columns
    }
    if schema.unit_column is not None:
        types[schema.unit_column] = pa.string()
    reader = pa_csv.open_csv(
        str(path),
        read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        convert_options=pa_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=True
        ),
    )
    with reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _parquet_batches(path: Path, schema: Schema) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        _check_header(file.schema_arrow.names, schema, path)
        wanted = [*schema.domain, *([schema.unit_column] if schema.unit_column is not None else [])]
        for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=wanted):
            yield pa.Table.from_batches([batch])


def _check_header(names: list[str], schema: Schema, path: Path) -> None:
    check_names(names, schema, source=str(path))
    if schema.unit_column is not None and names.count(schema.unit_column) != 1:
        raise SourceError(
            f"{path}: column {schema.unit_column!r}, which names the unit of each row, must be there exactly once"
        )
