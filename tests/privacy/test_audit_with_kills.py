"""The hot audit while the process dies at any point of a question and is started again, and while tasks are cleared.

The adversary sees every answer that was ever stored or returned, of all attempts. Whatever dies, a question has one
answer: the privacy that can be proved lost stays below what was charged. A ledger that forgets on a restart is caught.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, cast

import pytest
from support.seeded_entropy import SeededEntropy

from synth_core.audit import adversary
from synth_core.audit.adversary import Notebook, run_audit
from synth_core.audit.cases import DOMAIN, canary_codes, verb_experiments
from synth_core.ledger.memory import MemoryLedger
from synth_core.privacy.accounts import Account, Answer, Reservation, SpendRequest, State
from synth_core.privacy.curator import Curator
from synth_core.storage.counting import TableCounts

pytestmark = pytest.mark.slow

RUNS = 240
VERBS = verb_experiments()
ACCOUNT = Account(dataset="audit", delta=1e-6, cap_epsilon=1e5)


class Died(BaseException):
    """The process is gone; whoever starts it again asks from the beginning."""


class Workshop:
    """A curator whose process dies at random points and is started again, with a ledger that stays."""

    def __init__(
        self, *, counts: Any, ledger: Any, spending: Any, entropy: Any, dice: random.Random, forgets: bool
    ) -> None:
        self.domain = counts.domain
        self.deaths = 0
        self._parts = {"counts": counts, "spending": spending, "entropy": entropy}
        self._notebook = cast("Notebook", ledger)
        self._dice, self._forgets = dice, forgets
        self._left: int | None = None
        self._ledger = self._new_ledger()

    def __getattr__(self, verb: str) -> Any:
        return partial(self._ask, verb)

    def _ask(self, verb: str, *question: Any, **how: Any) -> Any:
        while True:
            # Dead at one of the points where a crash must do no harm, in half of the starts.
            self._left = self._dice.randrange(15) if self._dice.random() < 1 / 2 else None
            curator = Curator(**self._parts, ledger=cast("Any", Recording(self)), fault=self.fault)
            try:
                return getattr(curator, verb)(*question, **how)
            except Died:
                DEATHS.append(verb)
                if self._forgets:
                    self._ledger = self._new_ledger()

    def fault(self, _: str) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                raise Died

    def _new_ledger(self) -> MemoryLedger:
        made = MemoryLedger(fault=lambda point: self.fault(point))
        self._left = None
        made.declare(ACCOUNT, actor="audit")
        return made


class Recording:
    """The workshop's ledger, of which the notebook keeps what an adversary sees."""

    def __init__(self, workshop: Workshop) -> None:
        self._ledger, self._notebook = workshop._ledger, workshop._notebook

    def reserve(self, request: SpendRequest) -> Reservation:
        reservation = self._ledger.reserve(request)
        if not self._notebook.answers.get(request.key) or reservation.state is not State.MEASURED:
            self._notebook.requests[request.key] = request
            self._notebook.fresh = request.key
        if reservation.answer is not None:
            self._see(request.key, reservation.answer)
        return reservation

    def begin(self, reservation: Reservation) -> None:
        self._ledger.begin(reservation)

    def store(self, reservation: Reservation, answer: Answer) -> Answer:
        kept = self._ledger.store(reservation, answer)
        self._see(reservation.key, kept)
        return kept

    def _see(self, key: str, answer: Answer) -> None:
        seen = self._notebook.answers.setdefault(key, [])
        if not any((one == answer).all() for one in seen):
            seen.append(answer)


DEATHS: list[str] = []


@pytest.fixture
def worlds(monkeypatch):
    monkeypatch.setattr(adversary, "SystemEntropy", partial(SeededEntropy, 20))
    DEATHS.clear()
    without, canary = canary_codes()
    return TableCounts(without, DOMAIN), TableCounts(canary, DOMAIN)


def audited(worlds, verb, *, cleared=False, forgets=False):
    """The certificate of an experiment whose process keeps dying; `cleared` asks everything once more afterwards."""

    def experiment(curator):
        for _ in range(2 if cleared else 1):
            VERBS[verb](curator)

    workshop = partial(Workshop, dice=random.Random(7), forgets=forgets)
    return run_audit(verb, experiment, worlds=worlds, runs=RUNS, curator=cast("Any", workshop))


@pytest.mark.parametrize(
    ("verb", "cleared"),
    [("measure", False), ("score", False), ("choose", True), ("measure, then choose, then score", True)],
)
def test_what_dies_and_is_asked_again_loses_no_more_than_was_charged(worlds, verb, cleared):
    certified = audited(worlds, verb, cleared=cleared)
    assert len(DEATHS) > RUNS // 4
    assert certified.passed, certified.failures
    assert certified.charged == certified.stored == RUNS * (3 if "then" in verb else 1)
    assert certified.claimed_mu == pytest.approx(3, rel=1e-6)


@pytest.mark.parametrize("verb", ["measure", "score"])
def test_a_ledger_that_forgets_when_the_process_dies_is_caught(worlds, verb):
    """An answer that was stored is drawn once more: the adversary has both."""
    certified = audited(worlds, verb, forgets=True)
    assert not certified.passed
    assert certified.stored > certified.charged
