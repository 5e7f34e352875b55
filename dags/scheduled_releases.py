"""One DAG for each spec in the folder SYNTH_RELEASES: it releases when the spec's schedule says.

A run spends privacy budget, so each DAG is paused when it first appears and never catches up on dates that have passed.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, get_parsing_context
from release_pipeline.pipeline import DEFAULTS, TAGS, deadline, release_tasks
from release_pipeline.series import declared

from synth_core.release.releases import Series


class SeriesDag(DAG):
    """A DAG that is equal to itself alone.

    Airflow hashes and compares the DAG of every two tasks that it joins, by all that the DAG is made of. That was a
    third of the time that this file takes to parse.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def release_dag(series: Series, schedule: Any) -> DAG:
    """The DAG of one series."""
    spec = series.spec
    with SeriesDag(
        f"release_{spec.release}",
        description=f"{spec.dataset}: {spec.schedule.in_words if spec.schedule else 'when triggered'}",
        doc_md=f"Releases of `{series.path.name}`, named `{spec.release}-` and the date of the run. "
        f"Each spends ε {spec.epsilon} of the account `{spec.dataset}`.",
        schedule=schedule,
        catchup=False,
        is_paused_upon_creation=True,
        max_active_runs=1,
        tags=[*TAGS, spec.dataset],
        default_args=DEFAULTS | ({"pool": spec.pool} if spec.pool else {}),
        deadline=deadline(spec.deadline_hours, dataset=spec.dataset) if spec.deadline_hours else None,
    ) as made:
        release_tasks(
            spec_file=str(series.path),
            shards=range(spec.shards),
            gate=spec.approval,
            strata=spec.strata is not None,
        )
    return made


wanted = get_parsing_context().dag_id  # a task needs no DAG but its own
for one, when in declared()[0]:
    if wanted in (None, f"release_{one.spec.release}"):
        globals()[f"release_{one.spec.release}"] = release_dag(one, when)
