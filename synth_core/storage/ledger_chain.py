"""The chain as one process sees it: a book kept up to date, records appended in transactions, a head file.

The book is read once and then only grows: each transaction first reads what others have appended since. A
process that was forked starts over with connections of its own; those it inherited are kept untouched, because
closing a SQLite connection that belongs to the parent would damage the parent's files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, select
from sqlalchemy.engine import URL

from synth_core.errors import LedgerError
from synth_core.privacy.ledger import Account, Head, State
from synth_core.storage.ledger_book import ZERO, Book, cap_mu2
from synth_core.storage.ledger_database import Database, Fault, database_file
from synth_core.storage.ledger_head import read_head, write_head
from synth_core.storage.ledger_rows import RECORDS, Row, canonical, fraction_text, hash_of

T = TypeVar("T")

FOLDED = (
    *("id", "hash", "state", "dataset", "account", "key", "attempt"),
    *("stratum", "release", "mechanism", "mu2", "answer_digest"),
)
"""The columns a book needs; the rest of a record is for people."""

PORTION = 1000
"""How many rows are read at a time, so that a ledger of many years need not fit in memory."""

SINCE = (
    select(*(RECORDS.c[name] for name in FOLDED))
    .where(RECORDS.c.id >= bindparam("seen"))
    .order_by(RECORDS.c.id)
)
INSERT = insert(RECORDS)


@dataclass(slots=True)
class Page:
    """An open transaction: the book up to now, and a place to append the next records."""

    connection: Connection
    book: Book
    fault: Fault
    appended: int = 0

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
        self.connection.execute(INSERT, row)
        self.fault("appended")


@dataclass(slots=True)
class _Process:
    """What must not be shared with a forked child."""

    database: Database
    pid: int = field(default_factory=os.getpid)
    lock: threading.RLock = field(default_factory=threading.RLock)
    page: Page | None = None  # of the transaction under way, or of one that failed
    book: Book = field(default_factory=Book)
    known: Head | None = None  # the last committed record this process has seen
    inherited: _Process | None = None


class Chain:
    """Reads and appends records; `fault` is called at each point where a crash must do no harm."""

    def __init__(self, url: URL, *, head_path: Path | None, fault: Fault) -> None:
        self.url = url
        self.head_path = head_path
        self._fault = fault
        self._process = _Process(Database(url, fault=fault))

    def write(self, verb: str, work: Callable[[Page], T]) -> T:
        """Do the work in one transaction; records it appended are there, all or none, when this returns."""
        process = self._here()

        def fault(point: str) -> None:
            self._fault(f"{verb}:{point}")

        def transaction(connection: Connection) -> T:
            page = Page(connection, self._book(connection), fault)
            process.page = page
            fault("begun")
            return work(page)

        with process.lock:
            result = process.database.write(transaction, fault=fault)
            process.page, process.known = None, process.book.head
            if self.head_path and process.known.records:
                write_head(self.head_path, process.known)
            fault("head-kept")
            return result

    @contextmanager
    def reading(self) -> Iterator[tuple[Connection, Book]]:
        """The book and a connection that see the same records."""
        process = self._here()
        with process.lock, process.database.reading() as connection:
            yield connection, self._book(connection)

    @contextmanager
    def unchecked(self) -> Iterator[Connection]:
        """A connection for those who check the records themselves."""
        process = self._here()
        with process.lock, process.database.reading() as connection:
            yield connection

    def _here(self) -> _Process:
        if self._process.pid != os.getpid():
            if self.url.get_backend_name() == "sqlite" and database_file(self.url) is None:
                raise LedgerError("a ledger in memory stays in its process; use a file: sqlite:///path")
            self._process = _Process(Database(self.url, fault=self._fault), inherited=self._process)
        return self._process

    def _book(self, connection: Connection) -> Book:
        """The book with all records folded in."""
        process = self._process
        if process.page and process.page.appended:
            process.book = Book()  # the transaction before was not committed, or nobody knows: read again
        process.page = None
        try:
            _catch_up(connection, process.book, process.known or self._kept_head())
        except LedgerError:
            process.book = Book()
            raise
        process.known = process.book.head
        return process.book

    def _kept_head(self) -> Head | None:
        """The head in the head file; one that is lost or torn stops nobody but is reported by `verify`."""
        if self.head_path:
            with suppress(LedgerError):
                return read_head(self.head_path)
        return None


def _catch_up(connection: Connection, book: Book, known: Head | None) -> None:
    """Fold in what was appended since; refuse a chain in which the record known last is not there any more."""
    seen = known is None or known.records == 0
    while rows := connection.execute(SINCE, {"seen": book.records}).mappings().all():
        for row in rows:
            if known and row["id"] == known.records:
                seen = row["hash"] == known.hash
            if row["id"] > book.records:
                try:
                    book.apply(dict(row))
                except (ValueError, KeyError, TypeError):
                    raise LedgerError(
                        f"ledger record {row['id']} cannot be read; run: synth ledger verify"
                    ) from None
        if len(rows) < PORTION:
            break
    if not seen:
        raise LedgerError("the ledger was rolled back or rewritten; run: synth ledger verify")


def all_rows(connection: Connection, table: Table) -> Iterator[Row]:
    """All rows of a table in the order of its key, read a portion at a time."""
    (key,) = table.primary_key
    query = select(table).order_by(key).limit(PORTION)
    rows = connection.execute(query).mappings().all()
    while rows:
        yield from (dict(row) for row in rows)
        rows = connection.execute(query.where(key > rows[-1][key.name])).mappings().all()


@cache
def library() -> str:
    """The program that wrote a record, with its version."""
    return f"synth-core {version('synth-core')}"
