"""A line without end is refused after a bounded part of it was read, and whether it is follows from that line alone."""

import gzip

import pytest

from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.storage import sources
from synth_core.storage.ingest import ingest_partitions
from synth_core.storage.sources import whole_lines

SCHEMA = Schema.model_validate({"columns": [{"name": "a", "kind": "categorical", "values": ["x"], "unseen": "other"}]})
KEY = b"k" * 32


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 1000)
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(sources, "_LINE_BYTES", 100)


class Counted:
    """A file that counts what is read of it."""

    def __init__(self, size):
        self.left, self.read_bytes = size, 0

    def read(self, size):
        given = min(size, self.left)
        self.left -= given
        self.read_bytes += given
        return b"x" * given


def test_of_an_endless_line_a_bounded_part_is_read():
    """Before, every read looked through, and copied, all that had been read: a header of 80 MB took 40 s."""
    file = Counted(10**9)
    with pytest.raises(SourceError, match="a line has more than"):
        sources._until_newline(file, b"")
    assert file.read_bytes <= 1200
    blocks = []

    def endless():
        while True:
            blocks.append(1)
            yield b"x" * 500

    with pytest.raises(SourceError, match="a line has more than"):
        list(whole_lines(endless()))
    assert len(blocks) == 3


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("length", [999, 1000, 1001, 1500, 5000])
@pytest.mark.parametrize("before", [0, 1, 499, 500])
def test_a_long_line_is_refused_wherever_it_stands(tmp_path, packed, length, before):
    text = b"a\n" + b"x\n" * before + b"y" * length + b"\n" + b"x\n" * 700
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(text) if packed else text)
    if length > 1000:
        with pytest.raises(SourceError, match="a line has more than"):
            ingest_partitions([path], SCHEMA, tmp_path / "out", key=KEY)
    else:
        assert ingest_partitions([path], SCHEMA, tmp_path / "out", key=KEY).digest
