"""The verbs of the ledger's protocol, on any place that keeps records: what each refuses and what it appends."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache, wraps
from importlib.metadata import version
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from synth_core.errors import LedgerError
from synth_core.ledger.book import Book, cap_mu2, spend_mu2
from synth_core.ledger.refusals import (
    account_in,
    cap_too_low,
    no_room,
    other_declaration,
    require_form,
    require_going_on,
    require_names,
    require_order,
    require_own_rows,
    require_room,
    require_room_together,
    require_same_people,
    require_small_delta,
    require_sound,
)
from synth_core.ledger.rows import Row, canonical, facts_of, facts_without_request, hash_of, pack_answer, unpack_answer
from synth_core.privacy.accounts import (
    ZERO,
    Account,
    Answer,
    Balance,
    Head,
    Record,
    Reservation,
    Runner,
    SpendRequest,
    State,
)
from synth_core.privacy.budget import fraction_text

P = ParamSpec("P")
T = TypeVar("T")
Fault = Callable[[str], None]


def no_fault(_: str) -> None:
    """Nothing goes wrong here."""


class Page(ABC):
    """An open transaction: the book up to now, and a place to append the next records."""

    def __init__(self, book: Book, fault: Fault) -> None:
        self.book = book
        self.fault = fault
        self.appended = 0

    @abstractmethod
    def insert(self, row: Row) -> None:
        """Keep a record."""

    @abstractmethod
    def insert_answer(self, key: str, columns: Row) -> None:
        """Keep the answer of a key."""

    @abstractmethod
    def reserved(self, key: str, attempt: int) -> Row:
        """The facts of the record that reserved an attempt."""

    @abstractmethod
    def stored(self, key: str) -> bytes:
        """The kept answer of a key as it was packed, empty if it is lost."""

    def append(
        self,
        state: State,
        account: Account,
        facts: Row,
        *,
        attempt: int = 0,
        mu2: Fraction = ZERO,
        reason: str = "",
        answer_digest: str = "",
    ) -> None:
        """Write the chain's next record and fold it into the book."""
        row = facts | {
            "id": self.book.records + 1,
            "previous_hash": self.book.hash,
            "hash": "",
            "state": state.value,
            "dataset": account.dataset,
            "account": canonical(asdict(account)),
            "attempt": attempt,
            "mu2": fraction_text(mu2),
            "reason": reason,
            "library": library(),
            "cap_mu2": fraction_text(cap_mu2(account)),
            "answer_digest": answer_digest,
            "at": datetime.now(UTC).isoformat(timespec="microseconds"),
        }
        self.appended += 1
        self.book.apply(row)
        row["remaining_mu2"] = fraction_text(self.book.remaining(account.dataset))
        row["hash"] = self.book.hash = hash_of(row)
        self.insert(row)
        self.fault("appended")

    def move(self, state: State, key: str, attempt: int, *, reason: str = "", answer_digest: str = "") -> None:
        """Append a change of state that repeats what the reservation said."""
        known = self.book.attempts[key, attempt]
        self.append(
            state,
            self.book.accounts[known.dataset],
            self.reserved(key, attempt),
            attempt=attempt,
            mu2=known.mu2,
            reason=reason,
            answer_digest=answer_digest,
        )

    def answer(self, key: str) -> Answer:
        """The kept answer of a key; refused if it is not the one that was stored."""
        return unpack_answer(self.stored(key), self.book.answered[key][1])


def _one_transaction(
    verb: Callable[Concatenate[LedgerVerbs, Page, P], T],
) -> Callable[Concatenate[LedgerVerbs, P], T]:
    """Make a verb out of what it does on an open page of the chain."""

    @wraps(verb)
    def call(self: LedgerVerbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.chain.write(verb.__name__, lambda page: verb(self, page, *args, **kwargs))

    whole = inspect.signature(verb)
    seen = [parameter for parameter in whole.parameters.values() if parameter.name != "page"]
    call.__signature__ = whole.replace(parameters=seen)  # type: ignore[attr-defined]
    return call


class Pages(Protocol):
    """The place that keeps a chain."""

    def write(self, verb: str, work: Callable[[Page], T]) -> T:
        """Do the work in one transaction; records it appended are there, all or none, when this returns."""

    def reading(self) -> AbstractContextManager[Book]:
        """The book with all records up to now."""


class LedgerVerbs(ABC):
    """A ledger but for the place that keeps its chain."""

    chain: Pages

    @abstractmethod
    def records(self, *, dataset: str | Collection[str] | None = None, release: str | None = None) -> list[Record]:
        """The chain, or the records of one or several data sets or of a release, oldest first."""

    @_one_transaction
    def declare(self, page: Page, account: Account, *, actor: str, delta_reason: str = "") -> None:
        """Open a data set's account; the same declaration again changes nothing, another one is refused.

        Accounts that hold rows of the same people may be named at any time, and never be taken back: from then on what
        one spends counts against the caps of all. `delta_reason` says why a delta above 1/(10 * largest_n) is accepted;
        it becomes part of the chain.
        """
        require_sound(account)
        require_same_people(page.book, account)
        name, by = account.dataset, facts_without_request(Runner(actor=actor))
        known = page.book.accounts.get(name)
        if known is None:
            require_names(account)
            require_small_delta(account, delta_reason)
            page.append(State.ACCOUNT, account, by, reason=delta_reason.strip())
            require_room_together(page.book, name, new=True)
            return
        before = known.shares_rows_with
        first = replace(page.book.declared[name], shares_rows_with=before)
        if replace(account, shares_rows_with=before) not in (known, first):
            raise other_declaration(known, account)
        others = tuple(dict.fromkeys((*before, *account.shares_rows_with)))
        if others != before:
            page.append(State.SHARED, replace(known, shares_rows_with=others), by)
            require_room_together(page.book, name, new=False)

    @_one_transaction
    def set_cap(self, page: Page, dataset: str, *, epsilon: float, actor: str, reason: str) -> None:
        """Change an account's cap, but not below what is committed; the reason becomes part of the chain.

        Delta and unit stay for life.
        """
        account = replace(account_in(page.book, dataset), cap_epsilon=float(epsilon))
        require_sound(account)
        if not reason.strip():
            raise LedgerError(f"dataset {dataset!r}: a change of the cap needs a reason")
        committed = page.book.committed_together(dataset)
        if cap_mu2(account) < committed:
            raise cap_too_low(account, committed)
        page.append(State.CAP, account, facts_without_request(Runner(actor=actor)), reason=reason)

    @_one_transaction
    def set_refusal_limit(self, page: Page, dataset: str, *, limit: int, actor: str, reason: str) -> None:
        """Change how many refusals may depend on the account's records; the reason becomes part of the chain."""
        account = replace(account_in(page.book, dataset), refusal_limit=limit)
        require_sound(account)
        if not reason.strip():
            raise LedgerError(f"dataset {dataset!r}: a change of the limit of refusals needs a reason")
        page.append(State.LIMIT, account, facts_without_request(Runner(actor=actor)), reason=reason)

    def balance(self, dataset: str) -> Balance:
        """What the account may spend, has spent and has set aside, recomputed from the mechanisms."""
        with self.chain.reading() as book:
            account_in(book, dataset)
            return book.balance(dataset)

    def accounts(self) -> list[Account]:
        """All accounts as they are now."""
        with self.chain.reading() as book:
            return list(book.accounts.values())

    @_one_transaction
    def hold(self, page: Page, dataset: str, release: str, *, mu2: Fraction, runner: Runner) -> None:
        """Set aside budget for a whole release before any data is read; the largest hold of a release counts.

        `mu2` is in the account's unit, like every price in the ledger: for a person with up to k rows it is
        k^2 times the price for one row. What the release has been charged already is part of it.
        """
        account = account_in(page.book, dataset)
        known = page.book.release(dataset, release)
        if mu2 <= known.hold:
            return
        others = page.book.committed_together(dataset) - known.committed
        cap = cap_mu2(page.book.tightest(dataset))
        if others + max(mu2, known.charged) > cap:
            left, needed = cap - others - known.charged, mu2 - known.charged
            raise no_room(page.book, dataset, release, left=left, needed=needed, what="this release")
        page.append(State.HELD, account, facts_without_request(runner, release), mu2=mu2)

    @_one_transaction
    def close(
        self,
        page: Page,
        dataset: str,
        release: str,
        *,
        reason: str,
        runner: Runner,
        only_unmeasured: bool = False,
    ) -> None:
        """End a release's hold and those at work under it: what was not reserved is free again, charges stay.

        With `only_unmeasured` a release that was charged for anything keeps its hold.
        """
        account, known = account_in(page.book, dataset), page.book.release(dataset, release)
        if known.hold and not (only_unmeasured and known.charged):
            page.append(State.CLOSED, account, facts_without_request(runner, release), reason=reason)

    @_one_transaction
    def reserve(self, page: Page, request: SpendRequest) -> Reservation:
        """Charge the account for one answer and permit one measurement, or return what the key has."""
        book = page.book
        request = _as_begun(page.book, request)
        key, facts = request.key, facts_of(request)
        account = account_in(book, request.dataset)
        mu2 = spend_mu2(facts["mechanism"], account.rows_per_unit)
        if mu2 == 0:
            raise LedgerError(f"step {request.step!r} spends nothing on {request.purpose!r}; note it instead")
        if key in book.answered:
            attempt, _ = book.answered[key]
            return Reservation(key=key, attempt=attempt, state=State.MEASURED, answer=page.answer(key))
        require_going_on(book, request)
        require_own_rows(book, request.dataset, request.snapshot)
        require_form(book, request)
        attempt = book.latest.get(key, 0)
        state = book.state(key, attempt)
        if state is State.RESERVED:
            return Reservation(key=key, attempt=attempt, state=state)
        given_up = mu2 if state is State.MEASURING else ZERO
        require_room(book, request, mu2, given_up=given_up)
        if state is State.MEASURING:
            reason = "given up without an answer; a new attempt was made"
            page.move(State.FORFEITED, key, attempt, reason=reason)
        page.append(State.RESERVED, account, facts, attempt=attempt + 1, mu2=mu2)
        return Reservation(key=key, attempt=attempt + 1, state=State.RESERVED)

    @_one_transaction
    def begin(self, page: Page, reservation: Reservation) -> None:
        """Record that confidential data is about to be read; only one runner may do so under a reservation."""
        require_order(page.book, State.MEASURING, reservation)
        page.move(State.MEASURING, reservation.key, reservation.attempt)

    @_one_transaction
    def store(self, page: Page, reservation: Reservation, answer: Answer) -> Answer:
        """Keep the answer for ever and return it; where the key has one already, that one is returned."""
        key, columns = reservation.key, pack_answer(answer)
        if key in page.book.answered:
            return page.answer(key)
        require_order(page.book, State.MEASURED, reservation)
        page.insert_answer(key, columns)
        page.fault("answer-inserted")
        page.move(State.MEASURED, key, reservation.attempt, answer_digest=columns["digest"])
        return unpack_answer(columns["vector"], columns["digest"])

    @_one_transaction
    def refund(self, page: Page, reservation: Reservation, *, reason: str) -> None:
        """Give back a reservation under which nothing was ever read."""
        if page.book.state(reservation.key, reservation.attempt) is State.REFUNDED:
            return
        require_order(page.book, State.REFUNDED, reservation)
        page.move(State.REFUNDED, reservation.key, reservation.attempt, reason=reason)

    @_one_transaction
    def note(self, page: Page, request: SpendRequest) -> None:
        """Record a step that asked nothing of the data."""
        account = account_in(page.book, request.dataset)
        if request.mechanism.name != "none":
            raise LedgerError(f"step {request.step!r} spends on {request.purpose!r}; reserve it, do not note it")
        if request.key not in page.book.noted:
            page.append(State.NOTED, account, facts_of(request), attempt=1)

    @_one_transaction
    def bind(self, page: Page, dataset: str, release: str, *, files: Collection[str], runner: Runner) -> None:
        """Bind source files, given by keyed fingerprints, to the account; refused if one is another account's."""
        account = account_in(page.book, dataset)
        for fingerprint in sorted(set(files)):
            require_own_rows(page.book, dataset, fingerprint)
            # Every release leaves a record: with none for known files, records would reveal that they were read before.
            if (dataset, release, fingerprint) not in page.book.bound:
                facts = facts_without_request(runner, release) | {"snapshot": fingerprint}
                page.append(State.BOUND, account, facts)

    @_one_transaction
    def refuse(self, page: Page, dataset: str, release: str, *, step: str, runner: Runner) -> int:
        """Count a refusal that depends on confidential records; returns how many more the account may give.

        It is negative if refusals that were under way at the same time took the account beyond its limit.
        """
        account = account_in(page.book, dataset)
        page.append(State.REFUSED, account, facts_without_request(runner, release) | {"step": step})
        return account.refusal_limit - page.book.refusals_together(dataset)

    def head(self) -> Head:
        """The chain's end, to be kept out of reach of everyone who can write to the database."""
        with self.chain.reading() as book:
            return book.head


def _as_begun(book: Book, request: SpendRequest) -> SpendRequest:
    """The request as a version without forms has begun it, if one has: its answer is found, not drawn again."""
    before = replace(request, form=None)
    return before if before.key in book.latest else request


@cache
def library() -> str:
    """The program that wrote a record, with its version."""
    return f"synth-core {version('synth-core')}"
