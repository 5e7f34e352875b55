"""Laws under any interleaving of two users: the cap is never exceeded, an answer never changes, all is accounted, and
whoever was at work for a release when it was ended spends nothing more for it."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.ledgers import DATASET, RUNNER, TENTH, account, in_memory, opened, request, vector, with_tables

from synth_core.errors import BudgetRefused, LedgerError, ReleaseEnded
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.sql import SqlLedger
from synth_core.ledger.verbs import LedgerVerbs
from synth_core.privacy.accounts import CHARGED, Reservation, State, Stratum
from synth_core.privacy.budget import mu2_of

RELEASES = ("spring", "autumn")
SNAPSHOTS = ("monday", "friday")
PARTS = (None, "north", "south")
Place = tuple[str, str | None]
TENTHS = st.integers(1, 6)

who = st.sampled_from((0, 1))
releases = st.sampled_from(RELEASES)
places = st.tuples(st.sampled_from(SNAPSHOTS), st.sampled_from(PARTS))
questions = st.integers(0, 2)


class TwoUsers(RuleBasedStateMachine):
    """Two open ledgers on one database, and a plain model of what they should say."""

    def connect(self) -> list[LedgerVerbs]:
        url = with_tables(f"sqlite:///{Path(self.folder.name) / 'ledger.sqlite'}")
        return [opened(url), SqlLedger(url)]

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledgers = self.connect()
        self.epsilon = 2.0
        self.holds: dict[str, Fraction] = {}
        self.limits: dict[str, Fraction] = {}
        self.going_on = {(user, release) for user in (0, 1) for release in RELEASES}
        self.begun_at = [1, 1]
        self.attempts: list[tuple[Reservation, str, Place, Fraction, list[State]]] = []
        self.answers: dict[str, list[int]] = {}
        self.drawn = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    def charged(self, release: str) -> Fraction:
        sums: defaultdict[Place, Fraction] = defaultdict(Fraction)
        for _, owner, place, mu2, states in self.attempts:
            if owner == release and states[-1] in CHARGED:
                sums[place] += mu2
        return sum(
            (sums[snapshot, None] + max(sums[snapshot, "north"], sums[snapshot, "south"]) for snapshot in SNAPSHOTS),
            Fraction(0),
        )

    def committed(self) -> Fraction:
        return sum((max(self.charged(r), self.holds.get(r, Fraction(0))) for r in RELEASES), Fraction(0))

    def fits(self) -> bool:
        return self.committed() <= mu2_of(self.epsilon, 1e-5)

    def is_as_dear_as_said(self, release: str, given_up: Fraction) -> bool:
        """Whether only attempts that were given up took the release above the largest hold it had."""
        lost = sum((a[3] for a in self.attempts if a[1] == release and State.FORFEITED in a[4]), given_up)
        limit = self.limits.get(release)
        return limit is None or self.charged(release) - lost <= limit

    @rule(user=who, release=releases, tenths=TENTHS)
    def hold(self, user: int, release: str, tenths: int) -> None:
        before = dict(self.holds)
        self.holds[release] = max(self.holds.get(release, Fraction(0)), tenths * TENTH)
        try:
            self.ledgers[user].hold(DATASET, release, mu2=tenths * TENTH, runner=RUNNER)
            assert self.fits()
            self.limits[release] = max(self.limits.get(release, Fraction(0)), self.holds[release])
        except BudgetRefused:
            assert not self.fits()
            self.holds = before

    @rule(user=who, release=releases)
    def close(self, user: int, release: str) -> None:
        self.ledgers[user].close(DATASET, release, reason="published", runner=RUNNER)
        if self.holds.pop(release, None):
            self.going_on -= {(0, release), (1, release)}

    @rule(user=who)
    def begin_anew(self, user: int) -> None:
        self.begun_at[user] = self.ledgers[user].head().records
        self.going_on |= {(user, release) for release in RELEASES}

    @rule(user=who, release=releases, place=places, question=questions, tenths=TENTHS)
    def reserve(self, user: int, release: str, place: Place, question: int, tenths: int) -> None:
        snapshot, part = place
        where = {
            "snapshot": snapshot,
            "stratum": None if part is None else Stratum(partition="region", part=part),
        }
        runner = replace(RUNNER, since=self.begun_at[user])
        asked = request(f"q{question}", mu2=tenths * TENTH, release=release, runner=runner, **where)
        mine = [attempt for attempt in self.attempts if attempt[0].key == asked.key]
        fresh = asked.key not in self.answers and not (mine and mine[-1][4][-1] is State.RESERVED)
        expected = Reservation(key=asked.key, attempt=len(mine) + 1, state=State.RESERVED)
        given_up = tenths * TENTH if mine and mine[-1][4][-1] is State.MEASURING else Fraction(0)
        if fresh:
            self.attempts.append((expected, release, place, tenths * TENTH, [State.RESERVED]))
        try:
            got = self.ledgers[user].reserve(asked)
        except ReleaseEnded:
            assert (user, release) not in self.going_on
            assert asked.key not in self.answers
            if fresh:
                self.attempts.pop()
            return
        except BudgetRefused:
            assert fresh
            assert not (self.fits() and self.is_as_dear_as_said(release, given_up))
            self.attempts.pop()
            return
        assert self.fits()
        assert (user, release) in self.going_on or asked.key in self.answers
        assert not fresh or self.is_as_dear_as_said(release, given_up)
        if fresh:
            assert got == expected
            if mine and mine[-1][4][-1] is State.MEASURING:
                mine[-1][4].append(State.FORFEITED)
        elif asked.key in self.answers:
            assert got.answer is not None
            assert got.answer.tolist() == self.answers[asked.key]
        else:
            assert got == mine[-1][0]

    @rule(user=who, data=st.data())
    def begin(self, user: int, data: st.DataObject) -> None:
        self.change(user, data, State.MEASURING, {State.RESERVED})

    @rule(user=who, data=st.data())
    def refund(self, user: int, data: st.DataObject) -> None:
        self.change(user, data, State.REFUNDED, {State.RESERVED, State.REFUNDED})

    def change(self, user: int, data: st.DataObject, state: State, allowed: set[State]) -> None:
        if not self.attempts:
            return
        reservation, *_, states = data.draw(st.sampled_from(self.attempts))
        ledger = self.ledgers[user]
        try:
            if state is State.MEASURING:
                ledger.begin(reservation)
            else:
                ledger.refund(reservation, reason="not needed")
            assert states[-1] in allowed
            states.append(state)
        except LedgerError:
            assert states[-1] not in allowed

    @rule(user=who, data=st.data())
    def store(self, user: int, data: st.DataObject) -> None:
        if not self.attempts:
            return
        reservation, *_, states = data.draw(st.sampled_from(self.attempts))
        self.drawn += 1
        try:
            kept = self.ledgers[user].store(reservation, vector(self.drawn)).tolist()
        except LedgerError:
            assert reservation.key not in self.answers
            assert states[-1] in (State.RESERVED, State.REFUNDED)
            return
        if reservation.key not in self.answers:
            assert states[-1] in (State.MEASURING, State.FORFEITED)
            states.append(State.MEASURED)
        assert kept == self.answers.setdefault(reservation.key, [self.drawn])

    @rule(user=who, tenths=st.integers(12, 30))
    def set_cap(self, user: int, tenths: int) -> None:
        before, self.epsilon = self.epsilon, tenths / 10
        try:
            self.ledgers[user].set_cap(DATASET, epsilon=self.epsilon, actor="board", reason="decision")
            assert self.fits()
        except LedgerError:
            assert not self.fits()
            self.epsilon = before

    @invariant()
    def balances_agree_with_the_model_and_stay_under_the_cap(self) -> None:
        for ledger in self.ledgers:
            balance = ledger.balance(DATASET)
            assert balance.charged_mu2 == sum((self.charged(r) for r in RELEASES), Fraction(0))
            assert balance.charged_mu2 + balance.held_mu2 == self.committed()
            assert balance.remaining_mu2 >= 0


class TwoUsersVerified(TwoUsers):
    """The same, and the chain they leave behind is sound."""

    def teardown(self) -> None:
        if hasattr(self, "ledgers"):
            assert self.ledgers[0].verify() == []
            assert self.ledgers[0].head() == self.ledgers[1].head()
            super().teardown()


class TwoUsersInMemory(TwoUsersVerified):
    """The same without a database."""

    def connect(self) -> list[LedgerVerbs]:
        return [in_memory()] * 2


TestTwoUsers = TwoUsersVerified.TestCase
TestTwoUsersInMemory = TwoUsersInMemory.TestCase
TestTwoUsers.settings = TestTwoUsersInMemory.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("tenths", [1, 10])
def test_the_model_of_the_law_is_able_to_fail(tenths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that forgets to ask for room exceeds its cap, and its own verification says so."""
    monkeypatch.setattr("synth_core.ledger.verbs.require_room", lambda *_, **__: None)
    ledger = in_memory()
    for number in range(11):
        ledger.reserve(request(f"p{number}", mu2=tenths * TENTH))
    assert ledger.balance(DATASET).remaining_mu2 < 0
    assert any("exceeds the cap" in problem for problem in ledger.verify())


@pytest.mark.slow
@given(
    mu2=st.floats(1e-6, 4.0).map(Fraction),
    delta=st.sampled_from((1e-5, 1e-9)),
    taken=st.integers(0, 100).map(lambda percent: Fraction(percent, 100)),
)
@settings(max_examples=40)
def test_the_cap_that_a_refusal_names_is_enough(mu2: Fraction, delta: float, taken: Fraction) -> None:
    ledger = MemoryLedger()
    ledger.declare(account(delta=delta, cap_epsilon=0.29), actor="board")
    cap = ledger.balance(DATASET).cap_mu2
    if taken:
        ledger.reserve(request(release="first", mu2=cap * taken))
    if mu2 + ledger.balance(DATASET).charged_mu2 <= cap:
        ledger.hold(DATASET, "second", mu2=mu2, runner=RUNNER)
        return
    with pytest.raises(BudgetRefused, match=r"of 0\.29 left") as refusal:
        ledger.hold(DATASET, "second", mu2=mu2, runner=RUNNER)
    words = str(refusal.value).split()
    assert float(words[4]) < float(words[words.index("needs") + 1].rstrip(";"))
    named = float(words[words.index("--epsilon") + 1])
    ledger.set_cap(DATASET, epsilon=named, actor="board", reason="as told")
    ledger.hold(DATASET, "second", mu2=mu2, runner=RUNNER)


TestTwoUsers.pytestmark = [pytest.mark.slow]
