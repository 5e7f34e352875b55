"""A look calls people once when a cap is near and once when the chain is broken."""

from datetime import timedelta

import pytest
from support.budget_examples import spend, tampered

from synth_core.errors import LedgerError
from synth_core.events.journal import Kind
from synth_core.events.office import Office, look
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of

CAP = mu2_of(1.0, 1e-6)


@pytest.fixture
def told(monkeypatch):
    """What was told, instead of telling it."""
    events = []
    monkeypatch.setattr("synth_core.events.office.notify", lambda event: events.append(event) or [])
    return events


@pytest.fixture
def account(tmp_path):
    """An account of epsilon 1, and how to spend from it."""
    ledger = SqlLedger(ledger_url(tmp_path, None))
    ledger.declare(Account(dataset="houses", delta=1e-6, cap_epsilon=1.0), actor="board")
    return ledger, Office(tmp_path)


def test_each_level_of_a_cap_is_told_once(account, told):
    ledger, office = account
    counts = []
    for number, percent in enumerate((79, 2, 13, 2, 2)):
        spend(ledger, f"r{number}", "fit", mu2=CAP * percent / 100)
        look(office)
        look(office)
        counts.append(len(told))
    assert counts == [0, 1, 1, 2, 2]
    assert [event.level for event in told] == [0.80, 0.95]
    assert all(event.kind is Kind.CAP and event.dataset == "houses" for event in told)
    assert "cap of epsilon 1 " in told[0].text
    assert [event.level for event in office.events()] == [0.80, 0.95]


def test_a_new_cap_is_watched_anew(account, told):
    ledger, office = account
    spend(ledger, "r1", "fit", mu2=CAP * 90 / 100)
    look(office)
    ledger.set_cap("houses", epsilon=1.02, actor="board", reason="a little more")
    look(office)
    assert [(event.level, event.cap_epsilon) for event in told] == [(0.80, 1.0), (0.80, 1.02)]


def test_a_jump_over_both_levels_is_one_call(account, told):
    ledger, office = account
    spend(ledger, "r1", "fit", mu2=CAP * 99 / 100)
    look(office)
    assert [event.level for event in told] == [0.95]


def test_a_broken_chain_is_told_once_and_shown(account, told):
    ledger, office = account
    spend(ledger, "r1", "fit", mu2=CAP / 10)
    assert office.chain_status().sound
    tampered(office.workspace, "UPDATE ledger_records SET purpose = 'other' WHERE id = 2")
    assert office.chain_status().sound  # a minute old at most
    assert [event.kind for event in look(office)] == [Kind.CHAIN]
    assert "record 2 was changed" in told[0].text
    assert look(office) == []
    assert not office.chain_status().sound


def test_a_chain_that_cannot_be_folded_is_an_alarm_too(account, told):
    ledger, office = account
    spend(ledger, "r1", "fit", mu2=CAP / 10)
    del ledger
    tampered(office.workspace, "DELETE FROM ledger_records WHERE id > 2")
    (event,) = look(office)
    assert event.kind is Kind.CHAIN
    assert office.chain_status().records == 0


def test_someone_who_only_looks_creates_no_ledger(tmp_path):
    office = Office(tmp_path)
    with pytest.raises(LedgerError, match="there is no ledger at"):
        office.chain_status(fresh=timedelta(0))
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_was_replaced_is_opened_anew(account, tmp_path):
    _, office = account
    assert [balance.account.dataset for balance in office.balances()] == ["houses"]
    other = SqlLedger(ledger_url(tmp_path / "..", f"sqlite:///{tmp_path}/other.sqlite"))
    other.declare(Account(dataset="farms", delta=1e-6, cap_epsilon=1.0), actor="board")
    for suffix in ("", "-wal", "-shm", ".head"):
        if (source := tmp_path / f"other.sqlite{suffix}").exists():
            source.replace(tmp_path / f"ledger.sqlite{suffix}")
    assert [balance.account.dataset for balance in office.balances()] == ["farms"]
