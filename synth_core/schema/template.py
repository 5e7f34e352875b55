"""A schema from the names and types of a frame's columns and what a person declares; values are never looked at."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from synth_core.errors import SchemaError
from synth_core.names import suggest

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = {"i": "integer", "u": "integer", "f": "real"}
"""Kinds of columns by the kind of their type in pandas."""

SAID = {
    "values": "the values of columns by their names",
    "bounds": "the bounds of columns by their names",
    "bins": "a number of bins, or one or their edges by the names of columns",
    "nullable": "a list of names",
    "leave_out": "a list of names",
}
"""What a frame's columns are declared by."""


def declare_columns(
    types: pd.Series[Any],
    *,
    values: Mapping[str, Sequence[Any] | Mapping[Any, str]],
    bounds: Mapping[str, Sequence[Any]],
    bins: int | Mapping[str, int | Sequence[Any]],
    nullable: Collection[str],
    leave_out: Collection[str],
) -> list[dict[str, Any]]:
    """Returns the declarations of a frame's columns; see `Schema.from_frame_template`."""
    for what, said, kinds in (
        ("values", values, Mapping),
        ("bounds", bounds, Mapping),
        ("bins", bins, (int, Mapping)),
        ("nullable", nullable, Collection),
        ("leave_out", leave_out, Collection),
    ):
        if not isinstance(said, kinds) or isinstance(said, str):
            raise SchemaError(f"{what}= is {type(said).__name__}; give {SAID[what]}")
    for name, ends in bounds.items():
        if not isinstance(ends, Collection) or isinstance(ends, str):
            raise SchemaError(f"column {name!r}: bounds are the least and the largest number, such as (0, 99)")
    for name, own in {} if isinstance(bins, int) else bins.items():
        if not isinstance(own, int | Collection) or isinstance(own, str):
            raise SchemaError(f"column {name!r}: bins are a number of bins or a list of their edges")
    names = [str(name) for name in types.index]
    edges = {} if isinstance(bins, int) else {name: one for name, one in bins.items() if not isinstance(one, int)}
    said = [*values, *bounds, *edges, *nullable, *leave_out, *([] if isinstance(bins, int) else bins)]
    for name in said:
        if name not in names:
            raise SchemaError(f"the frame has no column {name!r}{suggest(name, names)}")
    left = [name for name in names if name not in leave_out]
    open_ = [name for name in left if name not in values and name not in bounds and name not in edges]
    if open_:
        raise SchemaError(
            f"columns without a declaration: {', '.join(map(repr, open_))}; give values= for categories, bounds= for "
            "numbers, or name them in leave_out="
        )
    columns = []
    for name in left:
        column: dict[str, Any] = {"name": name, "nullable": name in nullable}
        if name in values:
            column |= {"kind": "categorical", "values": values[name]}
        else:
            column |= {"kind": _kind_of(name, types), **_cut(name, bounds=bounds, bins=bins)}
        columns.append(column)
    return columns


def _kind_of(name: str, types: pd.Series[Any]) -> str:
    kind = NUMBERS.get(getattr(types[name], "kind", "O"))
    if kind is None:
        raise SchemaError(
            f"column {name!r} has bounds or bins, and the frame's type for it is no number; convert it, or give values="
        )
    return kind


def _cut(
    name: str, *, bounds: Mapping[str, Sequence[Any]], bins: int | Mapping[str, int | Sequence[Any]]
) -> dict[str, Any]:
    own = bins if isinstance(bins, int) else bins.get(name)
    if own is None:
        raise SchemaError(f"column {name!r} has bounds and no bins; say in bins= how many, or list their edges")
    cut: dict[str, Any] = {"bins": own if isinstance(own, int) else list(own)}
    return {**cut, "bounds": list(bounds[name])} if name in bounds else cut
