"""How the engine's kernels are compiled: once after installation, kept on disk, and free of the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

REORDERED = frozenset({"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered, which vector units need; infinities and nan keep their meaning."""


def compiled(function: Kernel) -> Kernel:
    """Compile a numeric kernel on first call and keep the machine code beside the source, where that is writable."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(REORDERED)}
    try:
        return cast("Kernel", njit(cache=True, **options)(function))
    except RuntimeError:  # numba found no writable directory; each process then compiles for itself
        return cast("Kernel", njit(**options)(function))
