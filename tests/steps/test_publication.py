"""Publishing is one change: killed anywhere, a release is a draft that can be published, or published for good."""

from __future__ import annotations

import io
import os
import shutil
from contextlib import suppress

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import PublishError, SpecError
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import State
from synth_core.release.paths import SIGNED, ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, ask_approval, finished_steps, prepare, run_step, summary


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A release before its last step."""
    folder = tmp_path_factory.mktemp("evaluated")
    spec = write_release(folder, method="independent", csv=True)
    run_all(spec, folder / "workspace", steps=STEPS[:-1])
    return folder / "workspace", spec


@pytest.fixture(scope="module")
def published(evaluated, tmp_path_factory):
    """The same release, published."""
    workspace = tmp_path_factory.mktemp("published") / "workspace"
    shutil.copytree(evaluated[0], workspace)
    run_step("publish", str(ReleasePaths(workspace, "r1").spec))
    return workspace, evaluated[1]


def copy_of(workspace, folder):
    shutil.copytree(workspace, folder / "workspace")
    return ReleasePaths(folder / "workspace", "r1")


def content(folder):
    """Every file with its bytes, and every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def is_held(paths):
    """Whether the ledger waits for the release to end."""
    turns = [
        record.state
        for record in SqlLedger(ledger_url(paths.workspace, None)).records(release="r1")
        if record.state in (State.HELD, State.CLOSED)
    ]
    return turns[-1:] == [State.HELD]


class Killed(BaseException):
    """The process is dead: no cleaning up gets through either."""


class FileSystem:
    """Counts changes of the file system and lets none through after a number of them."""

    CHANGES = (
        (os, "replace"),
        (os, "rename"),
        (os, "unlink"),
        (os, "rmdir"),
        (os, "mkdir"),
        (os, "link"),
        (os, "fsync"),
    )

    def __init__(self, monkeypatch, *, last):
        self.last, self.done, self.names = last, 0, []
        for module, name in self.CHANGES:
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))
        opened = io.open

        def open_file(file, mode="r", *args, **kwargs):
            if set(mode) & set("wax+"):
                self._count(f"open for {mode}")
            return opened(file, mode, *args, **kwargs)

        monkeypatch.setattr(io, "open", open_file)

    def _counted(self, name, call):
        def counted(*args, **kwargs):
            self._count(name)
            return call(*args, **kwargs)

        return counted

    def _count(self, name):
        if self.last is not None and self.done >= self.last:
            raise Killed
        self.done += 1
        self.names.append(name)


def publish_until(paths, *, last, step="publish"):
    """Publish, but die at a change of the file system; the changes that got through, and whether it came to the end."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        system = FileSystem(monkeypatch, last=last)
        try:
            run_step(step, str(paths.spec))
        except Killed:
            return system.names, False
        return system.names, True


@pytest.fixture
def drawn_once(monkeypatch):
    """The report's pictures and the list of installed software: nine tenths of the time, and always the same here."""
    from functools import cache

    from synth_core.steps import publish as step

    reports, draw = [], step.public_report

    def report(*args, **facts):
        if not reports:
            reports.append(draw(*args, **facts))
        return reports[0]

    monkeypatch.setattr(step, "public_report", report)
    monkeypatch.setattr(step.manifests, "software", cache(step.manifests.software))


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_once")
def test_a_release_killed_at_any_change_of_the_file_system_is_a_draft_or_published(evaluated, tmp_path):
    """Every prefix of what publishing does to files leaves a release that a rerun publishes, or a whole one."""
    paths = copy_of(evaluated[0], tmp_path / "whole")
    changes, ended = publish_until(paths, last=None)
    assert ended
    assert changes.count("rename") == 1, "one rename is the publication"
    before, after = 0, 0
    for last in range(len(changes)):
        paths = copy_of(evaluated[0], tmp_path / str(last))
        _, ended = publish_until(paths, last=last)
        assert not ended
        if paths.published:
            after += 1
            assert verify_release(paths.public) == []
            signed = content(paths.public)
        else:
            before += 1
            assert not paths.public.exists(), last
            assert "publish" not in finished_steps(str(paths.spec))
            signed = None
        prepare(evaluated[1], workspace=paths.workspace)
        run_step("publish", str(paths.spec))
        assert finished_steps(str(paths.spec)) == STEPS, last
        assert verify_release(paths.public) == []
        assert not is_held(paths)
        assert signed in (None, content(paths.public)), "what was published stays as it was"
        shutil.rmtree(paths.workspace)
    assert before > 10
    assert after >= 1


@pytest.mark.slow
def test_running_a_published_release_again_killed_at_any_change_leaves_it_as_it_was_signed(published, tmp_path, synth):
    """`synth run --again` has nothing to compute there; whatever it does to files, none of them is a published one."""
    paths = copy_of(published[0], tmp_path)
    spec = tmp_path / "release.yaml"
    _spec(paths).save(spec)
    signed = content(paths.workspace / "public")

    def run_again(last):
        with pytest.MonkeyPatch.context() as monkeypatch:
            system = FileSystem(monkeypatch, last=last)
            with suppress(Killed):
                assert synth("run", spec, "--again")[0] == 0
            return system.done

    changes = run_again(None)
    assert changes
    for last in range(changes):
        run_again(last)
        assert content(paths.workspace / "public") == signed, last
        assert finished_steps(str(paths.spec)) == STEPS
    assert verify_release(paths.public) == []


def die_before_the_hold_ends(paths):
    """Publish, and die when the release is published and the ledger does not know it yet."""

    def died(*_, **__):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlLedger, "close", died)
        with pytest.raises(Killed):
            run_step("publish", str(paths.spec))


@pytest.mark.slow
def test_a_manifest_without_a_signature_is_not_a_finished_release(evaluated, tmp_path):
    """As releases were left that died between manifest and signature, the hold still open: running again ends them."""
    paths = copy_of(evaluated[0], tmp_path)
    die_before_the_hold_ends(paths)
    paths.signature.unlink()
    assert "publish" not in finished_steps(str(paths.spec))
    run_all(evaluated[1], paths.workspace)
    assert verify_release(paths.public) == []
    assert finished_steps(str(paths.spec)) == STEPS


def test_a_published_release_that_lost_its_signature_is_not_published_again(published, tmp_path):
    paths = copy_of(published[0], tmp_path)
    paths.signature.unlink()
    with pytest.raises(PublishError, match=r"'r1' was published, and its manifest or signature is gone; restore"):
        prepare(published[1], workspace=paths.workspace)


def test_running_a_published_release_again_changes_no_byte(published, tmp_path):
    paths = copy_of(published[0], tmp_path)
    before, address = content(paths.workspace / "public"), str(paths.spec)
    records = SqlLedger(ledger_url(paths.workspace, None)).records()
    assert run_all(published[1], paths.workspace) == address
    assert (
        run_step("sample", address, part=0)
        == run_step("fit", address, part="any")
        == str(paths.public / "manifest.json")
    )
    assert ask_approval(address) is None
    assert content(paths.workspace / "public") == before
    assert SqlLedger(ledger_url(paths.workspace, None)).records() == records, "not even a note"


def test_a_published_release_that_was_changed_is_not_finished_and_cannot_be_finished(published, tmp_path):
    paths = copy_of(published[0], tmp_path)
    paths.shard(1).write_bytes(b"other rows")
    assert finished_steps(str(paths.spec)) == STEPS[:-1]
    with pytest.raises(PublishError, match=r"'r1' was published, and has changed since: extract/part-00001.parquet"):
        run_step("publish", str(paths.spec))


def test_a_published_release_whose_hold_is_open_is_not_finished(evaluated, tmp_path):
    paths = copy_of(evaluated[0], tmp_path)
    die_before_the_hold_ends(paths)
    assert verify_release(paths.public) == []
    assert is_held(paths)
    assert finished_steps(str(paths.spec)) == STEPS[:-1]
    run_step("publish", str(paths.spec))
    assert finished_steps(str(paths.spec)) == STEPS
    closed = SqlLedger(ledger_url(paths.workspace, None)).records(release="r1")[-1]
    assert (closed.state, closed.reason) == (State.CLOSED, "published")


def test_what_no_step_has_listed_is_not_published(evaluated, tmp_path):
    paths = copy_of(evaluated[0], tmp_path)
    (paths.extract / ".part-00000-ab12.parquet").write_bytes(b"half a shard of a killed step")
    (paths.extract / "part-00007.parquet").write_bytes(b"somebody's file")
    (paths.draft / "strata" / "00000-old").mkdir(parents=True)
    run_step("publish", str(paths.spec))
    listed = {path for files in paths.artifacts(_spec(paths)).values() for path in files}
    there = {path for path in paths.public.rglob("*") if path.is_file()}
    assert there == listed | {paths.public / name for name in SIGNED}
    assert not (paths.public / "strata").exists()


def _spec(paths):
    from synth_core.release.spec import ReleaseSpec

    return ReleaseSpec.load(paths.spec)


def test_a_draft_is_not_in_the_public_zone_and_closed_to_others(evaluated):
    paths = ReleasePaths(evaluated[0], "r1")
    assert not paths.public.exists()
    assert paths.shard(0).is_relative_to(paths.draft)
    assert paths.drafts.stat().st_mode & 0o077 == 0
    with pytest.raises(PublishError, match="'r1' is not published yet"):
        summary(str(paths.spec))


def test_a_published_folder_is_open_to_readers(published):
    assert ReleasePaths(published[0], "r1").public.stat().st_mode & 0o055 == 0o055


def test_the_name_of_a_published_release_is_taken_even_without_its_confidential_zone(published, tmp_path):
    paths = copy_of(published[0], tmp_path)
    before = content(paths.public)
    paths.spec.unlink()
    with pytest.raises(SpecError, match="'r1' was published before; use another release name"):
        prepare({**published[1], "seed": 7}, workspace=paths.workspace)
    assert content(paths.public) == before


@pytest.mark.slow
@pytest.mark.parametrize(("step", "stride"), [("fit", 2), ("sample", 5), ("evaluate", 3)])
def test_what_a_step_killed_at_a_change_of_the_file_system_has_written_is_written_anew(tmp_path, step, stride):
    """Replicates, tables of them, CSV files, answers and the page of tables: the same bytes, and nothing beside."""
    extras = {"uncertainty": 1, "replicates": 1, "csv": True, "evaluate": "none"}
    spec = write_release(tmp_path, method="independent", **extras)
    run_all(spec, tmp_path / "workspace", steps=STEPS[: STEPS.index(step)])
    whole = copy_of(tmp_path / "workspace", tmp_path / "whole")
    run_step("fit", str(whole.spec))  # asked once, so that each copy has the same answers
    shutil.rmtree(whole.workspace / "public" / ".drafts")
    shutil.copytree(tmp_path / "workspace" / "public" / ".drafts", whole.workspace / "public" / ".drafts")
    done = copy_of(whole.workspace, tmp_path / "done")
    changes, ended = publish_until(done, last=None, step=step)
    assert ended
    expected = content(done.draft)
    killed = 0
    for last in range(0, len(changes), stride):
        paths = copy_of(whole.workspace, tmp_path / str(last))
        _, ended = publish_until(paths, last=last, step=step)
        killed += not ended  # the first time of all makes some more changes, in caches
        run_step(step, str(paths.spec))
        assert content(paths.draft) == expected, last
        shutil.rmtree(paths.workspace)
    assert killed >= 4
