"""What other processes do in the tests of the ledger: whole releases, races, and dying at a given point.

They are forked from a server process that has imported this module, so each starts in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from fractions import Fraction
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.ledgers import DATASET, RUNNER, TENTH, account, free_request, opened, request, vector
from synth_core.domain import Clique, Domain
from synth_core.errors import BudgetRefused, LedgerError
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.entropy import SystemEntropy
from synth_core.privacy.noise import discrete_gaussian
from synth_core.privacy.wall import Private

discrete_gaussian(Fraction(10), 1, SystemEntropy())  # compiled once, before anything is forked


class TinyCounts:
    """Six people, as the curator sees them."""

    domain = Domain.of({"age": 3, "sex": 2})
    scale = 1

    def tables(self, cliques: list[Clique]) -> list[Private[Any]]:
        return [Private(np.ones(self.domain.shape(clique), dtype=np.int64)) for clique in cliques]


def fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.ledger_workers"])
    with pytest.MonkeyPatch.context() as patch:  # the server finds what it preloads by its own path only
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        forkserver.ensure_running()
    return context


def publish(url: str, release: str, fault: Callable[[str], None]) -> list[float]:
    """A whole release by the book: hold, ask once, give one reservation back, note a free step, close."""
    ledger = SqlLedger(url, fault=fault)
    ledger.hold(DATASET, release, mu2=3 * TENTH, runner=RUNNER)
    spending = Spending(dataset=DATASET, snapshot="hmac:1", release=release, step="fit", runner=RUNNER)
    curator = Curator(counts=TinyCounts(), ledger=ledger, spending=spending, fault=fault)
    (measurement,) = curator.measure([("age", "sex")], TENTH, purpose="pairs")
    ledger.refund(ledger.reserve(request("unused", release=release)), reason="not needed")
    ledger.note(free_request(release=release))
    ledger.close(DATASET, release, reason="published", runner=RUNNER)
    return [float(number) for number in measurement.noisy.ravel()]


def killer(at: int) -> Callable[[str], None]:
    """A fault that kills the process, as `kill -9` does, when the point with that number is reached."""
    reached = 0

    def fault(_: str) -> None:
        nonlocal reached
        if reached == at:
            os.kill(os.getpid(), signal.SIGKILL)
        reached += 1

    return fault


def publish_and_die(url: str, release: str, at: int) -> None:
    publish(url, release, killer(at))


def declare_and_die(url: str, at: int) -> None:
    opened(url, fault=killer(at))


def race_for_room(url: str, number: int, start: Any, outcome: Any) -> None:
    """Open the ledger, empty as it may be, together with all others, and reserve one tenth of the cap."""
    start.wait()
    ledger = SqlLedger(url)
    ledger.declare(account(), actor="racer")
    try:
        ledger.reserve(request(f"racer {number}"))
        outcome.put("reserved")
    except BudgetRefused:
        outcome.put("refused")


def race_for_answer(url: str, number: int, start: Any, outcome: Any) -> None:
    """Ask the same question as all others, with an answer of one's own, until there is one."""
    ledger = SqlLedger(url)
    start.wait()
    while True:
        try:
            reservation = ledger.reserve(request(mu2=TENTH / 1000))
            if reservation.answer is not None:
                outcome.put(int(reservation.answer[0]))
                return
            ledger.begin(reservation)
            outcome.put(int(ledger.store(reservation, vector(number))[0]))
            return
        except BudgetRefused:
            raise
        except LedgerError:
            continue  # another one is measuring


def spend_once(ledger: SqlLedger, purpose: str) -> int:
    """Use a ledger that came from another process."""
    ledger.reserve(request(purpose))
    return len(ledger.records())
