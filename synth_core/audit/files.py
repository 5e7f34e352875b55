"""Neighbouring files for the audit: the same lines with and without one more, taken through the real ingest.

The audit of a method begins with counted tables. Before them lies the claim that one record more in a file is one row
more in the encoded table, whatever that record holds. So here the two worlds are files, read, encoded and
partitioned by the code that reads a release's source, and one of them has a hostile line more. If it changed what any
other line gives, the adversary, who knows what both files became, would tell the worlds apart at a glance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from synth_core.audit.adversary import Worlds
from synth_core.audit.cases import DOMAIN, canary_codes
from synth_core.cluster import Cluster
from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.schema.columns import Categorical
from synth_core.storage.counting import PartitionCounts
from synth_core.storage.ingest import ingest_partitions

CANARY = b",".join(str(size - 1).encode() for size in DOMAIN.sizes)
"""The declared cells of the line that one file has more: values that no other line has."""

HOSTILE_LINES = {
    "a plain line": CANARY + b",note\n",
    "a line without its end": CANARY + b",note",
    "quotes inside a cell": CANARY + b',no"te"\n',
    "doubled quotes": CANARY + b',"no""te"\n',
    "a comma and quotes in a quoted cell": CANARY + b',"a, ""b"", c"\n',
    "an end of line of another system": CANARY + b",note\r\n",
    "separators of Unicode": CANARY + ",\u2028\u0085\v\f\x1c".encode() + b"\n",
    "a byte order mark": b"\xef\xbb\xbf" + CANARY + b",note\n",
    "a zero byte": CANARY + b",no\x00te\n",
    "cells of no declared value": b"n/a,1e400,0x7,note\n",
    "cells that are empty": b",,,\n",
    "the header again": b",".join(name.encode() for name in DOMAIN.attributes) + b",note\n",
    "empty lines around it": b"\n\r\n" + CANARY + b",note\n\n",
    "bytes that are no text in a column that is not read": CANARY + b",\xff\xfe\n",
    "an open quote": CANARY + b',"note\n',
    "an open quote at the end of the file": CANARY + b',"note',
    "a lone carriage return": CANARY + b",no\rte\n",
    "a cell too many": CANARY + b",note,note\n",
    "a cell too few": CANARY + b"\n",
}
"""One line each that a file may have more; the last five are refused, which the ledger counts, and measure nothing."""


def neighbouring_files(line: bytes) -> tuple[bytes, bytes]:
    """Returns the text of a file, and of the same file with one line more in its middle or, if it has no end, last."""
    without, _ = canary_codes()
    header = ",".join([*DOMAIN.attributes, "remark"]).encode() + b"\n"
    lines = [
        ",".join(map(str, record)).encode() + b",note\n" for record in zip(*without.values(), strict=True)
    ]
    place = len(lines) // 2 if line.endswith(b"\n") else len(lines)
    return header + b"".join(lines), header + b"".join([*lines[:place], line, *lines[place:]])


@contextmanager
def file_worlds(line: bytes) -> Iterator[Worlds | None]:
    """Ingests both files of `neighbouring_files`.

    Args:
        line: what one of the files has more.

    Yields:
        The counts of what both became, or None if the file with the line is refused: then nothing is ever measured.
    """
    # Cells of no declared value have a code of their own in every column, so that they are no refusal.
    columns = [
        Categorical(name=name, values=tuple(range(size)), unseen="other", nullable=True)
        for name, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)
    ]
    schema = Schema(columns=tuple(columns))
    with TemporaryDirectory() as folder:
        worlds = []
        for name, text in zip(("without", "canary"), neighbouring_files(line), strict=True):
            source, encoded = Path(folder) / f"{name}.csv", Path(folder) / name
            source.write_bytes(text)
            try:
                snapshot = ingest_partitions([source], schema, encoded, key=bytes(32), rows_per_partition=10)
            except SourceError:
                yield None
                return
            parts = [encoded / part for part in snapshot.partitions]
            worlds.append(PartitionCounts(parts, schema.domain, Cluster()))
        yield worlds[0], worlds[1]
