"""Plain CSV text is coded exactly as Arrow and the codec do it, or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.codec import encode
from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.storage import csv_text
from synth_core.storage.csv_text import plain_codes
from synth_core.storage.sources import _csv_types

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {
                "name": "word",
                "kind": "categorical",
                "values": ["a", "ab", "ba", "é", "a b", "NA"],
                "nullable": True,
            },
            {"name": "open", "kind": "categorical", "values": ["x", "xy"], "unseen": "other"},
            {
                "name": "whole",
                "kind": "categorical",
                "values": [1, 10, -3],
                "unseen": "other",
                "nullable": True,
            },
            {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 7, "unseen": "clip"},
            {
                "name": "pay",
                "kind": "real",
                "bins": [-1.5, 0.0, 0.1, 0.3, 10.0],
                "nullable": True,
                "unseen": "other",
            },
            {"name": "wide", "kind": "integer", "bounds": [-300, 300], "bins": 601},
            {
                "name": "hours",
                "kind": "integer",
                "bins": [0, 35, 99],
                "not_in_universe": "N/A",
                "nullable": True,
            },
            {"name": "rent", "kind": "real", "bins": [0, 9], "not_in_universe": -9, "unseen": "clip"},
        ]
    }
)
NAMES = ("extra", "wide", "pay", "word", "age", "open", "whole", "hours", "rent", "more")


def reference(text):
    """The codes by Arrow's reader and the codec, None where they refuse."""
    types = _csv_types(SCHEMA, NAMES)
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(column_names=list(NAMES)),
            convert_options=pa_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=True
            ),
        )
        return encode(table, SCHEMA)
    except (pa.ArrowInvalid, SourceError):
        return None


def cell(*plain):
    odd = [
        "",
        " ",
        "1.0",
        "+1",
        "a,b",
        'a"b',
        "x ",
        "1e2",
        ".5",
        "5.",
        "--1",
        "-",
        "0.30000000000000004",
        "ÿ",
    ]
    return st.one_of(
        st.sampled_from(plain), st.sampled_from(plain), st.sampled_from(plain), st.sampled_from(odd)
    )


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


ROW = st.tuples(
    cell("", "skipped", "1"),
    cell("0", "-300", "300", "12", "-7.0"),
    cell("", "0.1", "0.3", "10", "10.00", "-1.5", "-2", "0.09999", "123456789012345"),
    cell("", "a", "ab", "ba", "é", "a b", "NA"),
    cell("0", "99", "120", "-5", "07", "14", "28.000"),
    cell("x", "xy", "xyz", "other"),
    cell("", "1", "10", "-3"),
    cell("", "N/A", "40", "N/B", "NA", "N/A "),
    cell("-9", "5", "-9.0", "-10", "-9.5"),
    cell("", "z"),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]), st.integers(0, 2), st.booleans()
)
def test_plain_text_is_coded_as_the_codec_does(rows, end, style, ended):
    write = [str, quoted, lambda text: quoted(text) if "," in text or '"' in text else text][style]
    text = (end.join(",".join(map(write, row)) for row in rows) + (end if ended else "")).encode()
    found = plain_codes(text, NAMES, SCHEMA)
    if found is None:
        return
    expected = reference(text)
    assert expected is not None, "what the codec refuses is never coded"
    for name, codes in expected.items():
        assert found[name].dtype == codes.dtype
        assert np.array_equal(found[name], codes), name


PLAIN = (
    b'1,300,0.3,ab,28.000,xy,-3,"N/A",-9,\n\n,-300,,"a b",-5,nobody,,,-9.0,"z"\r\n,0,10,,120,x,10,40,-10,x'
)


def test_plain_text_is_taken(monkeypatch):
    expected = reference(PLAIN)
    for rows in (1, 2, 100):
        monkeypatch.setattr(csv_text, "BLOCK_ROWS", rows)
        found = plain_codes(PLAIN, NAMES, SCHEMA)
        assert {name: codes.tolist() for name, codes in found.items()} == {
            name: codes.tolist() for name, codes in expected.items()
        }
    assert found["open"].tolist() == [1, 2, 0]
    assert found["age"].tolist() == [2, 0, 6]
    assert found["hours"].tolist() == [2, 3, 1]
    assert found["rent"].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    "line",
    [
        b"1,300,0.3,ab,28,xy,-3,N/A,5",  # a field is missing
        b"1,300,0.3,ab,28,xy,-3,N/A,5,,",  # a field too many
        b"1,300,0.3,zz,28,xy,-3,N/A,5,",  # undeclared
        b"1,300,0.3,ab,,xy,-3,N/A,5,",  # missing without a code
        b"1,300,0.3,ab,28.5,xy,-3,N/A,5,",  # not whole
        b"1,301,0.3,ab,28,xy,-3,N/A,5,",  # outside the bins
        b"1,300,0.3,ab,28,xy,-3.0,N/A,5,",  # a declared number written otherwise
        b'1,300,0.3,"a""b",28,xy,-3,N/A,5,',
        b'1,300,0.3,"ab"c,28,xy,-3,N/A,5,',
        b'1,300,0.3,"ab,28,xy,-3,N/A,5,',
        b'1,300,0.3,"a\nb",28,xy,-3,N/A,5,',
        b"1,300,0.3,ab,28,\xff,-3,N/A,5,",  # not UTF-8
        b"1,300,1234567890123456,ab,28,xy,-3,N/A,5,",  # too many digits for an exact quotient
        b"1,300,0.3,ab,28,xy,-3,N/A,5,\r1",
        b"1,300,0.3,ab,28,xy,-3,N/B,5,",  # another word
        b"1,300,0.3,ab,28,xy,-3,N/A,N/A,",  # a word where a number is declared
    ],
)
def test_anything_else_is_left_to_the_codec(line):
    assert plain_codes(PLAIN + b"\n" + line, NAMES, SCHEMA) is None


def test_a_column_of_many_values_finds_each_at_once():
    """Values that differ in one letter only must not crowd into a few slots."""
    slots, words, letters = csv_text._word_table({str(value): value for value in range(30_000)})
    home = np.array([csv_text.letter_sum(letters[a:b]) for a, b, _ in words]) % len(slots)
    found = np.empty(30_000, dtype=int)
    found[slots[slots >= 0]] = np.flatnonzero(slots >= 0)
    assert ((found - home) % len(slots)).max() < 50
    assert bytes(letters[words[12_345, 0] : words[12_345, 1]]) == b"12345"


@pytest.mark.parametrize("text", [b"1\n\n0\n", b"1\r\n\r\n0\r\n\r\n", b"\n1\n0", b"\r\n\r\n1\r\n0"])
def test_empty_lines_are_no_rows_of_a_single_column(text):
    schema = Schema.from_sizes({"a": 2})
    assert plain_codes(text, ("a",), schema)["a"].tolist() == [1, 0]
