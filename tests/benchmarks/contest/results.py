"""The benchmark's tidy table: one line for each number, rewritten whole after every job, so a stop loses one job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from yardstick import wrong_predictions

from contest.execution import Outcome
from contest.jobs import DataSet, Job
from synth_core.errors import SourceError
from synth_core.evaluation.cells import distances
from synth_core.evaluation.distances import alpha_way
from synth_core.evaluation.tables import CodedTable
from synth_core.files import atomic_write

COLUMNS = ("dataset", "contestant", "epsilon", "delta", "run", "fold", "metric", "value", "note")
ALPHAS = (2, 3, 4, 5)
_WHOLE = -1  # the fold of a job that sees the whole table
_COST = ("cpu_seconds", "wall_seconds", "peak_mb")


@dataclass(frozen=True, slots=True)
class Results:
    """A tidy table in a file."""

    path: Path
    frame: pd.DataFrame

    @classmethod
    def open(cls, path: Path) -> Results:
        """Read the table, or begin one."""
        if not path.exists():
            return cls(path, pd.DataFrame(columns=list(COLUMNS)))
        try:
            frame = pd.read_csv(path, keep_default_na=False)
        except (OSError, ValueError):
            raise SourceError(f"{path}: is not a benchmark's table; name another --out") from None
        if tuple(frame.columns) != COLUMNS:
            raise SourceError(f"{path}: is not a benchmark's table; name another --out")
        return cls(path, frame)

    def has(self, job: Job, *, delta: float) -> bool:
        """Whether the job was finished, or given up, before."""
        f = self.frame
        fold = _WHOLE if job.fold is None else job.fold
        same = (f.dataset == job.dataset) & (f.contestant == job.contestant.name) & (f.delta == delta)
        return bool((same & (f.epsilon == job.epsilon) & (f.run == job.run) & (f.fold == fold)).any())

    def with_job(self, job: Job, *, delta: float, values: dict[str, float], note: str = "") -> Results:
        """The table with a job's numbers added, and stored."""
        fold = _WHOLE if job.fold is None else job.fold
        head = (job.dataset, job.contestant.name, job.epsilon, delta, job.run, fold)
        lines = [(*head, metric, float(f"{value:.6g}"), note) for metric, value in values.items()]
        new = pd.DataFrame(lines, columns=list(COLUMNS))
        frame = new if self.frame.empty else pd.concat([self.frame, new], ignore_index=True)
        with atomic_write(self.path) as temporary:
            frame.to_csv(temporary, index=False)
        return Results(self.path, frame)

    def means(self) -> pd.DataFrame:
        """Mean of each metric over runs and folds, one line for each data set, contestant and epsilon.

        Runs of the SVM are counted by themselves: they are others than those of the marginals, and often fewer.
        """
        keys = ["dataset", "contestant", "epsilon"]
        whole = self.frame[(self.frame.fold == _WHOLE) | (self.frame.metric == "svm_error")]
        table = whole.pivot_table(index=keys, columns="metric", values="value", aggfunc="mean")
        svm = whole.metric == "svm_error"
        runs = [whole[~svm].groupby(keys).run.nunique(), whole[svm].groupby(keys).run.nunique()]
        counts = pd.concat(runs, axis=1, keys=["runs", "svm_runs"]).fillna(0).astype(int)
        return table.join(counts).reset_index().rename_axis(columns=None)


def judge(job: Job, dataset: DataSet, outcome: Outcome) -> dict[str, float]:
    """The numbers of one job: what it cost, and how far its table is from the rows."""
    values = {name: float(getattr(outcome, name)) for name in _COST}
    if outcome.table is None:
        return {"unfinished": 1.0, **values}
    if job.fold is None:
        tables = [CodedTable.of(codes, dataset.domain) for codes in (dataset.codes, outcome.table)]
        rows = (len(dataset.codes), len(outcome.table))
        for alpha in ALPHAS[: len(dataset.domain) - 1]:
            cliques = alpha_way(dataset.domain, alpha)
            pairs = zip(tables[0].cells(cliques), tables[1].cells(cliques), strict=True)
            values[f"tvd{alpha}"] = float(np.mean([distances(*pair, rows=rows).tvd for pair in pairs]))
        return values
    test = dataset.held_out(job.fold)
    errors = wrong_predictions(outcome.table, test, dataset.domain)
    return {**values, "svm_error": float(np.mean(list(errors.values())))}
