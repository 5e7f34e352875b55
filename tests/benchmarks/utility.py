"""Utility of our methods on the reference tables, in short; `synth bench utility` has all the options.

The committed table (utility.csv, and in docs/evaluation.md) was made by the same command with peers and more epsilons.
"""

from __future__ import annotations

import sys
from pathlib import Path

from synth_core.bench.contest import contestants, jobs
from synth_core.bench.utility import Setting, benchmark

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY.parent / "shared" / "data"


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"the reference tables are not at {DATA.name}/ beside the repository")
    wanted = jobs(
        ["nltcs", "acs", "adult", "br2000"],
        contestants(["privmrf", "privmrf:paper", "independent"], []),
        epsilons=[0.8],
        runs=1,
        measures=["marginals"],
    )
    out = REPOSITORY / "bench-out" / "utility"
    setting = Setting(data=DATA, out=out, cache=out / "peers", delta=1e-5, limit=1800)
    benchmark(list(wanted), setting, tell=print)
    print((out / "utility.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
