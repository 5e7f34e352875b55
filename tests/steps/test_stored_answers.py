"""The public quality figures: a record says what its answer is, and only tables are compared with the table."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support import strata_release
from support.small_release import write_release

from synth_core.domain import Domain
from synth_core.ledger.answers import UNKNOWN
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import State
from synth_core.privacy.answer_form import AnswerKind
from synth_core.release.paths import ReleasePaths
from synth_core.release.strata import Division
from synth_core.release.verify import verify_release
from synth_core.schema import Schema
from synth_core.steps import STEPS, prepare, run_step
from synth_core.steps.evaluate import stored_answers
from synth_core.storage.ingest import Snapshot

pytestmark = pytest.mark.slow

RARE = """
columns:
  - {name: sex, kind: categorical, values: [f, m]}
  - {name: age, kind: integer, bounds: [0, 99], bins: 5}
  - {name: job, kind: categorical, values: [farm, shop, office, rare1, rare2, rare3, rare4, rare5]}
"""
PREFIXES = {"workload": {"ways": 2, "prefixes": ["age"]}}


def people(rows=4000):
    """Jobs of which five hardly occur, so that methods merge their codes."""
    rng = np.random.default_rng(5)
    jobs = ["farm", "shop", "office", "rare1", "rare2", "rare3", "rare4", "rare5"]
    age = rng.integers(0, 100, rows)
    shares = np.where((age < 40)[:, None], [0.7, 0.2, 0.1], [0.1, 0.2, 0.7])
    job = np.array(jobs)[(rng.random((rows, 1)) > np.cumsum(shares, axis=1)[:, :2]).sum(axis=1)]
    job[:5] = jobs[3:]
    return pd.DataFrame({"sex": rng.choice(["f", "m"], rows), "age": age, "job": job})


def released(folder, method, **changes):
    """A published release; its paths, its quality in short and the kinds of its answers."""
    spec = write_release(folder, frame=people(), cap=9.0, method=method, epsilon=4.0, **changes)
    (folder / "schema.yaml").write_text(RARE)
    address = prepare(spec, workspace=folder / "workspace")
    for name in STEPS:
        run_step(name, address)
    paths = ReleasePaths(folder / "workspace", "r1")
    assert verify_release(paths.public) == []
    records = open_ledger(paths.workspace).records(release="r1")
    blocks = [block for record in records if record.state is State.MEASURED for block in record.form.blocks]
    return paths, json.loads(paths.manifest.read_text())["quality"], blocks


@pytest.mark.parametrize(("method", "merges"), [("mst", True), ("absyn", True), ("hdmm", False)])
def test_every_marginal_is_compared_also_one_of_merged_codes(tmp_path, method, merges) -> None:
    """A table that was fitted to its answers is nearer to them than twice the noise; none is dropped without a word."""
    paths, quality, blocks = released(tmp_path, method)
    tables = [block for block in blocks if block.kind in (AnswerKind.MARGINAL, AnswerKind.MERGED)]
    assert any(block.kind is AnswerKind.MERGED and "job" in block.clique for block in tables) == merges
    assert 0 <= quality["distance_from_answers"] < 2 * quality["distance_of_noise_alone"] < 0.2
    measured = json.loads(paths.quality.read_text())["measured"]
    assert sorted((tuple(m["clique"]), m["cells"]) for m in measured) == sorted(
        (block.clique, block.size) for block in tables
    )
    others = sum(block.size for block in blocks if block not in tables)
    assert (quality["answers_used"], sum(quality["answers_unused"].values())) == (len(tables), others)
    words = f"Noisy answers that are compared with the published table: {len(tables)}."
    assert words in paths.public_report.read_text()


def test_square_strategies_do_not_pass_as_marginals(tmp_path) -> None:
    """HDMM's matrices for prefixes are square: their answers are as many as the cells, and are no counts of cells."""
    paths, quality, blocks = released(tmp_path, "hdmm", options=PREFIXES)
    domain = Schema.load(paths.schema).domain
    assert all(block.shape == domain.shape(block.clique) for block in blocks)
    assert [block.kind for block in blocks if "age" not in block.clique] == [AnswerKind.MARGINAL]
    assert [block.kind for block in blocks if "age" in block.clique] == [AnswerKind.STRATEGY] * 2
    assert quality["distance_from_answers"] < 2 * quality["distance_of_noise_alone"] < 0.2
    assert (quality["answers_used"], quality["answers_unused"]) == (1, {"strategy answers": 2})


def test_answers_of_strata_are_added_up_where_all_have_the_same(tmp_path) -> None:
    spec = strata_release.write_release(tmp_path)
    strata_release.run_steps(spec, tmp_path)
    paths = ReleasePaths(tmp_path / "workspace", "r1")
    quality = json.loads(paths.manifest.read_text())["quality"]
    parts = len(Division.load(paths.division).parts)
    # Once for all records: the rows of each stratum. In each part: sex, state and age.
    assert quality["answers_used"] == 1 + 3 * parts
    assert quality["measured_marginals"] == 4
    assert quality["distance_from_answers"] < 2 * quality["distance_of_noise_alone"]


class Records:
    """A ledger's records, changed, over its answers."""

    def __init__(self, ledger, change) -> None:
        self._ledger, self._change = ledger, change

    def records(self, **which):
        return [self._change(record) for record in self._ledger.records(**which)]

    def reserve(self, request):
        return self._ledger.reserve(request)


def test_answers_about_other_rows_and_of_unknown_kind_are_counted_and_not_used(tmp_path) -> None:
    paths, *_ = released(tmp_path, "independent")
    ledger, domain = open_ledger(paths.workspace), Schema.load(paths.schema).domain
    which = {"dataset": "people", "release": "r1", "snapshot": Snapshot.load(paths.snapshot).digest}
    everything = stored_answers(ledger, domain, **which)
    assert (len(everything.marginals), everything.used, everything.unused) == (3, 3, {})
    other = stored_answers(ledger, domain, **which | {"snapshot": "another"})
    assert (other.marginals, other.used, other.unused) == ([], 0, {"marginal": 3})
    smaller = stored_answers(ledger, Domain(("sex", "age"), (2, 4)), **which)
    assert ([m.clique for m in smaller.marginals], smaller.unused) == ([("sex",)], {"marginal": 2})
    unknown = stored_answers(Records(ledger, lambda record: replace(record, form=None)), domain, **which)
    assert (unknown.marginals, unknown.unused) == ([], {UNKNOWN: 1})


def test_errors_that_were_bought_for_the_finished_table_are_none_of_its_answers(tmp_path) -> None:
    """They are asked after the answers were read; a release that is judged again would count them otherwise."""
    spec = write_release(tmp_path, method="independent", quality_share=0.1)
    address = prepare(spec, workspace=tmp_path / "workspace")
    for name in STEPS[:-1]:
        run_step(name, address)
    quality = ReleasePaths(tmp_path / "workspace", "r1").quality
    before = json.loads(quality.read_text())
    assert before["bought"]
    assert (before["answers_used"], before["answers_unused"]) == (3, {})
    run_step("evaluate", address)
    assert json.loads(quality.read_text()) == before
