"""A picture as inline SVG: rectangles, lines, dots and texts in the page's own colours and font.

Lengths are points of the picture's own scale; the page scales a picture to the width it has. A colour is the name of a
CSS variable of the page, so that a dark page recolours it, and nothing depends on fonts or settings of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Literal

INK, MUTED, RULE, PAPER = "ink", "muted", "rule", "paper"
REFERENCE, SYNTHETIC, WARNING = "reference", "synthetic", "warning"

SIZE = 9.0
"""Points of ordinary text."""

LETTER = 0.56
"""Width of a letter, on average and as a share of the text's size: enough room for most fonts."""

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

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0
    ) -> None:
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

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        """A filled circle."""
        self._elements.append(
            f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" style="fill: var(--{colour})"/>'
        )

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
        return f'<svg aria-hidden="true" viewBox="{box}">{"".join(self._elements)}</svg>'


def text_width(words: str, size: float = SIZE) -> float:
    """Returns about how many points a text takes."""
    return len(words) * LETTER * size


def shortened(words: str, longest: int) -> str:
    """Returns a text of at most so many letters; one that was cut ends with an ellipsis."""
    return words if len(words) <= longest else words[: longest - 1] + "…"
