"""The pictures of a report: each takes plain numbers and texts and returns one inline SVG."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from synth_core.report.canvas import INK, MUTED, PAPER, REFERENCE, RULE, SYNTHETIC, WARNING, inline_svg

WIDE, NARROW = 4.8, 3.7
"""Inches: two wide or three narrow pictures fit beside each other on a desk, and each is readable on a phone."""
_DARKEST_SHARE = 0.7
"""Above this share of the scale a heatmap cell's number is written in the page's colour."""


def paired_bars(
    labels: Sequence[str], *, reference: Sequence[float], synthetic: Sequence[float], name: str
) -> str:
    """Two horizontal bars for each label, the reference above the synthetic table."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(labels))
        axes.barh(places - 0.2, reference, height=0.36, color=REFERENCE, clip_on=False)
        axes.barh(places + 0.2, synthetic, height=0.36, color=SYNTHETIC, clip_on=False)
        _label_rows(axes, labels, longest=20)
        _percent_axis(axes)

    return inline_svg(draw, width=NARROW, height=0.35 + 0.25 * len(labels), name=name)


def histograms(panels: Sequence[tuple[str, Sequence[float], float, float]], *, name: str) -> str:
    """One histogram for each (title, distances, mean, floor), all on one scale, mean and floor marked."""
    largest = max(max(*values, floor) for _, values, _, floor in panels) * 1.05 or 1.0
    bins = np.linspace(0, largest, 31)

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, values, mean, floor) in zip(rows, panels, strict=True):
            heights, _ = np.histogram(values, bins=bins)
            axes.bar(bins[:-1], heights, width=np.diff(bins) * 0.9, align="edge", color=SYNTHETIC, alpha=0.6)
            axes.axvline(mean, color=INK, linewidth=1.2)
            axes.axvline(floor, color=WARNING, linewidth=1.2, linestyle=(0, (3, 2)))
            axes.set_title(title, loc="left", fontsize=9)
            axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.set_xlim(0, largest)
        rows[-1].set_xlabel("total variation distance of one marginal")

    return inline_svg(
        draw, width=WIDE, height=0.6 + (1.75 if len(panels) < 4 else 1.1) * len(panels), name=name
    )


def share_bars(labels: Sequence[str], shares: Sequence[float], *, name: str) -> str:
    """One horizontal bar for each label with its share written at the end; nothing is written as free."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.barh(np.arange(len(labels)), shares, height=0.55, color=SYNTHETIC, clip_on=False)
        for row, share in enumerate(shares):
            text = f"{share:.1%}" if share else "free"
            axes.annotate(
                text, (share, row), xytext=(4, 0), textcoords="offset points", va="center", color=MUTED
            )
        _label_rows(axes, labels, longest=34)
        axes.set_xlim(0, max([*shares, 1e-9]) * 1.15)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)

    return inline_svg(draw, width=WIDE, height=0.25 + 0.3 * len(labels), name=name)


def heatmap(labels: Sequence[str], values: Sequence[Sequence[float]], *, name: str) -> str:
    """The lower triangle of a symmetric matrix, darker for larger values, with numbers if they fit."""
    size = len(labels)
    scale = max(max(row) for row in values) or 1.0

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, column in itertools.combinations_with_replacement(range(size), 2):
            share = values[column][row] / scale
            axes.add_patch(Rectangle((row, column), 0.94, 0.94, color=RULE, linewidth=0, alpha=0.35))
            axes.add_patch(Rectangle((row, column), 0.94, 0.94, color=WARNING, linewidth=0, alpha=share))
            if size <= 16:
                ink = PAPER if share > _DARKEST_SHARE else INK
                number = f"{values[column][row] * 100:.1f}"
                axes.text(row + 0.47, column + 0.5, number, ha="center", va="center", color=ink, fontsize=6.5)
        short = [_shortened(label, 14) for label in labels]
        axes.set_xticks(np.arange(size) + 0.47, short, rotation=90, fontsize=8 if size <= 20 else 5.5)
        axes.set_yticks(np.arange(size) + 0.47, short, fontsize=8 if size <= 20 else 5.5)
        axes.tick_params(axis="x", labelcolor=INK)
        axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
        for spine in axes.spines.values():
            spine.set_visible(False)

    return inline_svg(draw, width=WIDE, height=WIDE, name=name)


def dumbbells(
    labels: Sequence[str],
    *,
    reference: Sequence[float],
    synthetic: Sequence[float],
    baseline: Sequence[float],
    name: str,
) -> str:
    """For each label the reference and the synthetic value joined by a line, and the baseline as a tick."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(labels))
        axes.hlines(places, reference, synthetic, color=MUTED, linewidth=2)
        axes.plot(baseline, places, "|", color=WARNING, markersize=10, markeredgewidth=1.6, clip_on=False)
        axes.plot(reference, places, "o", color=REFERENCE, markersize=7, clip_on=False)
        axes.plot(synthetic, places, "o", color=SYNTHETIC, markersize=5, clip_on=False)
        _label_rows(axes, labels, longest=24)
        _percent_axis(axes)

    return inline_svg(draw, width=WIDE, height=0.45 + 0.27 * len(labels), name=name)


def indented_tree(labels: Sequence[str], parents: Sequence[int], *, name: str) -> str:
    """A forest drawn like a table of contents: one line for each node, children below and to the right of it."""
    order, depths = _depth_first(parents)
    rows = {node: row for row, node in enumerate(order)}

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for node in order:
            x, y = depths[node], rows[node]
            if parents[node] >= 0:
                bend = [x - 1, x - 1, x - 0.25], [rows[parents[node]] + 0.28, y, y]
                axes.plot(*bend, color=REFERENCE, linewidth=1)
            axes.plot(x, y, "o", color=SYNTHETIC, markersize=4)
            axes.annotate(
                _shortened(labels[node], 58),
                (x, y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set(xlim=(-0.3, max(10, max(depths.values()) + 6)), ylim=(len(order) - 0.4, -0.6))
        axes.axis("off")

    return inline_svg(draw, width=WIDE, height=0.2 + 0.21 * len(order), name=name)


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


def _label_rows(axes: Axes, labels: Sequence[str], *, longest: int) -> None:
    axes.set_yticks(np.arange(len(labels)), [_shortened(label, longest) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)


def _percent_axis(axes: Axes) -> None:
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.grid(axis="x", color=RULE, linewidth=0.6)
    axes.spines["bottom"].set_visible(False)


def _shortened(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"
