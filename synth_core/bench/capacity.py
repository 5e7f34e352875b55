"""What a census of a given size costs, extrapolated from measured costs along their fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from synth_core.bench.scale import Result, exponent, table
from synth_core.errors import SpecError

SIZES = ((55_000_000, 60), (330_000_000, 100))
"""Rows and columns of the censuses that are extrapolated to."""
WORKERS = (2, 16, 128)
"""Numbers of workers, of one core each."""
GPUS = (1, 8)
"""Numbers of GPUs beside the second number of workers."""

PASSES = 2
"""Counting passes of a release: all pairs for the scores, and as much again for what is measured."""

REPLICATES = 12
"""Replicates of the model that a release has unless its spec says otherwise: so many tasks of a worker each."""

GPU_SPEED = 10.0
"""Assumed, never run: how much faster one GPU fits a model than one core."""

SPREAD = ("ingest", "counting", "sampling", "evaluate")
"""Parts whose cost of the records is shared among workers; what a part costs whatever its length is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A cost in CPU seconds, at a width of `columns`: `fixed`, and `each` for every record.

    With the columns the two grow by the powers `fixed_power` and `each_power`; `longest` is the longest table measured.
    A cost that sees counts and no records has none for each, and grows from the longest on by `rows_power`.
    """

    longest: int
    columns: int
    fixed: float
    each: float
    fixed_power: float
    each_power: float
    rows_power: float = 0.0

    def parts(self, rows: int, columns: int) -> tuple[float, float]:
        """CPU seconds at another size: fixed ones, and those of the records."""
        wider, longer = columns / self.columns, rows / self.longest
        fixed = self.fixed * wider**self.fixed_power * longer**self.rows_power
        return fixed, self.each * rows * wider**self.each_power


def law(results: Sequence[Result], part: str, *, cost: str = "cpu_s", of_counts: bool = False) -> Law:
    """The law of one cost, which passes over the records or is `of_counts` alone.

    At each width with several lengths, a line through the shortest and the longest table; it is taken at the width that
    has the longest. The power of the fixed part is that of the shortest tables' cost over their widths, and that of a
    record's cost is the slopes', and 0 where these fall. Where only one width has a slope its power is taken to be the
    other; where only one width was measured at all, cost is taken to grow in proportion to the columns.
    """
    own = [result for result in results if result.part == part and result.values.get(cost, 0) > 0]
    if not own:
        raise SpecError(f"the results have no {part}; run `synth bench scale --parts {part}` first")
    lines = {
        width: _line([(r.rows, r.values[cost]) for r in own if r.columns == width])
        for width in sorted({r.columns for r in own})
    }
    longest = max(own, key=lambda result: (result.rows, result.columns))
    shortest = min(result.rows for result in own)
    fixed, each = (longest.values[cost], 0.0) if of_counts else lines[longest.columns]
    fixed_power = exponent([(r.columns, r.values[cost]) for r in own if r.rows == shortest])
    fixed_power = 1.0 if math.isnan(fixed_power) else fixed_power
    sloping = [(width, slope) for width, (_, slope) in lines.items() if slope > 0 and _lengths(own, width) > 1]
    each_power = exponent(sloping)
    return Law(
        longest=longest.rows,
        columns=longest.columns,
        fixed=fixed,
        each=each,
        fixed_power=fixed_power,
        each_power=fixed_power if math.isnan(each_power) else max(0.0, each_power),
        rows_power=_growth(own, longest.columns, cost) if of_counts else 0.0,
    )


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """What a part costs at no length and for each record; all of it for the records where one length was measured."""
    (short, low), (long, high) = min(points), max(points)
    each = max(0.0, (high - low) / (long - short)) if long > short else high / long
    return max(0.0, low - each * short), each


def _growth(own: Sequence[Result], width: int, cost: str) -> float:
    power = exponent([(result.rows, result.values[cost]) for result in own if result.columns == width])
    return 0.0 if math.isnan(power) else max(0.0, power)


def _lengths(own: Sequence[Result], width: int) -> int:
    return len({result.rows for result in own if result.columns == width})


def laws(results: Sequence[Result]) -> dict[str, Law]:
    """The laws of a release's parts; the score and most of the fit's reading is counting."""
    return {
        "ingest": law(results, "ingest"),
        "counting": law(results, "counting"),
        "select": law(results, "release", cost="select_cpu_s", of_counts=True),
        "fit": law(results, "release", cost="fit_cpu_s", of_counts=True),
        "replicates": law(results, "release", cost="replicates_cpu_s", of_counts=True),
        "sampling": law(results, "sampling"),
        "evaluate": law(results, "release", cost="evaluate_cpu_s"),
        "publish": law(results, "release", cost="publish_cpu_s", of_counts=True),
    }


def efficiency(results: Sequence[Result]) -> float:
    """How much of each of two workers is work: their least speed by the clock, over twice that of one."""
    speeds = [r.values["times_one_worker"] for r in results if r.part == "counting_on_workers" and r.workers == 2]
    if not speeds:
        raise SpecError("the results have no counting on two workers; run the part counting_on_workers first")
    return min(1.0, min(speeds) / 2)


def hours(found: dict[str, Law], size: tuple[int, int], *, workers: int, gpus: int, useful: float) -> dict[str, float]:
    """Hours by the clock of each part on this number of workers."""
    taken = {}
    for part, one in found.items():
        fixed, of_records = one.parts(*size)
        if part == "counting":
            of_records *= PASSES
        if part in SPREAD and workers > 1:
            of_records /= workers * useful
        if part == "replicates" and workers > 1:
            fixed *= math.ceil(REPLICATES / workers) / (REPLICATES * useful)
        taken[part] = (fixed + of_records) / 3600
    if gpus:
        taken["fit"] /= GPU_SPEED  # one model is fitted on one GPU; more serve strata
    return taken


def markdown(results: Sequence[Result]) -> str:
    """The capacity page's tables."""
    found, useful = laws(results), efficiency(results)
    head = ["part", "measured to", "fixed CPU s", "µs a record", "power of columns: fixed", "a record", "of rows"]
    rows = [
        [
            *(part, f"{one.longest:,} x {one.columns}", f"{one.fixed:.1f}", f"{one.each * 1e6:.2f}"),
            *(f"{power:.2f}" for power in (one.fixed_power, one.each_power, one.rows_power)),
        ]
        for part, one in found.items()
    ]
    lines = table(head, rows)
    places = [(workers, 0) for workers in WORKERS] + [(WORKERS[1], gpus) for gpus in GPUS]
    for size in SIZES:
        rows = []
        for workers, gpus in places:
            parts = hours(found, size, workers=workers, gpus=gpus, useful=useful)
            rows.append([str(workers), str(gpus or "–"), *map(_duration, (*parts.values(), sum(parts.values())))])
        lines += ["", f"## {size[0] // 1_000_000} million rows x {size[1]} columns", ""]
        lines += table(["workers", "GPUs", *found, "all"], rows)
    return "\n".join(lines) + "\n"


def _duration(value: float) -> str:
    for unit, size in (("h", 1.0), ("min", 1 / 60)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value * 3600:.0f} s"
