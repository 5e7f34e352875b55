"""Utility of our methods and other libraries' on public tables: errors against epsilon, as a table and pictures.

    python tests/benchmarks/utility.py                                       our methods at epsilon 0.8, without peers
    python tests/benchmarks/utility.py --data DIR --datasets adult --methods privmrf --peers dpmm/mst --out bench-out

True errors of the rows are computed without noise: use public data only. A run goes on where it was stopped. The
committed utility.csv and utility.md, and the tables of docs/evaluation.md, were made with peers and more epsilons.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from contest.execution import execute
from contest.figures import draw
from contest.jobs import MEASURES, DataSet, Job, contestants, jobs, load
from contest.results import ALPHAS, Results, judge

from synth_core.errors import SpecError, SynthError
from synth_core.files import atomic_write

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where the data are, what every contestant is given, and where results and environments go."""

    data: Path
    out: Path
    cache: Path
    delta: float
    limit: float


def benchmark(wanted: Sequence[Job], setting: Setting, *, report: Callable[[str], None]) -> Results:
    """Run the jobs that are not in the table yet; stopping it at any time loses the job under way and no other."""
    setting.out.mkdir(parents=True, exist_ok=True)
    results = Results.open(setting.out / "utility.csv")
    datasets: dict[str, DataSet] = {}
    for number, job in enumerate(wanted, start=1):
        if results.has(job, delta=setting.delta):
            continue
        if job.dataset not in datasets:
            datasets[job.dataset] = load(job.dataset, setting.data)
        dataset = datasets[job.dataset]
        outcome = execute(job, dataset, delta=setting.delta, limit=setting.limit, cache=setting.cache)
        values = judge(job, dataset, outcome)
        results = results.with_job(job, delta=setting.delta, values=values, note=outcome.note)
        report(f"{number} of {len(wanted)}: {_line(job, values, outcome.note)}")
    if not results.frame.empty:
        draw(results.means(), setting.out)
        with atomic_write(setting.out / "utility.md") as temporary:
            temporary.write_text(markdown(results.means()), encoding="utf-8")
    return results


def markdown(means: pd.DataFrame) -> str:
    """The means as Markdown tables, one for each data set; the best of each epsilon is bold."""
    metrics = [f"tvd{alpha}" for alpha in ALPHAS] + ["svm_error"]
    metrics = [metric for metric in metrics if metric in means]
    costs = [cost for cost in ("cpu_seconds", "peak_mb") if cost in means]
    counts = [name for name in _RUNS if name in means]
    lines = []
    for dataset, part in means.groupby("dataset"):
        head = ["epsilon", "contestant", *(_TITLES[metric] for metric in metrics), "CPU s", "peak MB"]
        head += map(_RUNS.get, counts)
        lines += [f"## {dataset}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for epsilon, group in part.groupby("epsilon"):
            best = {metric: group[metric].min() for metric in metrics}
            for _, row in group.sort_values(metrics[0]).iterrows():
                cells = [_cell(row[metric], best=row[metric] == best[metric]) for metric in metrics]
                cells += ["–" if pd.isna(row[cost]) else f"{row[cost]:.0f}" for cost in costs]
                name = row["contestant"]
                if row.get("unfinished", 0) > 0:
                    name += " (not finished)"
                shown = "–" if epsilon == 0 else f"{epsilon:g}"
                cells += [str(row[count] or "–") for count in counts]
                lines.append(f"| {' | '.join([shown, name, *cells])} |")
        lines.append("")
    return "\n".join(lines)


_TITLES = {**{f"tvd{alpha}": f"{alpha}-way TVD" for alpha in ALPHAS}, "svm_error": "SVM error"}
_RUNS = {"runs": "runs", "svm_runs": "SVM runs"}


def _cell(value: float, *, best: bool) -> str:
    text = "–" if math.isnan(value) else f"{value:.4f}"
    return f"**{text}**" if best else text


def _line(job: Job, values: dict[str, float], note: str) -> str:
    shown = [f"{name} {value:.4f}" for name, value in values.items() if name.startswith(("tvd", "svm"))]
    where = "" if job.fold is None else f", fold {job.fold}"
    what = note or ", ".join(shown)
    return (
        f"{job.dataset}, {job.contestant.name}, epsilon {job.epsilon:g}, run {job.run}{where}: {what} "
        f"({values['cpu_seconds']:.0f} CPU s, {values['peak_mb']:.0f} MB)"
    )


def main(arguments: Sequence[str]) -> None:
    """Run what the command line asks for."""
    given = _parser().parse_args(arguments)
    measured = _list(given.measures)
    if not measured or not set(measured) <= set(MEASURES):
        raise SpecError(f"--measures {given.measures} is not among: {', '.join(MEASURES)}")
    wanted = jobs(
        _list(given.datasets),
        contestants(_list(given.methods), _list(given.peers)),
        epsilons=[_epsilon(text) for text in _list(given.epsilons)],
        runs=given.runs,
        measures=measured,
    )
    setting = Setting(data=given.data, out=given.out, cache=given.cache, delta=given.delta, limit=given.limit)
    results = benchmark(list(wanted), setting, report=lambda line: print(line, file=sys.stderr))
    print(f"{given.out / 'utility.csv'}: {len(results.frame)} numbers")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    shared, out = REPOSITORY.parent / "shared" / "data", REPOSITORY / "bench-out" / "utility"
    add = parser.add_argument
    add("--data", type=Path, default=shared, help="folder with NAME.csv (integer codes) and NAME-domain.json")
    add("--out", type=Path, default=out, help="folder for utility.csv, utility.md and the pictures")
    add("--datasets", default="nltcs,acs,adult,br2000", help="names of data sets")
    add("--methods", default="privmrf,privmrf:paper,independent", help="ours, as `method` or `method:preset`")
    add("--peers", default="", help="others: mbi, dpmm, smartnoise, or one method: dpmm/aim")
    add("--epsilons", default="0.8", help="privacy losses")
    add("--delta", type=float, default=1e-5, help="the same for all")
    add("--runs", type=int, default=1, help="runs of each; means are shown")
    add(
        "--measures",
        default="marginals",
        help="`marginals`, `svm` (five folds, synthesized from training folds only), or both",
    )
    add("--limit", type=float, default=1800, help="CPU seconds after which a run is given up")
    add(
        "--cache",
        type=Path,
        default=REPOSITORY / "bench-out" / "peers",
        help="folder for the peers' environments",
    )
    return parser


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _epsilon(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise SpecError(f"--epsilons: {text!r} is not a positive number")
    return value


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SynthError as error:
        sys.exit(f"utility: {error}")
