"""Refusals that depend on records are counted before they are shown, limited, and free what was never measured."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from support.ledgers import DATASET, RUNNER, TENTH, account, answered, opened, request

from synth_core.errors import BudgetRefused, ClusterError, LedgerError, RefusalsExhausted, SourceError, WallError
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import State, refusals
from synth_core.privacy.reading import count_refusals

TEXT = "the source: column 'age' has a value outside the declared bins"


def raising(error: Exception) -> Callable[[], None]:
    """Work on records that ends like this."""

    def read() -> None:
        raise error

    return read


def read(ledger: SqlLedger, work: Callable[[], object], *, dataset: str = DATASET, release: str = "pilot") -> object:
    return count_refusals(work, ledger=ledger, dataset=dataset, release=release, step="ingest", runner=RUNNER)


def refuse(ledger: SqlLedger, **names: str) -> str:
    """One refusal that depends on records; what is said of it."""
    with pytest.raises((SourceError, LedgerError)) as refusal:
        read(ledger, raising(SourceError(TEXT)), **names)
    return str(refusal.value)


def test_a_refusal_is_in_the_ledger_before_its_text_is_shown(ledger: SqlLedger) -> None:
    assert read(ledger, lambda: 7) == 7
    assert refusals(ledger.records()) == 0
    assert refuse(ledger) == TEXT
    record = ledger.records()[-1]
    assert (record.state, record.release, record.step, record.runner) == (
        State.REFUSED,
        "pilot",
        "ingest",
        RUNNER,
    )
    assert (record.mu2, record.mechanism.name) == (0, "none")
    assert TEXT not in str(record)
    assert refusals(ledger.records(dataset=DATASET)) == ledger.balance(DATASET).refusals == 1
    assert ledger.verify() == []


@pytest.mark.parametrize("point", ["begun", "appended", "before-commit"])
def test_a_refusal_that_could_not_be_counted_is_not_shown(sqlite_url: str, point: str) -> None:
    broken = [False]

    def fault(at: str) -> None:
        if broken[0] and at == f"refuse:{point}":
            raise LedgerError("the ledger's database refused")

    ledger = opened(sqlite_url, fault=fault)
    broken[0] = True
    with pytest.raises(LedgerError, match="database refused") as refusal:
        read(ledger, raising(SourceError(TEXT)))
    assert TEXT not in "".join(traceback.format_exception(refusal.value))
    assert refusal.value.__context__ is None


def test_what_no_record_decides_is_not_counted(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "pilot", mu2=TENTH, runner=RUNNER)
    for error in (ClusterError("a worker was lost"), BudgetRefused("no room")):
        with pytest.raises(type(error)):
            read(ledger, raising(error))
    assert ledger.balance(DATASET).refusals == 0
    assert ledger.balance(DATASET).held_mu2 == TENTH
    with pytest.raises(WallError):
        read(ledger, raising(ValueError("Ada Lovelace, 36")))
    assert ledger.balance(DATASET).refusals == 1


def test_the_limit_stops_reading_whatever_the_release_is_called(url: str) -> None:
    ledger = SqlLedger(url)
    ledger.declare(account(refusal_limit=3), actor="board")
    for number in range(3):
        assert refuse(ledger, release=f"r{number}") == TEXT
    ledger.hold(DATASET, "r4", mu2=TENTH, runner=RUNNER)
    looked: list[bool] = []
    with pytest.raises(RefusalsExhausted) as refusal:
        read(ledger, lambda: looked.append(True), release="r4")
    assert str(refusal.value) == (
        "dataset 'census-2026': as many refusals as may (3) have depended on its records; see what was asked with "
        "`synth ledger show`, then allow more with: synth ledger refusals census-2026 --limit 6 --reason TEXT"
    )
    assert looked == []
    assert ledger.balance(DATASET).held_mu2 == 0
    assert ledger.balance(DATASET).refusals == 3
    with pytest.raises(LedgerError, match="a change of the limit of refusals needs a reason"):
        ledger.set_refusal_limit(DATASET, limit=6, actor="board", reason=" ")
    with pytest.raises(LedgerError, match="the limit of refusals must be at least 1"):
        ledger.set_refusal_limit(DATASET, limit=0, actor="board", reason="none at all")
    ledger.set_refusal_limit(DATASET, limit=6, actor="board", reason="decision 20")
    assert ledger.records()[-1].reason == "decision 20"
    assert refuse(ledger, release="r4") == TEXT
    ledger.declare(account(refusal_limit=3), actor="board")
    with pytest.raises(LedgerError, match="change it with: synth ledger refusals census-2026 --limit 9"):
        ledger.declare(account(refusal_limit=9), actor="board")
    assert ledger.verify() == []


def test_twenty_refusals_are_the_limit_unless_declared(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    assert {refuse(ledger) for _ in range(20)} == {TEXT}
    assert "as many refusals as may (20)" in refuse(ledger)


def test_refusals_at_the_same_time_say_nothing_beyond_the_limit(sqlite_url: str) -> None:
    ledger = SqlLedger(sqlite_url)
    ledger.declare(account(refusal_limit=1), actor="board")
    said: list[str] = []

    def meanwhile() -> None:
        said.append(refuse(SqlLedger(sqlite_url), release="another"))
        raise SourceError(TEXT)

    with pytest.raises(RefusalsExhausted):
        read(ledger, meanwhile)
    assert said == [TEXT]
    assert ledger.balance(DATASET).refusals == 2


def test_accounts_with_rows_of_the_same_people_share_their_refusals(ledger: SqlLedger) -> None:
    ledger.declare(account(dataset="panel", refusal_limit=2, shares_rows_with=(DATASET,)), actor="board")
    assert refuse(ledger) == TEXT
    assert refuse(ledger, dataset="panel") == TEXT
    assert ledger.balance(DATASET).refusals == ledger.balance("panel").refusals == 2
    assert "as many refusals as may (2)" in refuse(ledger, dataset="panel")
    assert refuse(ledger) == TEXT


def test_a_refused_release_that_measured_nothing_gives_its_hold_back(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    refuse(ledger)
    assert [record.state for record in ledger.records()][-2:] == [State.REFUSED, State.CLOSED]
    assert ledger.balance(DATASET).held_mu2 == 0
    ledger.hold(DATASET, "second", mu2=8 * TENTH, runner=RUNNER)
    ledger.close(DATASET, "second", reason="cancelled", runner=RUNNER)
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    assert ledger.balance(DATASET).held_mu2 == 8 * TENTH
    assert ledger.verify() == []


def test_a_refused_release_that_measured_keeps_charge_and_hold(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    answered(ledger)
    refuse(ledger)
    balance = ledger.balance(DATASET)
    assert (balance.charged_mu2, balance.held_mu2) == (TENTH, 7 * TENTH)


def test_a_hold_that_is_open_is_named_and_no_higher_cap_proposed(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "left behind", mu2=8 * TENTH, runner=RUNNER)
    with pytest.raises(BudgetRefused) as refusal:
        ledger.hold(DATASET, "next", mu2=4 * TENTH, runner=RUNNER)
    words = str(refusal.value)
    assert "synth ledger cap" not in words
    assert "lower epsilon, or wait for release 'left behind', which holds epsilon 1.7" in words
    assert words.endswith("if it failed, end it with: synth cancel 'left behind' --reason TEXT --workspace DIR")
    with pytest.raises(BudgetRefused, match="synth cancel 'left behind'"):
        ledger.reserve(request(release="next", mu2=4 * TENTH))
    ledger.hold(DATASET, "small", mu2=TENTH, runner=RUNNER)
    with pytest.raises(BudgetRefused, match="release 'left behind' and 1 more"):
        ledger.hold(DATASET, "next", mu2=4 * TENTH, runner=RUNNER)
    for name in ("left behind", "small"):
        ledger.close(DATASET, name, reason="cancelled", runner=RUNNER)
    ledger.hold(DATASET, "next", mu2=4 * TENTH, runner=RUNNER)


def test_without_open_holds_of_others_a_higher_cap_is_proposed(ledger: SqlLedger) -> None:
    answered(ledger, release="published", mu2=8 * TENTH)
    ledger.hold(DATASET, "next", mu2=2 * TENTH, runner=RUNNER)
    with pytest.raises(BudgetRefused, match="raise the cap with: synth ledger cap census-2026"):
        ledger.hold(DATASET, "next", mu2=4 * TENTH, runner=RUNNER)
