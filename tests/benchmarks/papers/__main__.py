"""Figures and tables of the papers by one command, as pages of the handbook.

Run in the repository as `python -m tests.benchmarks.papers PAPER [--figure NAME] [--runs R] [--limit SECONDS]`. Every
run is kept in PAPER.jsonl beside this file and is not made again, so that a long series can be done in parts: `--limit`
is the CPU time after which no further run begins. The data must be public: errors are computed without noise.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.papers.costs import write_costs
from tests.benchmarks.papers.figures import ROOT, load, run, write_page

PAPERS = ("absyn", "pgm", "privbayes", "privmn", "privmrf", "epsilons")


def main(arguments: Sequence[str], *, kept: Path = Path(__file__).parent, out: Path = ROOT / "docs") -> None:
    """Measure what is missing and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; all without one")
    parser.add_argument("--figure", help="only this figure")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0)
    given = parser.parse_args(arguments)
    if unknown := set(given.papers) - set(PAPERS):
        parser.error(f"{', '.join(sorted(unknown))}: choose of {', '.join(PAPERS)}")
    deadline = time.process_time() + given.limit
    for paper in given.papers or PAPERS:
        module = importlib.import_module(f"tests.benchmarks.papers.{paper}")
        path = kept / f"{paper}.jsonl"
        for figure in module.FIGURES:
            if given.figure in (None, figure.name):
                for result in run(figure, path, runs=given.runs, deadline=deadline):
                    print(paper, figure.name, result.cell, result.values, flush=True)
        write_page(paper, module.TITLE, module.FIGURES, load(path), out)
    modules = {paper: importlib.import_module(f"tests.benchmarks.papers.{paper}") for paper in PAPERS}
    write_costs({paper: (module.FIGURES, load(kept / f"{paper}.jsonl")) for paper, module in modules.items()}, out)


if __name__ == "__main__":
    main(sys.argv[1:])
