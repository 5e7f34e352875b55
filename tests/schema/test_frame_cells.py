"""Cells of a frame: each has its own code, whatever the other cells of its column are."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from synth_core.errors import SourceError
from synth_core.schema import Schema
from synth_core.schema.codec import encode

WORDS = Schema.model_validate(
    {"columns": [{"name": "a", "kind": "categorical", "values": ["0", "1"], "unseen": "other", "nullable": True}]}
)
WHOLE = Schema.model_validate(
    {"columns": [{"name": "a", "kind": "categorical", "values": [0, 1, 2**53 + 1], "unseen": "other"}]}
)


def codes(cells, schema=WORDS, **how):
    return encode(pd.DataFrame({"a": pd.Series(cells, **how)}), schema)["a"]


def counts(cells):
    return np.bincount(codes(cells, dtype=object), minlength=4).tolist()


def test_one_odd_cell_does_not_change_the_codes_of_the_others():
    cells = [0.0] * 1000 + [1.0] * 1000 + [None] * 1000
    assert counts(cells) == [1000, 1000, 0, 1000]
    assert counts([*cells, "n/a"]) == [1000, 1000, 1, 1000]


def test_a_decimal_is_not_given_the_digits_of_another():
    cells = [Decimal(0)] * 1000 + [Decimal(1)] * 1000 + [None] * 1000
    assert counts(cells) == [1000, 1000, 0, 1000]
    assert counts([*cells, Decimal("0.25")]) == [1000, 1000, 1, 1000]


@pytest.mark.parametrize("beside", [[], ["x"], [0.5], [None], [Decimal("0.25")], [True], [date(2020, 1, 1)]])
@pytest.mark.parametrize(
    ("cell", "code"),
    [
        (1, 1), (1.0, 1), (Decimal("1.00"), 1), ("1", 1), (np.int8(1), 1), (np.float32(1), 1),
        ("1.0", 2), (True, 2), (1.5, 2), (date(2020, 1, 1), 2),
        (None, 3), (float("nan"), 3), (pd.NA, 3), (pd.NaT, 3), (Decimal("NaN"), 3),
    ],
)  # fmt: skip
def test_a_cell_has_its_code_in_any_company(cell, code, beside):
    assert codes([cell, *beside], dtype=object)[0] == code
    assert codes([*beside, cell], dtype=object)[-1] == code


def test_whole_numbers_beyond_two_to_the_53_stay_what_they_are_beside_a_missing_one():
    for how in ({"dtype": object}, {"dtype": "Int64"}, {"dtype": "int64[pyarrow]"}):
        schema = Schema(columns=(WHOLE.columns[0].model_copy(update={"nullable": True}),))
        assert codes([2**53 + 1, None, 2**53], schema, **how).tolist() == [2, 4, 3]


@pytest.mark.parametrize(
    "dtype",
    [
        object,
        "int64",
        "uint8",
        "float32",
        "Int64",
        "Float64",
        "string",
        "category",
        "int8[pyarrow]",
        "boolean",
    ],
)
@pytest.mark.parametrize("schema", [WHOLE, WORDS])
def test_the_dtype_does_not_matter(dtype, schema):
    expected = [2, 2, 2] if dtype == "boolean" and schema is WORDS else [0, 1, 1]  # the text of a truth value
    cells = [False, True, True] if dtype == "boolean" else [0, 1, 1]
    assert codes(cells, schema, dtype=dtype).tolist() == expected


@pytest.mark.parametrize("cell", [b"1", [1], timedelta(1), 1j, "\ud800", 10**401], ids=range(6))
def test_a_cell_without_a_reading_is_refused_without_being_quoted(cell):
    for cells in ([cell], ["x", cell], [1, cell]):
        column = pd.Series(np.empty(len(cells), dtype=object))
        column[:] = pd.Series(cells, dtype=object)
        with pytest.raises(SourceError, match="column 'a' has a type that is neither text nor numbers") as refusal:
            encode(pd.DataFrame({"a": column}), WORDS)
        assert refusal.value.__context__ is None


def test_dtypes_without_a_reading_are_refused_unless_they_hold_nothing():
    with pytest.raises(SourceError, match="column 'a' has a type that is neither text nor numbers"):
        codes([pd.Interval(0, 1)])
    with pytest.raises(SourceError, match="column 'a' has a type that is neither text nor numbers"):
        codes([pd.Timestamp(2020, 1, 1)], WHOLE)
    assert codes([pd.NaT, pd.NaT], dtype="timedelta64[ns]").tolist() == [3, 3]


def test_dates_are_read_as_text():
    schema = Schema.model_validate(
        {"columns": [{"name": "a", "kind": "categorical", "values": ["2020-01-01", "2020-01-01 00:00:00"]}]}
    )
    assert codes([date(2020, 1, 1), pd.Timestamp(2020, 1, 1), np.datetime64("2020-01-01")], schema).tolist() == [
        0,
        1,
        1,
    ]
    assert codes([pd.Timestamp(2020, 1, 1)], schema).tolist() == [1]
