"""A ledger in a folder that cannot be written to is read and verified where it lies, and never spent from."""

import os
import shutil

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import LedgerError
from synth_core.ledger import database
from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A published release whose workspace is read-only: to the file system, and to those whom it lets do anything."""
    run_all(write_release(tmp_path, method="independent"), tmp_path / "workspace")
    archived = tmp_path / "archive"
    shutil.copytree(tmp_path / "workspace", archived)
    asked = os.access

    def access(path, mode):
        return asked(path, mode) and not (mode & os.W_OK and str(path).startswith(str(archived)))

    monkeypatch.setattr(database.os, "access", access)
    before = {path: path.stat().st_mtime_ns for path in sorted(archived.rglob("*"))}
    for path in (*before, archived):
        if path.is_dir():
            path.chmod(0o555)
    yield archived
    assert {path: path.stat().st_mtime_ns for path in sorted(archived.rglob("*"))} == before
    for path in (archived, *before):
        path.chmod(0o755)


def test_an_archived_release_is_verified_in_place(archive):
    found = check_release(ReleasePaths(archive, "r1").public)
    assert found.sound, found.problems
    assert [check.outcome for check in found.checks] == ["agrees"] * 4


def test_an_archived_ledger_is_shown_and_not_spent_from(archive, synth):
    code, out, err = synth("ledger", "verify", "-w", archive)
    assert (code, err) == (0, "")
    assert out.startswith("the ledger is sound")
    with pytest.raises(LedgerError, match="lies in a folder that cannot be written to; nothing is spent from it"):
        open_ledger(archive).set_cap("people", epsilon=3.0, actor="test", reason="no")
