"""What has to happen around a release's run: its pools exist when it starts, its tasks start quickly, its hold is
closed however it ends, and people are notified when it is late.

A person can end a run in ways that no task notices (mark it failed or successful, delete its tasks), so this listens to
runs. It needs SYNTH_WORKSPACE in the scheduler and the API server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.definitions.deadline import BaseDeadlineReference

from synth_airflow import is_release
from synth_core.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

POOL_SLOTS = 1
POOL_MEANING = "made for the release specs that name it: one of their tasks at a time, unless changed here"

log = structlog.get_logger(__name__)


@hookimpl
def on_starting() -> None:
    """Import what the steps need into a scheduler that forks its tasks: each starts one to three seconds sooner.

    Airflow's LocalExecutor forks a process for each task; modules that the scheduler has loaded are there at once, and
    share its memory. Other executors start tasks elsewhere, and their schedulers stay small.
    """
    from airflow.configuration import conf

    # The component does not know yet what it will be; the command that started this process does.
    if "scheduler" in sys.argv[1:2] and "LocalExecutor" in conf.get("core", "executor"):
        from synth_core.steps import import_steps

        import_steps()


@hookimpl
def on_dag_run_running(dag_run: DagRun) -> None:
    """Make the pools that the run's tasks ask for and that are missing: Airflow would never start these.

    It happens in the scheduler's own transaction, in which the run is started. One that has been made by hand, or by
    another scheduler at the same moment, stays as it is.
    """
    from airflow.models.pool import Pool
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None or not is_release(dag_run):
        return
    insert = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}[session.get_bind().dialect.name]
    for name in sorted({task.pool for task in dag_run.dag.tasks} - {Pool.DEFAULT_POOL_NAME}):
        pool = {"pool": name, "slots": POOL_SLOTS, "description": POOL_MEANING, "include_deferred": False}
        session.execute(insert(Pool).values(pool).on_conflict_do_nothing())


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """A run that was published has no hold any more; one that was rejected or marked as successful may have."""
    close_holds(dag_run, f"its run ended: {msg}" if msg else "its run ended")


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Charges stay, what was set aside and not used is free again."""
    close_holds(dag_run, f"its run failed: {msg}" if msg else "its run failed")


def close_holds(dag_run: DagRun, reason: str) -> None:
    """Free what the run set aside and did not use; a ledger that cannot be reached is a warning."""
    conf = dag_run.conf if isinstance(dag_run.conf, dict) else {}
    workspace = conf.get("workspace") or Settings.from_environment().workspace
    if not workspace or not is_release(dag_run):
        return
    from synth_core.errors import SynthError
    from synth_core.privacy.accounts import Runner
    from synth_core.steps import end_run

    who = Runner(dag=dag_run.dag_id, run=dag_run.run_id)
    try:
        end_run(Path(workspace), reason=reason, runner=who)
    except SynthError as refusal:
        log.warning("the hold of a run was not closed", run=dag_run.run_id, reason=str(refusal))


async def late(**kwargs: Any) -> None:
    """A run has missed its deadline: record it and notify people, from the triggerer."""
    from synth_core.events.journal import Event, Kind, append
    from synth_core.events.notices import notify
    from synth_core.privacy.accounts import Runner

    run = (kwargs.get("context") or {}).get("dag_run") or {}
    event = Event(
        kind=Kind.DEADLINE,
        dataset=kwargs.get("dataset", ""),
        text=f"the run has taken more than {kwargs['hours']:g} hours and goes on",
        runner=Runner(dag=run.get("dag_id", ""), run=run.get("dag_run_id") or run.get("run_id", "")),
    )
    if workspace := Settings.from_environment().workspace:
        await asyncio.to_thread(append, Path(workspace), event)
    await asyncio.to_thread(notify, event)


class FirstQueued(BaseDeadlineReference):
    """The moment at which a run was queued first, from which its deadline counts.

    Airflow's own `DAGRUN_QUEUED_AT` is computed anew when a task is cleared, and Airflow 3.3.2 fails there with a
    server error as long as the deadline lies ahead: no task of a run that failed or waits could be cleared. Deadlines
    of another reference stay as they are.
    """

    required_kwargs: ClassVar = {"dag_id", "run_id"}

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models.dagrun import DagRun
        from sqlalchemy import select

        wanted = select(DagRun.queued_at).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        return session.scalar(wanted)


class ReleaseWatchPlugin(AirflowPlugin):
    """What Airflow registers."""

    name = "release_watch"
    deadline_references = [FirstQueued]  # noqa: RUF012
    listeners = [sys.modules[__name__]]  # noqa: RUF012
