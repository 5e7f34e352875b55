"""What a release will take in time, memory and disk: measured costs of other releases, carried on to its shape.

`costs.yaml` has for each step what it cost in each of its terms, such as a record in a column.
tests/benchmarks/plans.py measured it, and compares what is said here with what other releases took.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.documents import parse_document, parse_json, read_document
from synth_core.errors import SpecError
from synth_core.files import write_text
from synth_core.settings import Settings, cache_folder

COSTS = Path(__file__).with_name("costs.yaml")

USUAL_FACTOR = 2.0
"""Ratio of memory and disk said to those a release took, either way, that tests/benchmarks/plans.py shows."""
TIME_FACTOR = 3.0
"""Ratio of the time said to that a release took, either way: it depends on the tables that a method chooses, too."""

ROUNDS = 5
"""Times the yardstick is applied; the fastest counts, because other work only slows it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the cost of a release depends on.

    Attributes:
        method: The method's name.
        records: Records that are read.
        rows: Synthetic records that are written.
        columns: Columns of the schema.
        models: Models that are fitted: one, or one for each stratum.
        evaluate: Which internal report is asked for: full, quick or none.
        refits: How often each model is fitted again for the errors of its numbers.
        tables: Synthetic tables that are written: the extract, and replicate tables.
        csv: Whether the extract is written as CSV too.
        tree: Expected cells of a model's junction tree (`expected_tree`).
    """

    method: str
    records: int
    rows: int
    columns: int
    models: int = 1
    evaluate: str = "full"
    refits: int = 0
    tables: int = 1
    csv: bool = False
    tree: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a release takes on this machine.

    Attributes:
        seconds: CPU seconds of each step.
        peak_mb: Most memory of one process in which all steps run, in MB.
        confidential_mb: Disk for encoded rows, models and reports, in MB.
        public_mb: Disk for what is published, in MB.
        like: The measured method that stands for this one, if this one was not measured.
        beyond: Whether the shape is larger than any that was measured.
    """

    seconds: Mapping[str, float]
    peak_mb: float
    confidential_mb: float
    public_mb: float
    like: str | None
    beyond: bool


FULL_PAGE = 11
"""Columns of which the page of tables has as many as it may."""
DETAILED = 500_000
"""Cells of confidential records for which a model is as detailed as methods allow; of fewer, noise hides the detail."""


def _detail(shape: Shape) -> float:
    return min(shape.records * shape.columns, shape.models * DETAILED)


TERMS: dict[str, Callable[[Shape], float]] = {
    "release": lambda _: 1,
    "internal report": lambda s: s.evaluate != "none",
    "column": lambda s: s.columns,
    "pair": lambda s: s.columns**2,
    "record in a column": lambda s: s.records * s.columns,
    "record in a pair": lambda s: s.records * s.columns**2,
    "row in a column": lambda s: s.rows * s.columns * s.tables,
    "row in a column of CSV": lambda s: s.rows * s.columns * s.csv,
    "table": lambda s: s.tables,
    "model": lambda s: s.models,
    "column of a model": lambda s: s.models * s.columns,
    "pair of a model": lambda s: s.models * s.columns**2,
    "triple of a model": lambda s: s.models * s.columns**3,
    "cell of a model": lambda s: s.models * s.tree,
    "detail of a model": lambda s: _detail(s),
    "refit": lambda s: s.refits * s.models,
    "column of a refit": lambda s: s.refits * s.models * s.columns,
    "cell of a refit": lambda s: s.refits * s.models * s.tree,
    "detail of a refit": lambda s: s.refits * _detail(s),
    "pair of a refit": lambda s: s.refits * s.columns**2,
    "page of tables": lambda s: min(1, (s.columns / FULL_PAGE) ** 3),
    "compared column": lambda s: (s.evaluate != "none") * s.columns,
    "compared pair": lambda s: (s.evaluate != "none") * s.columns**2,
    "compared record in a column": lambda s: (s.evaluate != "none") * s.records * s.columns,
}
"""What a cost may be proportional to."""

OF_MODELS = ("model", "column of a model", "pair of a model", "triple of a model", "record in a pair")
STEP_TERMS: dict[str, tuple[str, ...]] = {
    "ingest": ("release", "record in a column"),
    "score": OF_MODELS,
    "select": OF_MODELS,
    "fit": (*OF_MODELS, "cell of a model", "refit", "column of a refit", "cell of a refit"),
    "sample": ("release", "model", "table", "row in a column", "row in a column of CSV", "cell of a model"),
    "evaluate": (
        *("release", "column", "pair", "record in a column", "refit", "pair of a refit", "cell of a refit"),
        *("internal report", "compared column", "compared pair", "compared record in a column"),
    ),
    "publish": ("release", "model", "column", "table"),
    "peak_mb": ("release", "internal report", "column", "pair", "record in a column", "cell of a model"),
    "confidential": ("internal report", "model", "column", "record in a column"),
    "public": (
        *("release", "model", "row in a column", "row in a column of CSV", "page of tables"),
        *("refit", "detail of a refit"),
    ),
}
"""The terms of each step's seconds, of the memory in MB and of the disk in bytes."""

PER_METHOD = ("score", "select", "fit", "sample")
"""Steps whose cost is that of the method."""


def estimate_release(shape: Shape, *, speed: float | None = None) -> Estimate:
    """What a release of this shape takes.

    Args:
        shape: The release.
        speed: How fast the machine is, 1 for the one on which the costs were measured; None takes SYNTH_SPEED, or
            measures this one.

    Returns:
        Seconds, memory and disk.

    Raises:
        SpecError: SYNTH_SPEED is no positive number.
    """
    costs = _costs()
    factor = speed or machine_speed()
    like = shape.method if shape.method in costs["methods"] else costs["dearest"]

    def amount(name: str) -> float:
        own = costs["methods"][like] if name in PER_METHOD else costs
        return sum(float(own[name].get(term, 0.0)) * TERMS[term](shape) for term in STEP_TERMS[name])

    steps = {name: amount(name) / factor for name in STEP_TERMS if name in costs["steps"]}
    return Estimate(
        seconds=steps,
        peak_mb=amount("peak_mb"),
        confidential_mb=amount("confidential") / 1e6,
        public_mb=amount("public") / 1e6,
        like=None if like == shape.method else like,
        beyond=shape.records > costs["records"] or shape.columns > costs["columns"] or shape.models > costs["models"],
    )


def machine_speed() -> float:
    """How fast this machine is: as SYNTH_SPEED says, or as the quickest measurement of it has found."""
    said = Settings.from_environment().speed
    if said is None:
        return float(_costs()["yardstick"]) / remembered_speed(measure_speed)
    try:
        speed = float(said)
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e6:
        raise SpecError(
            "SYNTH_SPEED is not a positive number; leave it out, or write 1 for the machine that was measured"
        )
    return speed


def describe(shape: Shape, estimate: Estimate) -> list[tuple[str, str]]:
    """The estimate in lines of a plan."""
    seconds = sum(estimate.seconds.values())
    dearest = max(estimate.seconds, key=lambda name: estimate.seconds[name])
    size = f"{shape.records:,} records, {shape.columns:,} columns"
    lines = [
        ("for", size + (f", {shape.models:,} models" if shape.models > 1 else "")),
        (
            "time",
            f"about {in_words(seconds)} of one core, {in_words(estimate.seconds[dearest])} of it in {dearest}; up to "
            f"{TIME_FACTOR:.0f} times more or less",
        ),
        ("memory", f"about {megabytes(estimate.peak_mb)}"),
        (
            "disk",
            f"about {megabytes(estimate.confidential_mb)} confidential, {megabytes(estimate.public_mb)} published",
        ),
    ]
    if estimate.like:
        lines.append(("note", f"{shape.method} was not measured; {estimate.like} stands for it"))
    if estimate.beyond:
        lines.append(("note", "larger than any release that was measured, so the figures are carried on"))
    return lines


def in_words(seconds: float) -> str:
    """A duration with two figures."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{_two_figures(seconds / size)} {unit}"
    return f"{_two_figures(seconds)} s"


def megabytes(amount: float) -> str:
    """A size with two figures."""
    for unit, size in (("TB", 1e6), ("GB", 1e3)):
        if amount >= size:
            return f"{_two_figures(amount / size)} {unit}"
    return f"{_two_figures(amount)} MB"


def _two_figures(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


@cache
def _costs() -> dict[str, Any]:
    return dict(parse_document(COSTS.read_text(encoding="utf-8")))


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
    """The least that was ever measured on this machine, since other work only slows it down.

    It is kept in the user's folder of caches, where there is one.
    """
    cache = cache_folder() / "speed.json"
    name = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    seconds = measure()
    with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        kept = parse_json(read_document(cache))
        if kept["machine"] == name and 0 < float(kept["seconds"]) <= seconds:
            return float(kept["seconds"])
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_text(cache, json.dumps({"machine": name, "seconds": seconds}))
    return seconds
