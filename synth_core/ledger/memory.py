"""A ledger that lasts as long as its process: for a table in memory, for audits and for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from synth_core.errors import LedgerError
from synth_core.ledger.book import Book
from synth_core.ledger.rows import FACTS, Row, record_of
from synth_core.ledger.verbs import Fault, LedgerVerbs, Page, no_fault
from synth_core.ledger.verify import problems
from synth_core.privacy.accounts import Record, State

T = TypeVar("T")


class MemoryChain:
    """Records and answers in memory; `fault` is called at each point where a crash must do no harm."""

    def __init__(self, *, fault: Fault) -> None:
        self.rows: list[Row] = []
        self.reserved: dict[tuple[str, int], Row] = {}
        self.answers: dict[str, Row] = {}
        self._book = Book()
        self._fault = fault
        self._lock = threading.RLock()
        self._owner = os.getpid()

    def write(self, verb: str, work: Callable[[Page], T]) -> T:
        """Do the work in one transaction; records it appended are there, all or none, when this returns."""
        with self.reading() as book:
            before = len(self.rows)
            try:
                return work(_MemoryPage(book, lambda point: self._fault(f"{verb}:{point}"), self))
            except BaseException:
                del self.rows[before:]  # an answer or reservation without its record is never looked for
                self._book = Book()
                for row in self.rows:
                    self._book.apply(row)
                raise

    @contextmanager
    def reading(self) -> Iterator[Book]:
        """The book with all records up to now."""
        if self._owner != os.getpid():
            raise LedgerError("a ledger in memory stays in its process; use a file: sqlite:///path")
        with self._lock:
            yield self._book


class MemoryLedger(LedgerVerbs):
    """A ledger of one process, chained like one in a database; `fault` is called with "verb:point"."""

    chain: MemoryChain

    def __init__(self, *, fault: Fault = no_fault) -> None:
        self.chain = MemoryChain(fault=fault)

    def __reduce__(self) -> NoReturn:
        raise LedgerError("a ledger in memory cannot be sent to another process; use a file: sqlite:///path")

    def records(self, *, dataset: str | Collection[str] | None = None, release: str | None = None) -> list[Record]:
        """The chain, or the records of one or several data sets or of a release, oldest first."""
        names = [dataset] if isinstance(dataset, str) else dataset
        with self.chain.reading():
            return [
                record_of(row)
                for row in self.chain.rows
                if (names is None or row["dataset"] in names) and (release is None or row["release"] == release)
            ]

    def verify(self) -> list[str]:
        """Everything that is wrong with the records, in words; an empty list means that they are as written."""
        with self.chain.reading():
            return problems(self.chain.rows, self.chain.answers.values(), {})


class _MemoryPage(Page):
    def __init__(self, book: Book, fault: Fault, chain: MemoryChain) -> None:
        super().__init__(book, fault)
        self._chain = chain

    def insert(self, row: Row) -> None:
        self._chain.rows.append(row)
        if row["state"] == State.RESERVED.value:
            self._chain.reserved[row["key"], row["attempt"]] = row

    def insert_answer(self, key: str, columns: Row) -> None:
        self._chain.answers[key] = {"key": key, **columns}

    def reserved(self, key: str, attempt: int) -> Row:
        row = self._chain.reserved[key, attempt]
        return {name: row[name] for name in FACTS}

    def stored(self, key: str) -> bytes:
        return bytes(self._chain.answers[key]["vector"])
