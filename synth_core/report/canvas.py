"""A matplotlib figure as a small, deterministic piece of inline SVG that follows the page's colours."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1f2933", "#5f6b7a", "#d9dee5", "#fefefe"
REFERENCE, SYNTHETIC, WARNING = "#9aa5b1", "#0f766e", "#b45309"
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    REFERENCE: "reference",
    SYNTHETIC: "synthetic",
    WARNING: "warning",
}
"""Each colour is drawn as itself and becomes a CSS variable afterwards, so that a dark page recolours it."""

_FONT = "DejaVu Sans"  # comes with matplotlib, so text is measured alike everywhere
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a column may be called "$x$"
    "font.family": _FONT,
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.bottom": False,
    "ytick.left": False,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}


def inline_svg(draw: Callable[[Figure], None], *, width: float, height: float, name: str) -> str:
    """Draw on a figure of that many inches and return an <svg> element; `name` keeps its ids its own."""
    target = io.StringIO()
    with rc_context(), warnings.catch_warnings():
        rcdefaults()  # a reader's own matplotlibrc must not change a report
        rcParams.update(_STYLE | {"svg.hashsalt": name})
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts are drawn, not matplotlib's
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return _for_a_page(target.getvalue())


def _for_a_page(svg: str) -> str:
    """Strip what only a file of its own needs, and let the page choose font and colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[\w.]+_\d+"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", svg)
    svg = re.sub(r'style="[^"]*"', lambda style: _with_variables(style[0]), svg)
    return re.sub(r"\s*\n\s*", " ", svg.replace("<svg ", '<svg aria-hidden="true" ', 1)).strip()


def _with_variables(style: str) -> str:
    for colour, variable in _VARIABLES.items():
        style = style.replace(colour, f"var(--{variable})")
    return style.replace(f"'{_FONT}'", "var(--font)")
