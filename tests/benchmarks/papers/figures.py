"""What a figure of a paper is made of, how its runs are kept, and the page that shows them."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure as Picture

ROOT = Path(__file__).resolve().parents[3]
STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "papers",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
COLOURS = (
    *("#0f766e", "#b45309", "#5f6b7a", "#7c3aed", "#be123c", "#1d4ed8", "#4d7c0f"),
    *("#d946ef", "#0891b2", "#111827", "#ca8a04"),
)


class Result(NamedTuple):
    """One run of one cell of a figure, with its numbers by name, and the CPU seconds that all of it took, if kept."""

    figure: str
    cell: dict[str, Any]
    run: int
    values: dict[str, float]
    cost: float | None = None


@dataclass(frozen=True)
class Figure:
    """A figure or a table of a paper: its cells, how one is measured, and what the page says of all of them."""

    name: str
    title: str
    setting: str
    cells: Sequence[dict[str, Any]]
    measure: Callable[[dict[str, Any]], dict[str, float]]
    show: Callable[[Sequence[Result]], str]
    draw: Callable[[Any, Sequence[Result]], None]


def vary(**values: Iterable[Any]) -> list[dict[str, Any]]:
    """A cell for each combination of these values; the last ones vary fastest."""
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


class Contestant(NamedTuple):
    """A method, its preset, and options, as in `privmrf:paper{theta=2}`."""

    method: str
    preset: str
    options: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Contestant:
        """Read a contestant; numbers and truth values of options are JSON, everything else is text."""
        found = re.fullmatch(r"(\w+)(?::(\w+))?(?:\{(.*)\})?", text)
        if not found:
            raise ValueError(f"{text!r} is no contestant; write it like privmrf:paper{{theta=2}}")
        options = dict(pair.split("=", 1) for pair in (found[3] or "").split(",") if pair)
        return cls(found[1], found[2] or "default", {name.strip(): _plain(value) for name, value in options.items()})


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def load(path: Path) -> list[Result]:
    """Results of earlier runs."""
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def run(figure: Figure, path: Path, *, runs: int, deadline: float) -> Iterator[Result]:
    """Measure what is missing, first runs of all cells first, and keep each result at once.

    It stops before a cell that would begin after `deadline` (`time.process_time`), and goes on there the next time.
    """
    results = load(path)
    for number in range(runs):
        for cell in figure.cells:
            done = any((r.figure, r.cell, r.run) == (figure.name, cell, number) for r in results)
            if done or time.process_time() >= deadline:
                continue
            begun = time.process_time()
            values = figure.measure(cell)
            result = Result(figure.name, cell, number, values, round(time.process_time() - begun, 2))
            with path.open("a") as file:
                file.write(json.dumps(result._asdict()) + "\n")
            yield result


def means(results: Sequence[Result], value: str, by: Sequence[str]) -> Mapping[tuple[Any, ...], tuple[float, int]]:
    """The mean of a value for each combination of these keys of a cell, and how many runs it is of."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for r in results:
        if value in r.values:
            found.setdefault(tuple(r.cell[key] for key in by), []).append(r.values[value])
    return {key: (sum(values) / len(values), len(values)) for key, values in found.items()}


def ticks_at(axes: Any, values: Iterable[float]) -> None:
    """Label the places on a logarithmic axis of x at which something was measured, and no others."""
    places = sorted(set(values))
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis of y with plain numbers: powers of ten and twice and five times these, or all if few."""
    low, high = axis.get_view_interval()
    wanted = {1, 2, 5} if high > 3 * low else set(range(1, 10))

    def label(value: float, _: int) -> str:
        return f"{value:g}" if round(value / 10 ** math.floor(math.log10(value) + 1e-9)) in wanted else ""

    axis.set_major_formatter(label)
    axis.set_minor_formatter(label)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def write_page(paper: str, title: str, figures: Sequence[Figure], results: Sequence[Result], out: Path) -> None:
    """The page of a paper, with a picture of each figure that has results."""
    written = f"Written by `python -m tests.benchmarks.papers {paper}`; a number in brackets is that of runs."
    parts = [f"# {title}", written]
    for figure in figures:
        own = [r for r in results if r.figure == figure.name]
        if not own:
            continue
        image = f"paper-{paper}-{figure.name}.svg"
        with rc_context(STYLE):
            picture = Picture(figsize=(6.4, 3.8), layout="constrained")
            figure.draw(axes := picture.subplots(), own)
            if axes.get_yscale() == "log":
                plain_numbers(axes.yaxis)
            if axes.get_legend_handles_labels()[0]:
                picture.legend(loc="outside upper center", ncols=3, fontsize=7)
            picture.savefig(out / "images" / image, format="svg", metadata={"Date": None, "Creator": None})
        parts += [f"## {figure.title}", figure.setting, figure.show(own), f"![{figure.title}](../images/{image})"]
    (out / "papers" / f"{paper}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
