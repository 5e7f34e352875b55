"""The seven steps of a small release: their artifacts, their records, their refusals, and what a rerun does."""

import inspect
import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.small_release import ROWS, people, write_release

from synth_core.errors import BudgetRefused, LedgerError, PublishError, ReleaseEnded, SourceError, SpecError
from synth_core.ledger.book import cost_by_step
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import epsilon_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import PIPELINE, STEPS, cancel, find_step, finished_steps, list_parts, prepare, run_step, summary
from synth_core.steps.context import open_run
from synth_core.steps.sample import rows_of_shard


def run_all(spec, workspace, **how):
    address = prepare(spec, workspace=workspace)
    for step in STEPS:
        run_step(step, address, **how)
    return address


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    spec = write_release(folder)
    return folder, run_all(spec, folder / "workspace"), spec


def ledger_of(folder):
    return SqlLedger(ledger_url(folder / "workspace", None))


@pytest.mark.slow
def test_every_step_leaves_a_record_and_the_sum_is_what_was_asked(released):
    folder, _, spec = released
    records = ledger_of(folder).records(release="r1")
    assert set(STEPS) <= {record.step for record in records}
    total = sum(cost_by_step(records).values(), Fraction(0))
    assert 0.99 * spec["epsilon"] < epsilon_of(total, 1e-6) <= spec["epsilon"]
    assert cost_by_step(records)["ingest"] == 0


def test_the_table_has_the_declared_columns_and_values(released):
    _, address, _ = released
    paths = ReleasePaths.of_address(address)
    table = pd.read_parquet(paths.extract)
    assert list(table.columns) == ["sex", "age", "job"]
    assert set(table["sex"]) <= {"f", "m"}
    assert table["age"].between(0, 99).all()
    assert set(table["job"].dropna()) <= {"farm", "shop", "office"}
    assert abs(len(table) - ROWS) < 200
    assert len(table) != 0


def test_the_manifest_agrees_with_files_and_ledger(released, tmp_path):
    folder, address, _ = released
    public = ReleasePaths.of_address(address).public
    assert verify_release(public) == []
    manifest = json.loads((public / "manifest.json").read_text())
    assert set(manifest["artifacts"]) == {
        "schema.yaml",
        "scores.json",
        "structure.json",
        "model.npz",
        "replicates.npz",
        "answers.parquet",
        "quality.json",
        "explore.html",
        "report.html",
        "certificate.json",
        "deployment.yaml",
        "extract/part-00000.parquet",
        "extract/part-00001.parquet",
    }
    copy = tmp_path / "workspace"
    shutil.copytree(folder / "workspace", copy)
    shard = copy / "public" / "r1" / "extract" / "part-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert verify_release(copy / "public" / "r1") == ["extract/part-00001.parquet: does not match its checksum"]
    shard.unlink()
    assert verify_release(copy / "public" / "r1") == ["extract/part-00001.parquet: is missing"]


def test_an_edited_manifest_is_found(released, tmp_path):
    folder, _, _ = released
    copy = tmp_path / "workspace"
    shutil.copytree(folder / "workspace", copy)
    path = copy / "public" / "r1" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["guarantee"]["epsilon"] = 0.1
    path.write_text(json.dumps(manifest))
    assert verify_release(path.parent) == [
        "manifest.json: does not match its signature",
        "manifest.json: its content does not match its digest",
        "certificate.json: states another guarantee than the manifest",
        "certificate.json: states a smaller epsilon than its spends are worth",
        "ledger: gives 1.0 for epsilon, the manifest says 0.1",
    ]
    manifest["guarantee"]["steps"]["fit"]["mu2"] = "1/1000"
    path.write_text(json.dumps(manifest))
    assert any("step 'fit'" in problem for problem in verify_release(path.parent))
    path.write_text("{")
    assert verify_release(path.parent)[-1] == "manifest.json: is not a manifest"
    path.unlink()
    with pytest.raises(SpecError, match=r"no manifest\.json"):
        verify_release(path.parent)


def test_running_again_costs_nothing_and_gives_the_same_digest(released):
    folder, address, spec = released
    before = summary(address)["digest"]
    charged = ledger_of(folder).balance("people").charged_mu2
    assert finished_steps(address) == STEPS
    run_all(spec, folder / "workspace")
    assert summary(address)["digest"] == before
    assert ledger_of(folder).balance("people").charged_mu2 == charged
    assert ledger_of(folder).verify() == []


@pytest.mark.slow
def test_a_local_cluster_gives_the_same_release(released, tmp_path):
    """Dask is a runner like the others: with the answers replayed it makes the same manifest."""
    folder, address, spec = released
    workspace = tmp_path / "workspace"
    keys = "workspace/confidential/.keys"
    shutil.copytree(folder / keys, tmp_path / keys)
    for path in (folder / "workspace").glob("ledger.sqlite*"):
        shutil.copy(path, workspace)
    charged = ledger_of(folder).balance("people").charged_mu2
    other = run_all(spec, workspace, cluster="local")
    assert summary(other)["digest"] == summary(address)["digest"]
    assert SqlLedger(ledger_url(workspace, None)).balance("people").charged_mu2 == charged


def test_shards_can_be_written_one_by_one(released):
    _, address, _ = released
    paths = ReleasePaths.of_address(address)
    before = [paths.shard(number).read_bytes() for number in list_parts("sample", address)]
    for number in list_parts("sample", address):
        run_step("sample", address, part=number)
    assert [paths.shard(number).read_bytes() for number in list_parts("sample", address)] == before


def test_rows_are_shared_among_shards():
    assert [rows_of_shard(11, shards=4, number=n) for n in range(4)] == [3, 3, 3, 2]
    assert sum(rows_of_shard(10, shards=7, number=n) for n in range(7)) == 10


@pytest.mark.slow
def test_a_public_number_of_rows(tmp_path):
    spec = write_release(tmp_path, rows=100, method="independent")
    address = run_all(spec, tmp_path / "workspace")
    assert len(pd.read_parquet(ReleasePaths.of_address(address).extract)) == 100


@pytest.mark.slow
def test_a_second_release_over_the_cap_is_refused_before_data_is_read(tmp_path):
    spec = write_release(tmp_path, cap=1.2, method="independent")
    run_all(spec, tmp_path / "workspace")
    header = (tmp_path / "people.csv").read_text().splitlines()[0]
    (tmp_path / "people.csv").write_text(f"{header}\nthis would be an error if it were read\n")
    with pytest.raises(BudgetRefused, match=r"epsilon 0\.\d+ of 1\.2"):
        prepare({**spec, "release": "r2"}, workspace=tmp_path / "workspace")
    assert not (tmp_path / "workspace" / "confidential" / "r2" / "encoded").exists()


def test_a_cancelled_release_gives_back_what_it_did_not_use(tmp_path):
    spec = write_release(tmp_path, cap=1.2, method="independent")
    address = prepare(spec, workspace=tmp_path / "workspace")
    ledger = ledger_of(tmp_path)
    assert ledger.balance("people").held_mu2 > 0
    cancel(address, reason="not needed")
    assert ledger.balance("people").held_mu2 == 0
    assert ledger.records()[-1].state is State.CLOSED
    prepare({**spec, "release": "r2"}, workspace=tmp_path / "workspace")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "magic"}, SpecError, "unknown method 'magic'"),
        ({"delta": 1e-5}, SpecError, "delta 1e-05 is not the delta of dataset 'people', 1e-06"),
        ({"unit": "household"}, SpecError, "unit 'household' is not the unit"),
        ({"dataset": "others"}, LedgerError, "synth ledger account"),
        ({"source": "nowhere/*.csv"}, SourceError, "matches no file"),
        ({"epsilon": 3.0}, BudgetRefused, "3"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(tmp_path, change, error, message):
    spec = write_release(tmp_path, **change)
    with pytest.raises(error, match=message) as refusal:
        prepare(spec, workspace=tmp_path / "workspace")
    assert "\n" not in str(refusal.value)
    assert ledger_of(tmp_path).balance("people").held_mu2 == 0


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: f.assign(sex=["x", *f["sex"][1:]]), "sex"),
        (lambda f: f.assign(age=["old", *f["age"][1:].astype(str)]), "age"),
        (lambda f: f.assign(sex=[None, *f["sex"][1:]]), "sex"),
        (lambda f: f.iloc[:0], "no rows"),
    ],
)
def test_a_bad_source_is_refused_by_column_and_changes_nothing(tmp_path, break_it, message):
    spec = write_release(tmp_path, frame=break_it(people()))
    address = prepare(spec, workspace=tmp_path / "workspace")
    with pytest.raises(SourceError, match=message) as refusal:
        run_step("ingest", address)
    assert "\n" not in str(refusal.value)
    assert "old" not in str(refusal.value).split()
    assert ledger_of(tmp_path).balance("people").charged_mu2 == 0
    assert finished_steps(address) == ()


@pytest.mark.parametrize("kind", ["misspelt", "unknown kind", "unreadable"])
def test_a_source_that_cannot_be_read_sets_nothing_aside(tmp_path, kind):
    spec = write_release(tmp_path)
    file = tmp_path / "people.csv"
    if kind == "misspelt":
        file.write_text(file.read_text().replace("age", "agee", 1))
    elif kind == "unknown kind":
        spec["source"] = str(file.rename(tmp_path / "people.xlsx"))
    else:
        file.write_bytes(b"PAR1 is not Parquet")
        spec["source"] = str(file.rename(tmp_path / "people.parquet"))
    with pytest.raises(SourceError, match=r"age|unknown kind of file|cannot be read"):
        prepare(spec, workspace=tmp_path / "workspace")
    assert ledger_of(tmp_path).balance("people").held_mu2 == 0
    assert not (tmp_path / "workspace" / "confidential" / "r1").exists()


def test_the_same_name_with_other_settings_is_refused_once_it_has_asked(tmp_path):
    spec = write_release(tmp_path, method="independent")
    for step in ("ingest", "score"):
        run_step(step, prepare(spec, workspace=tmp_path / "workspace"))
    with pytest.raises(
        SpecError, match=r"other settings \(epsilon, shards\) and has asked questions in score;.*cancel r1"
    ):
        prepare({**spec, "epsilon": 0.5, "shards": 3}, workspace=tmp_path / "workspace")
    (tmp_path / "schema.yaml").write_text("columns: [{name: sex, kind: categorical, values: [f, m]}]")
    with pytest.raises(SpecError, match=r"other settings \(schema\)"):
        prepare(spec, workspace=tmp_path / "workspace")


def test_a_name_that_another_account_has_paid_for_is_not_freed(tmp_path):
    spec, workspace = write_release(tmp_path, method="independent"), tmp_path / "workspace"
    address = prepare(spec, workspace=workspace)
    for step in ("ingest", "score"):
        run_step(step, address)
    ledger = ledger_of(tmp_path)
    ledger.declare(replace(ledger.balance("people").account, dataset="others"), actor="test")
    with pytest.raises(SpecError, match=r"other settings \(dataset\) and has asked questions in score"):
        prepare({**spec, "dataset": "others"}, workspace=workspace)
    assert ReleasePaths.of_address(address).scores.exists()


def test_a_release_that_has_asked_nothing_is_begun_again_with_a_corrected_schema(tmp_path):
    spec, workspace = write_release(tmp_path, method="independent"), tmp_path / "workspace"
    good = (tmp_path / "schema.yaml").read_text()
    (tmp_path / "schema.yaml").write_text("columns: [{name: sex, kind: categorical, values: [f]}]")
    with pytest.raises(SourceError, match="sex"):
        run_step("ingest", prepare(spec, workspace=workspace))
    (tmp_path / "schema.yaml").write_text(good)
    address = prepare({**spec, "epsilon": 0.5}, workspace=workspace)
    for step in STEPS:
        run_step(step, address)
    assert ReleasePaths.of_address(address).published
    ledger = ledger_of(tmp_path)
    assert ledger.verify() == []
    assert [record.state for record in ledger.records(release="r1")].count(State.HELD) == 2


def test_rows_of_the_first_try_are_gone_when_a_release_is_begun_again(tmp_path):
    """And a runner that is still at work for it may spend no more."""
    spec, workspace = write_release(tmp_path, method="independent"), tmp_path / "workspace"
    address = prepare(spec, workspace=workspace)
    run_step("ingest", address)
    with open_run(address) as at_work:
        curator = at_work.curator("score")
        prepare({**spec, "epsilon": 0.5}, workspace=workspace)
        assert not at_work.paths.encoded.exists()
        with pytest.raises(ReleaseEnded):
            curator.measure([("sex",)], Fraction(1, 100), purpose="counts")


def test_a_step_before_ingest_is_refused(tmp_path):
    address = prepare(write_release(tmp_path), workspace=tmp_path / "workspace")
    with pytest.raises(SpecError, match="run the step `ingest` first"):
        run_step("score", address)
    with pytest.raises(SpecError, match="unknown step 'dance'"):
        run_step("dance", address)
    with pytest.raises(SpecError, match="the step 'ingest' has no parts; run it as a whole"):
        run_step("ingest", address, part=0)


def test_publishing_without_a_shard_is_refused(tmp_path):
    spec = write_release(tmp_path, method="independent")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS[:5]:
        run_step(step, address)
    ReleasePaths.of_address(address).shard(1).unlink()
    with pytest.raises(PublishError, match=r"part-00001.parquet is missing; run the step `sample` again"):
        run_step("publish", address)


def test_publishing_over_a_broken_ledger_is_refused(tmp_path):
    import sqlite3

    spec = write_release(tmp_path, method="independent")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS[:5]:
        run_step(step, address)
    with sqlite3.connect(tmp_path / "workspace" / "ledger.sqlite") as database:
        triggers = database.execute("select name from sqlite_master where type = 'trigger'").fetchall()
        for (name,) in triggers:
            database.execute(f'drop trigger "{name}"')
        database.execute("update ledger_records set mu2 = '0' where step = 'score'")
    with pytest.raises(PublishError, match="is not published"):
        run_step("publish", address)


def test_ingest_keeps_its_snapshot_when_the_source_changes(tmp_path):
    spec = write_release(tmp_path, method="independent")
    address = prepare(spec, workspace=tmp_path / "workspace")
    run_step("ingest", address)
    paths = ReleasePaths.of_address(address)
    before = paths.snapshot.read_bytes()
    people(rows=50, seed=9).to_csv(tmp_path / "people.csv", index=False)
    run_step("ingest", address)
    assert paths.snapshot.read_bytes() == before


def test_sampling_is_seeded_per_shard(released):
    _, address, _ = released
    paths = ReleasePaths.of_address(address)
    one, two = (pd.read_parquet(paths.shard(number)) for number in (0, 1))
    assert not np.array_equal(one["age"].to_numpy()[:50], two["age"].to_numpy()[:50])


def test_shards_carry_the_release_and_plain_types(released):
    import pyarrow.parquet as pq

    _, address, _ = released
    schema = pq.read_schema(ReleasePaths.of_address(address).shard(0))
    assert schema.metadata[b"synthetic.release"] == b"r1"
    assert {field.name: str(field.type) for field in schema} == {
        "sex": "string",
        "age": "int64",
        "job": "string",
    }


def test_several_rows_of_a_unit_cost_group_privacy_and_are_bounded(tmp_path):
    from support.small_release import SCHEMA

    from synth_core.privacy.accounts import Account

    spec = write_release(
        tmp_path, frame=people().assign(person=np.arange(ROWS) // 3), dataset="visits", method="independent"
    )
    ledger = ledger_of(tmp_path)
    ledger.declare(Account(dataset="visits", delta=1e-6, cap_epsilon=1.0, rows_per_unit=2), actor="test")
    with pytest.raises(SpecError, match="allows 2 rows of one person; the schema must say"):
        prepare(spec, workspace=tmp_path / "workspace")
    (tmp_path / "schema.yaml").write_text(SCHEMA + "unit_column: person\n")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS[:4]:
        run_step(step, address)
    encoded = ReleasePaths.of_address(address).encoded
    rows = sum(len(pd.read_parquet(path)) for path in encoded.glob("*.parquet"))
    assert rows == 2 * (ROWS // 3) + ROWS % 3
    records = ledger.records(release="r1", dataset="visits")
    total = sum(cost_by_step(records).values(), Fraction(0))
    assert 0.99 < epsilon_of(total, 1e-6) <= 1.0
    mechanisms = [record.mechanism for record in records if record.state is State.MEASURED]
    assert sum(mechanism.mu2() for mechanism in mechanisms) * 4 == total


def test_no_verb_has_the_name_of_a_module():
    """Importing the module would put it in the verb's place."""
    from synth_core import steps

    modules = {path.stem for path in Path(steps.__file__).parent.glob("*.py")}
    verbs = {name for name, value in vars(steps).items() if inspect.isfunction(value)}
    assert verbs
    assert not verbs & modules


def test_the_list_of_steps_says_what_each_does_and_which_have_parts():
    assert tuple(step.name for step in PIPELINE) == STEPS
    assert all(step.does.endswith(".") and find_step(step.name) is step for step in PIPELINE)
    assert {step.name: step.parts.name for step in PIPELINE if step.parts} == {
        "fit": "strata",
        "sample": "shards",
    }
