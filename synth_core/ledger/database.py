"""One process's door to the ledger's database: one transaction at a time, retries, the schema kept up to date.

SQLite: `BEGIN IMMEDIATE` lets one writer in; WAL lets readers go on; synchronous=FULL because a commit lost to a
power failure would be a spend forgotten. PostgreSQL: writers queue on an advisory lock, then run SERIALIZABLE.
The lock is of the session and taken before BEGIN, because a transaction that waits for a lock inside SERIALIZABLE
has already fixed what it sees and would fail as soon as it was let in. The lock only keeps the queue orderly: if
it were missing, isolation and the unique previous hash would still let exactly one of two writers commit.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError

from synth_core.errors import LedgerError, LedgerUnreachable
from synth_core.ledger.tables import SCHEMA_VERSION, bring_up_to_date, version_of
from synth_core.ledger.verbs import Fault

ADVISORY_LOCK = 0x5EED_1ED6E4
"""Any constant: it names the ledger's queue among a server's advisory locks."""
WAIT_SECONDS = 20
"""Seconds to wait for another writer before the ledger is reported busy."""
PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds between the attempts of a transaction that lost a race."""

SQLITE_BUSY = frozenset({5, 6})
"""SQLite's codes for a database or a table that another connection writes to."""
POSTGRESQL_RETRY = frozenset({"40001", "40P01", "23505", "55P03"})  # serialisation, deadlock, duplicate, lock wait
POSTGRESQL_LOST = ("08", "57P")  # connection exceptions, intervention of an operator
SQLITE_FULL, POSTGRESQL_FULL = 13, "53100"
SQLITE_BROKEN = 10
"""SQLite's code for an input or output that failed, which a full disk is too where it maps its journal's index."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a database begins, and queues, its transactions."""

    lock: str | None
    begin: str
    begin_reading: str
    unlock: str | None


RULES = {
    "sqlite": Rules(lock=None, begin="BEGIN IMMEDIATE", begin_reading="BEGIN", unlock=None),
    "postgresql": Rules(
        lock=f"SELECT pg_advisory_lock({ADVISORY_LOCK})",
        begin="BEGIN ISOLATION LEVEL SERIALIZABLE",
        begin_reading="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        unlock=f"SELECT pg_advisory_unlock({ADVISORY_LOCK})",
    ),
}


def parse_url(url: str) -> URL:
    """The database's address; anything but SQLite and PostgreSQL is refused."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise LedgerError("the ledger's URL cannot be read; write sqlite:///path/ledger.sqlite") from None
    if parsed.get_backend_name() not in RULES:
        raise LedgerError(
            f"a ledger cannot live in {parsed.get_backend_name()!r}; use sqlite:///path or postgresql+psycopg2://…"
        )
    file = database_file(parsed)
    return parsed.set(database=str(file.resolve())) if file else parsed  # a worker may run in another folder


def database_file(url: URL) -> Path | None:
    """The file of a SQLite database; None on PostgreSQL."""
    if url.get_backend_name() != "sqlite":
        return None
    if url.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; name its file: sqlite:///path/ledger.sqlite")
    return Path(str(url.database))


class Database:
    """The connections of one process; never used across a fork.

    SQLite writes beside its file also in order to read it. A ledger in a folder that cannot be written to, such as an
    archive, is read from a copy and refuses to be written.
    """

    def __init__(self, url: URL, *, fault: Fault) -> None:
        self._rules = RULES[url.get_backend_name()]
        self.file = original = database_file(url)
        self._archived: Path | None = None
        if original and original.exists() and not os.access(original.parent, os.W_OK):
            self._copies = TemporaryDirectory(prefix="ledger-")
            self.file = copy_database(original, Path(self._copies.name))
            url = url.set(database=str(self.file))
        self._engine = _engine(url)
        weakref.finalize(self, _close, self._engine, os.getpid())
        with self.reading() as connection:
            version = version_of(connection)
        if version != SCHEMA_VERSION:
            self.write(bring_up_to_date, fault=lambda point: fault(f"migrate:{point}"))
        if self.file != original:
            self._archived = original

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of the ledger that blocks no writer."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(self._rules.begin_reading)
                try:
                    yield connection
                finally:
                    _finish(connection, "ROLLBACK")
        except DBAPIError as error:
            raise _unanswered(error) from None
        except UnicodeDecodeError:
            raise _damaged() from None

    def write(self, work: Callable[[Connection], T], *, fault: Fault) -> T:
        """Do the work in one serialisable transaction; work that lost a race is done again from its start."""
        if self._archived:
            raise LedgerError(f"{self._archived} lies in a folder that cannot be written to; nothing is spent from it")
        for pause in PAUSES:
            try:
                return self._write_once(work, fault)
            except DBAPIError as error:
                if not _worth_retrying(error) or (pause == PAUSES[-1] and _is_lost(error)):
                    raise _unanswered(error) from None
                time.sleep(pause)
            except UnicodeDecodeError:
                raise _damaged() from None
        raise LedgerError("the ledger is busy: others kept it locked for too long; run the step again later")

    def _write_once(self, work: Callable[[Connection], T], fault: Fault) -> T:
        with self._engine.connect() as connection:
            if self._rules.lock:
                connection.exec_driver_sql(self._rules.lock)
            try:
                connection.exec_driver_sql(self._rules.begin)
                try:
                    result = work(connection)
                    fault("before-commit")
                    connection.exec_driver_sql("COMMIT")
                except BaseException:
                    _finish(connection, "ROLLBACK")
                    raise
            finally:
                if self._rules.unlock:
                    _finish(connection, self._rules.unlock)
            fault("after-commit")
            return result


def copy_database(file: Path, folder: Path) -> Path:
    """Copy a SQLite file, with what its journal holds, into a folder; returns the copy."""
    for part in (file, file.with_name(f"{file.name}-wal")):
        if part.exists():
            shutil.copyfile(part, folder / part.name)
    return folder / file.name


def _close(engine: Engine, owner: int) -> None:
    """Let SQLite move what is in its journal into the file, so that the file alone is the ledger."""
    if os.getpid() == owner:  # a fork leaves its parent's connections alone
        engine.dispose()


def _finish(connection: Connection, statement: str) -> None:
    """Leave the connection clean; one that cannot be cleaned is thrown away and takes its locks along."""
    try:
        connection.exec_driver_sql(statement)
    except SQLAlchemyError:  # of a connection that was lost SQLAlchemy says so with an error that is no DBAPIError
        with suppress(SQLAlchemyError):
            connection.invalidate()


def _engine(url: URL) -> Engine:
    # Transactions are begun and ended in plain SQL (`Rules`), so the driver's own transactions are switched off.
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": WAIT_SECONDS, "check_same_thread": False}
    else:
        options["pool_pre_ping"] = True
    try:
        engine = create_engine(url, **options)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise LedgerError(f"the driver for {url.drivername!r} is not installed; install synth-core[postgres]") from None
    event.listen(engine, "connect", _prepare_sqlite if engine.name == "sqlite" else _prepare_postgresql)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _write_ahead(connection: Any) -> None:
    """Switch to a journal that is written ahead; a new file of which another process is the first writer refuses that
    at once, whatever the time-out, so it is tried for as long as any other lock is waited for.
    """
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(PAUSES[0])


def _prepare_postgresql(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")


def _worth_retrying(error: DBAPIError) -> bool:
    busy = (getattr(error.orig, "sqlite_errorcode", None) or 0) & 0xFF in SQLITE_BUSY
    return busy or error.connection_invalidated or getattr(error.orig, "pgcode", None) in POSTGRESQL_RETRY


def _is_lost(error: DBAPIError) -> bool:
    """Whether the server could not be reached, ended the connection, or is starting or ending itself."""
    if getattr(error.orig, "sqlite_errorcode", None) is not None:
        return False
    code = getattr(error.orig, "pgcode", None)
    gone = code is None and isinstance(error, OperationalError)
    return error.connection_invalidated or gone or str(code).startswith(POSTGRESQL_LOST)


def _damaged() -> LedgerError:
    """SQLite quotes a damaged file in its message, which then is no text."""
    return LedgerError("the ledger's database is damaged; put a backup back: synth ledger restore")


def _unanswered(error: DBAPIError) -> LedgerError:
    code = (getattr(error.orig, "sqlite_errorcode", None) or 0) & 0xFF
    if code == SQLITE_BROKEN:
        return LedgerError("the ledger's database: the disk is full or fails; make room or mend it, and run again")
    if code == SQLITE_FULL or getattr(error.orig, "pgcode", None) == POSTGRESQL_FULL:
        return LedgerError("the ledger's database: the disk is full; make room and run again")
    reason = (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0]
    if _is_lost(error):
        return LedgerUnreachable(
            f"the ledger's database does not answer: {reason}; run again when it does, or check SYNTH_LEDGER_URL"
        )
    return LedgerError(f"the ledger's database refused: {reason}; check --ledger or SYNTH_LEDGER_URL")
