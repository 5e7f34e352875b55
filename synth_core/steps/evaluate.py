"""Step 6: judge the synthetic table, by noisy answers for everybody and by real rows for the agency's own eyes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from synth_core.evaluation import (
    CodedTable,
    Evaluation,
    compare_tables,
    declared_pay_gap,
    numeric_levels,
    rule_violations,
)
from synth_core.evaluation.distances import alpha_way
from synth_core.evaluation.public import BoughtError, PublicQuality, bought_error, public_quality
from synth_core.files import atomic_write
from synth_core.privacy.accounts import Record
from synth_core.privacy.budget import epsilon_of, mu_of
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.release import statement
from synth_core.release.division import Division
from synth_core.release.manifest import cost_by_step, counted_records
from synth_core.report import Guarantee, SpendLine, internal_report
from synth_core.report.comparison import one_way_counts
from synth_core.steps.answers import stored_answers
from synth_core.steps.context import StepRun
from synth_core.steps.ingest import snapshot_key
from synth_core.storage.ingest import ingest_partitions
from synth_core.synthesizers.saved import load_model

BOUGHT_ALPHAS = (1, 2, 3)
LARGEST_BOUGHT_TABLE = 1_000_000


def evaluate(run: StepRun) -> Path:
    """Write the public quality, then the evaluation and the internal report, which stay in the confidential zone."""
    with _synthetic_table(run) as synthetic:
        quality = _public_quality(run, synthetic)
        with atomic_write(run.paths.quality) as temporary:
            temporary.write_text(quality.to_json(), encoding="utf-8")
        run.read("evaluate", lambda: _compare(run, synthetic, quality))
    run.note("evaluate")
    return run.paths.internal_report


def _compare(run: StepRun, synthetic: CodedTable, quality: PublicQuality) -> None:
    """Write the evaluation and the internal report."""
    real = CodedTable([str(path) for path in run.partitions], run.domain, cluster=run.cluster)
    evaluation = compare_tables(
        real,
        synthetic,
        levels=numeric_levels(run.schema),
        pay_gap=declared_pay_gap(run.schema),
        violations=quality.violations,
        spread=run.cluster.map,
        progress=lambda what, done, parts: run.progress(f"{what} ({done} of {parts})"),
    )
    with atomic_write(run.paths.evaluation) as temporary:
        temporary.write_text(evaluation.to_json(), encoding="utf-8")
    with atomic_write(run.paths.internal_report) as temporary:
        temporary.write_text(_report(run, evaluation, real, synthetic), encoding="utf-8")


@contextmanager
def _synthetic_table(run: StepRun) -> Iterator[CodedTable]:
    """The shards as they were written, encoded like a source, so that they are counted where and how real rows are.

    Synthetic rows have no unit.
    """
    shards = [run.paths.shard(number) for number in range(run.spec.shards)]
    schema = run.schema.model_copy(update={"unit_column": None})
    with TemporaryDirectory(prefix=".judged-", dir=run.paths.confidential) as folder:
        encoded = Path(folder) / "encoded"
        key = snapshot_key(run.paths)
        snapshot = ingest_partitions(shards, schema, encoded, key=key, cluster=run.cluster)
        pieces = [str(encoded / name) for name in snapshot.partitions]
        yield CodedTable(pieces, run.domain, cluster=run.cluster)


def spend_lines(records: Sequence[Record]) -> list[SpendLine]:
    """The charged records that add up to the release's price, as a report shows them."""
    return [
        SpendLine(
            step=record.step,
            purpose=f"{record.purpose} (in each stratum)" if record.stratum else record.purpose,
            mechanism=record.mechanism.name,
            queries=record.mechanism.count,
            scale=_scale(record),
            mu2=float(record.mu2),
            state=str(record.state),
        )
        for record in counted_records(records)
    ]


def _public_quality(run: StepRun, synthetic: CodedTable) -> PublicQuality:
    spec = run.spec
    total = max(1.0, load_model(run.paths.model).total)
    division = Division.load(run.paths.division) if spec.strata else None
    answers = stored_answers(
        run.ledger,
        run.domain,
        dataset=spec.dataset,
        release=spec.release,
        snapshot=run.snapshot.digest,
        division=division,
    )
    bought = _bought(run, synthetic, total) if spec.quality_share else []
    return public_quality(
        synthetic,
        measurements=answers.marginals,
        merged=answers.merged,
        total=total,
        bought=bought,
        violations=rule_violations(synthetic, run.schema),
        answers_used=answers.used,
        answers_unused=answers.unused,
    )


def _bought(run: StepRun, synthetic: CodedTable, total: float) -> list[BoughtError]:
    """Buy mean errors against the real rows, for marginals of one, two and three columns at the same price each."""
    curator: Curator = run.curator("evaluate")
    cliques = {
        alpha: [c for c in alpha_way(run.domain, alpha) if run.domain.cells(c) <= LARGEST_BOUGHT_TABLE]
        for alpha in BOUGHT_ALPHAS
    }
    asked = {alpha: found for alpha, found in cliques.items() if found}
    each = run.budget.quality / len(asked)
    # The synthetic counts, scaled to the noisy number of records: public, and fixed before real rows are looked at.
    scale = total / synthetic.rows
    bought = []
    for alpha, found in asked.items():
        counted = zip(found, synthetic.tables(found), strict=True)
        queries = [Misfit(clique, (counts * scale).astype(np.float64)) for clique, counts in counted]
        misfits = curator.score(queries, each, purpose=f"error of {alpha}-way marginals")
        sigma = math.sqrt(len(queries) / each)  # the sensitivity of a misfit is 1
        bought.append(bought_error(alpha, misfits, sigma=sigma, total=total))
    return bought


def _scale(record: Record) -> float:
    gaussian = record.mechanism.name == "discrete_gaussian"
    return math.sqrt(record.mechanism.scale) if gaussian else float(record.mechanism.scale)


def _report(run: StepRun, evaluation: Evaluation, real: CodedTable, synthetic: CodedTable) -> str:
    records = run.ledger.records(dataset=run.spec.dataset, release=run.spec.release)
    account = run.account
    promised = statement.promised_mu2(records)
    spent = sum(cost_by_step(records).values(), Fraction(0))
    return internal_report(
        evaluation,
        schema=run.schema,
        title=f"Release {run.spec.release}",
        guarantee=Guarantee(
            unit=account.unit,
            neighbours=account.neighbours,
            epsilon=max(run.spec.epsilon, epsilon_of(promised, account.delta)),
            delta=account.delta,
            mu=mu_of(promised),
            spent=epsilon_of(spent, account.delta),
        ),
        spends=spend_lines(records),
        real_one_way=one_way_counts(real),
        synthetic_one_way=one_way_counts(synthetic),
        facts={
            "Data set": run.spec.dataset,
            "Method": f"{run.spec.method}, preset {run.spec.preset}",
            **({"Strata": run.spec.strata.by} if run.spec.strata else {}),
            **({"Sampling": evaluation.sampling} if evaluation.sampling else {}),
        },
    )
