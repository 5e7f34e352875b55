"""The pictures of a report: each takes plain numbers and texts and returns one inline SVG.

A picture is rectangles, lines, dots and texts in the page's own colours and font (`Canvas`). Lengths are points of
the picture's own scale; the page scales a picture to the width it has. A colour is the name of a CSS variable of the
page, so that a dark page recolours it, and nothing depends on fonts or settings of this machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from typing import Literal, TypeAlias

import numpy as np

WIDE, NARROW = 345.0, 266.0
"""Points: two wide or three narrow pictures fit beside each other on a desk, and each is readable on a phone."""

BINS = 30
"""Bars of a histogram."""

MAX_NUMBERS = 24
"""Columns of a heatmap up to which its cells have room for their numbers."""

LEAST_CELL = 17.0
"""Lower limit in points of a heatmap's cell: with many columns the picture grows, and its page scrolls it."""

READABLE = 1.3
"""Pixels of a screen for each point below which a picture that is wider than WIDE is scrolled, not shrunk."""

Panel: TypeAlias = tuple[str, Sequence[float], float, float]
"""What one histogram shows: its title, distances, their mean and their floor."""

_AXIS = 20.0
"""Points below a picture for the numbers of its axis."""

_DARKEST_SHARE = 0.7
"""Above this share of the scale a heatmap cell's number is written in the page's colour."""


def paired_bars(labels: Sequence[str], *, reference: Sequence[float], synthetic: Sequence[float]) -> str:
    """Two horizontal bars for each label, the reference above the synthetic table.

    Args:
        labels: one for each value, from above.
        reference: shares of the values in the reference, 0 to 1.
        synthetic: shares of the values in the synthetic table.

    Returns:
        The picture.
    """
    row = 18.0
    canvas, x = _percent_rows(labels, reference, synthetic, width=NARROW, row=row)
    for place, (left, right) in enumerate(zip(reference, synthetic, strict=True)):
        canvas.box(x(0), place * row + 2.5, x(left) - x(0), 6.2, REFERENCE)
        canvas.box(x(0), place * row + 9.3, x(right) - x(0), 6.2, SYNTHETIC)
    return canvas.svg()


def histograms(panels: Sequence[Panel]) -> str:
    """Histograms on one scale, above each other.

    Args:
        panels: of the picture, from above; mean and floor are marked.

    Returns:
        The picture.
    """
    largest = max(max(*values, floor) for _, values, _, floor in panels) * 1.05 or 1.0
    edges = np.linspace(0, largest, BINS + 1)
    title, bars, gap = 16.0, 90.0 if len(panels) < 4 else 48.0, 8.0
    margin = 26.0
    canvas = Canvas(WIDE, (title + bars + gap) * len(panels) + _AXIS + 12)
    x = _scale(largest, margin, WIDE - 12)
    for number, (words, values, mean, floor) in enumerate(panels):
        heights, _ = np.histogram(values, bins=edges)
        top = number * (title + bars + gap) + title
        y = _scale(max(int(heights.max()), 1), top + bars, top)
        for tick in _ticks(max(int(heights.max()), 1), 3, whole=True):
            canvas.line([(margin, y(tick)), (WIDE - 12, y(tick))], RULE, width=0.6)
            canvas.text(margin - 4, y(tick), f"{tick:,.0f}", MUTED, anchor="end", size=8)
        for left, height in zip(edges[:-1], heights, strict=True):
            if height:
                wide = (x(edges[1]) - x(0)) * 0.9
                canvas.box(x(left), y(height), wide, y(0) - y(height), SYNTHETIC, opacity=0.6)
        for place, colour, dashed in ((mean, INK, False), (floor, WARNING, True)):
            canvas.line([(x(place), top), (x(place), top + bars)], colour, width=1.2, dashed=dashed)
        canvas.text(margin, top - 8, words)
    below = canvas.height - _AXIS - 4
    for tick in _ticks(largest, 5):
        canvas.text(x(tick), below, f"{100 * tick:g}", MUTED, anchor="middle", size=8)
    canvas.text(WIDE / 2, canvas.height - 8, "total variation distance of one marginal, %", MUTED, anchor="middle")
    return canvas.svg()


def share_bars(labels: Sequence[str], shares: Sequence[float], *, nothing: str = "free", width: float = WIDE) -> str:
    """One horizontal bar for each label with its share written at the end.

    Args:
        labels: what the shares are of, from above.
        shares: of the whole, 0 to 1.
        nothing: what is written beside a share of 0.
        width: of the picture, in points.

    Returns:
        The picture.
    """
    row = 21.0
    canvas = Canvas(width, 6 + row * len(labels))
    begin = _label_rows(canvas, labels, longest=34 if width == WIDE else 24, row=row)
    x = _scale(max([*shares, 1e-9]), begin, width - 36)
    for place, share in enumerate(shares):
        canvas.box(begin, place * row + 5, x(share) - begin, 11.5, SYNTHETIC)
        canvas.text(x(share) + 4, (place + 0.5) * row, f"{share:.1%}" if share else nothing, MUTED)
    return canvas.svg()


def heatmap(
    labels: Sequence[str], values: Sequence[Sequence[float]], *, marked: Collection[tuple[int, int]] = ()
) -> str:
    """The lower triangle of a symmetric matrix, darker for larger values, with numbers if they fit.

    Args:
        labels: of rows and columns.
        values: the matrix; numbers are written in hundredths.
        marked: cells with a corner of their own, each by its column and its row, of which the column is the smaller.

    Returns:
        The picture; one of many columns is wider than WIDE.
    """
    count, scale = len(labels), max(max(row) for row in values) or 1.0
    short = [shorten(label, 14) for label in labels]
    size = 8.0
    margin = max(text_width(label, size) for label in short) + 6
    cell = max((WIDE - margin) / count, LEAST_CELL)
    canvas = Canvas(margin + cell * count, margin + cell * count)
    for column, row in itertools.combinations_with_replacement(range(count), 2):
        share, x, y = values[row][column] / scale, margin + column * cell, row * cell
        canvas.box(x, y, 0.94 * cell, 0.94 * cell, RULE, opacity=0.35)
        canvas.box(x, y, 0.94 * cell, 0.94 * cell, WARNING, opacity=share)
        if (column, row) in marked:
            canvas.corner(x + 0.94 * cell, y, 0.22 * cell, INK)
        if count <= MAX_NUMBERS:
            ink = PAPER if share > _DARKEST_SHARE else INK
            number = f"{values[row][column] * 100:.1f}"
            canvas.text(x + 0.47 * cell, y + 0.47 * cell, number, ink, anchor="middle", size=6.5)
    for place, label in enumerate(short):
        middle = (place + 0.47) * cell
        canvas.text(margin - 4, middle, label, anchor="end", size=size)
        canvas.text(margin + middle, count * cell + 4, label, anchor="end", size=size, upwards=True)
    return canvas.svg()


def marked_bars(labels: Sequence[str], values: Sequence[float], marks: Sequence[float]) -> str:
    """One horizontal bar for each label, and a tick to hold it against.

    Args:
        labels: one for each bar, from above.
        values: shares from 0 to 1.
        marks: shares, a tick each.

    Returns:
        The picture.
    """
    row = 18.0
    canvas, x = _percent_rows(labels, values, marks, width=WIDE, row=row)
    for place, (value, mark) in enumerate(zip(values, marks, strict=True)):
        y = (place + 0.5) * row
        canvas.box(x(0), y - 5, x(value) - x(0), 10, SYNTHETIC)
        canvas.line([(x(mark), y - 7), (x(mark), y + 7)], WARNING, width=1.6)
    return canvas.svg()


def dumbbells(
    labels: Sequence[str],
    *,
    reference: Sequence[float],
    synthetic: Sequence[float],
    baseline: Sequence[float],
) -> str:
    """For each label the reference and the synthetic value joined by a line, and the baseline as a tick.

    Args:
        labels: one for each row, from above.
        reference: shares from 0 to 1, a large dot each.
        synthetic: shares, a smaller dot each.
        baseline: shares, a tick each.

    Returns:
        The picture.
    """
    row = 19.5
    canvas, x = _percent_rows(labels, reference, synthetic, baseline, width=WIDE, row=row)
    for place, (left, right, base) in enumerate(zip(reference, synthetic, baseline, strict=True)):
        y = (place + 0.5) * row
        canvas.line([(x(left), y), (x(right), y)], MUTED, width=2)
        canvas.line([(x(base), y - 5), (x(base), y + 5)], WARNING, width=1.6)
        canvas.dot(x(left), y, 3.5, REFERENCE)
        canvas.dot(x(right), y, 2.5, SYNTHETIC)
    return canvas.svg()


def indented_tree(labels: Sequence[str], parents: Sequence[int]) -> str:
    """A forest drawn like a table of contents: one line for each node, children below and to the right of it.

    Args:
        labels: of the nodes.
        parents: the node above each; a negative number for a root.

    Returns:
        The picture.
    """
    order, depths = _depth_first(parents)
    rows = {node: row for row, node in enumerate(order)}
    row = 15.0
    indent = min(24.0, (WIDE - 200) / max(1, max(depths.values(), default=0)))
    canvas = Canvas(WIDE, 4 + row * len(order))

    def x(node: int) -> float:
        return 6 + depths[node] * indent

    def y(node: int) -> float:
        return 2 + (rows[node] + 0.5) * row

    for node in order:
        if (above := parents[node]) >= 0:
            bend = [(x(above), y(above) + 4), (x(above), y(node)), (x(node) - 4, y(node))]
            canvas.line(bend, REFERENCE)
    for node in order:
        canvas.dot(x(node), y(node), 2, SYNTHETIC)
        room = math.floor((WIDE - x(node) - 8) / text_width("x", 8))
        canvas.text(x(node) + 6, y(node), shorten(labels[node], max(8, min(58, room))), size=8)
    return canvas.svg()


def _depth_first(parents: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    order: list[int] = []
    depths: dict[int, int] = {}
    waiting = [(node, 0) for node, parent in reversed(list(enumerate(parents))) if parent < 0]
    while waiting:
        node, depth = waiting.pop()
        order.append(node)
        depths[node] = depth
        children = [child for child, parent in enumerate(parents) if parent == node]
        waiting += [(child, depth + 1) for child in reversed(children)]
    return order, depths


def _label_rows(canvas: Canvas, labels: Sequence[str], *, longest: int, row: float) -> float:
    """Write the labels of rows on the left; returns where the bars begin."""
    short = [shorten(label, longest) for label in labels]
    begin = max((text_width(label) for label in short), default=0.0) + 6
    for place, label in enumerate(short):
        canvas.text(begin - 5, (place + 0.5) * row, label, anchor="end")
    return begin


def _percent_rows(
    labels: Sequence[str], *shares: Sequence[float], width: float, row: float
) -> tuple[Canvas, Callable[[float], float]]:
    """A canvas with the labels of rows and an axis below them that has room for the shares; and where a share lies."""
    largest, end = max(itertools.chain([0.0], *shares)) or 1.0, row * len(labels)
    canvas = Canvas(width, _AXIS + end)
    begin = _label_rows(canvas, labels, longest=20 if width == NARROW else 24, row=row)
    x = _scale(largest, begin, width - 14)
    for tick in _ticks(largest, 4):
        canvas.line([(x(tick), 0), (x(tick), end)], RULE, width=0.6)
        canvas.text(x(tick), end + 9, f"{100 * tick:g}%", MUTED, anchor="middle", size=SIZE - 0.5)
    return canvas, x


def _scale(largest: float, begin: float, end: float) -> Callable[[float], float]:
    """Returns where a value from 0 to `largest` lies between two places."""
    return lambda value: begin + (end - begin) * value / largest


def _ticks(largest: float, most: int, *, whole: bool = False) -> list[float]:
    """Returns round numbers from 0 to `largest`, at most `most` steps of 1, 2, 2.5 or 5 times a power of ten."""
    step = _round_step(largest / most)
    step = max(1.0, math.ceil(step)) if whole else step
    return [float(f"{number * step:.6g}") for number in range(math.floor(largest / step + 1e-9) + 1)]


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Returns round numbers from `low` to `high`, at most `most` steps; the only number there is where both are one."""
    if low == high:
        return [low]
    step = _round_step((high - low) / most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * nice for nice in (1, 2, 2.5, 5, 10, 20) if power * nice >= rough * (1 - 1e-9))


INK, MUTED, RULE, PAPER = "ink", "muted", "rule", "paper"
REFERENCE, SYNTHETIC, WARNING = "reference", "synthetic", "warning"

SIZE = 9.0
"""Points of ordinary text."""

LETTER, DIGIT, CAPITAL, WIDEST = 0.6, 0.64, 0.72, 0.98
"""Width of a small letter, a digit, a capital and the widest letters as a share of the text's size: enough room for
wide fonts. Signs are as wide as letters, although most are less."""

Anchor = Literal["start", "middle", "end"]


class Canvas:
    """Collects the elements of one picture.

    Args:
        width: of the picture, in points.
        height: of the picture, in points.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._elements: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0) -> None:
        """A filled rectangle; one of no width is drawn as a hair, so that a value of 0 is seen."""
        faint = "" if opacity == 1.0 else f' fill-opacity="{opacity:.3g}"'
        self._elements.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}" '
            f'style="fill: var(--{colour})"{faint}/>'
        )

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, *, width: float = 1.0, dashed: bool = False
    ) -> None:
        """A line through points."""
        places = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        dashes = ' stroke-dasharray="3 2"' if dashed else ""
        self._elements.append(
            f'<polyline points="{places}" fill="none" stroke-width="{width:g}"{dashes} '
            f'style="stroke: var(--{colour})"/>'
        )

    def corner(self, x: float, y: float, side: float, colour: str) -> None:
        """A filled triangle in an upper right corner."""
        points = f"{x - side:.2f},{y:.2f} {x:.2f},{y:.2f} {x:.2f},{y + side:.2f}"
        self._elements.append(f'<polygon points="{points}" style="fill: var(--{colour})"/>')

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        """A filled circle."""
        self._elements.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" style="fill: var(--{colour})"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        colour: str = INK,
        *,
        anchor: Anchor = "start",
        size: float = SIZE,
        upwards: bool = False,
    ) -> None:
        """Words whose middle height is at `y`; `upwards` turns them to be read from below."""
        turned = f' transform="rotate(-90 {x:.2f} {y:.2f})"' if upwards else ""
        self._elements.append(
            f'<text x="{x:.2f}" y="{y:.2f}" dy="0.35em" text-anchor="{anchor}" font-size="{size:g}"{turned} '
            f'style="fill: var(--{colour}); font-family: var(--font)">{escape(words)}</text>'
        )

    def svg(self) -> str:
        """Returns the picture as an <svg> element; what it shows is said in words beside it."""
        box = f"0 0 {self.width:.2f} {self.height:.2f}"
        least = f' style="min-width: {READABLE * self.width:.0f}px"' if self.width > WIDE + 0.01 else ""
        return f'<svg aria-hidden="true" viewBox="{box}"{least}>{"".join(self._elements)}</svg>'


def text_width(words: str, size: float = SIZE) -> float:
    """Returns about how many points a text takes."""
    return size * sum(
        WIDEST if c in "mwMW%" else CAPITAL if c.isupper() else DIGIT if c.isdigit() else LETTER for c in words
    )


def shorten(words: str, longest: int) -> str:
    """Returns a text of at most `longest` letters; one that was cut ends with an ellipsis."""
    return words if len(words) <= longest else words[: longest - 1] + "…"
