"""A file or snapshot belongs to one account; accounts with rows of the same people are composed under all caps."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.ledgers import CAP, DATASET, RUNNER, TENTH, account, answered, in_memory, opened, request, with_tables

from synth_core.errors import BudgetRefused, LedgerError, SharedRows
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import mu2_of


@pytest.fixture
def two(ledger: SqlLedger) -> SqlLedger:
    """Two accounts of ten tenths each."""
    ledger.declare(account(dataset="panel"), actor="board")
    return ledger


def test_a_snapshot_that_one_account_has_measured_is_not_measured_by_another(two: SqlLedger) -> None:
    answered(two)
    before = two.head()
    with pytest.raises(SharedRows) as refusal:
        two.reserve(request(dataset="panel"))
    assert str(refusal.value) == (
        "dataset 'panel' may not read these rows: they belong to dataset 'census-2026'; release them from that "
        "account, or compose both with: synth ledger account panel --shares-rows-with census-2026"
    )
    assert two.head() == before
    two.reserve(request(dataset="panel", snapshot="hmac:2"))
    two.reserve(request("more"))


def test_a_file_that_one_account_has_read_is_not_read_by_another(two: SqlLedger) -> None:
    two.bind(DATASET, "pilot", files=["file 1", "file 2", "file 2"], runner=RUNNER)
    two.bind(DATASET, "second", files=["file 2", "file 3"], runner=RUNNER)
    bound = [(record.snapshot, record.release) for record in two.records() if record.state is State.BOUND]
    assert bound == [("file 1", "pilot"), ("file 2", "pilot"), ("file 2", "second"), ("file 3", "second")], (
        "every release leaves a record of every file, so that none tells that it was read before"
    )
    with pytest.raises(SharedRows, match="they belong to dataset 'census-2026'"):
        two.bind("panel", "pilot", files=["file 0", "file 3"], runner=RUNNER)
    assert len(two.records(dataset="panel")) == 1
    assert two.verify() == []


def test_composed_accounts_read_each_others_rows_and_pay_for_each_other(two: SqlLedger) -> None:
    answered(two, mu2=4 * TENTH)
    two.bind(DATASET, "pilot", files=["file 1"], runner=RUNNER)
    two.declare(account(dataset="panel", shares_rows_with=(DATASET,)), actor="board")
    two.declare(account(dataset="panel", shares_rows_with=(DATASET,)), actor="board")
    two.declare(account(dataset="panel"), actor="board")  # said once, it stays
    assert [record.state for record in two.records()].count(State.SHARED) == 1
    two.bind("panel", "pilot", files=["file 1"], runner=RUNNER)
    answered(two, dataset="panel", mu2=3 * TENTH)
    two.hold("panel", "next", mu2=2 * TENTH, runner=RUNNER)
    for name in (DATASET, "panel"):
        balance = two.balance(name)
        assert (balance.charged_mu2, balance.held_mu2) == (7 * TENTH, 2 * TENTH)
        assert balance.remaining_mu2 == TENTH
        assert balance.together == (DATASET, "panel")
        assert balance.account.dataset == name
    with pytest.raises(BudgetRefused):
        two.reserve(request("too much", mu2=2 * TENTH))
    assert two.verify() == []


def test_no_account_of_a_group_exceeds_its_own_cap_at_its_own_delta(ledger: SqlLedger) -> None:
    strict = account(dataset="strict", cap_epsilon=1.0, delta=1e-9, shares_rows_with=(DATASET,))
    ledger.declare(strict, actor="board")
    room = mu2_of(1.0, 1e-9)
    assert room < CAP / 4
    assert ledger.balance(DATASET).remaining_mu2 == room
    ledger.hold(DATASET, "pilot", mu2=room, runner=RUNNER)
    answered(ledger, mu2=room)
    with pytest.raises(BudgetRefused) as refusal:
        ledger.reserve(request("one more", release="second", mu2=room))
    words = str(refusal.value)
    assert words.startswith("dataset 'strict', which shares rows with 'census-2026', has epsilon 0.0")
    enough = re.search(r"raise the cap with: synth ledger cap strict --epsilon (\S+) --reason TEXT$", words)
    assert enough is not None
    ledger.set_cap("strict", epsilon=float(enough[1]), actor="board", reason="decision 17")
    ledger.reserve(request("one more", release="second", mu2=room))
    with pytest.raises(LedgerError, match="the cap cannot be lower: synth ledger cap strict"):
        ledger.set_cap("strict", epsilon=1.0, actor="board", reason="tighten")
    assert ledger.verify() == []


def test_accounts_that_committed_more_than_a_cap_are_not_composed(two: SqlLedger) -> None:
    answered(two, mu2=7 * TENTH)
    answered(two, dataset="panel", snapshot="hmac:2", mu2=7 * TENTH)
    before = two.head()
    composed = account(dataset="panel", shares_rows_with=(DATASET,))
    with pytest.raises(LedgerError) as refusal:
        two.declare(composed, actor="board")
    said = re.fullmatch(
        r"datasets 'census-2026', 'panel' have together committed epsilon (\S+), and the cap of 'census-2026' is 2\.00 "
        r"\(delta 1e-05\); raise the cap with: synth ledger cap census-2026 --epsilon \1 --reason TEXT",
        str(refusal.value),
    )
    assert said is not None
    assert two.head() == before
    for name in (DATASET, "panel"):
        two.set_cap(name, epsilon=float(said[1]), actor="board", reason="decision 18")
    two.declare(replace(composed, cap_epsilon=float(said[1])), actor="board")
    with pytest.raises(LedgerError, match=f"declare it with --epsilon {said[1]} or more"):
        two.declare(account(dataset="third", shares_rows_with=("panel",)), actor="board")
    assert two.balance(DATASET).together == (DATASET, "panel")
    assert two.verify() == []


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"shares_rows_with": ("unknown",)}, "dataset 'unknown' has no account"),
        ({"shares_rows_with": ("panel",)}, "dataset 'panel' cannot share rows with itself"),
        (
            {"shares_rows_with": (DATASET,), "unit": "household"},
            "dataset 'panel' protects one household and 'census-2026' one person; only accounts with one unit",
        ),
    ],
)
def test_an_unsound_composition_is_refused(changes: dict[str, object], refusal: str) -> None:
    ledger = in_memory()
    with pytest.raises(LedgerError, match=refusal):
        ledger.declare(account(dataset="panel", **changes), actor="board")
    assert [a.dataset for a in ledger.accounts()] == [DATASET]


def test_a_ledger_that_forgets_whose_file_it_is_is_found_out(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    ledger.declare(account(dataset="panel"), actor="board")
    ledger.bind(DATASET, "pilot", files=["file 1"], runner=RUNNER)
    with ledger.chain.reading() as book:
        book.owners.clear()
    ledger.bind("panel", "pilot", files=["file 1"], runner=RUNNER)
    assert ledger.verify() == ["record 4 binds a file of another account"]


def test_a_file_is_bound_to_a_release_once(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    for _ in range(2):
        ledger.bind(DATASET, "pilot", files=["file 1"], runner=RUNNER)
    assert len(ledger.records()) == 2
    with ledger.chain.reading() as book:
        book.bound.clear()
    ledger.bind(DATASET, "pilot", files=["file 1"], runner=RUNNER)
    assert ledger.verify() == ["record 3 binds a file to its release again"]


ACCOUNTS = ("census", "panel", "register")
TENTHS = st.integers(1, 6)
names = st.sampled_from(ACCOUNTS)


class People(RuleBasedStateMachine):
    """Three accounts that are composed, spend, hold and get other caps in any order, and a plain model of them."""

    @initialize(tenths=st.tuples(*[st.integers(10, 30)] * 3))
    def open(self, tenths: tuple[int, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = SqlLedger(with_tables(f"sqlite:///{Path(self.folder.name) / 'ledger.sqlite'}"))
        self.caps = {name: cap / 10 for name, cap in zip(ACCOUNTS, tenths, strict=True)}
        for name, cap in self.caps.items():
            self.ledger.declare(account(dataset=name, cap_epsilon=cap), actor="board")
        self.groups = {name: {name} for name in ACCOUNTS}
        self.spent = dict.fromkeys(ACCOUNTS, Fraction(0))
        self.holds = dict.fromkeys(ACCOUNTS, Fraction(0))
        self.asked = 0

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.verify() == []
            self.folder.cleanup()

    def fits(self, name: str) -> bool:
        group = self.groups[name]
        committed = sum((self.spent[member] + self.holds[member] for member in group), Fraction(0))
        return all(committed <= mu2_of(self.caps[member], 1e-5) for member in group)

    @rule(name=names, tenths=TENTHS)
    def spend(self, name: str, tenths: int) -> None:
        self.asked += 1
        self.spent[name] += tenths * TENTH
        asked = request(f"q{self.asked}", dataset=name, snapshot=name, release=f"r{self.asked}", mu2=tenths * TENTH)
        try:
            self.ledger.reserve(asked)
            assert self.fits(name)
        except BudgetRefused:
            assert not self.fits(name)
            self.spent[name] -= tenths * TENTH

    @rule(name=names, tenths=TENTHS)
    def hold(self, name: str, tenths: int) -> None:
        before, self.holds[name] = self.holds[name], max(self.holds[name], tenths * TENTH)
        try:
            self.ledger.hold(name, "held", mu2=tenths * TENTH, runner=RUNNER)
            assert self.fits(name)
        except BudgetRefused:
            assert not self.fits(name)
            self.holds[name] = before

    @rule(name=names)
    def close(self, name: str) -> None:
        self.ledger.close(name, "held", reason="published", runner=RUNNER)
        self.holds[name] = Fraction(0)

    @rule(name=names, other=names)
    def compose(self, name: str, other: str) -> None:
        if name == other:
            return
        before = {member: set(group) for member, group in self.groups.items()}
        group = self.groups[name] | self.groups[other]
        self.groups |= dict.fromkeys(group, group)
        wanted = account(dataset=name, cap_epsilon=self.caps[name], shares_rows_with=(other,))
        try:
            self.ledger.declare(wanted, actor="board")
            assert self.fits(name)
        except LedgerError:
            assert not self.fits(name)
            self.groups = before

    @rule(name=names, tenths=st.integers(10, 30))
    def set_cap(self, name: str, tenths: int) -> None:
        before, self.caps[name] = self.caps[name], tenths / 10
        try:
            self.ledger.set_cap(name, epsilon=self.caps[name], actor="board", reason="decision")
            assert self.fits(name)
        except LedgerError:
            assert not self.fits(name)
            self.caps[name] = before

    @invariant()
    def what_a_group_commits_is_under_every_cap_of_it(self) -> None:
        for name in ACCOUNTS:
            balance, group = self.ledger.balance(name), self.groups[name]
            assert set(balance.together) == group
            assert balance.charged_mu2 == sum((self.spent[member] for member in group), Fraction(0))
            assert balance.held_mu2 == sum((self.holds[member] for member in group), Fraction(0))
            assert balance.cap_mu2 == min(mu2_of(self.caps[member], 1e-5) for member in group)
            assert self.fits(name)
            assert balance.remaining_mu2 >= 0


TestPeople = People.TestCase
TestPeople.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPeople.pytestmark = [pytest.mark.slow]
