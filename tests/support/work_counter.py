"""How much a piece of Python does, counted in function calls: the same on every machine and under any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

CALLS = ("call", "c_call")
"""Events of the profiler that count: a call of a Python function and of a built-in one."""


def count_calls(work: Callable[[], Any]) -> int:
    """Returns how many functions a piece of work calls, directly and indirectly."""
    calls = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in CALLS

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
