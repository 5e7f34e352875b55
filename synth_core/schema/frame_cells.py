"""Turns a pandas column into Arrow cells, each from its own value alone.

Arrow would choose one type for a column of Python objects by looking at all of them, and give 1 another text beside
"x" than beside 2. So only a column whose dtype fixes its type is handed over as it is; objects become text one by one,
and are then read as the text of a CSV file is. The same cell has the same code in a column of objects or of numbers.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from synth_core.errors import SourceError
from synth_core.schema.cells import MAX_DIGITS, as_text

_TYPED = "iubM"
"""Kinds of numpy dtypes whose cells Arrow takes one by one: whole numbers, truth values and times."""

_NOTHING = (type(None), type(pd.NA), type(pd.NaT))


def frame_cells(series: pd.Series[Any], *, numbers: bool, source: str) -> pa.Array:
    """Returns the column's cells, each as its own value says.

    Args:
        series: a column of the frame.
        numbers: whether they will be read as numbers, so that true is 1; otherwise it is the text "True".
        source: the frame's name, for the refusal.

    Raises:
        SourceError: if the dtype, or the type of a cell, is none that each cell can be read from by itself.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        held = frame_cells(pd.Series(dtype.categories, name=series.name), numbers=numbers, source=source)
        positions = series.cat.codes.to_numpy(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(positions, mask=positions < 0), held)
    if dtype == np.dtype(object):
        return _object_cells(series, numbers=numbers, source=source)
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return pa.array(series.to_numpy(np.float64), from_pandas=True)
    is_numpy = isinstance(dtype, np.dtype) and dtype.kind in _TYPED
    is_extension = isinstance(dtype, pd.StringDtype | pd.ArrowDtype | pd.DatetimeTZDtype) or (
        pd.api.types.is_extension_array_dtype(dtype) and hasattr(dtype, "numpy_dtype")
    )
    if (not is_numpy and not is_extension) or (numbers and getattr(dtype, "kind", "") == "M"):
        if not series.isna().all():
            raise _unreadable(series, source)
        return pa.nulls(len(series), pa.string())
    cells = pa.array(series, from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _object_cells(series: pd.Series[Any], *, numbers: bool, source: str) -> pa.Array:
    texts: Any = series.to_numpy()
    if pd.api.types.infer_dtype(texts, skipna=True) not in ("string", "empty"):
        texts = [_text(cell, numbers=numbers) for cell in texts]
        if any(text is NotImplemented for text in texts):
            raise _unreadable(series, source)
    try:
        return pa.array(texts, type=pa.string(), from_pandas=True)
    except (UnicodeEncodeError, pa.ArrowException):
        refusal = _unreadable(series, source)
    raise refusal  # outside of the handler, whose error quotes a cell


def _text(cell: Any, *, numbers: bool) -> Any:
    """The cell's text, None where it holds nothing, or NotImplemented where it has none."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, _NOTHING) or (isinstance(cell, float | np.floating | Decimal) and cell != cell):
        return None
    if isinstance(cell, bool | np.bool_):
        return str(int(cell)) if numbers else str(bool(cell))
    if isinstance(cell, int | np.integer):
        return str(int(cell)) if abs(int(cell)) < 10**MAX_DIGITS else NotImplemented
    if isinstance(cell, float | np.floating):
        return as_text(float(cell))
    if isinstance(cell, np.datetime64 | np.timedelta64) and np.isnat(cell):
        return None
    if isinstance(cell, np.datetime64):
        cell = pd.Timestamp(cell)
    if isinstance(cell, date) and numbers:
        return NotImplemented
    return as_text(cell) if isinstance(cell, Decimal | date) else NotImplemented


def _unreadable(series: pd.Series[Any], source: str) -> SourceError:
    return SourceError(
        f"{source}: column {series.name!r} has a type that is neither text nor numbers; convert it in the source"
    )
