"""What the figures of the papers cost: CPU seconds that were kept, and what one run of all cells takes by them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.papers.figures import Figure, Result, table

TWO_CORES = 2 * 2 * 3600
"""CPU seconds of two hours on two cores."""
HEAD = ["page", "figure", "cells", "of which timed", "CPU seconds of one run"]
PAGE = """# What these figures cost

Written by `python -m tests.benchmarks.papers`. CPU seconds of one thread are those of whole cells, release and
comparison; of results that were kept before this was, those of the release alone. A cell that was not timed counts as
the mean of its figure, and a figure without any timed cell is not in the sum.

{table}

`make papers` makes no run again that was kept; from nothing, one run of every cell takes about {total:,.0f} CPU
seconds by these figures, where two hours on two cores are {whole:,}. Cells run one after the other on one thread: by
the clock that is {hours:.1f} hours on a quiet machine.
"""


def cost_of(result: Result) -> float | None:
    """CPU seconds of a result; None if they were not kept."""
    return result.cost if result.cost is not None else result.values.get("seconds")


def costs(figure: Figure, results: Sequence[Result]) -> tuple[int, float]:
    """How many cells of a figure were timed, and CPU seconds of one run of all of them (0 if none was)."""
    known = []
    for cell in figure.cells:
        times = [
            cost for r in results if (r.figure, r.cell) == (figure.name, cell) and (cost := cost_of(r)) is not None
        ]
        known += [statistics.fmean(times)] if times else []
    return len(known), len(figure.cells) * statistics.fmean(known) if known else 0.0


def write_costs(papers: Mapping[str, tuple[Sequence[Figure], Sequence[Result]]], out: Path) -> None:
    """The page, from all figures and all results of each paper."""
    rows, total = [], 0.0
    for paper, (figures, results) in papers.items():
        for figure in figures:
            timed, seconds = costs(figure, results)
            total += seconds
            title = figure.title.split(":")[0]
            rows.append([paper, title, str(len(figure.cells)), str(timed), f"{seconds:,.0f}" if timed else "–"])
    text = PAGE.format(table=table(HEAD, rows), total=total, whole=TWO_CORES, hours=total / 3600)
    (out / "papers" / "costs.md").write_text(text, encoding="utf-8")
