"""One line at a time for the person at the terminal."""

from __future__ import annotations

import sys


def say(line: str = "") -> None:
    """Write a line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
