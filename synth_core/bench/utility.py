"""The utility benchmark: every job that is not in the table yet, then the pictures and a table for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from synth_core.bench.contest import DataSet, Job, load
from synth_core.bench.execution import execute
from synth_core.bench.figures import draw
from synth_core.bench.results import ALPHAS, Results, judge
from synth_core.files import atomic_write


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where the data are, what every contestant is given, and where results and environments go."""

    data: Path
    out: Path
    cache: Path
    delta: float
    limit: float


def benchmark(wanted: Sequence[Job], setting: Setting, *, tell: Callable[[str], None]) -> Results:
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
        tell(f"{number} of {len(wanted)}: {_line(job, values, outcome.note)}")
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
    lines = []
    for dataset, part in means.groupby("dataset"):
        head = ["epsilon", "contestant", *(_TITLES[metric] for metric in metrics), "CPU s", "peak MB", "runs"]
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
                lines.append(f"| {' | '.join([shown, name, *cells, str(int(row['runs']))])} |")
        lines.append("")
    return "\n".join(lines)


_TITLES = {**{f"tvd{alpha}": f"{alpha}-way TVD" for alpha in ALPHAS}, "svm_error": "SVM error"}


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
