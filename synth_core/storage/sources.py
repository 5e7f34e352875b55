r"""Reads the declared columns of CSV and Parquet files, in pieces that can be read anywhere and in any order.

Files ending in .gz are unpacked on the way, and are one piece. A Parquet file is refused by the types of its columns
before any of its values are read.

The dialect of CSV, in which a record is a line, whatever the lines hold:
- The first line names the columns. The comma separates fields, the text is UTF-8, a byte order mark may come first.
- A line ends with \n or \r\n; the last one may lack it. A \r anywhere else is refused.
- A field that begins with a quote is quoted: it ends with the next quote that is not doubled, **in the same line**, or
  the file is refused. A quote inside a field that does not begin with one is a letter like any other.
- Each line has as many fields as the header, or the file is refused.
- An empty field, quoted or not, is a missing value; no other text is ("NA" is a value like any other).
- An empty line is no record, except where there is one column: there it is a record with a missing value.

Why no line can touch another (`parse_lines`). Arrow's parser begins each row at the start of a line, in the state of
a line that is alone, and can leave the line only inside quotes. Every row therefore consists of one or more whole
lines. So if there are as many rows as lines, each row is one line, and says what that line says alone; if there are
fewer, some quote did not end in its line and the file is refused. Two things at the text's ends would escape
that count, and a guard line of empty fields before and after the text closes both: Arrow takes an open quote at the end
of its input for closed, and drops a byte order mark at the beginning of its input, which is the beginning of a block
here, and any line may begin one. A lone \r, which Arrow takes for the end of a row, would make more rows than lines and
could hide a quote from the count; so it is refused first. A refusal always has a line that alone would be refused too.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from synth_core.domain import Codes
from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.schema.codec import check_names, encode_numbers
from synth_core.storage.contribution import ContributionBound, check_unit_column, check_unit_type, unit_hashes
from synth_core.storage.locations import ENDINGS, PARQUET_ENDINGS, open_file

CSV_BLOCK_BYTES = 16 << 20
"""Bytes of a CSV file in one piece, and of unpacked text that is read at once."""

PARQUET_BATCH_ROWS = 131_072
"""Rows of a Parquet file that are encoded at once."""

PARSED_BYTES = 4 << 20
"""Bytes of text that Arrow parses in one call: few enough to stay in the processor's caches."""

MAX_LINE_BYTES = CSV_BLOCK_BYTES
"""Upper limit of a line: a piece then reads at most one line beyond its end."""

_LINE_BYTES = 1 << 16
"""Bytes that are read at once while the end of a line is looked for."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""What other programs put between fields, and how it is called."""

ANY_FILE = "the source"
"""What a refusal about records calls their file: which of many files it is would reveal something about the records."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file: the lines that begin in a range of bytes, or a range of Parquet's row groups.

    `names` are a CSV file's columns; `data` is where its first line after them begins.
    """

    address: str
    begin: int
    end: int
    names: tuple[str, ...] = ()
    data: int = 0


def pieces(address: str, schema: Schema) -> list[Piece]:
    """The parts of a file, in order; a file that lacks a declared column is refused."""
    name = address.lower()
    if name.endswith(".csv"):
        return _readable(_csv_pieces, address, schema)
    if name.endswith(".csv.gz"):
        return _readable(_gzip_piece, address, schema)
    if name.endswith(PARQUET_ENDINGS):
        return _readable(_parquet_pieces, address, schema)
    raise SourceError(f"{address}: unknown kind of file; a source is {', '.join(ENDINGS)}")


def encoded_batches(piece: Piece, schema: Schema, bound: ContributionBound | None = None) -> Iterator[dict[str, Codes]]:
    """The piece's rows as codes and places, in their order, with hashes of their units where contributions are bounded.

    A refusal names the column, and no file.
    """
    for batch in piece_batches(piece, schema):
        codes = encode_numbers(batch, schema, source=ANY_FILE)
        if bound is not None:
            codes |= unit_hashes(batch.column(bound.column), bound, source=ANY_FILE)
        yield codes


def piece_batches(piece: Piece, schema: Schema) -> Iterator[pa.Table]:
    """The piece's declared columns as they stand, a bounded number of rows at a time."""
    is_parquet = piece.address.lower().endswith(PARQUET_ENDINGS)
    batches = _parquet_batches(piece, schema) if is_parquet else _csv_batches(piece, schema)
    while (batch := _readable(next, batches, None, address=ANY_FILE)) is not None:
        yield batch


def _readable(read: Callable[..., T], *args: Any, address: str | None = None) -> T:
    """Replace what a reader says about a broken file, which may quote its rows, by a fixed text."""
    try:
        return read(*args)
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error):
        pass
    where = address or args[0]
    raise SourceError(f"{where}: the file cannot be read as what its name says; check that it is complete")


def _csv_pieces(address: str, schema: Schema) -> list[Piece]:
    with open_file(address) as file:
        size = file.size()
        head = _until_newline(file, b"")
    line, newline, _ = head.partition(b"\n")
    names = _names(line, address, schema)
    data = len(line) + len(newline)
    begins = range(data, size, CSV_BLOCK_BYTES)
    return [Piece(address, at, min(at + CSV_BLOCK_BYTES, size), names, data) for at in begins]


def _gzip_piece(address: str, schema: Schema) -> list[Piece]:
    with open_file(address) as file, pa.CompressedInputStream(file, "gzip") as stream:
        line = _until_newline(stream, b"").partition(b"\n")[0]
    return [Piece(address, 0, -1, _names(line, address, schema))]


def _parquet_pieces(address: str, schema: Schema) -> list[Piece]:
    with open_file(address) as opened, pq.ParquetFile(opened) as file:
        fields = file.schema_arrow
        _check_header(fields.names, schema, address)
        for column in schema.columns:
            for origin in column.origins(fields.names):
                column.check_type(fields.field(origin).type, source=address)
        if schema.unit_column is not None:
            check_unit_type(fields.field(schema.unit_column).type, schema.unit_column, source=address)
        return [Piece(address, group, group + 1) for group in range(file.num_row_groups)]


def _names(line: bytes, address: str, schema: Schema) -> tuple[str, ...]:
    remedy = None
    try:
        _check_separator(line.decode("utf-8-sig"), schema, address)
        names = header_names(line)
    except UnicodeDecodeError:
        remedy = "its header is not UTF-8 text; save the file as UTF-8"
    except csv.Error:
        remedy = "its header is no line of its own; end lines with \\n or \\r\\n, and each quote in its line"
    if remedy is not None:  # outside of the handler, whose error quotes the line
        raise SourceError(f"{address}: the file cannot be read as what its name says: {remedy}")
    _check_header(names, schema, address)
    return names


def _check_separator(line: str, schema: Schema, address: str) -> None:
    """Refuse a first line that names no column of the schema, with the likely reason, and without quoting it."""
    wanted = {name for column in schema.columns for name in (column.name, *column.origins(()))}

    def named(separator: str) -> bool:
        return any(part.strip().strip('"') in wanted for part in line.split(separator))

    if named(",") or any(name in line for name in wanted if "," in name):
        return
    for separator, word in SEPARATORS.items():
        if named(separator):
            raise SourceError(
                f"{address}: its fields are separated by {word}; write the file with commas, and numbers with a "
                "decimal point"
            )
    if not any(name.casefold() in line.casefold() for name in wanted):
        raise SourceError(
            f"{address}: its first line names no column of the schema; write the columns' names there, separated by "
            "commas"
        )


def _check_header(names: Sequence[str], schema: Schema, address: str) -> None:
    check_names(names, schema, source=address)
    if schema.unit_column is not None:
        check_unit_column(names, schema.unit_column, source=address)


def _until_newline(file: Any, start: bytes) -> bytes:
    """`start` and what follows in the file up to a line break and perhaps some more, or to the end."""
    found, size = [start], 0
    while more := file.read(_LINE_BYTES):
        found.append(more)
        size += len(more)
        if b"\n" in more:
            break
        if size > MAX_LINE_BYTES:
            raise _too_long()
    return b"".join(found)


def _short_lines(text: bytes) -> bytes:
    """The text; refused if a line of it is too long.

    Whether it is follows from that line alone: in each stretch that a line of the greatest length would fill, another
    line must end.
    """
    begin = 0
    while len(text) - begin > MAX_LINE_BYTES:
        end = text.rfind(b"\n", begin, begin + MAX_LINE_BYTES + 1)
        if end < 0:
            raise _too_long()
        begin = end + 1
    return text


def _too_long() -> SourceError:
    return SourceError(f"{ANY_FILE}: a line has more than {MAX_LINE_BYTES >> 20} MB; write each record on one line")


def csv_bytes(piece: Piece) -> bytes:
    """The whole lines that begin inside the piece's range."""
    follows = piece.begin > piece.data
    with open_file(piece.address) as file:
        # A line begins at `begin` only if the byte before ends one, so that byte is read too.
        file.seek(piece.begin - follows)
        text: bytes = file.read(piece.end - piece.begin + follows)
        if not text.endswith(b"\n"):
            inside = len(text)
            text = _until_newline(file, text)
            text = text[: text.find(b"\n", inside) + 1] or text
    return _short_lines(text.partition(b"\n")[2] if follows else text)


def _unpacked_lines(piece: Piece) -> Iterator[bytes]:
    """The whole lines of a packed file after its header, a block at a time."""
    with open_file(piece.address) as file, pa.CompressedInputStream(file, "gzip") as stream:
        begun = _until_newline(stream, b"").partition(b"\n")[2]
        yield from whole_lines(chain([begun], iter(lambda: stream.read(CSV_BLOCK_BYTES), b"")))


def _csv_batches(piece: Piece, schema: Schema) -> Iterator[pa.Table]:
    types = _csv_types(schema, piece.names)
    for text in map(_short_lines, _unpacked_lines(piece)) if piece.end < 0 else [csv_bytes(piece)]:
        for portion in portions(text):
            yield parse_lines(portion, piece.names, types, address=ANY_FILE)


def _csv_types(schema: Schema, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Categories come as dictionaries, so that each distinct text is looked at once.

    Numbers come as text, so that the codec decides what is a number and the refusal can name the column.
    """
    categories = pa.dictionary(pa.int32(), pa.string())
    types = {
        origin: categories if column.looks_up(names) else pa.string()
        for column in schema.columns
        for origin in column.origins(names)
    }
    return types if schema.unit_column is None else types | {schema.unit_column: pa.string()}


def _parquet_batches(piece: Piece, schema: Schema) -> Iterator[pa.Table]:
    with open_file(piece.address) as opened, _parquet_file(opened, schema) as file:
        names = file.schema_arrow.names
        wanted = dict.fromkeys(origin for column in schema.columns for origin in column.origins(names))
        if schema.unit_column is not None:
            wanted[schema.unit_column] = None
        batches = file.iter_batches(
            batch_size=PARQUET_BATCH_ROWS,
            columns=list(wanted),
            row_groups=range(piece.begin, piece.end),
            use_threads=False,
        )
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _parquet_file(opened: Any, schema: Schema) -> pq.ParquetFile:
    """An opened file whose texts, where each distinct one is looked up, come as a dictionary, as they mostly lie there.

    What a cell says is the same either way, so that the dictionary, which other rows have a part in, decides nothing.
    """
    metadata = pq.read_metadata(opened)
    types = metadata.schema.to_arrow_schema()
    looked_up = {origin for c in schema.columns if c.looks_up(types.names) for origin in c.origins(types.names)}
    texts = [one.name for one in types if one.name in looked_up and one.type in (pa.string(), pa.large_string())]
    return pq.ParquetFile(opened, metadata=metadata, read_dictionary=texts)


def header_names(line: bytes) -> tuple[str, ...]:
    r"""Returns the columns' names in a header line.

    Raises:
        csv.Error: if a quote does not end in the line, or a \r stands inside it.
        UnicodeDecodeError: if it is not UTF-8.
    """
    text = line.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    return tuple(next(csv.reader([text], strict=True), []))


def whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cuts a stream of blocks anew, so that each ends where a line ends."""
    rest: list[bytes] = []
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, block[:end]])
            rest = []
        rest.append(block[end:])
        if sum(map(len, rest)) > MAX_LINE_BYTES:
            raise _too_long()
    if any(rest):
        yield b"".join(rest)


def portions(text: bytes) -> Iterator[bytes]:
    """Cuts whole lines into texts of about `PARSED_BYTES`, each of whole lines."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + PARSED_BYTES - 1) + 1 or len(text)
        yield text[begin:end]
        begin = end


def parse_lines(text: bytes, names: Sequence[str], types: Mapping[str, pa.DataType], *, address: str) -> pa.Table:
    """Parses whole lines without their header; the proof is in the module's docstring.

    Args:
        text: lines of the file.
        names: the file's columns, in its order.
        types: the columns to read, each as text or as a dictionary of text.
        address: the file's name, for the refusal.

    Returns:
        One row for each line, in their order; an empty field is null.

    Raises:
        SourceError: if some line is not one record of the dialect.
    """
    if text and not text.endswith(b"\n"):
        text += b"\n"
    if text.count(b"\r") != text.count(b"\r\n"):
        raise SourceError(f"{address}: a line holds a carriage return; end lines with \\n or \\r\\n alone")
    if len(names) > 1:
        text = _without_empty_lines(text)
    lines, guard = text.count(b"\n"), b"," * (len(names) - 1) + b"\n"
    table = _parsed(guard + text + guard, names, types)
    if table is None or table.num_rows != lines + 2:
        raise SourceError(
            f"{address}: a line is not one record: it has too few or too many fields, a quote that does not end in it, "
            "or is not Unicode text; write each record on one line and double the quotes inside quoted fields"
        )
    return table.slice(1, lines)


def _without_empty_lines(text: bytes) -> bytes:
    if not text.startswith((b"\n", b"\r\n")) and b"\n\n" not in text and b"\n\r\n" not in text:
        return text
    return b"".join(line for line in text.splitlines(keepends=True) if line.strip(b"\r\n"))


def _parsed(text: bytes, names: Sequence[str], types: Mapping[str, Any]) -> pa.Table | None:
    """The rows that Arrow finds in one block of text; None where it finds an error, which may quote the rows."""
    try:
        # `read_csv` would start a thread of its own in each call.
        reader = pa_csv.open_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(block_size=len(text) + 1, column_names=list(names), use_threads=False),
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        return reader.read_all()
    except pa.ArrowInvalid:
        return None
