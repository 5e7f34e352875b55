"""Steps of a release of two linked tables, where they are more than those of one table: pairs of people, and judging.

The method asks about one person of each household by the same steps as about any table (`conversation`); what it sees
are the counts of the tuple relation (`storage.household_partitions`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from synth_core.evaluation.linked import TupleTable, compare_households
from synth_core.evaluation.public import PublicQuality, judge_marginals, public_quality
from synth_core.files import write_text
from synth_core.inference.answers import write_answers
from synth_core.models.households import HouseholdModel
from synth_core.models.tuples import Households, attribute_place, join_households
from synth_core.privacy.answer_form import AnswerKind
from synth_core.release.household_check import ShardCheck, check_shards, shard_files
from synth_core.release.paths import ReleasePaths
from synth_core.report.households import internal_section, linked_report
from synth_core.schema.linked import TABLES, LinkedSchema
from synth_core.steps.context import StepRun
from synth_core.steps.conversation import fit_model
from synth_core.steps.evaluate import buy_errors, describe_release, folder_for_now, stored_answers
from synth_core.storage.household_partitions import Partition, ingest_households, partitions_of, read_households
from synth_core.storage.households import encode_households
from synth_core.synthesizers.companions import measure_companions

JUDGED_HOUSEHOLDS = 250_000
"""Households of which pages show shares and true errors at most, about: they are held at once."""

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
            broken = {rule.name: seen.broken[rule.name] for rule in run.linked.together}
            run.read("evaluate", lambda: _compare(run, quality, broken=broken))
    if run.spec.publish_answers:
        which: dict[str, Any] = {"dataset": run.spec.dataset, "release": run.spec.release}
        write_answers(paths.answers, run.ledger, run.linked, **which)
    run.note("evaluate")
    return paths.quality if asked == "none" else paths.internal_report


def _published(run: StepRun, folder: Path) -> list[Partition]:
    """Both tables as they were written, encoded and joined like a source."""
    files = {table: run.paths.shards(run.spec.shards, csv=False, table=table) for table in TABLES}
    sources = {table: list(map(str, own)) for table, own in files.items()}
    snapshot = ingest_households(sources, run.linked.as_decoded, folder, key=PUBLIC_HASHES, cluster=run.cluster)
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
    unused = answers.unused - Counter({AnswerKind.MARGINAL.value: len(pairs)})
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


def _compare(run: StepRun, quality: PublicQuality, *, broken: Mapping[str, int]) -> None:
    """Compare households with households: as many of both as are held at once."""
    real, synthetic = _some_real(run), some_published(run.paths, run.linked)
    run.progress("comparing households")
    quick, rules = run.spec.evaluate == "quick", sum(broken.values())
    errors = compare_households(real, synthetic, run.linked, broken=rules, predictions=not quick)
    write_text(run.paths.evaluation, json.dumps(asdict(errors), indent=1) + "\n")
    all_of_them = replace(errors.synthetic, households=quality.rows, people=quality.people)
    section = internal_section(run.linked, replace(errors, synthetic=all_of_them), broken=broken)
    about = describe_release(run)
    about["facts"] |= {
        "Compared": f"{len(real.sizes):,} real and {len(synthetic.sizes):,} synthetic households",
        **({"Comparison": "quick: without classifiers"} if quick else {}),
    }
    write_text(run.paths.internal_report, linked_report(section, internal=True, **about))


def _some_real(run: StepRun) -> Households:
    """The households of the first partitions: random ones, because partitions are ranges of hashes."""
    held: list[Households] = []
    for partition in run.household_partitions:
        held.append(read_households(partition, run.linked))
        if sum(len(one.sizes) for one in held) >= JUDGED_HOUSEHOLDS:
            break
    return join_households(held)


def some_published(paths: ReleasePaths, schema: LinkedSchema) -> Households:
    """Read the first households of an extract, which are random ones, and encode them.

    Args:
        paths: where the extract is.
        schema: the declaration of the tables.

    Returns:
        All of them, or about as many as are judged at once.
    """
    held: list[Households] = []
    for household, person in shard_files(paths.extract):
        with pq.ParquetFile(household) as homes, pq.ParquetFile(person) as people:
            for group in range(homes.num_row_groups):
                files = dict(zip(TABLES, (homes, people), strict=True))
                frames = {name: file.read_row_group(group).to_pandas() for name, file in files.items()}
                held.append(encode_households(frames, schema.as_decoded, PUBLIC_HASHES))
                if sum(len(one.sizes) for one in held) >= JUDGED_HOUSEHOLDS:
                    return join_households(held)
    return join_households(held)
