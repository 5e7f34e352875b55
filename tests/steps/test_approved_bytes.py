"""What was approved is what is published, byte for byte: shards as CSV and the files of strata too."""

from __future__ import annotations

import pytest
from support import strata_release

from synth_core.errors import PublishError
from synth_core.privacy.accounts import Runner
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, ask_approval, decide, run_step

OFFICER = Runner(actor="officer")
REFUSAL = r"'r1' has changed since officer approved it; approve it in Airflow, or with `synth approve` again"


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    """A stratified release with CSV files that a person has approved."""
    folder = tmp_path_factory.mktemp("approved")
    spec = strata_release.write_release(folder, approval=True, csv=True, shards=2)
    address = strata_release.run_steps(spec, folder, steps=STEPS[:-1])
    decide(address, approved=True, seen=ask_approval(address)[0], runner=OFFICER)
    return ReleasePaths.of_address(address), address


def written(paths):
    """Every file that the steps have written, by its name in the release."""
    artifacts = paths.artifacts(ReleaseSpec.load(paths.spec))
    return {
        str(path.relative_to(paths.home)): path
        for step, files in artifacts.items()
        if step != "publish"
        for path in files
    }


@pytest.mark.slow
def test_the_list_of_files_is_what_lies_in_the_draft(approved):
    """The one list has every file of every step: a file that a step writes and the list forgets is found here."""
    paths, _ = approved
    there = {str(path.relative_to(paths.draft)) for path in paths.draft.rglob("*") if path.is_file()}
    assert there == set(written(paths))
    kinds = {
        "extract-csv/part-00000.csv",
        "extract/part-00001.parquet",
        "strata.json",
        "schema.yaml",
        "quality.json",
    }
    assert kinds <= there
    assert {name.rsplit("/", 1)[1] for name in there if name.startswith("strata/")} == {
        "scores.json",
        "agreed.json",
        "structure.json",
        "model.npz",
        "replicates.npz",
    }


@pytest.mark.slow
def test_any_file_edited_after_approval_is_not_published(approved):
    paths, address = approved
    for name, path in written(paths).items():
        before = path.read_bytes()
        path.write_bytes(before + (b"\n" if name != "strata.json" else b" "))
        with pytest.raises(PublishError, match=REFUSAL):
            run_step("publish", address)
        assert not paths.public.exists(), name
        path.write_bytes(before)


def test_any_file_edited_while_it_is_published_is_not_published(approved, monkeypatch):
    """An edit between the gate's look and the manifest's is found too: the signed sums are the approved ones."""
    from synth_core.steps import publish as step

    paths, address = approved
    shard = paths.csv_extract / "part-00000.csv"
    before, documents = shard.read_bytes(), step._write_documents

    def edited(run, records):
        shard.write_bytes(before + b"f,a1,A,30\n")
        return documents(run, records)

    monkeypatch.setattr(step, "_write_documents", edited)
    with pytest.raises(PublishError, match=REFUSAL):
        run_step("publish", address)
    shard.write_bytes(before)
    assert not paths.public.exists()


def test_another_spec_than_the_approved_one_is_not_published(approved):
    paths, address = approved
    before = paths.spec.read_text()
    for words, others in (
        ("csv: true", "csv: false"),
        ("epsilon: 1.0", "epsilon: 0.5"),
        ("seed: 0", "seed: 1"),
    ):
        assert words in before
        paths.spec.write_text(before.replace(words, others))
        with pytest.raises(PublishError, match=REFUSAL):
            run_step("publish", address)
    paths.spec.write_text(before)


def test_as_it_was_approved_it_is_published_and_then_no_decision_counts(approved):
    paths, address = approved
    (paths.draft / "report.html").write_text("a report that somebody wrote by hand")
    seen = ask_approval(address)[0]
    before = {name: path.read_bytes() for name, path in written(paths).items()}
    run_step("publish", address)
    assert {name: path.read_bytes() for name, path in written(paths).items()} == before
    assert "by hand" not in paths.public_report.read_text()
    assert verify_release(paths.public) == []
    with pytest.raises(PublishError, match="'r1' is published; a decision about it comes too late"):
        decide(address, approved=False, seen=seen, runner=OFFICER)
