"""Steps of a release of two linked tables, where they are more than those of one table: pairs of people, and judging.

The method asks about one person of each household by the same steps as about any table (`conversation`); what it sees
are the counts of the tuple relation (`storage.household_partitions`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.evaluation import CodedTable, compare_tables, declared_measures
from synth_core.evaluation.linked import TupleTable, compare_households
from synth_core.evaluation.public import PublicQuality, judge_marginals, public_quality
from synth_core.files import write_text
from synth_core.inference.answers import write_answers
from synth_core.models.households import HouseholdModel
from synth_core.models.tuples import Households, attribute_place, join_households
from synth_core.privacy.answer_form import Kind
from synth_core.privacy.wall import wall
from synth_core.release.household_check import ShardCheck, check_shards
from synth_core.report.linked import errors_table
from synth_core.schema.linked import SIZE, TABLES, LinkedSchema
from synth_core.steps.context import StepRun
from synth_core.steps.conversation import fit_model
from synth_core.steps.evaluate import buy_errors, folder_for_now, report_errors, stored_answers
from synth_core.storage.household_partitions import Partition, ingest_households, partitions_of, read_households
from synth_core.storage.ingest import UNPACKED, write_unpacked
from synth_core.synthesizers.companions import measure_companions

JUDGED_HOUSEHOLDS = 250_000
"""Households of each extract and source that are held at once to compare households with households; of more, as many
as the first partitions have, which are random ones, because partitions are ranges of hashes."""

PUBLIC_HASHES = bytes(32)
"""The key under which published households are put in order: their names are no secret."""


def fit(run: StepRun) -> Path:
    """Let the method measure and estimate, measure pairs of people, and keep the model of households."""
    people, mu2 = fit_model(run), run.budget.pairs
    if mu2:
        curator = run.curator("fit", places=2)
        model = measure_companions(curator, run.linked, people, mu2, progress=run.progress)
    else:
        model = HouseholdModel(run.linked, people, ())
    return run.finish("fit", run.paths.model, model.save)


def evaluate(run: StepRun) -> Path:
    """Write the public quality, then what stays inside: true errors and the internal report.

    Both tables are read again as they were published: that shows that no household breaks a rule.
    """
    asked, paths = run.spec.evaluate, run.paths
    with folder_for_now(run) as folder:
        drawn = _published(run, folder / "published")
        seen = _checked(run)
        quality = _public_quality(run, drawn, seen)
        write_text(paths.quality, quality.to_json())
        if asked != "none":
            broken = sum(seen.broken[rule.name] for rule in run.linked.together)
            run.read("evaluate", lambda: _compare(run, folder, drawn, quality, broken=broken))
    if run.spec.publish_answers:
        which: dict[str, Any] = {"dataset": run.spec.dataset, "release": run.spec.release}
        write_answers(paths.answers, run.ledger, run.linked, **which)
    run.note("evaluate")
    return paths.quality if asked == "none" else paths.internal_report


def _published(run: StepRun, folder: Path) -> list[Partition]:
    """Both tables as they were written, encoded and joined like a source."""
    files = {table: run.paths.shards(run.spec.shards, csv=False, table=table) for table in TABLES}
    sources = {table: list(map(str, own)) for table, own in files.items()}
    snapshot = ingest_households(sources, run.linked, folder, key=PUBLIC_HASHES, cluster=run.cluster)
    return partitions_of(folder, snapshot.partitions)


def _checked(run: StepRun) -> ShardCheck:
    """What is seen of the shards, each checked wherever the cluster has room."""
    homes, people = (run.paths.shards(run.spec.shards, csv=False, table=table) for table in TABLES)
    pairs = [[pair] for pair in zip(homes, people, strict=True)]
    seen = ShardCheck()
    for one in run.cluster.map(check_shards, pairs, schema=run.linked, first=None):
        seen.households += one.households
        seen.people += one.people
        seen.problems += one.problems
        seen.broken.update(one.broken)
    return seen


def _public_quality(run: StepRun, drawn: list[Partition], seen: ShardCheck) -> PublicQuality:
    """How far both tables are from the noisy answers about one person of a household, and about two."""
    spec, schema = run.spec, run.linked
    total = max(1.0, HouseholdModel.load(run.paths.model).total)
    which: dict[str, Any] = {"dataset": spec.dataset, "release": spec.release, "snapshot": run.snapshot.digest}
    one = TupleTable(drawn, schema, run.cluster)
    answers, pairs = stored_answers(run.ledger, run.domain, **which), []
    if schema.has_pairs:
        two = TupleTable(drawn, schema, run.cluster, places=2)
        known = stored_answers(run.ledger, two.domain, **which).marginals
        about_pairs = [m for m in known if max(map(attribute_place, m.clique)) > 1]
        pairs = judge_marginals(two, about_pairs, total=total, scale=total / one.rows)
    unused = answers.unused - Counter({Kind.MARGINAL.value: len(pairs)})
    return public_quality(
        one,
        measurements=answers.marginals,
        merged=answers.merged,
        total=total,
        bought=buy_errors(run, one, total) if spec.quality_share else [],
        violations=seen.broken,
        answers_used=answers.used + len(pairs),
        answers_unused=unused,
        people=seen.people,
        pairs=pairs,
    )


def _compare(run: StepRun, folder: Path, drawn: Sequence[Partition], quality: PublicQuality, *, broken: int) -> None:
    """Compare people beside the columns of their households, as one table, and households with households."""
    real, synthetic = (
        _people_beside_households(run, own, folder / name)
        for own, name in ((run.household_partitions, "real"), (drawn, "synthetic"))
    )
    evaluation = compare_tables(
        real,
        synthetic,
        violations=quality.violations,
        quick=run.spec.evaluate == "quick",
        progress=lambda what, done, parts: run.progress(f"{what} ({done} of {parts})"),
        **declared_measures(run.schema) | {"numbers": []},
    )
    run.progress("households with households")
    sides = (_some(run, run.household_partitions), _some(run, drawn))
    errors = compare_households(*sides, run.linked, broken=broken)
    write_text(run.paths.evaluation, evaluation.to_json())
    write_text(run.paths.household_errors, json.dumps(asdict(errors), indent=1) + "\n")
    write_text(
        run.paths.internal_report,
        report_errors(run, evaluation, real, synthetic, households=errors_table(errors)),
    )


def _people_beside_households(run: StepRun, partitions: Sequence[Partition], folder: Path) -> CodedTable:
    """A row for each person, with the columns and the size of the household."""
    folder.mkdir()
    jobs = [(partition, folder / f"part-{k:05d}{UNPACKED}") for k, partition in enumerate(partitions)]
    run.cluster.map(_flatten, jobs, schema=run.linked)
    return CodedTable([str(path) for _, path in jobs], run.schema.domain, cluster=run.cluster)


def _flatten(job: tuple[Partition, Path], *, schema: LinkedSchema) -> None:
    """Write the people of one partition beside their households; runs on a worker."""
    partition, path = job
    with wall():
        held = read_households(partition, schema)
        own = held.attributes | {SIZE: (held.sizes - 1).astype(np.uint8)}
        write_unpacked({name: np.repeat(codes, held.sizes) for name, codes in own.items()} | held.people, path)


def _some(run: StepRun, partitions: Sequence[Partition]) -> Households:
    """The households of the first partitions, as many as are compared at once."""
    held: list[Households] = []
    for partition in partitions:
        held.append(read_households(partition, run.linked))
        if sum(len(one.sizes) for one in held) >= JUDGED_HOUSEHOLDS:
            break
    return join_households(held)
