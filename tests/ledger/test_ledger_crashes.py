"""Kill -9 at every fault point, then run again: one answer for a key, each answer charged, none charged twice."""

from __future__ import annotations

import signal

import pytest
from support.ledger_workers import declare_and_die, fork_server, publish, publish_and_die
from support.ledgers import DATASET, TENTH, account, opened

from synth_core.ledger.rows import GENESIS
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Head, State

pytestmark = pytest.mark.slow

NO_HEAD = Head(records=0, hash=GENESIS)

READ_BUT_NOT_STORED = {
    "begin:after-commit",
    "begin:head-kept",
    "curator:measuring",
    "curator:drawn",
    "store:begun",
    "store:answer-inserted",
    "store:appended",
    "store:before-commit",
}
"""Who dies here may have read the data, and nobody knows what was seen: the attempt stays charged."""


def test_a_release_killed_anywhere_is_finished_by_running_it_again(url: str) -> None:
    ledger = SqlLedger(url)
    ledger.declare(account(cap_epsilon=50.0), actor="board")
    points: list[str] = []
    publish(url, "undisturbed", points.append)
    assert len(points) > 35
    assert set(points) >= READ_BUT_NOT_STORED
    for at, point in enumerate(points):
        release = f"killed-at-{at}"
        process = fork_server().Process(target=publish_and_die, args=(url, release, at))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, point
        finished = publish(url, release, lambda _: None)
        records = [record for record in ledger.records(release=release) if record.purpose == "pairs"]
        states = [record.state for record in records]
        assert states.count(State.MEASURED) == 1, point
        assert states.count(State.RESERVED) == (2 if point in READ_BUT_NOT_STORED else 1), point
    assert publish(url, release, lambda _: None) == finished
    killed_after_reading = sum(point in READ_BUT_NOT_STORED for point in points)
    assert ledger.balance(DATASET).charged_mu2 == (1 + len(points) + killed_after_reading) * TENTH
    assert ledger.balance(DATASET).held_mu2 == 0
    assert ledger.verify() == []


def test_a_ledger_killed_while_it_is_made_is_made_by_the_next_one(url: str) -> None:
    at = 0
    while True:
        process = fork_server().Process(target=declare_and_die, args=(url, at))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        at += 1
        if at == 2:
            assert SqlLedger(url).verify(NO_HEAD) == []
    assert at >= 2
    ledger = opened(url)
    assert len(ledger.records()) == 1
    assert ledger.verify() == []
