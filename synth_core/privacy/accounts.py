"""The ledger's words: accounts, requests, reservations, records, and what a ledger must be able to do.

The protocol (one key = one noisy answer, for ever):

1. `reserve` locks the account, checks the cap and writes RESERVED, or returns what the key already has.
2. `begin` writes MEASURING before the first confidential byte is read for this key.
3. `store` writes the answer and MEASURED in one transaction; the first stored answer wins and is returned.
4. A retry that finds MEASURED reuses the answer; RESERVED goes on; MEASURING without an answer is FORFEITED
   (it stays charged, because the crash may depend on values) and a new attempt is reserved.

A runner that was at work for a release when its hold was closed may reserve nothing more for it: a run that was
cancelled does not notice at once. A runner that starts later may, so that a release is resumed by running it again.

Two more promises are kept by records of their own. A source file belongs to one account (`bind`), and so does every
snapshot that was measured; accounts that are declared to hold rows of the same people are composed: what one of them
spends counts against the caps of all. And a refusal that depends on confidential records is counted (`refuse`) before
anybody sees its text, up to the account's limit.

`Composition` is how spends add up, the one rule for the ledger, its forecast, manifests and certificates. They add up
with one exception. The parts of a partition share no unit, so adding or removing a unit changes the
answers about one of them only, and of all parts the dearest counts. This holds inside one snapshot of the data. In
another snapshot the same unit may lie in another part, and then it has answers about both parts to its name: spends
on different snapshots always add up.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from synth_core.markup import table_html
from synth_core.privacy.answer_form import AnswerForm
from synth_core.privacy.budget import Mechanism, parallel_mu2
from synth_core.privacy.wording import exact_text

Answer = NDArray[np.int64]
"""A stored noisy answer is always a vector of integers: grid counts, grid scores or chosen positions."""


class State(StrEnum):
    """What a record says. Each change of state is a new record; nothing is ever overwritten."""

    ACCOUNT = "account"  # an account was declared
    CAP = "cap"  # an account's cap was changed
    LIMIT = "limit"  # an account's limit of refusals was changed
    SHARED = "shared"  # an account was declared to hold rows of the same people as others
    HELD = "held"  # a release set aside budget before any data was read
    CLOSED = "closed"  # a release gave back what it had set aside and not reserved
    RESERVED = "reserved"
    MEASURING = "measuring"
    MEASURED = "measured"
    FORFEITED = "forfeited"
    REFUNDED = "refunded"
    NOTED = "noted"  # a step that cost nothing
    BOUND = "bound"  # a source file was bound to the account whose release is about to read it
    REFUSED = "refused"  # a refusal that depends on confidential records was given


CHARGED = frozenset({State.RESERVED, State.MEASURING, State.MEASURED, State.FORFEITED})
"""States in which an attempt counts against the account; only a reservation that was never used is given back."""


REFUSAL_LIMIT = 20
"""Refusals that may depend on an account's records in its whole life, unless it declares another number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A data set's privacy budget: one unit, one delta for its whole life, a cap on epsilon at that delta.

    `shares_rows_with` names accounts that hold rows of the same people: all of them are composed.
    """

    dataset: str
    unit: str = "person"
    neighbours: str = "add or remove one record"
    delta: float
    cap_epsilon: float
    rows_per_unit: int = 1
    largest_n: int | None = None  # a public upper bound of the number of records
    refusal_limit: int = REFUSAL_LIMIT
    shares_rows_with: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        most = "no bound is declared" if self.largest_n is None else f"at most {self.largest_n:,}"
        several = f", up to {self.rows_per_unit} records each" if self.rows_per_unit > 1 else ""
        rows = [
            ("protects", f"one {self.unit}{several} (neighbours: {self.neighbours})"),
            ("cap", f"epsilon {exact_text(self.cap_epsilon)} at delta {exact_text(self.delta)}, for life"),
            ("records", most),
            *([("together with", ", ".join(self.shares_rows_with))] if self.shares_rows_with else []),
        ]
        return table_html(rows, title=f"Account {self.dataset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Who ran the step: names and numbers of the runner, never anything about the data.

    `since` is the chain's length when the runner started; spends are refused if the release was closed later. None
    disables the check.
    """

    dag: str = ""
    run: str = ""
    task: str = ""
    map_index: int = -1
    attempt: int = 1
    actor: str = ""
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRequest:
    """What a step wants to ask, described by public facts only.

    `form` is None for a step that asks nothing, and for a question of a version that did not record forms.
    """

    dataset: str
    snapshot: str
    release: str
    step: str
    purpose: str
    mechanism: Mechanism
    asked: tuple[tuple[str, ...], ...] = ()
    form: AnswerForm | None = None
    stratum: Stratum | None = None
    entropy: str = ""
    runner: Runner = field(default_factory=Runner)

    @property
    def key(self) -> str:
        """Idempotency key: what is asked, of which data, for which release and step; not who asks or when."""
        stratum = [self.stratum.partition, self.stratum.part] if self.stratum else None
        identity: list[Any] = [
            self.dataset,
            self.snapshot,
            self.release,
            self.step,
            stratum,
            self.purpose,
            self.mechanism.to_json(),
            [list(attributes) for attributes in self.asked],
            *([self.form.fingerprint] if self.form else []),
        ]
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Permission to measure once; `answer` is set when the key was answered before and must be reused."""

    key: str
    attempt: int
    state: State
    answer: Answer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the chain, as it is shown, exported and verified."""

    id: int
    previous_hash: str
    hash: str
    state: State
    account: Account  # as it was at that time
    key: str
    attempt: int
    snapshot: str
    stratum: Stratum | None
    release: str
    step: str
    purpose: str
    mechanism: Mechanism
    asked: tuple[tuple[str, ...], ...]
    form: AnswerForm | None
    mu2: Fraction
    reason: str
    runner: Runner
    library: str
    entropy: str
    cap_mu2: Fraction
    remaining_mu2: Fraction
    answer_digest: str
    at: datetime

    @property
    def dataset(self) -> str:
        """The data set whose account this record belongs to."""
        return self.account.dataset

    @property
    def request(self) -> SpendRequest:
        """The question this record is about; asking it again returns the stored answer and spends nothing."""
        return SpendRequest(
            dataset=self.dataset,
            snapshot=self.snapshot,
            release=self.release,
            step=self.step,
            purpose=self.purpose,
            mechanism=self.mechanism,
            asked=self.asked,
            form=self.form,
            stratum=self.stratum,
        )


class Head(NamedTuple):
    """The chain's end: kept elsewhere, it proves later that nothing was rolled back."""

    records: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What an account may spend, has spent, and has set aside for releases under way.

    Accounts that hold rows of the same people are one account here: charges, holds and refusals are those of all of
    them, the cap is the lowest that one of them has. `together` are their names.
    """

    account: Account
    cap_mu2: Fraction
    charged_mu2: Fraction
    held_mu2: Fraction
    refusals: int = 0
    together: tuple[str, ...] = ()

    @property
    def remaining_mu2(self) -> Fraction:
        """Room for new reservations; negative where more is charged than the cap allows."""
        return self.cap_mu2 - self.charged_mu2 - self.held_mu2


class Ledger(Protocol):
    """What spends and is read behind the wall; durable, append-only, hash-chained, each method one transaction."""

    def balance(self, dataset: str) -> Balance:
        """What an account may spend, has spent and has set aside."""

    def close(self, dataset: str, release: str, *, reason: str, runner: Runner, only_unmeasured: bool = False) -> None:
        """End a release's hold and those at work under it: what was not reserved is free again, charges stay.

        With `only_unmeasured` a release that was charged for anything keeps its hold.
        """

    def refuse(self, dataset: str, release: str, *, step: str, runner: Runner) -> int:
        """Count a refusal that depends on confidential records; returns how many more the account may give."""

    def reserve(self, request: SpendRequest) -> Reservation:
        """Step 1 of the protocol."""

    def begin(self, reservation: Reservation) -> None:
        """Step 2 of the protocol."""

    def store(self, reservation: Reservation, answer: Answer) -> Answer:
        """Step 3 of the protocol; returns the answer that was kept."""

    def records(self, *, dataset: str | Collection[str] | None = None, release: str | None = None) -> list[Record]:
        """The chain's records, or those of one or several data sets or of a release, oldest first."""


def refusals(records: Iterable[Record]) -> int:
    """Number of recorded refusals that depended on confidential records."""
    return sum(record.state is State.REFUSED for record in records)


def compose(groups: dict[str, frozenset[str]], account: Account) -> None:
    """Join the account's group with those of the accounts that it shares rows with.

    Sharing rows is taken to be transitive: people of one account may be in all accounts of a group, so what they lose
    is at most the sum of what these spend.

    Args:
        groups: the names that are composed with each declared account, itself included; it is changed.
        account: an account that was declared, or a new declaration of it.
    """
    own = groups.get(account.dataset, frozenset({account.dataset}))
    group = own.union(*(groups[other] for other in account.shares_rows_with))
    groups.update(dict.fromkeys(group, group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One part of a declared partition of the records; parts of one partition compose in parallel."""

    partition: str
    part: str


Spend = tuple[str, Stratum | None, Fraction]
"""Snapshot, stratum (None for a question about all records) and mu^2 of one charge."""

ZERO = Fraction(0)


@dataclass(slots=True)
class Composition:
    """A running sum of spends; a refund is added with a negative price. Pure epsilons compose by the same rule."""

    whole: Fraction = ZERO
    parts: defaultdict[tuple[str, str], dict[str, Fraction]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def mu2(self) -> Fraction:
        """The price of everything that was added."""
        return self.whole + sum((parallel_mu2(parts) for parts in self.parts.values()), ZERO)

    def mu2_with(self, snapshot: str, stratum: Stratum | None, mu2: Fraction) -> Fraction:
        """The price after one more spend."""
        if stratum is None:
            return self.mu2 + mu2
        parts = self.parts.get((snapshot, stratum.partition), {})
        grown = parts.get(stratum.part, ZERO) + mu2
        return self.mu2 + max(ZERO, grown - parallel_mu2(parts))

    def add(self, snapshot: str, stratum: Stratum | None, mu2: Fraction) -> None:
        """Take one spend into account."""
        if stratum is None:
            self.whole += mu2
        else:
            parts = self.parts[snapshot, stratum.partition]
            parts[stratum.part] = parts.get(stratum.part, ZERO) + mu2


def which_count(spends: Sequence[Spend]) -> list[bool]:
    """Which of the spends make up the price of all of them.

    Args:
        spends: charges of one release.

    Returns:
        For each spend whether its price is part of the sum: those about all records, and those of the dearest part of
        each partition of each snapshot (the first by name among equals). Their sum is `Composition.mu2`.
    """
    composition = Composition()
    for spend in spends:
        composition.add(*spend)
    dearest = {
        place: min(parts.items(), key=lambda item: (-item[1], item[0]))[0] for place, parts in composition.parts.items()
    }
    return [stratum is None or dearest[snapshot, stratum.partition] == stratum.part for snapshot, stratum, _ in spends]


PURE_DIGITS = 6
"""Digits after the decimal point of a pure epsilon, which is rounded up."""


def pure_epsilon(spends: Iterable[tuple[str, Stratum | None, Mechanism]], rows_per_unit: int = 1) -> float | None:
    """The epsilon without any delta that bounds what answers lose, where each question has one.

    For the answers that were given, their probability with a record is at most e^epsilon times that without it, and the
    other way round. How many questions a method asks may depend on its answers, and then so does this sum, which is no
    promise made before; that is (epsilon, delta).

    Args:
        spends: Snapshot, stratum and mechanism of each charge of a release.
        rows_per_unit: The largest number of records of one unit, whose losses add up.

    Returns:
        The sum, of a partition's parts the largest, rounded up; None where nothing was asked or a question had Gaussian
        noise.
    """
    losses = Composition()
    for snapshot, stratum, mechanism in spends:
        loss = mechanism.pure_epsilon()
        if loss is None:
            return None
        losses.add(snapshot, stratum, loss)
    return math.ceil(losses.mu2 * rows_per_unit * 10**PURE_DIGITS) / 10**PURE_DIGITS if losses.mu2 else None


def snapshot_numbers(snapshots: Iterable[str]) -> list[int]:
    """The snapshots as 1, 2, … in the order of their first appearance, which say no more than which are the same."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(snapshot, len(numbers) + 1) for snapshot in snapshots]
