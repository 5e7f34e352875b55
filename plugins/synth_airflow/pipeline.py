"""A release's tasks: the list of steps as Airflow shows and runs it, with what all tasks have in common.

A step with parts has one task for each: strata are fitted before `fit` joins them, shards are all of `sample`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby, pairwise
from typing import Any

from airflow.sdk import (
    AsyncCallback,
    DeadlineAlert,
    ExceptionRetryPolicy,
    RetryAction,
    RetryRule,
    TaskGroup,
    TriggerRule,
    chain,
)

from synth_airflow import RELEASE_TAG
from synth_airflow.gate import DisclosureGate
from synth_airflow.listeners import FirstQueued
from synth_airflow.operators import EXTRACT, Prepare, Publish, StepPart, StepTask, failed
from synth_core.steps import PIPELINE, PartId, Step

TAGS = ["census", RELEASE_TAG, "release"]
DEADLINE_HOURS = 24.0
GATE = "approve"
"""The task of the disclosure gate."""

RETRIES = ExceptionRetryPolicy(
    rules=[
        RetryRule("synth_core.errors.ClusterError", RetryAction.RETRY, reason="a lost cluster comes back"),
        RetryRule(
            "synth_core.errors.LedgerUnreachable", RetryAction.RETRY, reason="a database that was lost comes back"
        ),
        RetryRule("synth_core.errors.StorageError", RetryAction.RETRY, reason="somebody may make room meanwhile"),
        RetryRule("synth_core.errors.SynthError", RetryAction.FAIL, reason="asking again changes no refusal"),
    ]
)
"""A refusal is final. Anything else is tried again, which draws no noise twice: a stored answer is used again, and a
measurement that was begun and not stored stays charged when it is replaced."""

DEFAULTS = {
    "owner": "statistics",
    "retries": 3,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
    "retry_policy": RETRIES,
    "on_failure_callback": failed,
}


def release_tasks(
    *,
    spec_file: str | None = None,
    gate: bool = True,
    parts: Mapping[str, Sequence[PartId]] | None = None,
) -> None:
    """The tasks of a release, in the DAG of the `with` block.

    Args:
        spec_file: The spec of a series; without it, the spec is what the form says.
        gate: Whether a person may have to approve the release.
        parts: Parts of steps that are known when the DAG is made, by what they are called; an empty sequence says that
            there are none. Those of other steps are listed by the task before them, and skipped if there are none.
    """
    before: Any = None
    for group, steps in groupby(PIPELINE, key=lambda step: step.group):
        own = list(steps)
        names = [*(["prepare"] if before is None else []), *(step.name for step in own)]
        does = " ".join(step.does for step in own)
        with TaskGroup(group, prefix_group_id=False, group_display_name=", ".join(names), tooltip=does):
            if before is None:
                before = Prepare(task_id="prepare", doc_md=Prepare.__doc__, spec_file=spec_file)
            for step in own:
                before = _step_tasks(step, before, gate=gate, parts=parts or {})


def _step_tasks(step: Step, before: Any, *, gate: bool, parts: Mapping[str, Sequence[PartId]]) -> Any:
    """The tasks of one step after the task `before`; returns the last of them."""
    about: dict[str, Any] = {"step": step.name, "doc_md": step.does}
    known = parts.get(step.parts.name) if step.parts else ()
    if step.parts and (known is None or known):
        each = StepPart.partial(
            task_id=step.parts.one if step.parts.joined else step.name,
            map_index_template=f"{step.parts.one} {{{{ (task.part | string).rpartition('/')[2] }}}}",
            **about,
        ).expand(part=before.output if known is None else list(known))
        chain(before, each)
        if not step.parts.joined:
            return each
        about |= _hand_over(step, gate=gate, parts=parts)
        about["trigger_rule"] = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
        task = StepTask(task_id=step.name, **about)
        chain(each, task)
    elif step.name == "publish":
        about["trigger_rule"] = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
        task = Publish(task_id=step.name, outlets=[EXTRACT], **about)
        if gate:
            chain(before, DisclosureGate(task_id=GATE, doc_md=DisclosureGate.__doc__), task)
    else:
        task = StepTask(task_id=step.name, **about, **_hand_over(step, gate=gate, parts=parts))
    chain(before, task)
    return task


def _hand_over(step: Step, *, gate: bool, parts: Mapping[str, Sequence[PartId]]) -> dict[str, str]:
    """What a step's task does for the next one: list its parts, or skip the gate where no approval is asked for."""
    following = dict(pairwise(PIPELINE)).get(step)
    if following is None:
        return {}
    if following.parts and following.parts.name not in parts:
        return {"parts_of": following.name}
    return {"gate": GATE} if gate and following.name == "publish" else {}


def deadline(hours: float, *, dataset: str = "") -> DeadlineAlert:
    """Notify people when a run is not finished `hours` after it was queued."""
    return DeadlineAlert(
        reference=FirstQueued(),
        interval=timedelta(hours=hours),
        callback=AsyncCallback("synth_airflow.listeners.late", kwargs={"hours": hours, "dataset": dataset}),
    )
