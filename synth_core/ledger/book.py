"""What a chain of records adds up to: accounts, attempts, charges and holds, folded one record at a time.

The same fold serves the ledger (may this spend happen?) and its verification (could this have happened?). It is
pure: it knows no database, and it prices every spend from its mechanism, never from a stored mu^2.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from sys import intern

from synth_core.ledger.rows import GENESIS, Row, account_of, stratum_of
from synth_core.privacy.accounts import (
    CHARGED,
    ZERO,
    Account,
    Balance,
    Composition,
    Head,
    Record,
    Runner,
    State,
    Stratum,
    compose,
    pure_epsilon,
    which_count,
)
from synth_core.privacy.budget import Mechanism, group_mu2, mu2_of

FOLLOWS: dict[State, frozenset[State | None]] = {
    State.RESERVED: frozenset({None, State.REFUNDED, State.FORFEITED}),  # of the attempt before
    State.MEASURING: frozenset({State.RESERVED}),
    # A runner that was given up while it measured has paid: if its answer comes first, it is the answer.
    State.MEASURED: frozenset({State.MEASURING, State.FORFEITED}),
    State.FORFEITED: frozenset({State.MEASURING}),
    State.REFUNDED: frozenset({State.RESERVED}),
}
"""Which states an attempt may be in before it enters a state."""

FINAL = frozenset({State.MEASURED, State.REFUNDED})
"""States after which an attempt has no other."""

DECLARING = {
    State.ACCOUNT: "",
    State.CAP: "cap_epsilon",
    State.LIMIT: "refusal_limit",
    State.SHARED: "shares_rows_with",
}
"""Records that declare an account or change it, each with the one thing that it may change."""


@dataclass(slots=True)
class Attempt:
    """One permission to measure: where it stands, and what it charges to which release."""

    state: State
    dataset: str
    release: str
    snapshot: str
    stratum: Stratum | None
    mu2: Fraction


@dataclass(slots=True)
class Commitment:
    """What one release has charged and still holds."""

    hold: Fraction = ZERO
    limit: Fraction = ZERO  # the largest hold it ever had: what it said it would cost
    ended: int = 0  # the record that closed its last hold
    forfeited: Fraction = ZERO  # charged for attempts that were given up, which no plan foresees
    charges: Composition = field(default_factory=Composition)

    @property
    def charged(self) -> Fraction:
        """The price of all attempts that count."""
        return self.charges.mu2

    @property
    def committed(self) -> Fraction:
        """What other releases may not spend: a hold covers the charges up to its size."""
        return max(self.charged, self.hold)

    def ended_for(self, runner: Runner) -> bool:
        """Whether the release was ended while this runner was at work for it."""
        return runner.since is not None and runner.since < self.ended


@dataclass(slots=True)
class Book:
    """The fold of all records up to `records`, the last of which has `hash`."""

    records: int = 0
    hash: str = GENESIS
    declared: dict[str, Account] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    answered: dict[str, tuple[int, str]] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    spending: dict[str, dict[str, Commitment]] = field(default_factory=dict)
    committed: dict[str, Fraction] = field(default_factory=dict)  # of each account by itself
    charged: dict[str, Fraction] = field(default_factory=dict)  # of each account by itself
    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # fingerprint of a file or snapshot: its account
    bound: set[tuple[str, str, str]] = field(default_factory=set)  # data set, release, fingerprint of a file

    @property
    def head(self) -> Head:
        """The end of the chain that was folded."""
        return Head(records=self.records, hash=self.hash)

    def together(self, dataset: str) -> list[Account]:
        """The accounts that hold rows of the same people, this one included, by name."""
        return [self.accounts[name] for name in sorted(self.groups[dataset])]

    def tightest(self, dataset: str) -> Account:
        """The account with the lowest cap among those that hold rows of the same people."""
        return min(self.together(dataset), key=cap_mu2)

    def committed_together(self, dataset: str) -> Fraction:
        """What all accounts that hold rows of the same people have spent and set aside."""
        return sum((self.committed[name] for name in self.groups[dataset]), ZERO)

    def remaining(self, dataset: str) -> Fraction:
        """Room for new reservations and holds."""
        return cap_mu2(self.tightest(dataset)) - self.committed_together(dataset)

    def refusals_together(self, dataset: str) -> int:
        """How many refusals have depended on records of the people in this account, whichever account gave them."""
        return sum(self.refusals.get(name, 0) for name in self.groups[dataset])

    def owner(self, fingerprint: str, dataset: str) -> str | None:
        """The account to which a file or snapshot is bound, if that is not one of this data set's people."""
        owner = self.owners.get(fingerprint)
        return None if owner is None or owner in self.groups[dataset] else owner

    def open_holds(self, dataset: str, *, besides: str) -> list[tuple[str, Fraction]]:
        """Releases that hold more than they were charged for, without `besides`, and how much more."""
        return [
            (name, release.committed - release.charged)
            for member in sorted(self.groups[dataset])
            for name, release in self.spending[member].items()
            if release.hold > release.charged and (member, name) != (dataset, besides)
        ]

    def release(self, dataset: str, release: str) -> Commitment:
        """What the release has charged and holds; nothing, if it is new."""
        return self.spending[dataset].get(release, Commitment())

    def balance(self, dataset: str) -> Balance:
        """The account's state of affairs, with all accounts that hold rows of the same people."""
        members = self.together(dataset)
        charged = sum((self.charged[member.dataset] for member in members), ZERO)
        return Balance(
            account=self.accounts[dataset],
            cap_mu2=cap_mu2(self.tightest(dataset)),
            charged_mu2=charged,
            held_mu2=self.committed_together(dataset) - charged,
            refusals=self.refusals_together(dataset),
            together=tuple(account.dataset for account in members),
        )

    def state(self, key: str, attempt: int) -> State | None:
        """Where the attempt stands; None if it was never made."""
        known = self.attempts.get((key, attempt))
        return known.state if known else None

    def apply(self, row: Row) -> None:
        """Take one more record into account; who calls this has checked that it may happen."""
        state, dataset = State(row["state"]), row["dataset"]
        self.records, self.hash = row["id"], row["hash"]
        if state in DECLARING:
            self._declare(account_of(row["account"]))
        elif state is State.NOTED:
            self.noted.add(row["key"])
        elif state is State.BOUND:
            self.owners.setdefault(row["snapshot"], dataset)
            self.bound.add((dataset, row["release"], row["snapshot"]))
        elif state is State.REFUSED:
            self.refusals[dataset] = self.refusals.get(dataset, 0) + 1
        elif state in (State.HELD, State.CLOSED):
            self._hold(dataset, row["release"], Fraction(row["mu2"]) if state is State.HELD else ZERO)
            if state is State.CLOSED:
                self.spending[dataset][row["release"]].ended = self.records
        else:
            self._attempt(state, row)

    def _declare(self, account: Account) -> None:
        name = account.dataset
        self.accounts[name] = account
        self.declared.setdefault(name, account)
        self.spending.setdefault(name, {})
        self.committed.setdefault(name, ZERO)
        self.charged.setdefault(name, ZERO)
        compose(self.groups, account)

    def _attempt(self, state: State, row: Row) -> None:
        key, number = row["key"], row["attempt"]
        if state is State.RESERVED:
            attempt = Attempt(
                state=state,
                # One text for all attempts that name the same: there may be a million.
                dataset=intern(row["dataset"]),
                release=intern(row["release"]),
                snapshot=intern(row["snapshot"]),
                stratum=stratum_of(row["stratum"]),
                mu2=spend_mu2(row["mechanism"], self.accounts[row["dataset"]].rows_per_unit),
            )
            self.attempts[key, number] = attempt
            self.latest[key] = number
            self.owners.setdefault(row["snapshot"], attempt.dataset)
            self._charge(attempt, attempt.mu2)
            return
        attempt = self.attempts[key, number]
        attempt.state = state
        if state is State.FORFEITED:
            self.spending[attempt.dataset][attempt.release].forfeited += attempt.mu2
        if state is State.REFUNDED:
            self._charge(attempt, -attempt.mu2)
        elif state is State.MEASURED:
            self.answered[key] = (number, row["answer_digest"])

    def _charge(self, attempt: Attempt, mu2: Fraction) -> None:
        release = self.spending[attempt.dataset].setdefault(attempt.release, Commitment())
        before, charged = release.committed, release.charged
        release.charges.add(attempt.snapshot, attempt.stratum, mu2)
        self.committed[attempt.dataset] += release.committed - before
        self.charged[attempt.dataset] += release.charged - charged

    def _hold(self, dataset: str, name: str, mu2: Fraction) -> None:
        release = self.spending[dataset].setdefault(name, Commitment())
        before = release.committed
        release.hold, release.limit = mu2, max(release.limit, mu2)
        self.committed[dataset] += release.committed - before


@lru_cache(maxsize=1024)
def cap_mu2(account: Account) -> Fraction:
    """The account's cap in the currency of the ledger."""
    return mu2_of(account.cap_epsilon, account.delta)


@lru_cache(maxsize=1024)
def spend_mu2(mechanism: str, rows_per_unit: int) -> Fraction:
    """What a mechanism, as written in a row, costs a unit that owns up to `rows_per_unit` records."""
    return group_mu2(Mechanism.from_json(json.loads(mechanism)).mu2(), rows_per_unit)


def charged_records(records: Sequence[Record]) -> list[Record]:
    """The latest record of each attempt that counts against the account."""
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: record.id):
        if record.key and record.state in CHARGED | {State.REFUNDED}:
            latest[record.key, record.attempt] = record
    return [record for record in latest.values() if record.state in CHARGED]


def counted_records(records: Sequence[Record]) -> list[Record]:
    """The charged records of a release whose prices add up to its own.

    Their sum is what the ledger charges for the release (see `composition`).
    """
    charged = charged_records(records)
    counting = which_count([(record.snapshot, record.stratum, record.mu2) for record in charged])
    return [record for record, counts in zip(charged, counting, strict=True) if counts]


def pure_loss(records: Sequence[Record]) -> float | None:
    """What the answers of a release lose at most without any delta (`pure_epsilon`); None where one needs a delta."""
    charged = charged_records(records)
    spends = ((record.snapshot, record.stratum, record.mechanism) for record in charged)
    return pure_epsilon(spends, charged[0].account.rows_per_unit) if charged else None


def cost_by_step(records: Sequence[Record]) -> dict[str, Fraction]:
    """mu^2 of each step of a release, of which the sum is the release's own."""
    costs: dict[str, Fraction] = {record.step: Fraction(0) for record in records}
    for record in counted_records(records):
        costs[record.step] += record.mu2
    return costs


RECENT = 6
"""Number of latest releases that the schedule is read from, so that an old habit does not count for ever."""

MIN_INTERVAL = timedelta(days=1)
"""Least mean time between releases that is a schedule; releases of one afternoon are trials."""
MAX_FORECAST = timedelta(days=365 * 30)
"""How far ahead a cap is forecast."""


def runway(records: Iterable[Record], balance: Balance) -> str | None:
    """The forecast in words; None without a schedule, or if the cap is not reached for a generation."""
    return forecast(_releases(records, balance.account.dataset), balance)


def forecast(releases: Sequence[tuple[datetime, Fraction]], balance: Balance) -> str | None:
    """The same, of when each release began to spend and what it was charged, in time order."""
    recent = releases[-RECENT:]
    if len(recent) < 2:
        return None
    (first, _), (last, _) = recent[0], recent[-1]
    interval = (last - first) / (len(recent) - 1)
    if interval < MIN_INTERVAL:
        return None
    cost = sum((mu2 for _, mu2 in recent), ZERO) / len(recent)
    affordable = math.floor(balance.remaining_mu2 / cost)
    if (affordable + 1) * interval > MAX_FORECAST:
        return None
    reached = last + (affordable + 1) * interval
    return f"at the present schedule the cap is reached in {reached.year}-Q{(reached.month + 2) // 3}"


def _releases(records: Iterable[Record], dataset: str) -> list[tuple[datetime, Fraction]]:
    """When each release of the data set began to spend, and what it was charged, in time order."""
    releases: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.dataset == dataset and record.key:
            releases[record.release].append(record)
    costs = {name: sum(cost_by_step(own).values(), ZERO) for name, own in releases.items()}
    return sorted(
        (min(record.at for record in own if record.state is State.RESERVED), costs[name])
        for name, own in releases.items()
        if costs[name]
    )
