"""CSV text in which a record is a line: what is one, what is refused, and that no line reaches another."""

from __future__ import annotations

import gzip

import pytest

from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.storage import sources
from synth_core.storage.ingest import ingest_partitions, read_codes

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {
                "name": "a",
                "kind": "categorical",
                "values": ["x", "y", 'q"'],
                "unseen": "other",
                "nullable": True,
            },
            {"name": "b", "kind": "categorical", "values": ["p", "q"], "unseen": "other", "nullable": True},
        ]
    }
)
ONE = Schema(columns=SCHEMA.columns[:1])


def rows(tmp_path, text, *, schema=SCHEMA, ending="csv"):
    path, out = tmp_path / f"x.{ending}", tmp_path / "out"
    path.write_bytes(gzip.compress(text, mtime=0) if ending == "csv.gz" else text)
    snapshot = ingest_partitions([path], schema, out, key=bytes(32))
    parts = [read_codes(out / name) for name in snapshot.partitions]
    return [row for part in parts for row in zip(*(column.tolist() for column in part.values()), strict=True)]


LINES = b"x,p,1\n" * 50_000 + b"y,q,2\n" * 50_000


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    "text",
    [
        b"a,b,more\n" + b'x,p,"oops\n' + LINES,
        b"a,b,more\n" + LINES + b'x,p,"oops\n',
        b"a,b,more\n" + LINES + b'x,p,"oops',
        b"a,b,more\n" + LINES[:300_000] + b'x,p,"oops\n' + LINES[300_000:],
        b"a,b,more\n" + b'x,p,"oops\n' + LINES + b'x,p,oops"\n',
        b"more,b,a\n" + b'1,p,"oops\n' + LINES.replace(b"x", b"1"),
    ],
    ids=["first", "last", "last, without its end", "between", "two", "a column with unseen: other"],
)
def test_a_stray_quote_never_swallows_other_lines(tmp_path, text, ending):
    """100,000 records and one line more: refused, because that line alone is no record."""
    with pytest.raises(SourceError, match=r"a line is not one record: .* a quote that does not end in it") as refusal:
        rows(tmp_path, text, ending=ending)
    assert "oops" not in str(refusal.value)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_quotes_that_end_in_their_line_are_read(tmp_path, ending):
    text = b'a,b,more\n"x","p","1,2 ""and"" 3"\n"q""",5" pipe,\nq",q,"a"b"\n' + LINES
    found = rows(tmp_path, text, ending=ending)
    assert len(found) == 100_003
    assert found[:3] == [(0, 0), (2, 2), (2, 1)]


@pytest.mark.parametrize(
    "line",
    [b"x,p\rx,q", b'x,"p\rq"', b"\rx,p", b"x,p\r", b'x,p\rx,"q'],
    ids=["plain", "quoted", "begin", "end", "quote"],
)
def test_a_lone_carriage_return_is_refused(tmp_path, line):
    """Arrow takes it for the end of a row: two rows of one line would make up for a line that a quote swallowed."""
    with pytest.raises(SourceError, match="a line holds a carriage return"):
        rows(tmp_path, b"a,b\n" + line + b'\r\nx,"p\ny",q\n')


def test_old_macintosh_files_are_refused(tmp_path):
    with pytest.raises(SourceError, match="cannot be read as what its name says"):
        rows(tmp_path, b"a,b\rx,p\ry,q\r")


def test_lines_may_end_in_both_ways_and_the_last_in_none(tmp_path):
    assert rows(tmp_path, b"a,b\r\nx,p\r\ny,q\nx,q") == [(0, 0), (1, 1), (0, 1)]


def test_an_empty_line_is_no_record_of_several_columns(tmp_path):
    assert rows(tmp_path, b"a,b\n\n\r\nx,p\n\n\ny,q\n\r\n\n") == [(0, 0), (1, 1)]


def test_an_empty_line_is_a_missing_value_of_a_single_column(tmp_path):
    assert rows(tmp_path, b'a\n\nx\n\r\n""\ny\n', schema=ONE) == [(4,), (0,), (4,), (4,), (1,)]


def test_a_byte_order_mark_is_a_letter_wherever_a_block_begins(tmp_path, monkeypatch):
    """Arrow drops it at the beginning of its input, and any line may begin a block."""
    text = b"a,b\n" + b"\xef\xbb\xbfx,p\n" * 3
    for size in (1, 9, 1 << 20):
        monkeypatch.setattr(sources, "PARSED_BYTES", size)
        assert rows(tmp_path, text) == [(3, 0)] * 3


@pytest.mark.parametrize("line", [b"x", b"x,p,", b"x,p\xff", b'"x,p', b'x,"p""'])
def test_a_line_that_is_no_record_is_refused_wherever_it_stands(tmp_path, monkeypatch, line):
    for text in (b"a,b\n%b\nx,p\n", b"a,b\nx,p\n%b\n", b"a,b\nx,p\n%b"):
        for size in (1, 1 << 20):
            monkeypatch.setattr(sources, "PARSED_BYTES", size)
            with pytest.raises(SourceError, match="a line is not one record") as refusal:
                rows(tmp_path, text % line)
            assert refusal.value.__context__ is None


def test_a_header_is_one_line_too(tmp_path):
    with pytest.raises(SourceError, match="cannot be read as what its name says"):
        rows(tmp_path, b'a,b,"more\nand more"\nx,p,1\n')


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_file_with_another_separator_is_refused_with_the_remedy(tmp_path, separator, word):
    text = '"a",b,other\nx,"p",1\n'.replace(",", separator).encode()
    with pytest.raises(SourceError, match=f"its fields are separated by {word}; write the file with commas"):
        rows(tmp_path, text)


def test_a_file_without_a_header_is_refused_without_a_word_of_its_first_row(tmp_path):
    with pytest.raises(SourceError, match="its first line names no column of the schema") as refusal:
        rows(tmp_path, b"x,q\ny,p\n")
    assert str(refusal.value).endswith("write the columns' names there, separated by commas")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_header_that_is_not_utf_8_is_refused_with_the_remedy(tmp_path, encoding):
    with pytest.raises(SourceError, match="its header is not UTF-8 text; save the file as UTF-8") as refusal:
        rows(tmp_path, "a,b,größe\nx,p,1\n".encode(encoding))
    assert refusal.value.__context__ is None


def test_letters_that_some_programs_take_for_line_ends_are_letters(tmp_path):
    text = "a,b\nx\x0b,p\nx\x0c,p\nx\x1c,p\nx\x85,p\nx\u2028,p\nx\x00,p\n"
    assert rows(tmp_path, text.encode()) == [(3, 0)] * 6


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1 << 20])
def test_members_of_a_packed_file_follow_each_other(tmp_path, monkeypatch, size):
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", size)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\nx,p\ny", mtime=0) + gzip.compress(b",q\nx,q\n", mtime=0))
    snapshot = ingest_partitions([path], SCHEMA, tmp_path / "out", key=bytes(32))
    assert read_codes(tmp_path / "out" / snapshot.partitions[0])["b"].tolist() == [0, 1, 1]
