"""The durable ledger: budget reserved before data is read, one stored answer for a key, all in a hash chain."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import bindparam, insert, select, text

from synth_core.errors import LedgerError
from synth_core.files import atomic_write
from synth_core.ledger.book import Book, cap_mu2, spend_mu2
from synth_core.ledger.chain import Chain, Page, all_rows, last_record
from synth_core.ledger.database import Fault, database_file, no_fault, parse_url
from synth_core.ledger.head import KEPT, head_places, kept_heads
from synth_core.ledger.refusals import (
    account_in,
    cap_too_low,
    no_room,
    other_declaration,
    require_form,
    require_going_on,
    require_order,
    require_own_rows,
    require_room,
    require_room_together,
    require_same_people,
    require_small_delta,
    require_sound,
)
from synth_core.ledger.rows import (
    FACTS,
    Row,
    canonical,
    facts_of,
    facts_without_request,
    pack_answer,
    record_of,
    show_rows,
    unpack_answer,
)
from synth_core.ledger.tables import ANSWERS, ASKED, RECORDS
from synth_core.ledger.verify import problems
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
from synth_core.settings import Settings

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
    return url or Settings.from_environment().ledger_url or f"sqlite:///{workspace.resolve() / 'ledger.sqlite'}"


def open_ledger(
    workspace: Path | None,
    url: str | None = None,
    *,
    create: bool = False,
    compare: bool = True,
    dataset: str = "NAME",
) -> SqlLedger:
    """Open the ledger that pays for a workspace's releases; it must have every record that their manifests know.

    Args:
        workspace: the folder with the published releases; None takes the folder of the ledger that `url` names.
        url: another ledger than SYNTH_LEDGER_URL or the workspace's own file.
        create: make the ledger, and its folder, if there is none; without it a mistyped folder is noticed.
        compare: compare it with heads that are kept elsewhere; without, it is read as it is, also if rolled back.
        dataset: the account that is looked for; a refusal says how to declare it.

    Raises:
        LedgerError: there is no such ledger, or its folder cannot be made.
    """
    where = ledger_url(workspace or Path(), url)
    file = database_file(parse_url(where))
    home = workspace or (file.parent if file else None)
    folder = file.parent if file else home
    if create and folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise LedgerError(f"{folder} cannot be created; name a folder you may write to") from None
    elif file and not file.exists():
        raise LedgerError(
            f"there is no ledger at {file}; name its folder with --workspace or SYNTH_WORKSPACE, or its database with "
            f"SYNTH_LEDGER_URL, or declare the account first: synth ledger account {dataset} --epsilon CAP "
            f"--delta DELTA --largest-n N --workspace {home}"
        )
    return SqlLedger(where, workspace=home) if compare else SqlLedger(where, head_paths=())


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

    `head_paths` are the files that keep the chain's head after each commit, `head_places` unless asked otherwise;
    without any, nothing is compared. Manifests of the `workspace` know heads too. `fault` is called with "verb:point"
    wherever a crash must do no harm. An instance may be pickled, as its URL, and used after a fork; one in memory may
    not.
    """

    def __init__(
        self,
        url: str,
        *,
        head_paths: Sequence[Path] | None = None,
        workspace: Path | None = None,
        fault: Fault | None = None,
    ) -> None:
        parsed = parse_url(url)
        places = head_places(parsed, workspace) if head_paths is None else tuple(head_paths)
        self.chain = Chain(parsed, head_paths=places, workspace=workspace, fault=fault or no_fault)

    def __repr__(self) -> str:
        return f"SqlLedger({self.chain.url.render_as_string(hide_password=True)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        url = self.chain.url
        if url.get_backend_name() == "sqlite" and database_file(url) is None:
            raise LedgerError("a ledger in memory cannot be sent to another process; use a file: sqlite:///path")
        heads, workspace = self.chain.head_paths, self.chain.workspace
        return partial(SqlLedger, head_paths=heads, workspace=workspace), (url.render_as_string(hide_password=False),)

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
            return Reservation(key=key, attempt=attempt, state=State.MEASURED, answer=_stored(page, key))
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
        key, columns = reservation.key, pack_answer(answer)
        if key in page.book.answered:
            return _stored(page, key)
        require_order(page.book, State.MEASURED, reservation)
        page.connection.execute(insert(ANSWERS), {"key": key, **columns})
        page.fault("answer-inserted")
        _move(page, State.MEASURED, key, reservation.attempt, answer_digest=columns["digest"])
        return unpack_answer(columns["vector"], columns["digest"])

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
            raise LedgerError(f"step {request.step!r} spends on {request.purpose!r}; reserve it, do not note it")
        if request.key not in page.book.noted:
            page.append(State.NOTED, account, facts_of(request), attempt=1)

    @_one_transaction
    def bind(self, page: Page, dataset: str, release: str, *, files: Collection[str], runner: Runner) -> None:
        """Bind source files, given by keyed fingerprints, to the account; refused if one is another account's."""
        account = account_in(page.book, dataset)
        for fingerprint in sorted(set(files)):
            require_own_rows(page.book, dataset, fingerprint)
            # Every release leaves a record: with none for known files, records would tell that these were read before.
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

    def records(self, *, dataset: str | Collection[str] | None = None, release: str | None = None) -> list[Record]:
        """The chain, or the records of one or several data sets or of a release, oldest first."""
        query = select(RECORDS).order_by(RECORDS.c.id)
        if dataset is not None:
            names = [dataset] if isinstance(dataset, str) else list(dataset)
            query = query.where(RECORDS.c.dataset.in_(names))
        if release is not None:
            query = query.where(RECORDS.c.release == release)
        with self.chain.unchecked() as connection:
            return [record_of(dict(row)) for row in connection.execute(query).mappings()]

    def head(self) -> Head:
        """The chain's end, to be kept out of reach of everyone who can write to the database."""
        with self.chain.reading() as (_, book):
            return book.head

    def verify(self, head: Head | None = None) -> list[str]:
        """Everything that is wrong with the ledger, in words; an empty list means that it is as written.

        It is compared with a `head` that was kept elsewhere, the head files and the manifests of the workspace.
        """
        heads = self.chain.known_heads(anew=True)
        heads[KEPT] += [head] if head else []
        with self.chain.unchecked() as connection:
            found = kept_heads(self.chain.head_paths)[1] if last_record(connection) else []
            return found + problems(all_rows(connection, RECORDS), all_rows(connection, ANSWERS), heads)

    def objections(self) -> list[str]:
        """Why nothing can be spent from this ledger, in words; an empty list if it lacks no record that is known."""
        return self.chain.objections()

    def require_whole(self) -> None:
        """Look for records that are missing before anything is begun.

        Raises:
            LedgerError: the ledger was rolled back or rewritten, or has records but no head.
        """
        self.chain.write("require_whole", lambda _: None)

    def export(self, path: Path, *, internal: bool = False) -> None:
        """Write the whole chain as JSON lines, each with every column of its record.

        Args:
            path: The file to write.
            internal: Keep the digests of snapshots, which the hashes cover; such a file must not leave the agency.

        Raises:
            LedgerError: If the file cannot be written.
        """
        with self.chain.unchecked() as connection:
            rows = all_rows(connection, RECORDS)
            lines = [canonical(row) + "\n" for row in (rows if internal else show_rows(rows))]
        try:
            with atomic_write(path) as draft:
                draft.write_text("".join(lines))
        except OSError:
            raise LedgerError(f"{path} cannot be written; name a file in a folder you may write to") from None


def _as_begun(book: Book, request: SpendRequest) -> SpendRequest:
    """The request as a version without forms has begun it, if one has: its answer is found, not drawn again."""
    before = replace(request, form=None)
    return before if before.key in book.latest else request


def _move(page: Page, state: State, key: str, attempt: int, *, reason: str = "", answer_digest: str = "") -> None:
    """Append a change of state that repeats what the reservation said."""
    reserved = page.connection.execute(RESERVED, {"key": key, "attempt": attempt})
    facts: Row = dict(reserved.mappings().one())
    known = page.book.attempts[key, attempt]
    account = page.book.accounts[known.dataset]
    page.append(state, account, facts, attempt=attempt, mu2=known.mu2, reason=reason, answer_digest=answer_digest)


def _stored(page: Page, key: str) -> Answer:
    vector = page.connection.execute(STORED, {"key": key}).scalar()
    return unpack_answer(vector or b"", page.book.answered[key][1])
