"""A ledger that was rolled back with its head is recognised by whoever knows a later record, and spends nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.ledgers import DATASET, TENTH, account, answered, free_request, opened, request

from synth_core.errors import LedgerError
from synth_core.ledger.head import head_text, read_head
from synth_core.ledger.sql import SqlLedger, open_ledger

NAMES = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.sqlite.head")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def second_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "safe" / "head.json"
    place.parent.mkdir()
    monkeypatch.setenv("SYNTH_LEDGER_HEAD", str(place))
    return place


def used(workspace: Path) -> SqlLedger:
    ledger = open_ledger(workspace, create=True)
    ledger.declare(account(), actor="board")
    answered(ledger)
    return ledger


def copied(workspace: Path, target: Path) -> None:
    """A copy of the ledger and its head, as a backup of the folder would be."""
    target.mkdir()
    for name in NAMES:
        if (workspace / name).exists():
            shutil.copy(workspace / name, target / name)


def rolled_back(workspace: Path, copy: Path) -> None:
    """Ledger and head are put back together."""
    for name in NAMES:
        (workspace / name).unlink(missing_ok=True)
        if (copy / name).exists():
            shutil.copy(copy / name, workspace / name)


def published(workspace: Path, ledger: SqlLedger, release: str = "pilot") -> None:
    head = ledger.head()
    folder = workspace / "public" / release
    folder.mkdir(parents=True)
    manifest = {"provenance": {"ledger": {"records": head.records, "hash": head.hash}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "manifest.sig").write_text("signed")


def refused(workspace: Path, words: str) -> None:
    """Nothing is reserved, held, noted or declared; looking is not refused."""
    ledger = open_ledger(workspace)
    before = len(ledger.records())
    for spend in (
        lambda: ledger.reserve(request("more")),
        lambda: ledger.note(free_request()),
        lambda: ledger.set_cap(DATASET, epsilon=3.0, actor="board", reason="more"),
        ledger.require_whole,
    ):
        with pytest.raises(LedgerError, match=words):
            spend()
    assert len(ledger.records()) == before
    assert any(words in problem for problem in ledger.verify())
    assert any(words in problem for problem in ledger.objections())


def test_a_published_manifest_knows_a_later_record(workspace: Path, tmp_path: Path) -> None:
    ledger = used(workspace)
    copied(workspace, tmp_path / "copy")
    answered(ledger, "later")
    published(workspace, ledger)
    assert open_ledger(workspace).objections() == []
    del ledger
    rolled_back(workspace, tmp_path / "copy")
    refused(workspace, "it ends at record 4, the manifest of release 'pilot' at 7")


def test_a_chain_that_grew_again_after_a_rollback_is_another_one(workspace: Path, tmp_path: Path) -> None:
    ledger = used(workspace)
    copied(workspace, tmp_path / "copy")
    answered(ledger, "later")
    published(workspace, ledger)
    del ledger
    rolled_back(workspace, tmp_path / "copy")
    forked = SqlLedger(f"sqlite:///{workspace / 'ledger.sqlite'}")
    for number in range(2):
        answered(forked, f"other {number}")
    refused(workspace, "record 7 is not the one of the manifest of release 'pilot'")


def test_a_new_ledger_in_a_workspace_with_releases_is_refused(workspace: Path) -> None:
    published(workspace, used(workspace))
    for name in NAMES:
        (workspace / name).unlink(missing_ok=True)
    with pytest.raises(LedgerError, match="it ends at record 0, the manifest of release 'pilot' at 4"):
        open_ledger(workspace, create=True).declare(account(), actor="board")


def test_a_damaged_manifest_stops_nobody(workspace: Path) -> None:
    ledger = used(workspace)
    for number, text in enumerate(("{", "[]", '{"provenance": {}}', '{"provenance": {"ledger": {"records": "x"}}}')):
        folder = workspace / "public" / f"r{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(text)
        (folder / "manifest.sig").write_text("signed")
    answered(open_ledger(workspace), "more")
    assert ledger.verify() == []


def test_a_manifest_that_was_never_signed_was_never_published(workspace: Path, tmp_path: Path) -> None:
    ledger = used(workspace)
    copied(workspace, tmp_path / "copy")
    answered(ledger, "later")
    published(workspace, ledger)
    (workspace / "public" / "pilot" / "manifest.sig").unlink()
    del ledger
    rolled_back(workspace, tmp_path / "copy")
    reopened = open_ledger(workspace)
    answered(reopened, "more")
    assert [record.purpose for record in reopened.records() if record.state.value == "measured"][1:] == ["more"]


def test_a_head_in_a_second_place_is_not_rolled_back(workspace: Path, tmp_path: Path, second_place: Path) -> None:
    ledger = used(workspace)
    copied(workspace, tmp_path / "copy")
    answered(ledger, "later")
    assert read_head(second_place) == ledger.head()
    del ledger
    rolled_back(workspace, tmp_path / "copy")
    refused(workspace, "it ends at record 4, the kept head at 7")


def test_a_second_place_that_has_no_head_yet_is_refused_with_the_remedy(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, place = used(workspace), tmp_path / "head.json"
    monkeypatch.setenv("SYNTH_LEDGER_HEAD", str(place))
    refused(workspace, f"head file {place} is missing")
    place.write_text(head_text(ledger.head()))
    answered(open_ledger(workspace), "more")
    assert read_head(place) == ledger.head()


def test_a_ledger_ahead_of_its_head_goes_on(workspace: Path) -> None:
    """A process that dies between its commit and the head leaves such a ledger behind."""
    place = workspace / "ledger.sqlite.head"
    ledger = used(workspace)
    behind = place.read_text()
    answered(ledger, "more")
    place.write_text(behind)
    assert open_ledger(workspace).verify() == []
    answered(open_ledger(workspace), "and more")
    assert read_head(place) == ledger.head()


def test_a_crash_after_the_first_record_leaves_a_head(sqlite_url: str) -> None:
    def fault(point: str) -> None:
        if point == "declare:after-commit":
            raise ConnectionAbortedError(point)

    with pytest.raises(ConnectionAbortedError):
        opened(sqlite_url, fault=fault)
    answered(opened(sqlite_url))
    assert SqlLedger(sqlite_url).verify() == []


def test_a_head_that_is_lost_under_way_is_written_again(sqlite_url: str, tmp_path: Path) -> None:
    ledger = opened(sqlite_url)
    (tmp_path / "ledger.sqlite.head").unlink()
    answered(ledger)
    assert read_head(tmp_path / "ledger.sqlite.head") == ledger.head()


def test_somebody_who_only_looked_is_refused_too(sqlite_url: str, tmp_path: Path) -> None:
    """Having read the chain proves nothing about what it was before."""
    opened(sqlite_url)
    (tmp_path / "ledger.sqlite.head").unlink()
    ledger = SqlLedger(sqlite_url)
    assert ledger.head().records == 1
    with pytest.raises(LedgerError, match="is missing"):
        answered(ledger)


@pytest.mark.postgres
def test_the_head_of_a_ledger_in_postgresql_is_kept_in_the_workspace(
    postgres_url: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTH_LEDGER_URL", postgres_url)
    ledger, place = used(workspace), workspace / "ledger.head"
    assert read_head(place) == ledger.head()
    later = json.loads(place.read_text()) | {"records": 9}
    place.write_text(json.dumps(later))
    refused(workspace, "it ends at record 4, the kept head at 9")
    place.unlink()
    refused(workspace, f"head file {place} is missing")
    place.write_text(head_text(ledger.head()))
    answered(open_ledger(workspace), "more")
    assert ledger.balance(DATASET).charged_mu2 == 2 * TENTH


@pytest.mark.postgres
def test_the_second_place_holds_the_only_head_of_a_ledger_in_postgresql(
    postgres_url: str, workspace: Path, second_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTH_LEDGER_URL", postgres_url)
    ledger = used(workspace)
    assert read_head(second_place) == ledger.head()
    assert not (workspace / "ledger.head").exists()
