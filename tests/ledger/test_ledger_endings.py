"""Whoever was at work for a release when it was ended reserves nothing more; whoever begins after that may."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ledgers import DATASET, RUNNER, TENTH, answered, opened, request, vector

from synth_core.errors import BudgetRefused, ReleaseEnded
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Runner, SpendRequest, State


def beginning(ledger: SqlLedger) -> Runner:
    """A runner that begins now."""
    return replace(RUNNER, since=ledger.head().records)


@pytest.fixture
def ended(ledger: SqlLedger) -> tuple[SqlLedger, Runner]:
    """A release that was ended while a runner had one answer, had reserved another, and had begun a third."""
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    runner = beginning(ledger)
    answered(ledger, "answered", 7, runner=runner)
    ledger.reserve(request("reserved", runner=runner))
    ledger.begin(ledger.reserve(request("begun", runner=runner)))
    ledger.close(DATASET, "pilot", reason="its run failed", runner=RUNNER)
    return ledger, runner


@pytest.mark.parametrize("purpose", ["new", "reserved", "begun"])
def test_nothing_more_is_reserved_for_a_release_that_was_ended(ended: tuple[SqlLedger, Runner], purpose: str) -> None:
    ledger, runner = ended
    before = ledger.head()
    with pytest.raises(ReleaseEnded) as refusal:
        ledger.reserve(request(purpose, runner=runner))
    assert str(refusal.value) == (
        "release 'pilot' was ended while step 'fit' was at work; nothing more is charged: "
        "run the release again to resume it"
    )
    assert ledger.head() == before
    assert ledger.balance(DATASET).held_mu2 == 0


def test_what_was_answered_is_still_given_and_what_was_begun_still_stored(
    ended: tuple[SqlLedger, Runner],
) -> None:
    ledger, runner = ended
    kept = ledger.reserve(request("answered", runner=runner)).answer
    assert kept is not None
    assert kept.tolist() == [7]
    begun = replace(ledger.reserve(request("answered")), key=request("begun").key, answer=None)
    assert ledger.store(begun, vector(5)).tolist() == [5]
    assert ledger.verify() == []


def test_a_new_hold_lets_those_go_on_who_begin_after_it_and_nobody_else(
    ended: tuple[SqlLedger, Runner],
) -> None:
    ledger, runner = ended
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    resumed = beginning(ledger)
    assert ledger.reserve(request("reserved", runner=resumed)).attempt == 1
    assert ledger.reserve(request("begun", runner=resumed)).attempt == 2
    with pytest.raises(ReleaseEnded):
        ledger.reserve(request("new", runner=runner))
    assert ledger.verify() == []


def test_a_step_that_is_cleared_goes_on_without_a_hold_as_long_as_the_account_has_room(
    ended: tuple[SqlLedger, Runner],
) -> None:
    ledger, _ = ended
    cleared = beginning(ledger)
    answered(ledger, "new", runner=cleared)
    ledger.hold(DATASET, "another", mu2=6 * TENTH, runner=RUNNER)
    with pytest.raises(BudgetRefused, match="step 'fit' needs"):
        ledger.reserve(request("no room", mu2=2 * TENTH, runner=cleared))


def test_other_releases_and_those_who_never_began_for_one_are_not_ended(
    ended: tuple[SqlLedger, Runner],
) -> None:
    ledger, runner = ended
    assert ledger.reserve(request("elsewhere", release="second", runner=runner)).state is State.RESERVED
    assert ledger.reserve(request("no beginning", runner=RUNNER)).state is State.RESERVED


def test_a_release_that_held_nothing_is_not_ended_by_closing_it(ledger: SqlLedger) -> None:
    runner = beginning(ledger)
    ledger.close(DATASET, "pilot", reason="its run failed", runner=RUNNER)
    assert ledger.reserve(request(runner=runner)).state is State.RESERVED


def test_a_ledger_that_forgets_the_ending_is_found_out(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(*_: object) -> None:
        """Let everybody go on."""

    monkeypatch.setattr("synth_core.ledger.verbs.require_going_on", forget)
    ledger = opened(sqlite_url)
    runner = beginning(ledger)
    ledger.hold(DATASET, "pilot", mu2=5 * TENTH, runner=RUNNER)
    ledger.close(DATASET, "pilot", reason="its run failed", runner=RUNNER)
    ledger.reserve(request(runner=runner))
    assert ledger.verify() == ["record 4 reserves for a runner whose release had been ended"]


def test_when_a_runner_began_is_kept_and_does_not_change_the_question(ledger: SqlLedger) -> None:
    asked: SpendRequest = request(runner=replace(RUNNER, since=1))
    assert asked.key == request().key
    ledger.reserve(asked)
    assert ledger.records()[-1].runner.since == 1
