"""Which array library a worker computes with, decided once: numpy with compiled kernels, or cupy on a GPU.

Linear algebra runs in one thread wherever the package computes (`one_thread`), whatever the environment says.
"""

from __future__ import annotations

import functools
import importlib
import threading
from contextlib import ContextDecorator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import OpenBLASController, ThreadpoolController

from synth_core.errors import SpecError
from synth_core.settings import Settings

Floats: TypeAlias = NDArray[np.float64]
"""Double-precision numbers in host memory, of any shape."""
Index: TypeAlias = NDArray[np.int64]
"""Positions or numbers of things in host memory."""
Flags: TypeAlias = NDArray[np.bool_]
"""Yes or no for each of many things in host memory."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """An array-API namespace, whether the compiled CPU kernels serve it, and how many threads these may use."""

    name: str
    xp: Any
    compiled: bool
    threads: int = 1


NUMPY = Arrays("numpy", np, compiled=True)


def generic(xp: Any) -> Arrays:
    """The generic path on any array-API namespace, also on numpy."""
    return Arrays(xp.__name__, xp, compiled=False)


@functools.cache
def default_backend() -> Arrays:
    """The backend that SYNTH_ARRAYS names, cached for each process.

    Returns:
        numpy with compiled kernels, or cupy where it is asked for, or not excluded, and a GPU answers.

    Raises:
        SpecError: the name is unknown, or cupy is asked for and no GPU answers.
    """
    name = Settings.from_environment().arrays or "auto"
    numpy = replace(NUMPY, threads=_threads())
    if name == "numpy":
        return numpy
    if name not in ("auto", "cupy"):
        raise SpecError(f"SYNTH_ARRAYS is {name!r}; set it to numpy, cupy or auto")
    cupy = _cupy_with_device()
    if cupy is not None:
        return generic(cupy)
    if name == "cupy":
        raise SpecError("SYNTH_ARRAYS asks for cupy, but no GPU answers; install the cuda extra or set it to numpy")
    return numpy


class _OneThread(ContextDecorator):
    """Keeps linear algebra in one thread while somebody is inside, in whichever thread of this process.

    Our vectors are too short for threads of OpenBLAS to gain anything, and on busy cores these spin against each
    other: the same fit then takes up to 44 times the processor time. A library has one number of threads for the
    whole process, so the last to leave restores it, which need not be the thread that set it; libraries loaded
    meanwhile are seen when the next one enters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: list[Any] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            libraries = ThreadpoolController().select(user_api="blas")
            if any(library["num_threads"] > 1 for library in libraries.info()):
                OpenBLASController.clear_controlling_thread(force=True)
                self._limits.append(libraries.limit(limits=1))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            while self._limits and not self._inside:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limits.pop().restore_original_limits()


one_thread = _OneThread()
"""Context and decorator of whatever calls linear algebra: fits, scores, evaluation, and every task of a worker."""


def namespace(array: Any) -> Any:
    """The array-API namespace the array belongs to."""
    return array.__array_namespace__() if hasattr(array, "__array_namespace__") else np


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """The array's values in host memory."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array.get() if hasattr(array, "get") else array)


def _threads() -> int:
    threads = Settings.from_environment().threads or "1"
    if not threads.isdecimal() or int(threads) < 1:
        raise SpecError(f"SYNTH_THREADS is {threads!r}; set it to a whole number of threads, at least 1")
    return int(threads)


def _cupy_with_device() -> Any:
    try:
        cupy = importlib.import_module("cupy")
        return cupy if cupy.cuda.runtime.getDeviceCount() > 0 else None
    except Exception:  # a missing library, driver or device all mean the same: no GPU here
        return None
