"""Small tables of HTML, by which objects show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
CELL = "padding: .15em .8em .15em 0; vertical-align: top"


def table_html(rows: Iterable[Sequence[object]], *, title: str, head: Sequence[str] = (), note: str = "") -> str:
    """A table of text for a notebook; everything in it is escaped.

    Args:
        rows: the cells of each row; numbers and signed texts are set to the right.
        title: what the table is.
        head: the heading of each column; none without.
        note: a sentence below the table.

    Returns:
        The table as HTML, without scripts, and with styles of its own alone.
    """
    lines = ["".join(f'<th style="{CELL}; text-align: left">{escape(cell)}</th>' for cell in head)] if head else []
    lines += ["".join(_cell(str(cell), first=not place) for place, cell in enumerate(row)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    below = f"<p><small>{escape(note)}</small></p>" if note else ""
    return f'<div><strong>{escape(title)}</strong><table style="{STYLE}">{body}</table>{below}</div>'


def _cell(text: str, *, first: bool) -> str:
    side = "right" if not first and text[:1] in set("0123456789+−-±") else "left"
    return f'<td style="{CELL}; text-align: {side}">{escape(text)}</td>'
