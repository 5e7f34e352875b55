"""The committed table of cost over rows, columns and workers, measured and written by one run.

    python tests/benchmarks/scale.py                        everything anew, about half an hour of one core
    python tests/benchmarks/scale.py counting_on_workers    these parts again, the others as they are: a few minutes

Writes scale.jsonl and scale.md here and the tables of docs/capacity.md. Generated files stay in bench-out/scale; a run
of everything that was stopped goes on there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from synth_core.bench import capacity
from synth_core.bench.scale import PARTS, benchmark, list_tasks, load

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "capacity.md"
TABLES = "| part | measured to |", "## What is assumed"
"""What the computed part of the page begins with, and what follows it."""


def main(parts: Sequence[str]) -> None:
    out = HERE.parents[1] / "bench-out" / "scale"
    out.mkdir(parents=True, exist_ok=True)
    if parts:
        shutil.copy(HERE / "scale.jsonl", out)
    benchmark(list_tasks(parts or PARTS), out, report=print, again=bool(parts))
    for name in ("scale.jsonl", "scale.md"):
        shutil.copy(out / name, HERE)
    rewrite(PAGE, capacity.markdown(load(HERE / "scale.jsonl")))


def rewrite(page: Path, tables: str) -> None:
    text = page.read_text(encoding="utf-8")
    before, after = text.index(TABLES[0]), text.index(TABLES[1])
    page.write_text(f"{text[:before]}{tables}\n{text[after:]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
