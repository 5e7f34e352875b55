"""A backup that is put back: what came after it is lost to the records, charged, and never a reason to spend again."""

import json
import shutil
from fractions import Fraction

import pytest
from support.small_release import run_all, write_release

from synth_core import files
from synth_core.errors import LedgerError
from synth_core.ledger import restore
from synth_core.ledger.restore import restore_ledger
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.release.verify import check_folder, check_release

WHY = {"reason": "board decision 8", "actor": "test"}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """One release before the backup, one after it."""
    folder = tmp_path_factory.mktemp("restored")
    spec = write_release(folder, method="independent", epsilon=0.5)
    workspace = folder / "workspace"
    houses = Account(dataset="houses", unit="household", delta=1e-6, cap_epsilon=1.0, largest_n=1000)
    open_ledger(workspace).declare(houses, actor="test")
    run_all(spec, workspace)
    shutil.copy(workspace / "ledger.sqlite", folder / "monday.sqlite")
    run_all(spec | {"release": "r2"}, workspace)
    return folder, spec


@pytest.fixture
def rolled_back(history, tmp_path):
    """The workspace with Monday's ledger in it, as somebody put it there."""
    folder, spec = history
    shutil.copytree(folder / "workspace", tmp_path / "workspace")
    shutil.copy(folder / "monday.sqlite", tmp_path / "workspace" / "ledger.sqlite")
    return tmp_path / "workspace", folder / "monday.sqlite", spec


def test_what_came_after_the_backup_is_charged_and_releases_go_on(rolled_back):
    workspace, backup, spec = rolled_back
    with pytest.raises(LedgerError, match="the ledger was rolled back"):
        open_ledger(workspace).require_whole()
    found = restore_ledger(workspace, backup, lost={"people": 0.6, "houses": 0}, **WHY)
    assert found.moved == ("r2",)
    ledger = open_ledger(workspace)
    assert ledger.verify() == []
    both = mu2_of(0.5, 1e-6) + mu2_of(0.6, 1e-6)
    assert ledger.balance("people").charged_mu2 == pytest.approx(float(both), rel=1e-6)
    assert ledger.balance("houses").charged_mu2 == 0
    said = {record.purpose.partition(": ")[2] for record in ledger.records() if record.step == "restore"}
    assert said == {WHY["reason"]}
    assert check_folder(workspace / "lost" / "r2").sound, "it stays as it was signed"
    run_all(spec | {"release": "r3"}, workspace)
    assert check_release(workspace / "public" / "r3").sound
    stated = json.loads((workspace / "public" / "r3" / "manifest.json").read_text())["guarantee"]["account"]
    assert mu2_of(stated["epsilon_spent"], 1e-6) >= both, "statements about the account count what was lost"


def test_an_account_of_which_nothing_is_stated_is_closed(rolled_back):
    workspace, backup, _ = rolled_back
    restore_ledger(workspace, backup, lost={}, **WHY)
    assert [open_ledger(workspace).balance(name).remaining_mu2 for name in ("people", "houses")] == [0, 0]


@pytest.mark.parametrize(
    ("lost", "refusal"),
    [
        ({"people": 0.1}, "releases published since cost more than the epsilon stated as lost"),
        ({"people": 1.99}, "more is stated as lost than the cap of the backup leaves"),
        ({"nobody": 1.0}, "the backup has no account of dataset 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(rolled_back, lost, refusal):
    workspace, backup, _ = rolled_back
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    with pytest.raises(LedgerError, match=refusal):
        restore_ledger(workspace, backup, lost=lost, **WHY)
    assert {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()} == before


def test_releases_dearer_than_what_the_backup_leaves_are_refused_with_a_way_out(rolled_back, monkeypatch):
    """The cap was raised after the backup: no epsilon that could be stated would do."""
    workspace, backup, _ = rolled_back
    monkeypatch.setattr(restore, "_costs", lambda workspace, releases: {"people": Fraction(100)})
    for lost in ({}, {"people": 1.0}):
        with pytest.raises(LedgerError, match="raise that cap in a copy of the backup"):
            restore_ledger(workspace, backup, lost=lost, **WHY)


def test_a_backup_that_is_none_is_refused(rolled_back, tmp_path):
    workspace, _, _ = rolled_back
    (tmp_path / "text.sqlite").write_text("hello " * 100)
    for backup in (tmp_path / "text.sqlite", tmp_path / "missing.sqlite"):
        with pytest.raises(LedgerError):
            restore_ledger(workspace, backup, lost={}, **WHY)


def test_killed_on_the_way_it_is_done_again(rolled_back, monkeypatch):
    """Ledger and heads are in place before releases are moved, so their costs are counted by the next attempt too."""
    workspace, backup, _ = rolled_back

    class Killed(BaseException):
        pass

    rename = files.Path.replace
    for last in ("ledger.sqlite", "ledger.sqlite.head"):

        def replace(path, target, last=last):
            if target.name == last:
                raise Killed
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(files.Path, "replace", replace)
            with pytest.raises(Killed):
                restore_ledger(workspace, backup, lost={"people": 0.6, "houses": 0}, **WHY)
    assert restore_ledger(workspace, backup, lost={"people": 0.6, "houses": 0}, **WHY).moved == ("r2",)
    assert open_ledger(workspace).verify() == []


def test_the_command_says_what_it_did(rolled_back, synth):
    workspace, backup, _ = rolled_back
    code, out, err = synth(
        "ledger", "restore", backup, "-w", workspace, "--lost", "people=0.6", "--reason", "decision 8"
    )
    assert (code, err) == (0, "")
    assert "r2: moved to" in out
    assert "the ledger is restored: " in out
