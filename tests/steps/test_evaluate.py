"""The evaluate step: all rows of all shards are counted, single rows are sampled and that is told, nothing is left."""

import hashlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from support.small_release import ROWS, SCHEMA, people, write_release

from synth_core.evaluation import Evaluation, tables, true_errors
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, finished_steps, prepare, run_step, summary
from synth_core.steps import evaluate as step

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    address = prepare(write_release(folder, shards=3, rows=900), workspace=folder / "workspace")
    for name in STEPS[:5]:
        run_step(name, address)
    return address, ReleasePaths(folder / "workspace", "r1")


def evaluated(sampled, **where):
    address, paths = sampled
    run_step("evaluate", address, **where)
    return Evaluation.from_json(paths.evaluation.read_text())


def test_every_row_of_every_shard_is_counted(sampled):
    _, paths = sampled
    evaluation = evaluated(sampled)
    table, real = pd.read_parquet(paths.extract), people()
    assert (evaluation.real_rows, evaluation.synthetic_rows) == (len(real), 900)
    assert evaluation.judged_rows == (len(real), 900)
    shares = [frame["sex"].value_counts(normalize=True)["f"] for frame in (real, table)]
    assert evaluation.one_way["sex"] == pytest.approx(abs(shares[0] - shares[1]))
    assert "random sample" not in paths.internal_report.read_text()


def test_it_is_the_same_on_a_cluster(sampled):
    assert evaluated(sampled) == evaluated(sampled, cluster="local")


def test_sampled_rows_are_told_in_the_internal_report_alone(sampled, monkeypatch):
    _, paths = sampled
    whole = evaluated(sampled)
    public = paths.quality.read_bytes()
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 200)
    part = evaluated(sampled)
    assert part.judged_rows == (200, 200)
    assert part.marginals == whole.marginals
    assert "computed on a random sample of 200 real and 200 synthetic rows" in paths.internal_report.read_text()
    assert paths.quality.read_bytes() == public


def test_shards_without_unit_and_with_derived_columns_are_read(tmp_path):
    spec = write_release(tmp_path, frame=people().assign(person=range(ROWS)), method="independent", rows=300)
    derived = "  - {name: adult, kind: integer, bins: [0, 18, 100], reads: age}\n"
    (tmp_path / "schema.yaml").write_text(SCHEMA + derived + "unit_column: person\n")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for name in STEPS[:6]:
        run_step(name, address)
    found = Evaluation.from_json(ReleasePaths(tmp_path / "workspace", "r1").evaluation.read_text())
    assert found.attributes == ("sex", "age", "job", "adult")
    assert found.synthetic_rows == 300


def test_the_encoded_shards_are_removed_also_after_a_failure(sampled, monkeypatch):
    _, paths = sampled
    evaluated(sampled)
    monkeypatch.setattr(step, "compare_tables", lambda *_, **__: 1 / 0)
    with pytest.raises(Exception, match="inside the confidential zone"):
        evaluated(sampled)
    assert not list(paths.confidential.glob(".judged*"))


def test_the_manifest_names_the_lock_and_a_changed_name_is_found(sampled):
    address, paths = sampled
    evaluated(sampled)
    run_step("publish", address)
    manifest = json.loads(paths.manifest.read_text())
    expected = hashlib.sha256((REPOSITORY / "requirements.lock").read_bytes()).hexdigest()
    assert manifest["provenance"]["lock_digest"] == expected
    assert verify_release(paths.public) == []
    manifest["provenance"]["lock_digest"] = "0" * 64
    paths.manifest.write_text(json.dumps(manifest))
    assert any("manifest.json" in problem for problem in verify_release(paths.public))


@pytest.mark.parametrize("asked", ["quick", "none"])
def test_how_much_is_compared_changes_nothing_that_is_published(tmp_path, asked, monkeypatch):
    """The same answers and shards, judged in another way: public files agree, the internal ones are as asked for."""
    address = prepare(write_release(tmp_path, method="independent", rows=300), workspace=tmp_path / "workspace")
    for name in STEPS[:6]:
        run_step(name, address)
    public = ReleasePaths(tmp_path / "workspace", "r1").quality.read_bytes()
    other = ReleasePaths(shutil.copytree(tmp_path / "workspace", tmp_path / "other"), "r1")
    for path in (other.evaluation, other.internal_report, other.quality):
        path.unlink()
    spec = other.spec.read_text()
    other.spec.write_text(spec.replace("evaluate: full", f"evaluate: {asked}"))
    for measure in ("target_errors", "propensity_mse", "closeness"):
        monkeypatch.setattr(true_errors, measure, lambda *_, **__: pytest.fail("a single row was looked at"))
    assert "evaluate" not in finished_steps(str(other.spec))
    written = Path(run_step("evaluate", str(other.spec)))
    assert other.quality.read_bytes() == public
    assert "evaluate" in finished_steps(str(other.spec))
    if asked == "none":
        assert written == other.quality
        assert not other.evaluation.exists()
        assert not other.internal_report.exists()
        return
    found = Evaluation.from_json(other.evaluation.read_text())
    assert [errors.alpha for errors in found.marginals] == [1, 2, 3]
    assert found.targets == ()
    assert found.closeness is None
    assert found.sampling == ""
    assert "Too close to be new?" not in written.read_text()
    assert "quick: without classifiers" in written.read_text()


@pytest.mark.parametrize("asked", ["quick", "none"])
def test_a_release_is_published_and_verifies_however_much_was_compared(tmp_path, asked):
    spec = write_release(tmp_path, method="independent", rows=200, evaluate=asked)
    address = prepare(spec, workspace=tmp_path / "workspace")
    for name in STEPS:
        run_step(name, address)
    assert verify_release(tmp_path / "workspace" / "public" / "r1") == []
    report = summary(address)["internal report"]
    assert (report == "none") == (asked == "none")
