"""Many processes at once: the cap holds exactly, and a key has one answer whoever asks."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from support.ledger_workers import fork_server, race_for_answer, race_for_room
from support.ledgers import DATASET, answered, in_memory, opened

from synth_core.errors import BudgetRefused
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import State

pytestmark = pytest.mark.slow


def race(runner: Callable[..., None], url: str, runners: int) -> list[Any]:
    context = fork_server()
    start, outcome = context.Barrier(runners), context.SimpleQueue()
    processes = [context.Process(target=runner, args=(url, number, start, outcome)) for number in range(runners)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return [outcome.get() for _ in range(runners)]


def test_sixteen_race_for_room_for_ten_on_an_empty_database(url: str) -> None:
    assert Counter(race(race_for_room, url, 16)) == {"reserved": 10, "refused": 6}
    ledger = SqlLedger(url)
    assert ledger.balance(DATASET).remaining_mu2 == 0
    assert [record.state for record in ledger.records()].count(State.ACCOUNT) == 1
    assert ledger.verify() == []


def test_a_new_file_that_another_process_begins_to_write_is_waited_for(tmp_path, monkeypatch) -> None:
    """SQLite refuses at once to change the journal of such a file, whatever the time-out."""
    file = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE first (number)")
        other.execute("BEGIN IMMEDIATE")
        waited = []

        def ended(seconds: float) -> None:
            waited.append(seconds)
            other.execute("ROLLBACK")
            other.execute("DROP TABLE first")

        monkeypatch.setattr(time, "sleep", ended)
        assert opened(f"sqlite:///{file}").verify() == []
    assert len(waited) == 1


def test_eight_ask_the_same_and_are_told_the_same(url: str) -> None:
    ledger = opened(url)
    told = race(race_for_answer, url, 8)
    assert len(set(told)) == 1
    assert [record.state for record in ledger.records()].count(State.MEASURED) == 1
    assert ledger.verify() == []


@pytest.mark.parametrize("address", ["memory", "file"])
def test_threads_share_one_ledger(sqlite_url: str, address: str) -> None:
    ledger = in_memory() if address == "memory" else opened(sqlite_url)

    def spend(number: int) -> str:
        try:
            answered(ledger, f"thread {number}", number)
            return "reserved"
        except BudgetRefused:
            return "refused"
        finally:
            ledger.balance(DATASET)
            ledger.records()

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(spend, range(16))) == {"reserved": 10, "refused": 6}
    assert ledger.verify() == []
