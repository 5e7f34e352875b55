"""Show how far things are: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

console = Console(stderr=True)


@contextmanager
def report_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Give a function to report progress with; the title and the seconds taken stay on the screen."""
    start = time.monotonic()
    if sys.stderr.isatty():
        with console.status(title) as status:
            yield lambda message: status.update(f"{title} — {message}")
    else:
        console.print(title, markup=False, highlight=False)
        yield lambda message: console.print(f"  {message}", markup=False, highlight=False)
    console.print(f"{title} — {time.monotonic() - start:.1f} s", markup=False, highlight=False)
