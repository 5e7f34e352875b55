"""Renders the pages: escaped by default, strict about what a template may name, relative links only.

The small charts are segments of bars and a stepped line, in per cent, which templates draw as SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from synth_core.privacy.wording import exact_text, left_figure, loss_figure, scientific
from synth_core.release.certificate import account_sentence
from synth_core.report.page import template_environment
from synth_core.web.views import AccountView, ReleaseLine

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def render(template: str, **values: Any) -> str:
    """A page, style sheet or script."""
    return _ENVIRONMENT.get_template(f"{template}.j2").render(**values)


def size(count: int) -> str:
    """A file's size as people say it."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {UNITS[unit]}" if unit else f"{count} bytes"


def sentence(words: str) -> str:
    """Words as a sentence, their own capitals kept."""
    return f"{words[:1].upper()}{words[1:]}."


def address(page: str, /, **query: object) -> str:
    """A relative address with a query."""
    return f"{page}?{urlencode(query, quote_via=quote)}" if query else page


TICKS = 2000
"""A course with more points is thinned out: a screen has fewer columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One coloured piece of a bar: where it starts and how long it is, in per cent of the bar's box."""

    name: str
    start: float
    length: float
    value: float


def stack_segments(parts: Sequence[tuple[str, float]], *, full: float) -> list[Segment]:
    """Pieces laid end to end; `full` is what would fill the box. Pieces beyond it are cut."""
    segments, start = [], 0.0
    for name, value in parts:
        length = min(100 * value / full, 100 - start) if full > 0 else 0.0
        segments.append(Segment(name=name, start=round(start, 3), length=round(max(length, 0), 3), value=value))
        start += max(length, 0)
    return segments


def balance_bar(view: AccountView) -> list[Segment]:
    """What is spent and what is set aside of the whole cap."""
    parts = [("spent", view.spent), ("held", max(view.committed - view.spent, 0))]
    return stack_segments(parts, full=1.0)


def release_bars(releases: Sequence[ReleaseLine]) -> list[tuple[ReleaseLine, list[Segment]]]:
    """A bar for each release, stacked by step; the dearest one fills the box."""
    dearest = max((float(line.mu2) for line in releases), default=0.0)
    return [(line, stack_segments(line.spends, full=dearest)) for line in releases]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the committed budget and the cap went, as points of stepped lines in a box of 100 by 100."""

    committed: str
    area: str
    cap: str
    first: datetime
    last: datetime


def course(points: Sequence[tuple[datetime, float, float]]) -> Course | None:
    """The lines; None without any time between the first point and the last."""
    points = [*points[:: max(1, len(points) // TICKS)], points[-1]] if points else []
    if not points or points[0][0] == points[-1][0]:
        return None
    first, last = points[0][0], points[-1][0]
    top = 1.08 * max(max(committed, cap) for _, committed, cap in points)
    across = [100 * ((at - first) / (last - first)) for at, _, _ in points]
    committed = _steps(across, [100 - 100 * value / top for _, value, _ in points])
    cap = _steps(across, [100 - 100 * value / top for _, _, value in points])
    return Course(committed=committed, area=f"0,100 {committed} 100,100", cap=cap, first=first, last=last)


def _steps(across: Sequence[float], down: Sequence[float]) -> str:
    """A level holds until the next point, so each point is reached sideways first."""
    corners = [(across[0], down[0])]
    for x, y in zip(across[1:], down[1:], strict=True):
        corners += [(x, corners[-1][1]), (x, y)]
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in corners)


_ENVIRONMENT = template_environment(
    "synth_core.web",
    {
        "scientific": scientific,
        "exact": exact_text,
        "loss": loss_figure,
        "left": left_figure,
        "size": size,
        "sentence": sentence,
    },
)
_ENVIRONMENT.globals |= {
    "account_sentence": account_sentence,
    "address": address,
    "balance_bar": balance_bar,
    "release_bars": release_bars,
    "course": course,
}
