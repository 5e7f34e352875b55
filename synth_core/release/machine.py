"""How fast this machine is beside the one on which the costs of a release were measured."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from synth_core.files import write_text

ROUNDS = 5
"""Times the yardstick is applied; the fastest counts, because other work only slows it down."""


def measure_speed() -> float:
    """Returns the CPU seconds of a fixed piece of work: counting, sorting and products of small matrices."""
    rng = np.random.default_rng(0)
    codes, matrix = rng.integers(0, 400, 200_000), rng.random((160, 160))
    return min(_seconds(codes, matrix) for _ in range(ROUNDS))


def _seconds(codes: NDArray[np.int64], matrix: NDArray[np.float64]) -> float:
    began = time.process_time()
    for _ in range(10):
        np.bincount(codes, minlength=400)
        np.sort(codes[:50_000])
        matrix @ matrix
    return time.process_time() - began


def remembered_speed(measure: Callable[[], float]) -> float:
    """What was measured once on this machine, kept in the user's folder of caches; measured anew where none can be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synth-core" / "speed.json"
    name = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["machine"] == name and float(kept["seconds"]) > 0:
            return float(kept["seconds"])
    seconds = measure()
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_text(cache, json.dumps({"machine": name, "seconds": seconds}))
    return seconds
