"""A full disk is called a full disk, leaves nothing that is broken, and what was begun goes on when there is room."""

import errno
import os
from contextlib import suppress

import pytest
from support.small_release import run_all, write_release

from synth_core import files
from synth_core.errors import PublishError, SpecError, StorageError
from synth_core.ledger.sql import open_ledger
from synth_core.names import SIGNING_KEY, SNAPSHOT_KEY
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release
from synth_core.steps import STEPS, prepare, run_step


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere")


@pytest.fixture
def paths(tmp_path):
    return ReleasePaths(tmp_path / "workspace", "r1")


def begun(tmp_path, until, **changes):
    spec = write_release(tmp_path, method="independent", **changes)
    return run_all(spec, tmp_path / "workspace", steps=STEPS[:until])


@pytest.mark.parametrize(("name", "done"), [(SNAPSHOT_KEY, 0), (SIGNING_KEY, 6)])
@pytest.mark.parametrize("point", ["write", "link"])
def test_a_key_is_whole_or_absent(tmp_path, paths, monkeypatch, name, done, point):
    """Before, an empty key stayed, and no release of the workspace could be ingested ever after."""
    address = begun(tmp_path, done)
    with monkeypatch.context() as patch:
        if point == "link":
            patch.setattr(os, "link", full)
        else:
            write = files._link_unnamed
            patch.setattr(files, "_link_unnamed", lambda file, path: full() if path.name == name else write(file, path))
        with pytest.raises((StorageError, PublishError), match="the disk is full; make room"):
            run_step(STEPS[done], address)
    keys = paths.key(name).parent
    assert [path.name for path in keys.iterdir() if name[:4] in path.name] == []
    for step in STEPS[done:]:
        run_step(step, address)
    assert check_release(paths.public).sound


def test_a_file_system_without_unnamed_files_keeps_a_key_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "O_TMPFILE", os.O_DIRECTORY)  # writing to a folder is refused, as it is there
    assert files.write_once(tmp_path / "a.key", b"first") == b"first"
    assert files.write_once(tmp_path / "a.key", b"second") == b"first"
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.key"]


def test_a_process_that_dies_before_a_key_has_its_name_leaves_nothing(tmp_path, monkeypatch):
    """Killed as it flushed the file, it left a draft of the key for ever."""

    class Killed(BaseException):
        pass

    def died(*_, **__):
        raise Killed

    for name in ("fsync", "link", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, died)
            with suppress(Killed):
                files.write_once(tmp_path / "a.key", b"secret")
        assert [path.name for path in tmp_path.iterdir()] in ([], ["a.key"]), name
    assert files.write_once(tmp_path / "a.key", b"other") == b"secret"


def test_an_empty_key_of_an_earlier_version_is_not_used(tmp_path, paths):
    """Nothing is digested under it, since everybody knows it."""
    address = begun(tmp_path, 0)
    before = paths.workspace / "confidential" / SNAPSHOT_KEY
    before.touch()
    with pytest.raises(SpecError, match=r"snapshot\.key is no whole key; restore it or"):
        run_step("ingest", address)
    balance = open_ledger(paths.workspace).balance("people")
    assert (balance.refusals, balance.charged_mu2) == (0, 0)
    before.unlink()
    run_step("ingest", address)


def test_a_full_disk_while_a_release_is_prepared_frees_its_hold(tmp_path, paths, monkeypatch):
    spec = write_release(tmp_path, method="independent")
    with monkeypatch.context() as patch:
        patch.setattr(files, "flush_to_disk", full)
        with pytest.raises(StorageError, match="/somewhere: the disk is full; make room and run again"):
            prepare(spec, workspace=paths.workspace)
    assert open_ledger(paths.workspace).balance("people").held_mu2 == 0
    assert prepare(spec, workspace=paths.workspace) == str(paths.spec)


def test_a_full_disk_while_zones_are_made_is_no_matter_of_permission(tmp_path, paths, monkeypatch):
    monkeypatch.setattr("pathlib.Path.mkdir", full)
    with pytest.raises(StorageError, match="the disk is full"):
        paths.create()


@pytest.mark.parametrize("step", ["ingest", "sample", "evaluate"])
def test_a_full_disk_in_a_step_is_said_and_the_step_goes_on_later(tmp_path, paths, monkeypatch, step):
    address = begun(tmp_path, STEPS.index(step))
    with monkeypatch.context() as patch:
        patch.setattr(files, "flush_to_disk", full)
        with pytest.raises(StorageError, match="the disk is full; make room and run again"):
            run_step(step, address)
    run_step(step, address)
    left = [path for path in paths.workspace.rglob(".*") if path.name not in (".keys", ".drafts")]
    assert left == []
