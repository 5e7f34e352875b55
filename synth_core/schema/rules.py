"""Edit rules: combinations that cannot occur, declared in public and decided exactly on codes.

A rule reads "when these columns hold these, those columns never hold those" (or "hold only those"), or says which
value of one column goes with which values of another. Its conditions may not cut through a bin, so each is a set of
codes: a rule is a set of empty cells for a model, a mask over rows for a check.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from synth_core.schema.columns import OTHER, Categorical, Declaration, Integer, Real


class Range(Declaration):
    """Numbers from `min` to `max`: both included for integers, `max` excluded for reals (as in their bins).

    A real `max` at or above the column's last edge includes that edge, because the last bin does.
    """

    min: StrictInt | StrictFloat = -np.inf
    max: StrictInt | StrictFloat = np.inf

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.min == -np.inf and self.max == np.inf:
            raise ValueError("a range needs min or max")
        if not self.min <= self.max:
            raise ValueError("a range's min is above its max; exchange them")
        return self


def _no_boolean(item: object) -> object:
    if isinstance(item, bool):
        raise ValueError("write true, false, yes, no, on and off in quotes")
    return item


def _as_items(condition: object) -> object:
    return list(map(_no_boolean, condition if isinstance(condition, list | tuple) else [condition]))


def _item_form(item: object) -> str:
    return "range" if isinstance(item, dict | Range) else "value"


Item: TypeAlias = int | float | str | Range | None
TaggedItem: TypeAlias = Annotated[
    Annotated[StrictInt | StrictFloat | StrictStr | None, Tag("value")] | Annotated[Range, Tag("range")],
    Discriminator(_item_form),
]
Value: TypeAlias = Annotated[StrictInt | StrictFloat | StrictStr | None, BeforeValidator(_no_boolean)]
Condition: TypeAlias = Annotated[tuple[TaggedItem, ...], BeforeValidator(_as_items), Field(min_length=1)]
Conditions: TypeAlias = Annotated[dict[str, Condition], Field(min_length=1)]


class Part(NamedTuple):
    """A condition on one column: it holds one of the items, or (not `holds`) none of them."""

    column: str
    items: tuple[Item, ...]
    holds: bool = True


Combination: TypeAlias = tuple[Part, ...]
"""Conditions that no row meets all of."""


class Rule(Declaration):
    """What cannot be when every condition of `when` is met: all of `never` together, or anything but each of `only`.

    A condition lists alternatives: declared values, `null`, "OTHER" for unseen text, and for numbers ranges and what is
    declared as `not_in_universe`, which no range contains.
    For numbers and whole-number values `null` also covers unseen values, which have no other decoded form.
    """

    name: str = Field(min_length=1)
    when: Conditions
    never: Conditions | None = None
    only: Conditions | None = None

    @model_validator(mode="after")
    def _check(self) -> Rule:
        if (self.never is None) == (self.only is None):
            raise ValueError("a rule needs either never or only")
        return self

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The combinations that cannot occur."""
        when = tuple(Part(column, items) for column, items in self.when.items())
        if self.never is not None:
            return ((*when, *(Part(column, items) for column, items in self.never.items())),)
        return tuple((*when, Part(column, items, False)) for column, items in (self.only or {}).items())


class Dependency(Declaration):
    """One column decides another: `by` lists, for each value of `decides`, what `column` holds with it.

    Everything that `column` may hold is listed once, so that its value leaves no choice.
    """

    name: str = Field(min_length=1)
    column: str
    decides: str
    by: Annotated[dict[Value, Condition], Field(min_length=1)]

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The combinations that cannot occur."""
        return tuple(
            (Part(self.column, items), Part(self.decides, (value,), False))
            for value, items in self.by.items()
        )


def _rule_form(raw: object) -> str:
    decides = "decides" in raw if isinstance(raw, dict) else isinstance(raw, Dependency)
    return "dependency" if decides else "rule"


AnyRule: TypeAlias = Annotated[
    Annotated[Rule, Tag("rule")] | Annotated[Dependency, Tag("dependency")], Discriminator(_rule_form)
]


def columns_of(rule: Rule | Dependency) -> tuple[str, ...]:
    """The columns the rule speaks about, each once."""
    return tuple(dict.fromkeys(part.column for parts in rule.combinations for part in parts))


def check_complete(rule: Dependency, column: Categorical | Integer | Real) -> None:
    """ValueError if something that the deciding column may hold is listed twice or not at all."""
    listed = np.sum([covered_codes(column, items) for items in rule.by.values()], axis=0)
    for code, caption in enumerate(column.captions):
        if listed[code] != 1:
            raise ValueError(f"{caption} is listed {'twice' if listed[code] else 'nowhere'}; list it once")


def covered_codes(
    column: Categorical | Integer | Real, items: tuple[Item, ...], *, holds: bool = True
) -> NDArray[np.bool_]:
    """Which of the column's codes match the condition; ValueError names what does not fit the column."""
    covered = np.zeros(column.size, dtype=np.bool_)
    for item in items:
        if item is None:
            covered[_null_codes(column)] = True
        elif isinstance(column, Categorical):
            covered[_value_code(column, item)] = True
        elif item == column.not_in_universe:
            covered[column.outside_code] = True
        else:
            covered[: column.declared] |= _covered_bins(column, _as_range(item))
    return covered if holds else ~covered


def matching_rows(
    series: pd.Series[Any], column: Categorical | Integer | Real, items: tuple[Item, ...]
) -> NDArray[np.bool_]:
    """Which rows of a decoded column match the condition."""
    missing = series.isna().to_numpy(dtype=np.bool_)
    matching = missing.copy() if None in items else np.zeros(len(series), dtype=np.bool_)
    if isinstance(column, Categorical):
        matching |= series.isin([item for item in items if item is not None]).to_numpy(dtype=np.bool_)
        return matching
    mark = column.not_in_universe
    marked = series.eq(mark).fillna(False).to_numpy(dtype=np.bool_) if mark is not None else matching & False
    numbers = pd.to_numeric(series.mask(marked)).to_numpy(dtype=np.float64, na_value=np.nan)
    for item in items:
        if item is not None and item == mark:
            matching |= marked
        elif item is not None:
            span = _as_range(item)
            closed = isinstance(column, Integer) or span.max >= column.edges[-1]
            below = numbers <= span.max if closed else numbers < span.max
            matching |= (numbers >= span.min) & below
    return matching


def _null_codes(column: Categorical | Integer | Real) -> list[int]:
    codes = [column.null_code]
    if not (isinstance(column, Categorical) and column.is_text):
        codes.append(column.other_code)
    found = [code for code in codes if code is not None]
    if not found:
        raise ValueError("null never occurs in this column; remove it or declare nullable: true")
    return found


def _value_code(column: Categorical, item: Item) -> int:
    if item == OTHER and column.is_text and column.other_code is not None:
        return column.other_code
    if isinstance(item, Range) or item not in column.values:
        raise ValueError(f"{_shown(item)} is not among the column's values; use declared values")
    return column.values.index(item)


def _as_range(item: Item) -> Range:
    if isinstance(item, Range):
        return item
    if isinstance(item, str) or item is None:
        raise ValueError(f"{item!r} is not a number; a numeric column takes numbers and ranges")
    return Range(min=item, max=item)


def _covered_bins(column: Integer | Real, span: Range) -> NDArray[np.bool_]:
    """Bins inside the range; a bin partly inside is refused, because codes could not tell its rows apart."""
    if column.buys_bins:
        raise ValueError(
            f"{_shown(span)} may cut through a bin, since the bins are bought; name null or what is not in universe"
        )
    edges = np.asarray(column.edges, dtype=np.float64)
    if isinstance(column, Integer):
        low, high = edges[:-1], edges[1:] - 1
        inside = (low >= span.min) & (high <= span.max)
        outside = (high < span.min) | (low > span.max)
    elif span.min == span.max:
        raise ValueError(f"{_shown(span)} is a single point; a real column takes ranges")
    else:
        low, high = edges[:-1], edges[1:]
        inside = (low >= span.min) & (high <= span.max)
        outside = (high <= span.min) | (low >= span.max)
    if not np.all(inside | outside):
        raise ValueError(
            f"{_shown(span)} cuts through a bin; move it to the bin's edge, or add an edge there"
        )
    return inside


def _shown(item: Item) -> str:
    if not isinstance(item, Range):
        return repr(item)
    parts = [
        f"min: {item.min:g}" if item.min > -np.inf else "",
        f"max: {item.max:g}" if item.max < np.inf else "",
    ]
    return "{" + ", ".join(part for part in parts if part) + "}"
