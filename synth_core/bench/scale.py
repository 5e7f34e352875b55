"""The scale benchmark: every task that is not in the results yet, the growth exponents, and a table for people."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from synth_core.errors import SourceError, SpecError
from synth_core.files import write_text

PARTS = ("counting", "counting_on_workers", "ingest", "reading", "sampling", "release")

MILLION = 1_000_000
"""Rows; sizes are written as multiples of it."""
STANDARD: dict[str, tuple[tuple[int, int], ...]] = {
    "counting": ((MILLION, 15), (MILLION, 30), (MILLION, 60), (MILLION, 98), (10 * MILLION, 15)),
    "counting_on_workers": ((MILLION, 98), (4 * MILLION, 98), (10 * MILLION, 15)),
    "ingest": ((MILLION, 15), (5 * MILLION, 15), (10 * MILLION, 15)),
    "reading": ((MILLION, 15), (5 * MILLION, 15), (10 * MILLION, 15)),
    "sampling": ((MILLION, 15), (10 * MILLION, 15), (100 * MILLION, 15)),
    "release": (
        (100_000, 15),
        (100_000, 30),
        (100_000, 60),
        (MILLION, 15),
        (MILLION, 30),
        (10 * MILLION, 15),
    ),
}
"""Rows and columns of the committed table, part by part."""


class Task(NamedTuple):
    """A part of the work, and its size."""

    part: str
    rows: int
    columns: int
    workers: int = 1


class Result(NamedTuple):
    """What one task took: what the task was, and its figures by name."""

    part: str
    rows: int
    columns: int
    workers: int
    values: dict[str, float]


def list_tasks(
    parts: Sequence[str],
    *,
    rows: Sequence[int] = (),
    columns: Sequence[int] = (),
    workers: Sequence[int] = (2,),
) -> list[Task]:
    """The tasks of every number of rows with every number of columns; without any, those of the committed table.

    Only counting on workers depends on their number.
    """
    for part in parts:
        if part not in PARTS:
            raise SpecError(f"--parts {part} is not among: {', '.join(PARTS)}")
    if bool(rows) != bool(columns):
        raise SpecError("--rows and --columns go together; give both, or neither for the standard sizes")
    return [
        Task(part, n, d, w)
        for part in parts
        for n, d in (product(rows, columns) if rows else STANDARD[part])
        for w in (workers if part == "counting_on_workers" else (1,))
    ]


def benchmark(tasks: Iterable[Task], out: Path, *, report: Callable[[str], None], again: bool = False) -> list[Result]:
    """Run the tasks that are not in `out` yet, part by part, the smallest first; or, `again`, all of them.

    Stopping it loses the task under way and no other.
    """
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    results = {Task(*result[:4]): result for result in load(out / "scale.jsonl")}
    for task in sorted(tasks, key=lambda task: (PARTS.index(task.part), task.rows * task.columns, task)):
        if task in results and not again:
            continue
        results[task] = _run(task, data)
        _save(list(results.values()), out)
        size = f"{task.rows:,} x {task.columns}, workers {task.workers}"
        report(f"{task.part}, {size}: {_in_words(results[task].values)}")
    _save(list(results.values()), out)
    return list(results.values())


def load(path: Path) -> list[Result]:
    """Results of earlier runs."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Result(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError):
        raise SourceError(f"{path}: is not a table of this benchmark; name another --out") from None


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """The power by which cost grows: the slope of its logarithm over that of the size; nan for fewer than two sizes."""
    sizes, costs = zip(*points, strict=True) if points else ((), ())
    if len(set(sizes)) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth(results: Sequence[Result], axis: str) -> list[tuple[str, str, str, float]]:
    """Exponents over `rows` or `columns` of every part's cost: (part, step, what was held fixed, exponent)."""
    other = "columns" if axis == "rows" else "rows"
    lines: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        for name, value in result.values.items():
            if name.endswith("cpu_s") and value > 0:
                lines[result.part, name.removesuffix("_cpu_s"), getattr(result, other)].append(
                    (getattr(result, axis), value)
                )
    found = []
    for (part, step, fixed), points in sorted(lines.items()):
        power = exponent(points)
        if not math.isnan(power):
            found.append((part, "all" if step == "cpu_s" else step, f"{fixed:,} {other}", power))
    return found


def markdown(results: Sequence[Result]) -> str:
    """The results as tables, with the exponents."""
    lines = [PREFACE]
    for part in PARTS:
        own = sorted((r for r in results if r.part == part), key=lambda r: r[:4])
        if not own:
            continue
        names = list(dict.fromkeys(name for r in own for name in r.values))
        rows = [
            [f"{r.rows:,}", str(r.columns), str(r.workers), *(_number(r.values.get(name)) for name in names)]
            for r in own
        ]
        head = ["rows", "columns", "workers", *map(_title, names)]
        lines += [f"## {part.replace('_', ' ')}", "", *table(head, rows), ""]
    for axis in ("rows", "columns"):
        found = growth(results, axis)
        if found:
            rows = [[part, step, fixed, f"{power:.2f}"] for part, step, fixed, power in found]
            lines += [f"## Growth over {axis}", "", *table(["part", "step", "held fixed", "exponent"], rows), ""]
    return "\n".join(lines)


PREFACE = """# Scale

Written by `synth bench scale`. Seconds are CPU seconds; wall seconds, those of the clock, say little on a
machine that other work shares.
"""
"""What stands above the tables."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(cells)} |" for cells in rows)]


_TITLES = {
    "cpu_s": "s",
    "wall_s": "wall s",
    "peak_mb": "peak MB",
    "row_pairs_per_s": "row-pairs/s",
    "times_bincount": "x np.bincount",
    "times_histogramdd": "x np.histogramdd",
    "times_one_worker": "x one worker, by the clock",
    "times_one_worker_cpu": "x one worker, by CPU s of the busiest",
    "times_one_worker_apart": "x one worker, if each worked alone",
    "rows_per_s": "rows/s",
    "bytes_per_row": "bytes/row",
}


def _run(task: Task, folder: Path) -> Result:
    order = folder / "order.json"
    order.write_text(json.dumps({"task": task._asdict(), "folder": str(folder.resolve())}), encoding="utf-8")
    command = [sys.executable, "-m", "synth_core.bench.scale_tasks", str(order)]
    done = subprocess.run(command, capture_output=True, check=False)
    answer = order.with_suffix(".done")
    if done.returncode or not answer.exists():
        size = f"{task.rows:,} x {task.columns}"
        raise SourceError(f"{task.part} of {size} did not finish; is there memory and disk enough for it?")
    result = Result(**json.loads(answer.read_text(encoding="utf-8")))
    answer.unlink()
    return result


def _save(results: Sequence[Result], out: Path) -> None:
    write_text(out / "scale.jsonl", "".join(json.dumps(r._asdict()) + "\n" for r in results))
    write_text(out / "scale.md", markdown(results))


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _in_words(values: dict[str, float]) -> str:
    return ", ".join(f"{_title(name)} {_number(value)}" for name, value in values.items())


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("_cpu_s", " s").replace("_peak_mb", " MB"))
