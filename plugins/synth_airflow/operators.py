"""Airflow operators for the steps of a release: they hold no logic of their own, what they do is `synth_core.steps`.

All that is heavy is imported when a task runs, so that the DAG files parse in milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from synth_airflow.triggers import ClusterTrigger, answers
from synth_core.errors import SpecError
from synth_core.settings import Settings

if TYPE_CHECKING:
    from synth_core.privacy.accounts import Runner
    from synth_core.steps import PartId

log = structlog.get_logger("release")

EXTRACT = Asset(name="synthetic_census_extract", uri="synth://census/extract")
"""Updated by every published release; the event says which release and where its manifest is."""

CLUSTER_PATIENCE = timedelta(hours=2)
"""For so long a step waits for a Dask scheduler that does not answer."""

NOT_OF_THE_SPEC = ("workspace", "dry_run")


class ReleaseOperator(BaseOperator):
    """A task of a release: who runs it, and which release its log lines belong to."""

    ui_color = "#e8f0fe"

    def address(self, context: Context) -> str:
        """Address of this run's release, as `prepare` returned it; every log line of the task names the release."""
        address: str = context["ti"].xcom_pull(task_ids="prepare")
        structlog.contextvars.bind_contextvars(release=Path(address).parent.name, step=self.task_id)
        return address


class Prepare(ReleaseOperator):
    """Checks spec, schema, method and feasibility without reading data, shows the cost, and sets the budget aside.

    The spec is the form's values, or the file of a series, whose releases are named after the date of the run.
    A dry run ends after the cost was shown.
    """

    def __init__(self, *, spec_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec_file = spec_file

    def execute(self, context: Context) -> str:
        """Prepare the release and return its address."""
        from synth_core import steps

        spec, workspace = self._wanted(context)
        structlog.contextvars.bind_contextvars(release=spec["release"], step="prepare")
        cost = [
            f"{title}: {name}: {' '.join(value.split())}"
            for title, facts in steps.cost(spec, workspace=workspace)
            for name, value in facts
        ]
        for line in cost:
            log.info(line)
        if context["params"].get("dry_run"):
            context["ti"].xcom_push(key="cost", value=cost)
            raise AirflowSkipException("a dry run: the cost is in this log, nothing was set aside or read")
        most, limit = steps.most_parts(spec), conf.getint("core", "max_map_length", fallback=1024)
        if most > limit:
            raise SpecError(
                f"{most:,} parts of a step would be more tasks than Airflow makes of one ({limit:,}): set "
                "core.max_map_length higher, or have fewer strata"
            )
        address = steps.prepare(spec, workspace=workspace, runner=runner(context))
        look_after(workspace)
        return address

    def _wanted(self, context: Context) -> tuple[dict[str, Any], Path]:
        if self.spec_file is None:
            return release_spec(context["params"], run_id=context["ti"].run_id)
        from synth_core.release.spec import ReleaseSpec, date_release

        run = context["dag_run"]
        spec = date_release(ReleaseSpec.load(Path(self.spec_file)), run.run_after, planned=run.run_type == "scheduled")
        return spec.dump(), Path(_workspace({}))


class StepTask(ReleaseOperator):
    """One step of the release; it waits, without occupying a worker, while the Dask scheduler does not answer.

    Args:
        step: The step.
        parts_of: The step that follows, if each of its parts is a task of its own: their list is what this one returns.
            A step without parts is skipped, and no process is started for it.
        gate: The task that follows and waits for a person; skipped without a process where no approval is asked for.
    """

    def __init__(self, *, step: str, parts_of: str | None = None, gate: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step, self.parts_of, self.gate = step, parts_of, gate

    def execute(self, context: Context) -> str | list[PartId]:
        """Run the step and return the address of what it wrote."""
        where = cluster()
        if where and not asyncio.run(answers(where)):
            log.warning("no Dask scheduler answers; waiting for it", address=where)
            self.defer(trigger=ClusterTrigger(where), method_name="resume", timeout=CLUSTER_PATIENCE)
        return self.work(context, where)

    def resume(self, context: Context, event: str) -> str | list[PartId]:
        """Go on when the scheduler answers."""
        return self.work(context, event)

    def work(self, context: Context, where: str | None, **part: PartId) -> str | list[PartId]:
        """Run the step, or a part of it."""
        from synth_core import steps

        address, who = self.address(context), runner(context)
        written = steps.run_step(self.step, address, **part, cluster=where, runner=who, progress=log.info)
        if self.parts_of:
            context["ti"].xcom_push(key="address", value=written)
            return steps.list_parts(self.parts_of, address)
        if self.gate and not steps.needs_approval(address):
            context["ti"].xcom_push(key="return_value", value=written)
            raise DownstreamTasksSkipped(tasks=[self.gate])
        return written


class StepPart(StepTask):
    """Runs one part of a step; what strata cost together is the price of the dearest, whatever their number."""

    def __init__(self, *, part: PartId, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.part = part

    def work(self, context: Context, where: str | None) -> str | list[PartId]:
        """Run this part."""
        return super().work(context, where, part=self.part)


class Publish(StepTask):
    """Publishes the extract with its manifest, if ledger, manifest and files agree and the gate has been passed."""

    def work(self, context: Context, where: str | None) -> str:
        """Publish, and say so in the asset's event and to those who follow lineage."""
        from synth_core.events.notices import send_lineage

        manifest = str(super().work(context, where))
        context["outlet_events"][EXTRACT].extra = {
            "release": Path(manifest).parent.name,
            "manifest": manifest,
        }
        look_after(Path(manifest).parents[2])
        send_lineage(Path(manifest), runner(context))
        return manifest


def release_name(dataset: str, run_id: str) -> str:
    """A name that belongs to this run alone and stays the same when its tasks are retried or cleared."""
    return f"{dataset}-{re.sub(r'[^a-z0-9.]+', '-', run_id.lower())}"[-100:].strip("-.")


def release_spec(params: Mapping[str, Any], *, run_id: str) -> tuple[dict[str, Any], Path]:
    """What the form asks for as a release spec, and the workspace to run it in."""
    from synth_core.release.spec import read_source

    workspace = _workspace(params)
    spec = {key: value for key, value in params.items() if value not in (None, "") and key not in NOT_OF_THE_SPEC}
    try:
        spec["source"] = read_source(spec["source"])
    except ValueError as wrong:
        raise SpecError(f"source: {wrong}") from None
    for key in ("source", "schema"):
        spec[key] = _placed(spec[key], workspace)
    spec.setdefault("release", release_name(spec["dataset"], run_id))
    return spec, Path(workspace)


def _placed(address: Any, workspace: str) -> Any:
    """An address that starts at the workspace, or a mapping of them."""
    if isinstance(address, Mapping):
        return {name: _placed(own, workspace) for name, own in address.items()}
    if not isinstance(address, str) or "://" in address:
        return address
    return os.path.join(workspace, address)  # noqa: PTH118 — a glob is not a path


def _workspace(params: Mapping[str, Any]) -> str:
    from synth_core.errors import SpecError

    workspace = params.get("workspace") or Settings.from_environment().workspace
    if not workspace:
        raise SpecError("no workspace: set SYNTH_WORKSPACE for Airflow, or name a folder in the form")
    return str(workspace)


def cluster() -> str | None:
    """Address of the Dask scheduler; without one the steps use threads of the task's own process."""
    return Settings.from_environment().dask_address


def runner(context: Context, *, actor: str = "") -> Runner:
    """Who runs the step, for the ledger's records: the actor, else the user who triggered the run."""
    from synth_core.privacy.accounts import Runner

    instance = context["ti"]
    return Runner(
        dag=instance.dag_id,
        run=instance.run_id,
        task=instance.task_id,
        map_index=-1 if instance.map_index is None else instance.map_index,
        attempt=instance.try_number,
        actor=actor or context["dag_run"].triggering_user_name or "",
    )


def look_after(workspace: Path) -> None:
    """Record and report what is new about caps and chain; trouble with that is never a release's trouble."""
    from synth_core.events.office import Office, look

    try:
        look(Office(workspace))
    except Exception as error:
        log.warning("accounts and ledger were not looked after", error=type(error).__name__)


def failed(context: Context) -> None:
    """After a final failure: notify people, and free what the release had set aside and not spent. Charges stay.

    A task that stopped because its release had been ended reports nothing: the person who ended it knows,
    and the hold may belong to a run that has resumed the release.
    """
    from synth_core import steps
    from synth_core.errors import ReleaseEnded, SynthError
    from synth_core.events.journal import failure_of
    from synth_core.events.notices import notify

    instance, error = context["ti"], context.get("exception")
    if isinstance(error, ReleaseEnded):
        return
    address = instance.xcom_pull(task_ids="prepare")
    release = Path(address).parent.name if address else ""
    notify(failure_of(error, release=release, step=instance.task_id, runner=runner(context)))
    if address:
        try:
            steps.cancel(address, reason=f"task {instance.task_id} failed", runner=runner(context))
        except SynthError as refusal:
            log.warning("the hold was not closed", reason=str(refusal))
