"""What a census of a given size costs, extrapolated from measured costs along their fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from synth_core.bench.scale import Result, exponent
from synth_core.errors import SpecError

SIZES = ((55_000_000, 60), (330_000_000, 100))
WORKERS = (2, 16, 128)
GPUS = (1, 8)

PASSES = 2
"""Counting passes of a release: all pairs for the scores, and as much again for what is measured."""

GPU_SPEED = 10.0
"""Assumed, never run: how much faster one GPU fits a model than one core."""

SPREAD = ("ingest", "counting", "sampling")
"""Parts that are shared among workers."""


FIT = "fit_cpu_s"
"""The one cost that need not grow with the records, since it sees their counts alone."""


@dataclass(frozen=True, slots=True)
class Law:
    """A cost in CPU seconds: `seconds` at a measured size, growing by powers of rows and columns."""

    part: str
    seconds: float
    rows: int
    columns: int
    over_rows: float
    over_columns: float

    def at(self, rows: int, columns: int) -> float:
        """CPU seconds at another size."""
        longer, wider = rows / self.rows, columns / self.columns
        return self.seconds * math.pow(longer, self.over_rows) * math.pow(wider, self.over_columns)


def law(results: Sequence[Result], part: str, *, cost: str = "cpu_s") -> Law:
    """The law of one cost, from the largest size measured; where only one length or width was, the exponent is 1.

    What every record passes through grows at least in proportion to the records: an exponent below 1 is that of a fixed
    cost that fades, and is not carried on.
    """
    own = [result for result in results if result.part == part and result.values.get(cost, 0) > 0]
    if not own:
        raise SpecError(f"the results have no {part}; run `synth bench scale --parts {part}` first")
    largest = max(own, key=lambda result: (result.rows * result.columns, result.rows))
    over_rows = exponent([(r.rows, r.values[cost]) for r in own if r.columns == _longest(own, "columns")])
    over_columns = exponent([(r.columns, r.values[cost]) for r in own if r.rows == _longest(own, "rows")])
    return Law(
        part,
        largest.values[cost],
        largest.rows,
        largest.columns,
        1.0 if math.isnan(over_rows) or (cost != FIT and over_rows < 1) else over_rows,
        1.0 if math.isnan(over_columns) else over_columns,
    )


def laws(results: Sequence[Result]) -> dict[str, Law]:
    """The laws of a release's parts."""
    return {
        "ingest": law(results, "ingest"),
        "counting": law(results, "counting"),
        "fit": law(results, "release", cost=FIT),
        "sampling": law(results, "sampling"),
        "evaluate": law(results, "release", cost="evaluate_cpu_s"),
    }


def efficiency(results: Sequence[Result]) -> float:
    """How much of each of two workers is work: the least speed of two measured, over twice that of one."""
    speeds = [
        r.values["times_one_worker_cpu"]
        for r in results
        if r.part == "counting_on_workers" and r.workers == 2
    ]
    if not speeds:
        raise SpecError("the results have no counting on two workers; run the part counting_on_workers first")
    return min(1.0, min(speeds) / 2)


def hours(
    found: dict[str, Law], size: tuple[int, int], *, workers: int, gpus: int, useful: float
) -> dict[str, float]:
    """Hours by the clock of each part on so many workers; evaluation runs in one process."""
    seconds = {part: one.at(*size) for part, one in found.items()}
    seconds["counting"] *= PASSES
    for part in SPREAD:
        seconds[part] /= workers if workers == 1 else workers * useful
    if gpus:
        seconds["fit"] /= GPU_SPEED  # one model is fitted on one GPU; more serve strata
    return {part: value / 3600 for part, value in seconds.items()}


def _longest(own: Sequence[Result], axis: Literal["rows", "columns"]) -> int:
    """The value of the axis along which most sizes of the other were measured."""
    values = [result.rows if axis == "rows" else result.columns for result in own]
    return max(set(values), key=lambda value: (values.count(value), value))


def markdown(results: Sequence[Result]) -> str:
    """The capacity page's tables."""
    found, useful = laws(results), efficiency(results)
    lines = ["| part | measured | CPU s | exponent over rows | over columns |", "|---|---|---|---|---|"]
    lines += [
        f"| {part} | {one.rows:,} x {one.columns} | {one.seconds:.1f} | {one.over_rows:.2f} | {one.over_columns:.2f} |"
        for part, one in found.items()
    ]
    places = [(workers, 0) for workers in WORKERS] + [(WORKERS[1], gpus) for gpus in GPUS]
    for size in SIZES:
        lines += ["", f"## {size[0] // 1_000_000} million rows x {size[1]} columns", ""]
        lines += [f"| workers | GPUs | {' | '.join(found)} | all |", "|" + "---|" * (len(found) + 3)]
        for workers, gpus in places:
            parts = hours(found, size, workers=workers, gpus=gpus, useful=useful)
            cells = [_duration(value) for value in (*parts.values(), sum(parts.values()))]
            lines.append(f"| {workers} | {gpus or '–'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _duration(value: float) -> str:
    for unit, size in (("h", 1.0), ("min", 1 / 60)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value * 3600:.0f} s"
