"""The series of releases that the folder SYNTH_RELEASES declares, each a DAG that releases when its schedule says.

A run spends privacy budget, so each DAG is paused when it first appears and never catches up on dates that have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, get_parsing_context

from synth_airflow.pipeline import DEFAULTS, TAGS, deadline, release_tasks
from synth_airflow.timetables import timetable
from synth_core.errors import SpecError
from synth_core.release.schedule import Schedule
from synth_core.release.spec import Series, read_releases
from synth_core.settings import Settings
from synth_core.steps import PartId


def scheduled_dags() -> dict[str, DAG]:
    """Returns the DAGs of all sound specs by name; in a task's process only the one that the task belongs to."""
    wanted = get_parsing_context().dag_id
    return {
        f"release_{series.spec.release}": _release_dag(series, when)
        for series, when in declared()[0]
        if wanted in (None, f"release_{series.spec.release}")
    }


def refuse_broken_specs() -> None:
    """Raises ImportError, which Airflow shows, if a spec of the folder cannot run."""
    if broken := declared()[1]:
        raise ImportError("release specs that are not scheduled until they are mended:\n" + "\n".join(broken))


def declared() -> tuple[list[tuple[Series, Any]], list[str]]:
    """The series with their schedules, and one line for each spec that is broken; none without a folder."""
    folder = Settings.from_environment().releases
    if not folder:
        return [], []
    try:
        releases = read_releases(Path(folder))
    except SpecError as wrong:
        return [], [str(wrong)]
    sound, broken = [], list(releases.broken)
    for series in releases.series:
        try:
            sound.append((series, _schedule(series.spec.schedule)))
        except Exception as wrong:
            broken.append(f"{series.path}: schedule: {wrong}")
    return sound, broken


def _schedule(schedule: Schedule | None) -> Any:
    if schedule is None:
        return None
    if schedule.asset is not None:
        return Asset(name=schedule.asset, uri=schedule.uri or schedule.asset)
    return timetable(schedule)


class SeriesDag(DAG):
    """A DAG that is equal to itself alone.

    Airflow hashes and compares the DAG of every two tasks that it joins, by all that the DAG is made of. That was a
    third of the time that this file takes to parse.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _release_dag(series: Series, schedule: Any) -> DAG:
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
        parts: dict[str, Sequence[PartId]] = {"shards": range(spec.sampling_tasks)}
        if spec.strata is None:
            parts["strata"] = ()
        release_tasks(spec_file=str(series.path), gate=spec.approval, parts=parts)
    return made
