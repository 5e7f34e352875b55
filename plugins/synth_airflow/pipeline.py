"""The order of a release's tasks, in four groups that show the seven steps, with what all of them have in common.

A stratified release fits one model for each stratum in tasks of their own, which `fit` then joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
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

from synth_airflow.gate import DisclosureGate
from synth_airflow.listeners import FirstQueued
from synth_airflow.operators import (
    EXTRACT,
    FitStratum,
    Prepare,
    Publish,
    SampleShard,
    Shards,
    Step,
    Strata,
    failed,
)

TAGS = ["census", "privacy", "release"]
DEADLINE_HOURS = 24.0

RETRIES = ExceptionRetryPolicy(
    rules=[
        RetryRule("synth_core.errors.ClusterError", RetryAction.RETRY, reason="a lost cluster comes back"),
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
    shards: Sequence[int] | None = None,
    gate: bool = True,
    strata: bool = False,
) -> None:
    """The tasks of a release, in the DAG of the `with` block; shards that are not known yet are listed by a task.

    With `strata` the release may have strata; if it has none, their tasks are skipped.
    """
    with _group(
        "begin", "prepare, ingest", "Check everything, show the cost, set the budget aside; encode the source"
    ):
        prepare, ingest = _task(Prepare, "prepare", spec_file=spec_file), _task(Step, "ingest")
    with _group("model", "score, select, fit", "Ask with noise, choose a structure, fit the model"):
        score, select = _task(Step, "score"), _task(Step, "select")
        fit = _fitted_by_strata(select) if strata else _task(Step, "fit")
    with _group("extract", "sample", "Draw the synthetic records; spends nothing"):
        listed = None if shards is not None else _task(Shards, "shards")
        sample = SampleShard.partial(
            task_id="sample", map_index_template="shard {{ task.shard }}", doc_md=SampleShard.__doc__
        ).expand(shard=list(shards) if shards is not None else listed.output)
    with _group("disclosure", "evaluate, publish", "Judge the extract, let a person decide, publish"):
        evaluate = _task(Step, "evaluate")
        approve = _task(DisclosureGate, "approve") if gate else None
        publish = _task(
            Publish, "publish", outlets=[EXTRACT], trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
        )
    chain(prepare, ingest, score, select)
    chain(select, fit, *([listed] if listed else []), sample, evaluate, publish)
    if approve:
        chain(evaluate, approve, publish)


def _fitted_by_strata(select: Any) -> Any:
    """The task `fit`, after one task for each stratum; without strata these are skipped and it fits by itself."""
    listed = _task(Strata, "strata")
    each = FitStratum.partial(
        task_id="stratum",
        map_index_template="{{ task.stratum.rpartition('/')[2] }}",
        doc_md=FitStratum.__doc__,
    ).expand(stratum=listed.output)
    fit = _task(Step, "fit", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    chain(select, listed, each, fit)
    return fit


def deadline(hours: float, *, dataset: str = "") -> DeadlineAlert:
    """People are told when a run is not finished so many hours after it was queued."""
    return DeadlineAlert(
        reference=FirstQueued(),
        interval=timedelta(hours=hours),
        callback=AsyncCallback("synth_airflow.listeners.late", kwargs={"hours": hours, "dataset": dataset}),
    )


def _group(name: str, steps: str, tooltip: str) -> TaskGroup:
    return TaskGroup(name, prefix_group_id=False, group_display_name=steps, tooltip=tooltip)


def _task(kind: type, name: str, **more: Any) -> Any:
    return kind(task_id=name, doc_md=kind.__doc__, **more)
