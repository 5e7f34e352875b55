"""Random schemas, tables and requests: whatever a person may declare, of small size; all follow from a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from synth_core.synthesizers.methods import METHODS, method_options

WORDS = (
    *("a", "b", "farm", "é", "=cmd|x", 'say "no"', "a,b", "-", "N", "1.5", "01", "true", "x" * 90, " pad"),
    *("\u202e", "<b>"),
)
"""Values of columns of text, some of which other programs take for something else."""
NAMES = ("sex", "job name", "a-b", "größe", "total", "n", "size", "where", "code", "=x", "row", "Code", "release", "0")
"""Names of columns; some are words that reports, answers and questions use too."""

Cells = Callable[[int], list[Any]]
"""Draws the cells of a column."""


class Draw:
    """Random choices that follow from a number."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < share)

    def pick(self, things: Sequence[Any]) -> Any:
        """One of them."""
        return things[int(self.rng.integers(len(things)))]

    def some(self, things: Sequence[Any], most: int) -> list[Any]:
        """One or several of them, each once."""
        number = int(self.rng.integers(1, min(most, len(things)) + 1))
        return [things[int(at)] for at in self.rng.permutation(len(things))[:number]]

    def between(self, low: float, high: float) -> float:
        """A number above 0, of any magnitude."""
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def skewed(self, number: int) -> Any:
        """Chances of so many things: alike, or a few of them dear."""
        return self.rng.dirichlet([self.pick([0.05, 1.0, 20.0])] * number)


@dataclass(frozen=True, slots=True)
class Table:
    """What is declared of a table, and a table."""

    declared: dict[str, Any]
    frame: pd.DataFrame

    def columns(self, kind: str = "") -> list[dict[str, Any]]:
        """The columns, or those of a kind."""
        return [one for one in self.declared["columns"] if one["kind"] == kind or not kind]

    def numbers(self) -> list[dict[str, Any]]:
        """The columns of numbers."""
        return [*self.columns("integer"), *self.columns("real")]


def draw_table(draw: Draw, *, rows: int, bought: bool = True, most: int = 5) -> Table:
    """Draw a declaration, and rows that are mostly as it says; rules may be broken by rows.

    Args:
        draw: Source of choices.
        rows: Number of rows.
        bought: Whether bins may be left to be bought.
        most: Upper limit of the columns.
    """
    names = draw.some(NAMES, most)
    kinds = [draw.pick(["categorical", "categorical", "integer", "real"]) for _ in names]
    columns, cells = [], {}
    for name, kind in zip(names, kinds, strict=True):
        own, source = _categorical(draw, name) if kind == "categorical" else _numeric(draw, name, kind, bought=bought)
        columns.append(own)
        cells[own.get("reads", name)] = source(rows)
    declared: dict[str, Any] = {"columns": columns}
    table = Table(declared, pd.DataFrame(cells, dtype=object))
    numbers = table.numbers()
    if numbers and draw.chance(0.15):
        columns.append(_compared(draw, numbers))
    if rules := [rule for number in range(draw.pick([0, 0, 0, 0, 1, 1, 2])) if (rule := _rule(draw, table, number))]:
        declared["rules"] = rules
    if attached := _attached(draw, table):
        declared["attached"] = attached
    return table


def _categorical(draw: Draw, name: str) -> tuple[dict[str, Any], Cells]:
    number = draw.pick([1, 2, 2, 2, 3, 4, 6, 12, 40])
    values: list[Any] = draw.some(WORDS, 16)[:number]
    if number > len(WORDS) or draw.chance(0.4):
        values = [int(at) * draw.pick([1, 1, 1, -3, 10**12]) for at in range(number)]
        values = list(dict.fromkeys(values))
    own: dict[str, Any] = {"name": name, "kind": "categorical", "values": values, **_missing(draw)}
    if own.get("unseen") == "clip":
        own["unseen"] = "other"
    seen = list(values)
    if draw.chance(0.2):
        own["labels"] = {value: f"label <{at}>" for at, value in enumerate(values)}
    if draw.chance(0.15):
        groups = draw.rng.integers(0, 3, len(values)).tolist()
        own["hierarchy"] = {f"g{at}": [v for v, g in zip(values, groups, strict=True) if g == at] for at in range(3)}
    if draw.chance(0.15):
        other = "elsewhere" if isinstance(values[0], str) else 99_999
        own["recode"] = {other: draw.pick(values)}
        seen.append(other)
    if draw.chance(0.1):
        own["reads"] = f"raw {name}"
    if own.get("unseen") == "other":
        seen.append("unheard" if isinstance(values[0], str) else -77_777)
    return own, _cells(draw, seen, missing=bool(own.get("nullable")))


def _missing(draw: Draw) -> dict[str, Any]:
    own: dict[str, Any] = {"nullable": True} if draw.chance(0.3) else {}
    if draw.chance(0.3):
        own["unseen"] = draw.pick(["other", "clip"])
    return own


def _cells(draw: Draw, seen: Sequence[Any], *, missing: bool) -> Cells:
    chances, gaps = draw.skewed(len(seen)), draw.pick([0.0, 0.2, 1.0]) if missing else 0.0

    def drawn(rows: int) -> list[Any]:
        found = [seen[int(at)] for at in draw.rng.choice(len(seen), rows, p=chances)]
        return [None if draw.chance(gaps) else one for one in found] if gaps else found

    return drawn


def _numeric(draw: Draw, name: str, kind: str, *, bought: bool) -> tuple[dict[str, Any], Cells]:
    low, width = draw.pick([0, 0, 0, 1, -50, 1900, -(10**6)]), draw.pick([1, 2, 9, 99, 99, 1000, 10**6])
    own: dict[str, Any] = {"name": name, "kind": kind, **_missing(draw)}
    edges = sorted({low, low + width, *(low + int(at) for at in draw.rng.integers(1, width + 1, draw.pick([0, 2, 6])))})
    whole = kind == "integer"
    match draw.pick(["count", "count", "edges", "bought"] if bought else ["count", "edges"]):
        case "count":
            own |= {"bounds": [low, low + width], "bins": min(width + whole, draw.pick([1, 2, 5, 10, 33]))}
        case "edges":
            own["bins"] = edges
            if draw.chance(0.3):
                own["hierarchy"] = [edges[0], *(one for one in edges[1:-1] if draw.chance(0.4)), edges[-1]]
        case _:
            own |= {"bounds": [low, low + width], "bins": {"private_quantiles": min(width + 1, draw.pick([2, 4, 8]))}}
            if draw.chance(0.5):
                own["bins"]["grid"] = draw.pick([8, 50, 1000])
            own["unseen"] = "clip"
    high = low + width - (isinstance(own["bins"], list) and whole)
    seen: list[Any] = [low, high, low + width // 2]
    if draw.chance(0.2):
        own["not_in_universe"] = draw.pick(["N", "not asked", low - 5, low + width + 7])
        seen.append(own["not_in_universe"])
    if draw.chance(0.25) and isinstance(own["bins"], (int, list)):
        own["atoms"] = draw.some(sorted({low, low + width // 2, low + width // 3}), 2)
    tails = ["pareto", "exponential", "uniform"][low < 1 :]
    own |= {"tail": draw.pick(tails)} if draw.chance(0.25) else {}
    own |= {"heaping": draw.pick([5, 1, {"every": 10, "share": 0.9}])} if draw.chance(0.2) else {}
    own |= {"moments": True} if draw.chance(0.25) else {}
    if own.get("unseen"):
        seen += [low - 1, low + width + 1, 10**9]
    spread = draw.rng.uniform(low, high, draw.pick([0, 5, 60]))
    seen += [int(one) if whole else round(float(one), draw.pick([0, 2, 12])) for one in spread]
    return own, _cells(draw, seen, missing=bool(own.get("nullable")))


def _compared(draw: Draw, numbers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    left, right = draw.pick(numbers), draw.pick([draw.pick(numbers)["name"], 0, 5, 40.5])
    said = {"left": left["name"], "is": draw.pick(["<", "<=", "==", "!=", ">=", ">"]), "right": right}
    own = {"name": "derived", "kind": "categorical", "values": ["so", "not so"], "nullable": True, "unseen": "other"}
    return own | {"compare": said | {"then": "so", "otherwise": "not so"}}


def _rule(draw: Draw, table: Table, number: int) -> dict[str, Any] | None:
    columns, numbers = table.columns(), table.numbers()
    if len(columns) < 2:
        return None
    name = f"rule {number}"
    if len(numbers) >= 2 and draw.chance(0.4):
        a, b = _two(draw, numbers)
        sign, add = draw.pick(["<", "<=", "==", ">="]), draw.pick([0, 5, 1000, -3])
        return {"name": name, "compare": f"{a} {sign} {b} + {add}" if add >= 0 else f"{a} {sign} {b} - {-add}"}
    cut = [one for one in columns if one["kind"] == "categorical" or len(_inner(one)) > 0]
    if len(cut) < 2:
        return None
    one, other = (cut[int(at)] for at in draw.rng.permutation(len(cut))[:2])
    listed = [own for own in (one, other) if own["kind"] == "categorical"]
    if len(listed) == 2 and draw.chance(0.3):
        decided = {value: [] for value in other["values"]}
        for value in one["values"]:
            decided[draw.pick(other["values"])].append(value)
        by = {value: held for value, held in decided.items() if held}
        return {"name": name, "column": one["name"], "decides": other["name"], "by": by}
    how = draw.pick(["never", "never", "only"])
    return {"name": name, "when": {one["name"]: _items(draw, one)}, how: {other["name"]: _items(draw, other)}}


def _two(draw: Draw, numbers: Sequence[dict[str, Any]]) -> list[str]:
    return [f"`{numbers[int(at)]['name']}`" for at in draw.rng.permutation(len(numbers))[:2]]


def _items(draw: Draw, column: dict[str, Any]) -> Any:
    if column.get("nullable") and draw.chance(0.3):
        return None
    if column["kind"] == "categorical":
        return draw.some(column["values"], 3)
    how = "min" if column["kind"] == "integer" else draw.pick(["min", "max"])
    return {how: draw.pick(_inner(column))}


def _inner(column: dict[str, Any]) -> list[Any]:
    return column["bins"][1:-1] if isinstance(column["bins"], list) else []


def _attached(draw: Draw, table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if (numbers := table.numbers()) and draw.chance(0.15):
        one = f"`{draw.pick(numbers)['name']}`"
        found.append({"name": "computed", "computed": draw.pick([f"{one} >= 18", f"2 * {one} + 1", f"{one} + {one}"])})
    listed = [own for own in table.columns("categorical") if not own.get("compare")]
    if listed and draw.chance(0.15):
        own = draw.pick(listed)
        values = {value: draw.pick([1.5, 2, 7]) for value in own["values"]}
        found.append({"name": "looked up", "lookup": {"from": own["name"], "values": values}})
    return found


def draw_method(draw: Draw, columns: Sequence[dict[str, Any]], *, methods: Sequence[str] = ()) -> dict[str, Any]:
    """A method with a preset and some of its options changed, by the names of a spec's keys."""
    method = draw.pick(methods or (*METHODS, "privmrf", "absyn", "privbayes"))
    preset = draw.pick(tuple(METHODS[method].presets))
    names = [column["name"] for column in columns]
    options = {}
    for name, values, _ in method_options(method):
        if preset in values and draw.chance(0.15):
            options[name] = _option(draw, name, values[preset], names)
    return {"method": method, "preset": preset, "options": options}


CHOICES = {
    "estimation": ["exact", "parallel"],
    "generation": ["dealt", "with replacement", "without replacement"],
    "algorithm": ["sound", "sound", "printed"],
}
"""Options that are words."""


def _option(draw: Draw, name: str, value: Any, columns: Sequence[str]) -> Any:
    if name in CHOICES:
        return draw.pick(CHOICES[name])
    if name == "levels":
        return {draw.pick(columns): [0, 1]}
    if name == "workload":
        said: dict[str, Any] = {"ways": draw.pick([1, 2, 3])}
        said |= {draw.pick(["prefixes", "ranges"]): draw.some(columns, 1)} if draw.chance(0.5) else {}
        return said | ({"marginals": [draw.some(columns, 3)]} if draw.chance(0.3) else {})
    if isinstance(value, bool):
        return not value
    if draw.chance(0.05):
        return draw.pick([0, -1, math.nan, math.inf]) if isinstance(value, float) else draw.pick([0, -1])
    scaled = value * draw.pick([0.1, 0.5, 2, 2, 5]) if value else draw.pick([0, 1])
    return round(scaled) if isinstance(value, int) else float(f"{scaled:.4g}")
