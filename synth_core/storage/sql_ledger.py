"""The durable ledger: budget reserved before data is read, one stored answer for a key, all in a hash chain."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, bindparam, insert, select, text

from synth_core.errors import LedgerError
from synth_core.privacy.ledger import (
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
from synth_core.storage.files import atomic_write
from synth_core.storage.ledger_book import ZERO, cap_mu2, spend_mu2
from synth_core.storage.ledger_chain import Chain, Page, all_rows
from synth_core.storage.ledger_database import Fault, database_file, no_fault, parse_url
from synth_core.storage.ledger_head import read_head, usual_head
from synth_core.storage.ledger_refusals import (
    account_in,
    cap_too_low,
    no_room,
    other_declaration,
    require_going_on,
    require_order,
    require_room,
    require_sound,
)
from synth_core.storage.ledger_rows import (
    ANSWERS,
    ASKED,
    FACTS,
    RECORDS,
    Row,
    canonical,
    facts_of,
    facts_without_request,
    packed,
    record_of,
    unpacked,
)
from synth_core.storage.ledger_verify import problems

P = ParamSpec("P")
T = TypeVar("T")

RESERVED = select(*(RECORDS.c[name] for name in FACTS)).where(
    RECORDS.c.key == bindparam("key"),
    RECORDS.c.attempt == bindparam("attempt"),
    RECORDS.c.state == State.RESERVED.value,
    text(ASKED),  # without it SQLite would not use the index of the attempts
)
STORED = select(ANSWERS.c.vector).where(ANSWERS.c.key == bindparam("key"))


def ledger_url(workspace: Path, url: str | None) -> str:
    """Where the ledger is: as asked, else as SYNTH_LEDGER_URL says, else a file in the workspace."""
    return url or os.environ.get("SYNTH_LEDGER_URL") or f"sqlite:///{workspace.resolve() / 'ledger.sqlite'}"


def _one_transaction(
    verb: Callable[Concatenate[SqlLedger, Page, P], T],
) -> Callable[Concatenate[SqlLedger, P], T]:
    """Make a verb out of what it does on an open page of the chain."""

    @wraps(verb)
    def call(self: SqlLedger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.chain.write(verb.__name__, lambda page: verb(self, page, *args, **kwargs))

    whole = inspect.signature(verb)
    seen = [parameter for parameter in whole.parameters.values() if parameter.name != "page"]
    call.__signature__ = whole.replace(parameters=seen)  # type: ignore[attr-defined]
    return call


class SqlLedger:
    """A ledger in SQLite (a file, or memory) or PostgreSQL; safe among threads, processes and machines.

    `head_path` names the file that keeps the chain's head after each commit; beside a SQLite file there always
    is one, and for PostgreSQL SYNTH_LEDGER_HEAD may name one. `fault` is called with "verb:point" wherever a
    crash must do no harm. An instance may be pickled, as its URL, and used after a fork; one in memory may not.
    """

    def __init__(self, url: str, *, head_path: Path | None = None, fault: Fault | None = None) -> None:
        parsed = parse_url(url)
        self.chain = Chain(parsed, head_path=head_path or usual_head(parsed), fault=fault or no_fault)

    def __repr__(self) -> str:
        return f"SqlLedger({self.chain.url.render_as_string(hide_password=True)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        url = self.chain.url
        if url.get_backend_name() == "sqlite" and database_file(url) is None:
            raise LedgerError(
                "a ledger in memory cannot be sent to another process; use a file: sqlite:///path"
            )
        return _reopened, (url.render_as_string(hide_password=False), self.chain.head_path)

    @_one_transaction
    def declare(self, page: Page, account: Account, *, actor: str) -> None:
        """Open a data set's account; the same declaration again changes nothing, another one is refused."""
        require_sound(account)
        known = page.book.accounts.get(account.dataset)
        if known is None:
            page.append(State.ACCOUNT, account, facts_without_request(Runner(actor=actor)))
        elif account not in (known, page.book.declared[account.dataset]):
            raise other_declaration(known, account)

    @_one_transaction
    def set_cap(self, page: Page, dataset: str, *, epsilon: float, actor: str, reason: str) -> None:
        """Change an account's cap, but not below what is committed; the reason becomes part of the chain."""
        account = replace(account_in(page.book, dataset), cap_epsilon=float(epsilon))
        require_sound(account)
        if not reason.strip():
            raise LedgerError(f"dataset {dataset!r}: a change of the cap needs a reason")
        committed = page.book.committed[dataset]
        if cap_mu2(account) < committed:
            raise cap_too_low(account, committed)
        page.append(State.CAP, account, facts_without_request(Runner(actor=actor)), reason=reason)

    def balance(self, dataset: str) -> Balance:
        """What the account may spend, has spent and has set aside, recomputed from the mechanisms."""
        with self.chain.reading() as (_, book):
            account_in(book, dataset)
            return book.balance(dataset)

    def accounts(self) -> list[Account]:
        """All accounts as they are now."""
        with self.chain.reading() as (_, book):
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
        others = page.book.committed[dataset] - known.committed
        committed = others + max(mu2, known.charged)
        if committed > cap_mu2(account):
            left = cap_mu2(account) - others - known.charged
            needed = mu2 - known.charged
            raise no_room(account, left=left, needed=needed, committed=committed, what="this release")
        page.append(State.HELD, account, facts_without_request(runner, release), mu2=mu2)

    @_one_transaction
    def close(self, page: Page, dataset: str, release: str, *, reason: str, runner: Runner) -> None:
        """End a release's hold and those at work under it: what was not reserved is free again, charges stay."""
        account = account_in(page.book, dataset)
        if page.book.release(dataset, release).hold:
            page.append(State.CLOSED, account, facts_without_request(runner, release), reason=reason)

    @_one_transaction
    def reserve(self, page: Page, request: SpendRequest) -> Reservation:
        """Charge the account for one answer and permit one measurement, or return what the key has."""
        book, key, facts = page.book, request.key, facts_of(request)
        account = account_in(book, request.dataset)
        mu2 = spend_mu2(facts["mechanism"], account.rows_per_unit)
        if mu2 == 0:
            raise LedgerError(f"step {request.step!r} spends nothing on {request.purpose!r}; note it instead")
        if key in book.answered:
            attempt, _ = book.answered[key]
            return Reservation(key=key, attempt=attempt, state=State.MEASURED, answer=_stored(page, key))
        require_going_on(book, request)
        attempt = book.latest.get(key, 0)
        state = book.state(key, attempt)
        if state is State.RESERVED:
            return Reservation(key=key, attempt=attempt, state=state)
        given_up = mu2 if state is State.MEASURING else ZERO
        require_room(book, request, mu2, given_up=given_up)
        if state is State.MEASURING:
            reason = "given up without an answer; a new attempt was made"
            _move(page, State.FORFEITED, key, attempt, reason=reason)
        page.append(State.RESERVED, account, facts, attempt=attempt + 1, mu2=mu2)
        return Reservation(key=key, attempt=attempt + 1, state=State.RESERVED)

    @_one_transaction
    def begin(self, page: Page, reservation: Reservation) -> None:
        """Record that confidential data is about to be read; only one runner may do so under a reservation."""
        require_order(page.book, State.MEASURING, reservation)
        _move(page, State.MEASURING, reservation.key, reservation.attempt)

    @_one_transaction
    def store(self, page: Page, reservation: Reservation, answer: Answer) -> Answer:
        """Keep the answer for ever and return it; where the key has one already, that one is returned."""
        key, columns = reservation.key, packed(answer)
        if key in page.book.answered:
            return _stored(page, key)
        require_order(page.book, State.MEASURED, reservation)
        page.connection.execute(insert(ANSWERS), {"key": key, **columns})
        page.fault("answer-inserted")
        _move(page, State.MEASURED, key, reservation.attempt, answer_digest=columns["digest"])
        return unpacked(columns["vector"], columns["digest"])

    @_one_transaction
    def refund(self, page: Page, reservation: Reservation, *, reason: str) -> None:
        """Give back a reservation under which nothing was ever read."""
        if page.book.state(reservation.key, reservation.attempt) is State.REFUNDED:
            return
        require_order(page.book, State.REFUNDED, reservation)
        _move(page, State.REFUNDED, reservation.key, reservation.attempt, reason=reason)

    @_one_transaction
    def note(self, page: Page, request: SpendRequest) -> None:
        """Record a step that asked nothing of the data."""
        account = account_in(page.book, request.dataset)
        if request.mechanism.name != "none":
            raise LedgerError(
                f"step {request.step!r} spends on {request.purpose!r}; reserve it, do not note it"
            )
        if request.key not in page.book.noted:
            page.append(State.NOTED, account, facts_of(request), attempt=1)

    def records(self, *, dataset: str | None = None, release: str | None = None) -> list[Record]:
        """The chain, or the records of one data set or release, oldest first."""
        query = select(RECORDS).order_by(RECORDS.c.id)
        if dataset is not None:
            query = query.where(RECORDS.c.dataset == dataset)
        if release is not None:
            query = query.where(RECORDS.c.release == release)
        with self.chain.unchecked() as connection:
            return [record_of(dict(row)) for row in connection.execute(query).mappings()]

    def head(self) -> Head:
        """The chain's end, to be kept where nobody who can write the database can write."""
        with self.chain.reading() as (_, book):
            return book.head

    def verify(self, head: Head | None = None) -> list[str]:
        """Everything that is wrong with the ledger, in words; an empty list means that it is as written.

        Without a `head` kept elsewhere, the one in the head file is used.
        """
        with self.chain.unchecked() as connection:
            found: list[str] = []
            if (
                not head
                and self.chain.head_path
                and (self.chain.head_path.exists() or _any_record(connection))
            ):
                try:
                    head = read_head(self.chain.head_path)
                except LedgerError as unreadable:
                    found = [str(unreadable)]
            return found + problems(
                all_rows(connection, RECORDS), all_rows(connection, ANSWERS), [head] if head else []
            )

    def export(self, path: Path) -> None:
        """Write the whole chain as JSON lines, each with every column of its record."""
        with self.chain.unchecked() as connection:
            lines = [canonical(row) + "\n" for row in all_rows(connection, RECORDS)]
        try:
            with atomic_write(path) as draft:
                draft.write_text("".join(lines))
        except OSError:
            raise LedgerError(f"{path} cannot be written; name a file in a folder you may write to") from None


def _move(
    page: Page, state: State, key: str, attempt: int, *, reason: str = "", answer_digest: str = ""
) -> None:
    """Append a change of state that repeats what the reservation said."""
    reserved = page.connection.execute(RESERVED, {"key": key, "attempt": attempt})
    facts: Row = dict(reserved.mappings().one())
    known = page.book.attempts[key, attempt]
    account = page.book.accounts[known.dataset]
    page.append(
        state, account, facts, attempt=attempt, mu2=known.mu2, reason=reason, answer_digest=answer_digest
    )


def _stored(page: Page, key: str) -> Answer:
    vector = page.connection.execute(STORED, {"key": key}).scalar()
    return unpacked(vector or b"", page.book.answered[key][1])


def _any_record(connection: Connection) -> bool:
    return connection.execute(select(RECORDS.c.id).limit(1)).first() is not None


def _reopened(url: str, head_path: Path | None) -> SqlLedger:
    return SqlLedger(url, head_path=head_path)
