"""Rules about numbers themselves: sums of columns that compare, such as `children < people`.

A rule holds where all of its columns hold a number. Bins alone cannot keep it, so it acts twice. Combinations of bins
in which no numbers can hold are excluded records, as those of other rules are. In all others rows exchange numbers
inside bins (`schema.exchange`); where that does not help, numbers are drawn again, jointly, until they hold; what is
left after `TRIES` draws is fitted column by column, each within the bounds that the others leave it (bounds
propagation, sound for any linear rule). The same fitting decides beforehand which combinations of bins can hold, so
that what was found possible can be made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from synth_core.arrays import Floats
from synth_core.errors import SchemaError
from synth_core.schema.columns.base import Declaration, Words
from synth_core.schema.columns.inside import InsideBins
from synth_core.schema.densities import Densities
from synth_core.schema.exchange import exchange_numbers

TRIES = 8
"""Joint draws of a row's numbers before they are fitted column by column."""

MAX_CELLS = 100_000
"""Upper limit of the combinations of bins that rules about numbers may join."""

CLOSE = 1e-9
"""Reals that differ by so small a share of what is compared are equal."""

ROOM = 1e-6
"""Share of a bin of reals below its upper edge, which is no part of it, in which no number is fitted."""

PASSES = 20
"""Upper limit of the passes in which bounds are narrowed."""

STARTS = (0.5, 0.0, 1.0)
"""Where in the bounds that are left a number is tried, in this order."""

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|`([^`]+)`|([^\W\d]\w*)|(<=|>=|==|<|>|[-+*]))")

Numbers = Mapping[str, Floats]
"""Numbers by column, one for each row."""


class ValueRule(Declaration):
    """How numbers of a row compare: sums of columns on both sides, each perhaps with a factor."""

    name: Words = Field(min_length=1)
    compare: str = Field(
        min_length=3, description="such as `children < people`; names that are no plain words stand in backticks"
    )

    @cached_property
    def form(self) -> Form:
        """The rule as bounds on one sum."""
        return _parsed(self.compare)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it compares; those that stand alone on their side last, so that they follow from the others."""
        return tuple(sorted(self.form.factors, key=lambda name: name in self.form.alone))

    def broken(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Which rows break it; rows in which a column is NaN do not."""
        value, size = self.form.sum(numbers)
        return np.asarray(_is_wrong(self.form.comparator, value, size) & ~np.isnan(value))

    @model_validator(mode="after")
    def _check(self) -> ValueRule:
        if len(self.form.factors) < 2:
            raise ValueError("compare: two columns are needed; a rule about one names ranges with when and never")
        return self


@dataclass(frozen=True, slots=True)
class Form:
    """Sum of factor * column + constant, compared with 0 by <, <= or ==; `alone` are columns alone on their side."""

    factors: dict[str, float]
    constant: float
    comparator: str
    alone: frozenset[str]

    def sum(self, numbers: Numbers) -> tuple[Floats, Floats]:
        """The sum in each row, and the sum of the sizes of its parts."""
        parts = [factor * np.asarray(numbers[name], dtype=np.float64) for name, factor in self.factors.items()]
        size = np.sum(np.abs(parts), axis=0) + abs(self.constant)
        return np.sum(parts, axis=0) + self.constant, size


@dataclass(frozen=True, slots=True)
class Expression:
    """What is computed from columns: sum of factor * column + constant, or whether that compares so with 0."""

    factors: dict[str, float]
    constant: float
    comparator: str | None

    @property
    def is_whole(self) -> bool:
        """Whether whole numbers give whole numbers."""
        return all(float(number).is_integer() for number in (*self.factors.values(), self.constant))

    def value(self, numbers: Numbers) -> Floats:
        """Returns the value of each row, NaN where a column is NaN; of a comparison 1 or 0."""
        form = Form(self.factors, self.constant, self.comparator or "<", frozenset())
        total, size = form.sum(numbers)
        if self.comparator is None:
            return total
        found: Floats = np.where(np.isnan(total), np.nan, ~_is_wrong(self.comparator, total, size))
        return found


def read_expression(text: str) -> Expression:
    """Read a sum of columns and numbers, or a comparison of two.

    Raises:
        ValueError: If it is neither.
    """
    tokens = _tokens(text)
    if _comparators(tokens):
        form = _parsed(text)
        return Expression(form.factors, form.constant, form.comparator)
    side = _side(tokens)
    return Expression({name: factor for name, factor in side.items() if name}, side.get("", 0.0), None)


def _is_wrong(comparator: str, value: Floats, size: Floats) -> NDArray[np.bool_]:
    slack = CLOSE * size
    if comparator == "==":
        return np.asarray(np.abs(value) > slack)
    return np.asarray(value > slack if comparator == "<=" else value >= 0)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(
                f"compare: {text[at:].strip()[:20]!r} cannot be read; write columns, numbers, + - * and one of "
                "<, <=, ==, >=, >"
            )
        number, quoted, word, sign = match.groups()
        tokens.append(("number", number) if number else ("name", quoted or word) if quoted or word else ("sign", sign))
        at = match.end()
    return tokens


def _comparators(tokens: Sequence[tuple[str, str]]) -> list[int]:
    """Their places; a name in backticks may have such signs in it."""
    return [place for place, (kind, value) in enumerate(tokens) if kind == "sign" and value[0] in "<>="]


def _parsed(text: str) -> Form:
    """Sides are sums of columns and numbers."""
    tokens = _tokens(text)
    places = _comparators(tokens)
    if len(places) != 1:
        raise ValueError("compare: exactly one of <, <=, ==, >=, > is needed")
    (place,), comparator = places, tokens[places[0]][1]
    left, right = _side(tokens[:place]), _side(tokens[place + 1 :])
    if comparator[0] == ">":
        left, right, comparator = right, left, comparator.replace(">", "<")
    factors = {name: left.get(name, 0.0) - right.get(name, 0.0) for name in {**left, **right} if name}
    alone = frozenset(next(iter(side)) for side in (left, right) if len(side) == 1)
    kept = {name: factor for name, factor in factors.items() if factor}
    return Form(kept, left.get("", 0.0) - right.get("", 0.0), comparator, alone)


def _side(tokens: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Factors by column; the constant has the name ""."""
    found: dict[str, float] = {}
    sign, factor, name, begun, joined = 1.0, 1.0, "", False, True  # joined: a factor may stand here
    for kind, value in [*tokens, ("sign", "+")]:
        if kind == "number" and joined:
            factor, begun, joined = factor * float(value), True, False
        elif kind == "name" and joined and not name:
            name, begun, joined = value, True, False
        elif kind == "sign" and value == "*" and begun and not joined:
            joined = True
        elif kind == "sign" and value in "+-" and (not joined or not (found or begun)):
            if begun:
                found[name] = found.get(name, 0.0) + sign * factor
            sign, factor, name, begun, joined = (-1.0 if value == "-" else 1.0), 1.0, "", False, True
        else:
            raise ValueError("compare: a side is a sum of columns and numbers, such as 2 * a + b - 1")
    if not found:
        raise ValueError("compare: a side is empty; write a column or a number")
    if not all(map(math.isfinite, found.values())):
        raise ValueError("compare: a number is too large; write a smaller one")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RuleGroup:
    """Rules that share columns, and these columns, those that follow from others last."""

    rules: tuple[ValueRule, ...]
    columns: tuple[InsideBins, ...]

    @property
    def choices(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each column its codes, in the parts that rules tell apart: each bin, and all codes without a number."""
        return tuple(
            (
                *((code,) for code in range(c.declared)),
                *([tuple(range(c.declared, c.size))] if c.size > c.declared else []),
            )
            for c in self.columns
        )

    def impossible(self) -> NDArray[np.bool_]:
        """Which combinations of `choices` no numbers can have, an axis for each column.

        Where a column holds no number, its rules are silent and the others still speak.
        """
        cells = math.prod(column.declared for column in self.columns)
        if cells > MAX_CELLS:
            names = ", ".join(repr(rule.name) for rule in self.rules)
            raise SchemaError(
                f"rules {names} join {', '.join(c.name for c in self.columns)} into {cells:,} combinations of bins, "
                f"over the limit of {MAX_CELLS:,}; give these columns fewer bins, or compare fewer of them"
            )
        shape = tuple(map(len, self.choices))
        codes = {c.name: at.ravel() for c, at in zip(self.columns, np.indices(shape), strict=True)}
        _, broken = self._fitted(codes, {})
        return broken.reshape(shape)

    def settle(
        self,
        numbers: dict[str, NDArray[Any]],
        codes: Mapping[str, NDArray[Any]],
        rng: np.random.Generator,
        densities: Mapping[str, Densities],
    ) -> None:
        """Change numbers of rows that break a rule until they hold; their bins stay.

        Raises:
            SchemaError: If some cannot be made to hold, which the schema's check excludes.
        """
        if all(rule.form.comparator != "==" for rule in self.rules):  # no other row has just the number that is missing
            rows = exchange_numbers(numbers, codes, rng, broken=lambda *some: self._broken(self._known(*some)))
        else:
            rows = np.flatnonzero(self._broken(self._known(numbers, codes)))
        for _ in range(TRIES):
            if not len(rows):
                return
            drawn = {c.name: c.draw(codes[c.name][rows], rng, densities[c.name]) for c in self.columns}
            own = {name: held[rows] for name, held in codes.items()}
            holds = ~self._broken(self._known(drawn, own))
            for name, values in drawn.items():
                numbers[name][rows[holds]] = values[holds]
            rows = rows[~holds]
        own = {c.name: codes[c.name][rows] for c in self.columns}
        fitted, broken = self._fitted(own, {c.name: numbers[c.name][rows].astype(np.float64) for c in self.columns})
        if broken.any():
            names = ", ".join(repr(rule.name) for rule in self.rules)
            raise SchemaError(f"rules {names} cannot be kept in some rows; add edges to their columns, or drop one")
        for c in self.columns:
            inside = own[c.name] < c.declared
            numbers[c.name][rows[inside]] = fitted[c.name][inside].astype(numbers[c.name].dtype)

    def _broken(self, numbers: Numbers) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.any([rule.broken(numbers) for rule in self.rules], axis=0)
        return found

    def _known(self, numbers: Mapping[str, NDArray[Any]], codes: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
        """The numbers as floats, NaN for codes without one."""
        return {
            c.name: np.where(codes[c.name] < c.declared, numbers[c.name].astype(np.float64), np.nan)
            for c in self.columns
        }

    def _fitted(
        self, codes: Mapping[str, NDArray[Any]], wanted: Numbers
    ) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
        """Numbers for these bins, near the wanted ones where that can be; and which rows break a rule even so."""
        rows = len(codes[self.columns[0].name])
        found: dict[str, Floats] = {}
        broken = np.ones(rows, dtype=np.bool_)
        for start in ([None] if wanted else []) + [*STARTS]:
            tried = self._one_by_one(codes, wanted if start is None else {}, start or 0.0)
            better = broken & ~self._broken(tried)
            found = {name: np.where(better, own, found.get(name, own)) for name, own in tried.items()}
            broken &= ~better
        return found, broken

    def _one_by_one(self, codes: Mapping[str, NDArray[Any]], wanted: Numbers, start: float) -> dict[str, Floats]:
        low: dict[str, Floats] = {}
        high: dict[str, Floats] = {}
        found: dict[str, Floats] = {}
        for c in self.columns:
            edges = np.asarray(c.edges, dtype=np.float64)
            inside, bins = codes[c.name] < c.declared, np.minimum(codes[c.name], c.declared - 1)
            last = edges[1:] - c.step if c.step else _below(c)
            low[c.name] = np.where(inside, edges[bins], np.nan)
            high[c.name] = np.where(inside, last[bins], np.nan)
        lowest, highest = dict(low), dict(high)
        for c in self.columns:
            self._narrow(low, high)
            least, most = low[c.name], np.maximum(high[c.name], low[c.name])
            value = least + start * (most - least)
            if c.name in wanted:
                own, span = wanted[c.name], highest[c.name] - lowest[c.name]
                place = np.divide(own - lowest[c.name], span, out=np.zeros_like(span), where=span > 0)
                moved = least + np.clip(place, 0, 1) * (most - least)  # or many rows would have just these bounds
                value = np.where((own >= least) & (own <= most), own, moved)
            value = np.clip(value, lowest[c.name], highest[c.name])  # bounds that cross leave nothing to hold
            if c.step:
                value = np.clip(np.floor(value + 0.5), lowest[c.name], highest[c.name])
            found[c.name] = low[c.name] = high[c.name] = value
        return found

    def _narrow(self, low: dict[str, Floats], high: dict[str, Floats]) -> None:
        """Narrow the bounds of all columns by all rules until nothing changes; rows without a number are left alone."""
        whole = {c.name: bool(c.step) for c in self.columns}
        for _ in range(PASSES):
            changed = False
            for rule in self.rules:
                for sign in (1.0, -1.0) if rule.form.comparator == "==" else (1.0,):
                    changed |= _narrowed(rule.form, sign, low, high, whole)
            if not changed:
                return


def _below(column: InsideBins) -> Floats:
    """The largest reals that are fitted in each bin: so far below the edge that no rounding takes them for the edge.

    Otherwise `a <= b` could hold with a at 5,000 and b in the bin that ends there. The last bin ends with its edge.
    """
    edges = np.asarray(column.edges, dtype=np.float64)
    width = np.diff(edges)
    found = edges[1:] - np.minimum(np.maximum(ROOM * width, 8 * CLOSE * np.abs(edges[1:])), width / 2)
    found = np.maximum(np.minimum(found, np.nextafter(edges[1:], -np.inf)), edges[:-1])
    if not column.single_bins[-1]:
        found[-1] = edges[-1]
    return found


def _narrowed(
    form: Form, sign: float, low: dict[str, Floats], high: dict[str, Floats], whole: Mapping[str, bool]
) -> bool:
    """Each column bounded by what the others are at least: sign * (sum + constant) <= 0, strictly less for <.

    Bounds may meet and never cross: what crosses by a rounding would cross by twice as much in each further pass. Where
    nothing can hold, what is left breaks the rule, and is found so.
    """
    ends = {
        name: (low[name], high[name]) if sign * f > 0 else (high[name], low[name]) for name, f in form.factors.items()
    }
    least = {name: sign * factor * ends[name][0] for name, factor in form.factors.items()}
    total = np.sum(list(least.values()), axis=0) + sign * form.constant
    size = np.sum([np.abs(part) for part in least.values()], axis=0) + abs(form.constant)
    exact = all(whole.values()) and all(float(x).is_integer() for x in (*form.factors.values(), form.constant))
    margin: float | Floats = 0.0
    if form.comparator == "<":
        margin = 1.0 if exact else 2 * CLOSE * size + 1e-300
    elif form.comparator == "<=" and not exact:  # or a bound that is computed would be exceeded by its rounding
        margin = 4 * np.finfo(np.float64).eps * size
    changed = False
    for name, factor in form.factors.items():
        room = -(total - least[name]) - margin  # sign * factor * x must not exceed it
        bound = room / (sign * factor)
        if sign * factor > 0:
            bound = np.floor(bound + CLOSE * np.maximum(1, np.abs(bound))) if whole[name] else bound
            new = np.fmin(high[name], bound)
            new = np.where(np.isnan(total), high[name], np.maximum(new, low[name]))
            changed |= bool(np.any(new < high[name]))
            high[name] = new
        else:
            bound = np.ceil(bound - CLOSE * np.maximum(1, np.abs(bound))) if whole[name] else bound
            new = np.fmax(low[name], bound)
            new = np.where(np.isnan(total), low[name], np.minimum(new, high[name]))
            changed |= bool(np.any(new > low[name]))
            low[name] = new
    return changed


def group_rules(rules: Sequence[ValueRule], columns: Mapping[str, InsideBins]) -> list[RuleGroup]:
    """Returns the rules in groups that share no column."""
    groups: list[tuple[list[ValueRule], dict[str, None]]] = []
    for rule in rules:
        joined: tuple[list[ValueRule], dict[str, None]] = ([rule], dict.fromkeys(rule.columns))
        apart = []
        for group in groups:
            if joined[1].keys() & group[1].keys():
                joined = (group[0] + joined[0], group[1] | joined[1])
            else:
                apart.append(group)
        groups = [*apart, joined]
    found = []
    for members, names in groups:
        alone = {name for rule in members for name in rule.form.alone}
        order = sorted(names, key=lambda name: name in alone)
        found.append(RuleGroup(tuple(members), tuple(columns[name] for name in order)))
    return found
