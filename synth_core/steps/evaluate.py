"""Step 6: compare the synthetic table with the real one, inside the confidential zone, for the agency's own eyes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from synth_core.codec import encode
from synth_core.evaluation import Evaluation, compare_codes, rule_violations
from synth_core.privacy.budget import epsilon_of
from synth_core.privacy.ledger import Record
from synth_core.privacy.wall import wall
from synth_core.release.manifest import charged_records, cost_by_step
from synth_core.report.build import Guarantee, SpendLine, internal_report
from synth_core.steps.compare import one_way_counts
from synth_core.steps.context import StepRun
from synth_core.storage.files import atomic_write
from synth_core.storage.parquet import read_codes

Codes = NDArray[np.integer]


def evaluate(run: StepRun) -> Path:
    """Write the evaluation and the internal report; nothing of it leaves the confidential zone."""
    with wall():
        real = _real_codes(run)
        synthetic = _synthetic_codes(run)
        evaluation = compare_codes(
            real,
            synthetic,
            run.domain,
            violations=rule_violations(synthetic, run.schema),
            progress=lambda what, done, parts: run.progress(f"{what} ({done} of {parts})"),
        )
        with atomic_write(run.paths.evaluation) as temporary:
            temporary.write_text(evaluation.to_json(), encoding="utf-8")
        with atomic_write(run.paths.internal_report) as temporary:
            temporary.write_text(_report(run, evaluation, real, synthetic), encoding="utf-8")
    run.note("evaluate")
    return run.paths.internal_report


def spend_lines(records: Sequence[Record]) -> list[SpendLine]:
    """The release's charged records, as a report shows them."""
    return [
        SpendLine(
            step=record.step,
            purpose=record.purpose,
            mechanism=record.mechanism.name,
            queries=record.mechanism.count,
            scale=_scale(record),
            mu2=float(record.mu2),
            state=str(record.state),
        )
        for record in charged_records(records)
    ]


def _scale(record: Record) -> float:
    gaussian = record.mechanism.name == "discrete_gaussian"
    return math.sqrt(record.mechanism.scale) if gaussian else float(record.mechanism.scale)


def _real_codes(run: StepRun) -> Codes:
    columns = [read_codes(partition) for partition in run.partitions]
    return np.column_stack([np.concatenate([part[name] for part in columns]) for name in run.domain])


def _synthetic_codes(run: StepRun) -> Codes:
    shards = [
        encode(pq.read_table(run.paths.shard(number)), run.schema, source=f"shard {number}")
        for number in range(run.spec.shards)
    ]
    return np.column_stack([np.concatenate([shard[name] for shard in shards]) for name in run.domain])


def _report(run: StepRun, evaluation: Evaluation, real: Codes, synthetic: Codes) -> str:
    records = run.ledger.records(dataset=run.spec.dataset, release=run.spec.release)
    account = run.ledger.balance(run.spec.dataset).account
    mu2 = sum(cost_by_step(records).values())
    return internal_report(
        evaluation,
        schema=run.schema,
        title=f"Release {run.spec.release}",
        guarantee=Guarantee(
            unit=account.unit,
            neighbours=account.neighbours,
            epsilon=round(epsilon_of(mu2, account.delta), 4),
            delta=account.delta,
            mu=math.sqrt(mu2),
        ),
        spends=spend_lines(records),
        real_one_way=one_way_counts(real, run.domain),
        synthetic_one_way=one_way_counts(synthetic, run.domain),
        facts={"Data set": run.spec.dataset, "Method": f"{run.spec.method}, preset {run.spec.preset}"},
    )
