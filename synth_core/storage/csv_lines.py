r"""Reads CSV text in which a record is a line, whatever the lines hold.

The dialect:
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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from synth_core.errors import SourceError

PARSED_BYTES = 4 << 20
"""Bytes of text that Arrow parses in one call: few enough to stay in the processor's caches."""


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
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


def portions(text: bytes) -> Iterator[bytes]:
    """Cuts whole lines into texts of about `PARSED_BYTES`, each of whole lines."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + PARSED_BYTES - 1) + 1 or len(text)
        yield text[begin:end]
        begin = end


def parse_lines(
    text: bytes, names: Sequence[str], types: Mapping[str, pa.DataType], *, address: str
) -> pa.Table:
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
            read_options=pa_csv.ReadOptions(
                block_size=len(text) + 1, column_names=list(names), use_threads=False
            ),
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
