"""How far a call is: a bar in a notebook and on a terminal, nothing elsewhere; of a command, lines everywhere.

On a terminal it is drawn by rich, where that is installed; in a notebook by the browser's own element.
"""

from __future__ import annotations

import importlib
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from synth_core.errors import MissingExtra, needing

Advance = Callable[[str, float], None]
"""Called with what is being done, and the share that is done, 0 to 1."""


@contextmanager
def live_progress(title: str, *, wanted: bool = True) -> Iterator[Advance]:
    """Show how far a call is while it runs.

    Args:
        title: what is being done.
        wanted: whether anything is to be shown; the caller may report progress in another way.

    Yields:
        What to call with news; calling it costs nothing where no bar is shown.
    """
    display = _notebook_display() if wanted else None
    if display is not None:
        advance = _in_notebook(title, display)
        yield advance
        advance("done", 1.0)
    elif wanted and sys.stderr.isatty() and (bar := _terminal_bar()) is not None:
        with bar:
            task = bar.add_task(title, total=1.0)
            yield lambda what, share: bar.update(task, completed=share, description=f"{title}: {what}")
    else:
        yield _unseen


@contextmanager
def report_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Report what a command does: a live line on a terminal, plain lines elsewhere.

    Args:
        title: what is being done; it stays on the screen, with the seconds taken.

    Yields:
        What to call with news.
    """
    with needing("cli"):
        from rich.console import Console
    console, start = Console(stderr=True), time.monotonic()
    if sys.stderr.isatty():
        with console.status(title) as status:
            yield lambda message: status.update(f"{title} — {message}")
    else:
        console.print(title, markup=False, highlight=False)
        yield lambda message: console.print(f"  {message}", markup=False, highlight=False)
    console.print(f"{title} — {time.monotonic() - start:.1f} s", markup=False, highlight=False)


def _unseen(what: str, share: float) -> None:
    """No bar is shown."""


def _terminal_bar() -> Any:
    """A bar that is gone when it is done; None without rich."""
    try:
        with needing("cli"):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except MissingExtra:
        return None
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _notebook_display() -> Any:
    """IPython's `display`, if this runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    shown = importlib.import_module("IPython.display")
    return lambda html, **how: shown.display(shown.HTML(html), **how)


def _in_notebook(title: str, display: Any) -> Advance:
    place = f"progress-{secrets.token_hex(8)}"  # each call has a bar of its own
    display(_bar_html(title, "", 0.0), display_id=place)

    def advance(what: str, share: float) -> None:
        display(_bar_html(title, what, share), display_id=place, update=True)

    return advance


def _bar_html(title: str, what: str, share: float) -> str:
    words = f"{title}: {what}" if what else title
    return f'<label>{escape(words)} <progress max="1" value="{share:.3f}"></progress></label>'
