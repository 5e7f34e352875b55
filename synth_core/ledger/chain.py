"""The chain as one process sees it: a book kept up to date, records appended in transactions, a head file.

The book is read once and then only grows: each transaction first reads what others have appended since. A
process that was forked starts over with connections of its own; those it inherited are kept untouched, because
closing a SQLite connection that belongs to the parent would damage the parent's files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, func, insert, select, text
from sqlalchemy.engine import URL

from synth_core.errors import LedgerError
from synth_core.ledger.book import Book
from synth_core.ledger.database import Database
from synth_core.ledger.head import KEPT, disagreements, kept_heads, published_heads, write_head
from synth_core.ledger.rows import FACTS, GENESIS, Row
from synth_core.ledger.tables import ANSWERS, ASKED, RECORDS
from synth_core.ledger.verbs import Fault, Page
from synth_core.privacy.accounts import Head, State

T = TypeVar("T")

FOLDED = (
    *("id", "hash", "state", "dataset", "account", "key", "attempt", "snapshot"),
    *("stratum", "release", "mechanism", "mu2", "answer_digest"),
)
"""The columns a book needs; the rest of a record is for people."""

PORTION = 1000
"""How many rows are read at a time, so that a ledger of many years need not fit in memory."""

SINCE = (
    select(*(RECORDS.c[name] for name in FOLDED))
    .where(RECORDS.c.id > bindparam("seen"))
    .order_by(RECORDS.c.id)
    .limit(bindparam("most"))
)
HASHES = select(RECORDS.c.id, RECORDS.c.hash).where(RECORDS.c.id.in_(bindparam("numbers", expanding=True)))
LAST = select(func.max(RECORDS.c.id))
INSERT = insert(RECORDS)
INSERT_ANSWER = insert(ANSWERS)
RESERVED = select(*(RECORDS.c[name] for name in FACTS)).where(
    RECORDS.c.key == bindparam("key"),
    RECORDS.c.attempt == bindparam("attempt"),
    RECORDS.c.state == State.RESERVED.value,
    text(ASKED),  # without it SQLite would not use the index of the attempts
)
STORED = select(ANSWERS.c.vector).where(ANSWERS.c.key == bindparam("key"))


class SqlPage(Page):
    """A transaction of a database."""

    def __init__(self, connection: Connection, book: Book, fault: Fault) -> None:
        super().__init__(book, fault)
        self._connection = connection

    def insert(self, row: Row) -> None:
        """Keep a record."""
        self._connection.execute(INSERT, row)

    def insert_answer(self, key: str, columns: Row) -> None:
        """Keep the answer of a key."""
        self._connection.execute(INSERT_ANSWER, {"key": key, **columns})

    def reserved(self, key: str, attempt: int) -> Row:
        """The facts of the record that reserved an attempt."""
        return dict(self._connection.execute(RESERVED, {"key": key, "attempt": attempt}).mappings().one())

    def stored(self, key: str) -> bytes:
        """The kept answer of a key as it was packed, empty if it is lost."""
        return self._connection.execute(STORED, {"key": key}).scalar() or b""


@dataclass(slots=True)
class _Process:
    """What must not be shared with a forked child."""

    database: Database
    pid: int = field(default_factory=os.getpid)
    lock: threading.RLock = field(default_factory=threading.RLock)
    page: Page | None = None  # of the transaction under way, or of one that failed
    book: Book = field(default_factory=Book)
    known: Head | None = None  # the last committed record this process has seen
    published: dict[str, Head] | None = None  # what manifests knew when this process first looked
    whole: bool = False  # whether it has appended, and so knows a head itself if the files are lost meanwhile
    inherited: _Process | None = None


class Chain:
    """Reads and appends records; `fault` is called at each point where a crash must do no harm.

    A chain in which a record is missing that a kept head, a manifest of the workspace or this process knows is refused.
    One that has records but no head is not appended to: a rollback could not be detected.
    """

    def __init__(self, url: URL, *, head_paths: tuple[Path, ...], workspace: Path | None, fault: Fault) -> None:
        self.url = url
        self.head_paths = head_paths
        self.workspace = workspace
        self._fault = fault
        self._process = _Process(Database(url, fault=fault))

    def write(self, verb: str, work: Callable[[Page], T]) -> T:
        """Do the work in one transaction; records it appended are there, all or none, when this returns."""
        process = self._here()

        def fault(point: str) -> None:
            self._fault(f"{verb}:{point}")

        def transaction(connection: Connection) -> T:
            for problem in [] if process.whole else self._headless(connection):
                raise LedgerError(problem)
            page = SqlPage(connection, self._book(connection), fault)
            process.page = page
            fault("begun")
            return work(page)

        with process.lock:
            result = process.database.write(transaction, fault=fault)
            process.page, process.known, process.whole = None, process.book.head, True
            for path in self.head_paths:
                write_head(path, process.known)
            fault("head-kept")
            return result

    @contextmanager
    def reading(self) -> Iterator[Book]:
        """The book with all records up to now."""
        process = self._here()
        with process.lock, process.database.reading() as connection:
            yield self._book(connection)

    @contextmanager
    def unchecked(self) -> Iterator[Connection]:
        """A connection for those who check the records themselves."""
        process = self._here()
        with process.lock, process.database.reading() as connection:
            yield connection

    @property
    def file(self) -> Path | None:
        """The file that is read: of an archive, a copy of it; None on PostgreSQL."""
        return self._here().database.file

    def _here(self) -> _Process:
        if self._process.pid != os.getpid():
            self._process = _Process(Database(self.url, fault=self._fault), inherited=self._process)
        return self._process

    def known_heads(self, *, anew: bool = False) -> dict[str, list[Head]]:
        """The chain's ends that are known outside of the database, by who knows them.

        Manifests are read when a process first looks, or `anew`: there may be hundreds of them.
        """
        process = self._here()
        if process.published is None or anew:
            heads = published_heads(self.workspace) if self.workspace else {}
            process.published = {f"the manifest of release {name!r}": head for name, head in heads.items()}
        return {KEPT: kept_heads(self.head_paths)[0]} | {who: [head] for who, head in process.published.items()}

    def objections(self) -> list[str]:
        """Why nothing is appended to this chain, in words; none if it is whole."""
        with self.unchecked() as connection:
            return [*_missing(connection, self.known_heads(anew=True)), *self._headless(connection)]

    def _headless(self, connection: Connection) -> list[str]:
        """What is wrong with the head files of a chain that has records; an empty chain gets its first head.

        That head is there before the first record, so a crash after the first commit leaves no chain without one.
        """
        problems = kept_heads(self.head_paths)[1]
        if problems and last_record(connection) == 0:
            for path in self.head_paths:
                write_head(path, Head(records=0, hash=GENESIS))
            return []
        return problems

    def _book(self, connection: Connection) -> Book:
        """The book with all records folded in; refused if one is missing."""
        process = self._process
        if process.page and process.page.appended:
            process.book = Book()  # the transaction before may not have been committed: read again
        process.page = None
        try:
            # Heads are read before the transaction sees its first record: one that is later is no proof of a rollback.
            known = self.known_heads() | ({"this process": [process.known]} if process.known else {})
            for problem in _missing(connection, known):
                raise LedgerError(f"{problem}; restore the newest copy, then run: synth ledger verify")
            _catch_up(connection, process.book)
        except LedgerError:
            process.book = Book()
            raise
        process.known = process.book.head
        return process.book


def _missing(connection: Connection, known: dict[str, list[Head]]) -> list[str]:
    """For each known head that the chain does not have what is wrong."""
    numbers = {head.records for heads in known.values() for head in heads}
    return disagreements(known, last=last_record(connection), hashes=hashes_at(connection, numbers))


def hashes_at(connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
    """The hashes of the records of these numbers, as far as the chain has them."""
    return {row.id: row.hash for row in connection.execute(HASHES, {"numbers": list(numbers)})}


def last_record(connection: Connection) -> int:
    """The number of the chain's last record; 0 if it has none."""
    return connection.execute(LAST).scalar() or 0


def _catch_up(connection: Connection, book: Book) -> None:
    """Fold in what was appended since."""
    while rows := connection.execute(SINCE, {"seen": book.records, "most": PORTION}).mappings().all():
        for row in rows:
            try:
                book.apply(dict(row))
            except (ValueError, KeyError, TypeError):
                raise LedgerError(f"ledger record {row['id']} cannot be read; run: synth ledger verify") from None
        if len(rows) < PORTION:
            break


def all_rows(connection: Connection, table: Table) -> Iterator[Row]:
    """All rows of a table in the order of its key, read a portion at a time."""
    (key,) = table.primary_key
    query = select(table).order_by(key).limit(PORTION)
    rows = connection.execute(query).mappings().all()
    while rows:
        yield from (dict(row) for row in rows)
        rows = connection.execute(query.where(key > rows[-1][key.name])).mappings().all()
