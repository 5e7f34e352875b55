"""A published release: signed, complete, found out when a byte changes, and free of anything real rows alone know."""

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support.small_release import people, run_all, write_release

from synth_core.errors import PublishError
from synth_core.evaluation.public import PublicQuality
from synth_core.ledger.book import cost_by_step
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.budget import epsilon_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release, verify_release
from synth_core.steps import STEPS, prepare, run_step
from synth_core.storage.ingest import read_codes

SHARE = 0.1


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    spec = write_release(folder, quality_share=SHARE)
    run_all(spec, folder / "workspace")
    return folder, spec


@pytest.fixture
def copy(released, tmp_path):
    shutil.copytree(released[0] / "workspace", tmp_path / "workspace")
    return tmp_path / "workspace"


def published_files(workspace):
    public = workspace / "public" / "r1"
    return {str(path.relative_to(public)): path for path in sorted(public.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_it_is_verified_and_names_its_signer(released):
    public = released[0] / "workspace" / "public" / "r1"
    assert verify_release(public) == []
    assert len(check_release(public).signer.split()) == 8
    assert (released[0] / "workspace" / "confidential" / ".keys" / "signing.key").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_changed_byte_in_any_published_file_is_found_with_its_name(copy):
    files = published_files(copy)
    assert {"report.html", "certificate.json", "deployment.yaml", "manifest.sig", "signing-key.pem"} <= set(files)
    for name, path in files.items():
        before = path.read_bytes()
        for at in {0, len(before) // 2, len(before) - 2}:
            path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            found = verify_release(path.parents[1] if "/" in name else path.parent)
            named = "manifest.json" if name == "manifest.sig" else name
            assert any(named in problem for problem in found), (name, at, found)
        path.write_bytes(before)
    assert verify_release(copy / "public" / "r1") == []


def test_a_missing_file_is_found_with_its_name(copy):
    for name, path in published_files(copy).items():
        if name != "manifest.json":
            before = path.read_bytes()
            path.unlink()
            assert any(name in problem for problem in verify_release(copy / "public" / "r1")), name
            path.write_bytes(before)


@pytest.mark.parametrize(
    "change",
    [
        "update ledger_records set mu2 = '1/1000000' where id = 4",
        "update ledger_records set purpose = 'another' where id = 5",
        "delete from ledger_records where id = (select max(id) from ledger_records)",
        "update ledger_answers set vector = zeroblob(8) where rowid = 1",
    ],
)
def test_a_changed_ledger_is_found(copy, change):
    with sqlite3.connect(copy / "ledger.sqlite") as database:
        for (name,) in database.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            database.execute(f'drop trigger "{name}"')
        database.execute(change)
    found = verify_release(copy / "public" / "r1")
    assert found
    assert all(problem.startswith("ledger:") for problem in found)


@pytest.mark.slow
def test_a_changed_byte_of_the_ledgers_file_is_found_in_records_indexes_and_triggers(copy):
    path = copy / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma wal_checkpoint(truncate)")
        (key,) = database.execute("select key from ledger_answers limit 1").fetchone()
    before = path.read_bytes()
    places = [
        place.start() for word in (key.encode(), b"RAISE(ABORT") for place in re.finditer(re.escape(word), before)
    ]
    assert len(places) > 8
    for at in places:
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        found = verify_release(copy / "public" / "r1")
        assert any(problem.startswith("ledger:") for problem in found), at
    path.write_bytes(before)
    assert verify_release(copy / "public" / "r1") == []


def test_a_missing_trigger_is_found(copy):
    with sqlite3.connect(copy / "ledger.sqlite") as database:
        database.execute("drop trigger ledger_records_no_update")
    assert verify_release(copy / "public" / "r1") == ["ledger: its tables or triggers are not as they were declared"]


def test_an_unreadable_ledger_is_found(copy):
    (copy / "ledger.sqlite").write_bytes(b"this is no database" * 100)
    for path in copy.glob("ledger.sqlite-*"):
        path.unlink()
    assert any(problem.startswith("ledger:") for problem in verify_release(copy / "public" / "r1"))


def test_a_ledger_exchanged_for_an_older_one_is_found(copy, tmp_path):
    """Even with its head file exchanged too: the manifest was signed over a record that is not there."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    write_release(fresh)
    for path in (fresh / "workspace").glob("ledger.sqlite*"):
        shutil.copy(path, copy / path.name)
    found = verify_release(copy / "public" / "r1")
    assert any("rolled back" in problem for problem in found)


def test_a_ledger_rewritten_with_other_hashes_is_found(copy):
    manifest = copy / "public" / "r1" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["provenance"]["ledger"]["hash"] = "0" * 64
    manifest.write_text(json.dumps(content))
    assert any("is not the one that the manifest was signed over" in p for p in verify_release(manifest.parent))


def test_without_the_ledger_the_files_are_still_checked(copy, tmp_path):
    alone = tmp_path / "download" / "public" / "r1"
    shutil.copytree(copy / "public" / "r1", alone)
    assert verify_release(alone) == []
    (alone / "schema.yaml").write_text("columns: []")
    assert verify_release(alone) == ["schema.yaml: does not match its checksum"]


def test_another_key_is_found_in_the_workspace(copy):
    (copy / "confidential" / ".keys" / "signing.key").write_text("no key")
    assert any("cannot be read" in problem for problem in verify_release(copy / "public" / "r1"))
    (copy / "confidential" / ".keys" / "signing.key").unlink()
    from synth_core.release.signing import private_key

    private_key(copy / "confidential" / ".keys" / "signing.key", create=True)
    assert verify_release(copy / "public" / "r1") == ["signing-key.pem: is not the key of this workspace"]


@pytest.mark.slow
def test_the_agencys_own_key_signs(tmp_path, monkeypatch):
    from synth_core.release.signing import private_key

    private_key(tmp_path / "agency.pem", create=True)
    monkeypatch.setenv("SYNTH_SIGNING_KEY", str(tmp_path / "agency.pem"))
    run_all(write_release(tmp_path, method="independent"), tmp_path / "workspace")
    public = tmp_path / "workspace" / "public" / "r1"
    assert verify_release(public) == []
    assert not (tmp_path / "workspace" / "confidential" / ".keys" / "signing.key").exists()


def test_publishing_without_quality_is_refused(tmp_path):
    address = run_all(write_release(tmp_path, method="independent"), tmp_path / "workspace", steps=STEPS[:5])
    with pytest.raises(PublishError, match="run the step `evaluate` again"):
        run_step("publish", address)


def test_bought_quality_has_its_own_share_and_the_total_stays(released):
    folder, spec = released
    records = SqlLedger(ledger_url(folder / "workspace", None)).records(release="r1")
    costs = cost_by_step(records)
    total = sum(costs.values())
    assert float(costs["evaluate"] / total) == pytest.approx(SHARE, rel=1e-3)
    assert 0.99 * spec["epsilon"] < epsilon_of(total, 1e-6) <= spec["epsilon"]


def test_the_preview_shows_what_quality_costs(released):
    from synth_core.steps.preview import preview_release

    folder, spec = released
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(spec))
    shares = dict(dict(preview_release(path, workspace=folder / "workspace"))["How the budget is shared"])
    assert shares["quality"].split()[0] == "10.0%"
    total = sum(float(words.split("mu")[1]) ** 2 for words in shares.values())
    assert epsilon_of(Fraction(total), 1e-6) == pytest.approx(spec["epsilon"], abs=1e-3)
    assert sum(float(words.split("%")[0]) for words in shares.values()) == pytest.approx(100, abs=0.3)


def test_bought_errors_are_near_the_true_ones(released):
    folder, _ = released
    paths = ReleasePaths(folder / "workspace", "r1")
    quality = PublicQuality.from_json(paths.quality.read_text())
    true = {m["alpha"]: m["tvd"]["mean"] for m in json.loads(paths.evaluation.read_text())["marginals"]}
    assert [error.alpha for error in quality.bought] == [1, 2, 3]
    for error in quality.bought:
        scaling = abs(quality.total / len(people()) - 1)  # the noisy number of records stands for the true one
        assert abs(error.mean - true[error.alpha]) < 2.5 * error.margin + scaling
    assert "bought" in paths.public_report.read_text()


def test_every_answer_of_the_release_is_judged(released):
    paths = ReleasePaths(released[0] / "workspace", "r1")
    quality = PublicQuality.from_json(paths.quality.read_text())
    manifest = json.loads(paths.manifest.read_text())
    assert {m.clique for m in quality.measured} >= {tuple(clique) for clique in manifest["cliques"]}
    assert set(quality.columns) == {"sex", "age", "job"}
    table = pd.read_parquet(paths.extract)
    assert quality.synthetic["sex"][0] == pytest.approx((table["sex"] == "f").mean())


def replayed(released, workspace, *, exchange):
    """The release run again from its ledger and snapshot, over the same rows or over others; its public files."""
    folder, spec = released
    shutil.copytree(folder / "workspace" / "confidential", workspace / "confidential")
    for path in (folder / "workspace").glob("ledger.sqlite*"):
        shutil.copy(path, workspace)
    paths = ReleasePaths(workspace, "r1")
    paths.spec.unlink()
    if exchange:
        exchange_rows(paths)
    address = prepare(spec, workspace=workspace)
    for step in STEPS[1:]:
        run_step(step, address)
    return published_files(workspace)


def exchange_rows(paths):
    """Put other rows, and another number of them, behind the same snapshot."""
    rng = np.random.default_rng(99)
    for partition in paths.encoded.glob("*.parquet"):
        table = pq.read_table(partition)
        rows = table.take(rng.integers(table.num_rows // 3, size=table.num_rows * 2 // 3))
        pq.write_table(rows.set_column(0, table.field(0), [np.zeros(rows.num_rows, np.uint8)]), partition)


def differing(first, second):
    """Names of public files that are not the same bytes; a manifest is compared without its provenance."""
    assert set(first) == set(second)
    manifests = [json.loads(files["manifest.json"].read_text()) for files in (first, second)]
    for manifest in manifests:
        del manifest["provenance"]
    found = [] if manifests[0] == manifests[1] else ["manifest.json"]
    names = set(first) - {"manifest.json", "manifest.sig"}  # the signature is of the provenance, too
    return found + sorted(name for name in names if first[name].read_bytes() != second[name].read_bytes())


@pytest.mark.slow
def test_the_same_answers_over_other_rows_give_the_same_public_files(released, tmp_path):
    """Nothing public depends on real rows except through stored answers: the rows are exchanged, the files stay."""
    folder, _ = released
    second = replayed(released, tmp_path, exchange=True)
    internal = [ReleasePaths(at, "r1").evaluation.read_text() for at in (folder / "workspace", tmp_path)]
    assert internal[0] != internal[1], "the internal evaluation must see the other rows"
    assert differing(published_files(folder / "workspace"), second) == []


@pytest.mark.slow
def test_a_planted_leak_is_found_that_way(released, tmp_path, monkeypatch):
    from synth_core.steps import evaluate as step

    honest = step._public_quality

    def leaking(run, synthetic):
        rows = sum(len(read_codes(partition)["sex"]) for partition in run.partitions)
        return replace(honest(run, synthetic), total=float(rows))

    monkeypatch.setattr(step, "_public_quality", leaking)
    first, second = (
        replayed(released, tmp_path / name, exchange=exchange) for name, exchange in (("same", False), ("other", True))
    )
    assert differing(first, second) == ["manifest.json", "quality.json"]


@pytest.mark.slow
def test_a_second_release_tells_what_changed(tmp_path):
    spec = write_release(tmp_path, method="independent", epsilon=0.5)
    run_all(spec, tmp_path / "workspace")
    second = {**spec, "release": "r2", "epsilon": 0.6}
    run_all(second, tmp_path / "workspace")
    paths = ReleasePaths(tmp_path / "workspace", "r2")
    manifest = json.loads(paths.manifest.read_text())
    first = json.loads(ReleasePaths(tmp_path / "workspace", "r1").manifest.read_text())
    assert manifest["previous"] == {"release": "r1", "digest": first["digest"]}
    assert first["previous"] is None
    account = manifest["guarantee"]["account"]
    assert first["guarantee"]["account"]["epsilon"] == first["guarantee"]["epsilon"] == 0.5
    assert first["guarantee"]["account"]["epsilon"] < account["epsilon"] <= account["epsilon_cap"]
    report = paths.public_report.read_text()
    assert "What changed since the last release" in report
    assert "What changed" not in ReleasePaths(tmp_path / "workspace", "r1").public_report.read_text()
    run_step("publish", str(ReleasePaths(tmp_path / "workspace", "r1").spec))
    again = json.loads(ReleasePaths(tmp_path / "workspace", "r1").manifest.read_text())
    assert again["digest"] == first["digest"], "a release published again is not compared with a later one"


def test_the_registry_entry_states_the_guarantee(released):
    paths = ReleasePaths(released[0] / "workspace", "r1")
    entry = yaml.safe_load(paths.deployment.read_text())["deployment"]
    guarantee = json.loads(paths.manifest.read_text())["guarantee"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == guarantee["epsilon"]
    assert entry["privacy_loss"]["privacy_parameters"]["delta"] == guarantee["delta"]
    assert entry["privacy_loss"]["privacy_unit"] == "person"
    assert entry["product"]["data_product_type"] == "Synthetic data"


def test_a_reviewer_who_may_not_read_the_confidential_zone_can_verify(copy, monkeypatch):
    (copy / "confidential" / ".keys" / "signing.key").write_text("no key")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "confidential" not in str(path) and allowed(path, mode))
    assert verify_release(copy / "public" / "r1") == []
