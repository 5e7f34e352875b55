"""How the engine's kernels are compiled: once after installation, kept on disk, and free of the interpreter lock.

Two habits keep that short. What only kernels call is a `part_of_kernel`; and no array is assigned to a stretch of
another one, but cell by cell: for the message of a shape that does not fit numba compiles all of its text functions,
which takes ten seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.extending import register_jitable

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

REORDERED = frozenset({"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered, which vector units need; infinities and nan keep their meaning."""

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": set(REORDERED),
    "no_cfunc_wrapper": True,
}
"""How every kernel, and every part of one, is compiled; none is called from C."""

COMPILING = "compiling kernels for this processor, once: a first table takes some seconds longer"
"""What is logged when a process has to compile."""


def compiled(function: Kernel) -> Kernel:
    """Compile a numeric kernel on first call and keep the machine code beside the source, where that is writable."""
    try:
        kernel = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # numba found no writable directory; each process then compiles for itself
        return cast("Kernel", njit(**OPTIONS)(function))
    with suppress(AttributeError):
        _bind_to_source(kernel)
    return cast("Kernel", kernel)


def _bind_to_source(kernel: Any) -> None:
    """Have what is kept of an older source passed over before it is read.

    numba reads it first, and fails where it names a class that the source no longer has; it compares versions before.
    """
    kept = kernel._cache._cache_file  # noqa: SLF001 - numba offers no other way
    kept._version = f"{kept._version} {kept._source_stamp!r}"  # noqa: SLF001


def part_of_kernel(function: Kernel) -> Kernel:
    """Let kernels call a function, which stays a plain one for Python.

    It gets no way in from the interpreter, which takes about as long to compile as the function itself.
    """
    return cast("Kernel", register_jitable(**OPTIONS)(function))


class _Notice(event.Listener):  # type: ignore[misc]
    """Logs once in each process that kernels of ours are compiled, and were not found on disk."""

    def __init__(self) -> None:
        self._given = False

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        if not self._given and event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
            self._given = True
            logging.getLogger(__name__).warning(COMPILING)

    def on_end(self, event: Any) -> None:
        """It has ended."""


event.register("numba:compile", _Notice())
