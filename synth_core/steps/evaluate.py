"""Step 6: judge the synthetic table, by noisy answers for everybody and by real rows for the agency's own eyes.

The noisy answers of a release are read back from its ledger (`stored_answers`): they are public, and free to use again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from synth_core.domain import Domain
from synth_core.evaluation import CodedTable, Evaluation, compare_tables, declared_measures, rule_violations
from synth_core.evaluation.distances import Z95, alpha_way
from synth_core.evaluation.public import (
    BoughtError,
    CountedTable,
    MeanError,
    MergedMarginal,
    PublicQuality,
    bought_error,
    public_quality,
)
from synth_core.evaluation.values import summarise_values
from synth_core.files import write_text
from synth_core.inference.answers import write_answers
from synth_core.ledger.answers import StoredTable, read_tables
from synth_core.ledger.book import cost_by_step, counted_records, pure_loss
from synth_core.measurement import Measurement
from synth_core.models.mixture import load_model
from synth_core.privacy.accounts import Ledger, Record, State, Stratum
from synth_core.privacy.budget import epsilon_of, mu_of
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.release.certificate import promised_mu2
from synth_core.release.strata import Division
from synth_core.report.internal import internal_report, one_way_counts
from synth_core.report.page import Guarantee, SpendLine
from synth_core.schema import Schema
from synth_core.schema.codec import number_columns
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.value_rules import ValueRule
from synth_core.steps.context import StepRun
from synth_core.steps.explorer import write_explorer
from synth_core.storage.ingest import encode_for_now, keeps_places, unpack_partitions
from synth_core.synthesizers.base import noise_sigma
from synth_core.synthesizers.moments import read_moments
from synth_core.synthesizers.pooled_numbers import pool_numbers

BOUGHT_ALPHAS = (1, 2, 3)
"""Numbers of columns of the marginals whose mean error is bought."""
MAX_BOUGHT_CELLS = 1_000_000
"""Upper limit of the cells of a marginal whose error is bought."""

JUDGING = "evaluate"
"""The step that buys errors of a finished table: no table is made of its answers."""


def evaluate(run: StepRun) -> Path:
    """Write the public quality and the page of tables, then what stays inside: evaluation and internal report.

    The shards are read again in any case: that is what shows that no published row breaks a rule.
    """
    asked, paths = run.spec.evaluate, run.paths
    with _synthetic_table(run) as synthetic:
        quality = _public_quality(run, synthetic)
        write_text(paths.quality, quality.to_json())
        write_explorer(run)
        if asked != "none":
            run.read("evaluate", lambda: _compare(run, synthetic, quality))
    if run.spec.publish_answers:
        which = {"dataset": run.spec.dataset, "release": run.spec.release}
        write_answers(paths.answers, run.ledger, run.schema, **which)
    run.note("evaluate")
    return paths.quality if asked == "none" else paths.internal_report


def _compare(run: StepRun, synthetic: CodedTable, quality: PublicQuality) -> None:
    with folder_for_now(run) as folder:
        pieces = unpack_partitions(run.partitions, folder, cluster=run.cluster)
        real = CodedTable(list(map(str, pieces)), run.domain, cluster=run.cluster)
        _compare_with(real, run, synthetic, quality)


def _compare_with(real: CodedTable, run: StepRun, synthetic: CodedTable, quality: PublicQuality) -> None:
    evaluation = compare_tables(
        real,
        synthetic,
        violations=quality.violations,
        quick=run.spec.evaluate == "quick",
        progress=lambda what, done, parts: run.progress(f"{what} ({done} of {parts})"),
        **declared_measures(run.schema) | {"numbers": _known_numbers(run)},
    )
    write_text(run.paths.evaluation, evaluation.to_json())
    write_text(run.paths.internal_report, _report(run, evaluation, real, synthetic))


def _known_numbers(run: StepRun) -> list[NumberBase]:
    """The columns of numbers; none if an earlier version ingested the rows and kept their codes alone."""
    columns = number_columns(run.schema)
    return columns if all(keeps_places(path, columns) for path in run.partitions[:1]) else []


@contextmanager
def _synthetic_table(run: StepRun) -> Iterator[CodedTable]:
    """The shards as they were written, encoded like a source, so that they are counted where and how real rows are."""
    shards = run.paths.shards(run.spec.shards, csv=False)
    with folder_for_now(run) as folder:
        pieces = encode_for_now(shards, run.schema.as_decoded, folder, cluster=run.cluster)
        yield CodedTable(list(map(str, pieces)), run.domain, cluster=run.cluster)


@contextmanager
def folder_for_now(run: StepRun) -> Iterator[Path]:
    """A confidential folder that is gone afterwards."""
    with TemporaryDirectory(prefix=".judged-", dir=run.paths.confidential) as folder:
        yield Path(folder)


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
    which = {"dataset": spec.dataset, "release": spec.release, "snapshot": run.snapshot.digest}
    answers = stored_answers(run.ledger, run.domain, **which, division=division)
    return public_quality(
        synthetic,
        measurements=answers.marginals,
        merged=answers.merged,
        total=total,
        bought=buy_errors(run, synthetic, total) if spec.quality_share else [],
        means=_means(run, synthetic),
        violations=rule_violations(synthetic, run.schema) | _broken_comparisons(run),
        answers_used=answers.used,
        answers_unused=answers.unused,
    )


def _broken_comparisons(run: StepRun) -> dict[str, int]:
    """How many published rows break each rule about numbers: counted on the rows as they were written."""
    rules = tuple(rule for group in run.schema.value_groups for rule in group.rules)
    if not rules:
        return {}
    shards = run.paths.shards(run.spec.shards, csv=False)
    counted = run.cluster.map(count_broken, shards, schema=run.schema, rules=rules)
    return {rule.name: sum(own[k] for own in counted) for k, rule in enumerate(rules)}


def count_broken(shard: Path, *, schema: Schema, rules: Sequence[ValueRule]) -> list[int]:
    """Rows of one shard that break each rule about numbers; runs on a worker, and sees synthetic rows alone."""
    found = [0] * len(rules)
    names = list(dict.fromkeys(name for rule in rules for name in rule.columns))
    with pq.ParquetFile(shard) as file:
        for batch in file.iter_batches(columns=names):
            frame = batch.to_pandas()
            numbers = {name: schema.column(name).numbers_in(frame[name]) for name in names}
            for k, rule in enumerate(rules):
                found[k] += int(rule.broken(numbers).sum())
    return found


def _means(run: StepRun, synthetic: CodedTable) -> list[MeanError]:
    """The means of columns whose sums were bought, with the margin that noise and sampling give them."""
    known = read_moments(run.paths.moments)
    columns = [column for column in number_columns(run.schema) if column.name in known]
    if not columns:
        return []
    by_noise = pool_numbers(run.schema, load_model(run.paths.model).marginal, known).deviations
    found = []
    for column, summary in zip(columns, summarise_values(synthetic, columns), strict=True):
        by_sampling = summary.deviation / math.sqrt(max(1, summary.rows))
        margin = Z95 * math.hypot(by_noise[column.name], by_sampling)
        found.append(MeanError(column=column.name, mean=summary.mean, margin=margin))
    return found


def buy_errors(run: StepRun, synthetic: CountedTable, total: float) -> list[BoughtError]:
    """Buy mean errors against the real rows, for marginals of one, two and three columns at the same price each."""
    curator: Curator = run.curator("evaluate")
    cliques = {
        alpha: [c for c in alpha_way(run.domain, alpha) if run.domain.cells(c) <= MAX_BOUGHT_CELLS]
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
        bought.append(bought_error(alpha, misfits, sigma=noise_sigma(each, count=len(queries)), total=total))
    return bought


def _scale(record: Record) -> float:
    gaussian = record.mechanism.name == "discrete_gaussian"
    return math.sqrt(record.mechanism.scale) if gaussian else float(record.mechanism.scale)


def _report(run: StepRun, evaluation: Evaluation, real: CodedTable, synthetic: CodedTable) -> str:
    about = describe_release(run)
    about["facts"] |= {
        **({"Strata": run.spec.strata.by} if run.spec.strata else {}),
        **({} if evaluation.closeness else {"Comparison": "quick: without classifiers and large marginals"}),
        **({"Sampling": evaluation.sampling} if evaluation.sampling else {}),
    }
    return internal_report(
        evaluation,
        schema=run.schema,
        real_one_way=one_way_counts(real),
        synthetic_one_way=one_way_counts(synthetic),
        **about,
    )


def describe_release(run: StepRun) -> dict[str, Any]:
    """What an internal report says of a release: its title, guarantee, spends and facts, as keyword arguments."""
    records = run.records()
    account = run.account
    promised = promised_mu2(records)
    spent = sum(cost_by_step(records).values(), Fraction(0))
    return {
        "title": f"Release {run.spec.release}",
        "guarantee": Guarantee(
            unit=account.unit,
            neighbours=account.neighbours,
            epsilon=max(run.spec.epsilon, epsilon_of(promised, account.delta)),
            delta=account.delta,
            mu=mu_of(promised),
            spent=epsilon_of(spent, account.delta),
            pure=pure_loss(records),
        ),
        "spends": spend_lines(records),
        "facts": {
            "Data set": run.spec.dataset,
            "Method": f"{run.spec.method}, preset {run.spec.preset}",
        },
    }


@dataclass(slots=True)
class StoredAnswers:
    """The answers of a release with which its table can be compared, and how many cannot.

    `used` counts the answers that went into the tables, `unused` the others by their kind: a table or the answers of a
    strategy count as one, scores and choices as one each.
    """

    marginals: list[Measurement] = field(default_factory=list)
    merged: list[MergedMarginal] = field(default_factory=list)
    used: int = 0
    unused: Counter[str] = field(default_factory=Counter)


def stored_answers(
    ledger: Ledger,
    domain: Domain,
    *,
    dataset: str,
    release: str,
    snapshot: str,
    division: Division | None = None,
) -> StoredAnswers:
    """Every noisy table that the release was made of and that is about its rows, in the order of measuring.

    Args:
        ledger: where the answers are.
        domain: the codes of the release's table.
        dataset: the account that paid.
        release: the release that asked.
        snapshot: the rows the table was made from; answers about others, such as the grid of bins, are not used.
        division: the strata. Tables that all parts have measured are added up over the parts; those of some parts alone
            say nothing about the whole table and are not used.

    Returns:
        The tables, and how many answers were used and not used.
    """
    found = StoredAnswers()
    whole: list[StoredTable] = []
    parts: dict[Stratum, list[StoredTable]] = {division.stratum(p): [] for p in division.parts} if division else {}
    for record in ledger.records(dataset=dataset, release=release):
        if record.state is State.MEASURED and record.step != JUDGING:
            tables, others = read_tables(ledger, record)
            found.unused += others
            about = whole if record.stratum is None else parts.get(record.stratum)
            if about is None or record.snapshot != snapshot:
                found.unused += Counter(table.kind for table in tables)
            else:
                about.extend(tables)
    for table in whole:
        _use([table], table, domain, found)
    _add_up(list(parts.values()), domain, found)
    return found


def _use(sources: list[StoredTable], table: StoredTable, domain: Domain, found: StoredAnswers) -> None:
    """Put the table, made of these answers, among the others, if it is about the codes of the domain."""
    if not table.fits(domain):
        found.unused += Counter(table.kind for table in sources)
        return
    found.used += len(sources)
    measurement = Measurement(table.clique, table.noisy, math.sqrt(table.variance))
    if table.groups:
        found.merged.append((measurement, table.groups))
    else:
        found.marginals.append(measurement)


def _add_up(parts: list[list[StoredTable]], domain: Domain, found: StoredAnswers) -> None:
    """What all parts have measured: each part's answers to a question averaged by inverse variance, then summed."""
    questions = dict.fromkeys(table.question for part in parts for table in part)
    for question in questions:
        asked = [[table for table in part if table.question == question] for part in parts]
        sources = [table for same in asked for table in same]
        shapes = {table.noisy.shape for table in sources}
        if not all(asked) or len(shapes) > 1:
            found.unused += Counter(table.kind for table in sources)
            continue
        averages = [_average(same) for same in asked]
        noisy = np.sum([average.noisy for average in averages], axis=0)
        variance = sum(average.variance for average in averages)
        _use(sources, StoredTable(*question, noisy, variance), domain, found)


def _average(same: list[StoredTable]) -> StoredTable:
    weights = np.array([1 / table.variance for table in same])
    mean = np.average([table.noisy for table in same], axis=0, weights=weights)
    return StoredTable(*same[0].question, mean, float(1 / weights.sum()))
