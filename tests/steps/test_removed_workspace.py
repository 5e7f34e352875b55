"""What somebody removed or damaged in a workspace is said in one line, and is not made anew in silence."""

import shutil

import pytest
from support.small_release import people, run_all, write_release

from synth_core import files
from synth_core.errors import SynthError
from synth_core.steps import STEPS, run_step


def begun(tmp_path, until):
    spec = write_release(tmp_path, frame=people(60), method="independent")
    return run_all(spec, tmp_path / "workspace", steps=STEPS[:until])


@pytest.mark.parametrize("zone", ["", "confidential", "public"])
@pytest.mark.parametrize("step", ["ingest", "sample", "publish"])
def test_what_was_removed_before_a_step_is_named_and_not_made_anew(tmp_path, zone, step):
    address = begun(tmp_path, STEPS.index(step))
    shutil.rmtree(tmp_path / "workspace" / zone)
    with pytest.raises(SynthError, match=r"(release|schema)\.yaml: it cannot be read: it is not there") as refusal:
        run_step(step, address)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "workspace" / zone).exists()


@pytest.mark.parametrize("step", ["ingest", "sample", "evaluate", "publish"])
def test_a_workspace_that_is_removed_during_a_step_is_said_in_one_line(tmp_path, monkeypatch, step):
    """At the first file that the step has written whole; nothing that a step may raise is a traceback."""
    address = begun(tmp_path, STEPS.index(step))
    flush = files.flush_to_disk

    def removed(*args, **kwargs):
        shutil.rmtree(tmp_path / "workspace", ignore_errors=True)
        return flush(*args, **kwargs)

    monkeypatch.setattr(files, "flush_to_disk", removed)
    with pytest.raises(SynthError) as refusal:
        run_step(step, address)
    assert "\n" not in str(refusal.value)
    assert not list((tmp_path / "workspace").rglob("*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"\x00\xff{"])
def test_a_file_that_was_damaged_between_steps_is_said_in_one_line(tmp_path, damage):
    """Each file of the release, one at a time, before the step that reads most of them."""
    address = begun(tmp_path, STEPS.index("publish"))
    workspace, kept = tmp_path / "workspace", tmp_path / "kept"
    shutil.copytree(workspace, kept)
    refused = {}
    for path in sorted(path for path in workspace.rglob("r1/**/*") if path.is_file()):
        path.write_bytes(damage)
        try:
            run_step("publish", address)
        except SynthError as refusal:
            refused[path.name] = str(refusal)
        shutil.rmtree(workspace)
        shutil.copytree(kept, workspace)
    assert refused.keys() >= {"quality.json", "release.yaml", "schema.yaml"}
    assert "\n" not in "".join(refused.values())
