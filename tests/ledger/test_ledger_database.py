"""Versions of the tables, append-only tables, roles, forks, pickles and addresses."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from support.ledger_workers import fork_server, spend_once
from support.ledgers import DATASET, TENTH, answered, free_request, in_memory, opened, request
from support.servers import create_database

from synth_core.errors import LedgerError, LedgerUnreachable
from synth_core.ledger import database as ledger_database
from synth_core.ledger.database import _worth_retrying
from synth_core.ledger.sql import SqlLedger
from synth_core.ledger.tables import SCHEMA_VERSION, append_only_grants
from synth_core.privacy.accounts import State


def test_a_new_ledger_says_which_version_its_tables_have(url: str) -> None:
    opened(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM ledger_version")).all() == [(SCHEMA_VERSION,)]
    engine.dispose()


def test_a_ledger_of_a_newer_program_is_refused(url: str) -> None:
    opened(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ledger_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(LedgerError, match="the ledger has schema 9999, newer than this program's; upgrade synth-core"):
        SqlLedger(url)


@pytest.mark.parametrize("table", ["ledger_records", "ledger_answers"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET key = 'x'", "DELETE FROM {}"])
def test_triggers_refuse_changes(url: str, table: str, statement: str) -> None:
    ledger = opened(url)
    answered(ledger)
    engine = create_engine(url)
    with pytest.raises(DBAPIError, match="the ledger is append-only"), engine.begin() as connection:
        connection.execute(text(statement.format(table)))
    engine.dispose()
    assert ledger.verify() == []


@pytest.mark.postgres
def test_postgresql_refuses_truncation(postgres_url: str) -> None:
    opened(postgres_url)
    engine = create_engine(postgres_url)
    with pytest.raises(DBAPIError, match="the ledger is append-only"), engine.begin() as connection:
        connection.execute(text("TRUNCATE ledger_records"))
    engine.dispose()


def test_sqlite_refuses_replacement(sqlite_url: str) -> None:
    answered(opened(sqlite_url))
    engine = create_engine(sqlite_url)
    for table, refusal in (
        ("ledger_records", "grows only at its end"),
        ("ledger_answers", "first answer of a key"),
    ):
        with pytest.raises(DBAPIError, match=refusal), engine.begin() as connection:
            connection.execute(text(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}"))
    engine.dispose()


@pytest.mark.postgres
def test_an_append_only_role_can_release_and_nothing_else(postgres_url: str) -> None:
    opened(postgres_url)
    owner = create_engine(postgres_url)
    schema = postgres_url.split("search_path%3D")[1]
    with owner.begin() as connection:
        connection.execute(text(f"CREATE ROLE writer_{schema} LOGIN"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO writer_{schema}"))
        for statement in append_only_grants(f"writer_{schema}"):
            connection.execute(text(statement))
        connection.execute(text("ALTER TABLE ledger_records DISABLE TRIGGER USER"))
    owner.dispose()
    url = make_url(postgres_url).set(username=f"writer_{schema}").render_as_string(hide_password=False)
    writer = SqlLedger(url)
    answered(writer)
    assert writer.verify() == []
    engine = create_engine(url)
    for statement in (
        "UPDATE ledger_records SET mu2 = '0/1'",
        "DELETE FROM ledger_records",
        "TRUNCATE ledger_answers",
        "DELETE FROM ledger_version",
        "ALTER TABLE ledger_records DISABLE TRIGGER USER",
    ):
        with (
            pytest.raises(DBAPIError, match=r"permission denied|must be owner"),
            engine.begin() as connection,
        ):
            connection.execute(text(statement))
    engine.dispose()


def test_a_role_is_a_plain_name() -> None:
    with pytest.raises(LedgerError, match="is not a plain role name"):
        append_only_grants("x; DROP TABLE ledger_records")


def test_a_pickled_ledger_opens_the_same_database(ledger: SqlLedger) -> None:
    answered(ledger)
    other = pickle.loads(pickle.dumps(ledger))
    assert other.head() == ledger.head()
    assert other.chain.head_paths == ledger.chain.head_paths


def test_a_ledger_in_memory_stays_in_its_process() -> None:
    ledger = in_memory()
    with pytest.raises(LedgerError, match="a ledger in memory cannot be sent to another process"):
        pickle.dumps(ledger)
    ledger.chain._owner = -1  # as after a fork
    with pytest.raises(LedgerError, match="a ledger in memory stays in its process"):
        ledger.balance(DATASET)


def test_a_ledger_can_be_sent_to_another_process(ledger: SqlLedger) -> None:
    process = fork_server().Process(target=spend_once, args=(ledger, "from the child"))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert ledger.balance(DATASET).charged_mu2 == TENTH


def test_a_ledger_survives_a_fork(ledger: SqlLedger) -> None:
    answered(ledger)
    child = os.fork()
    if child == 0:
        os._exit(0 if spend_once(ledger, "from the child") == 5 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    answered(ledger, "from the parent")
    assert ledger.balance(DATASET).charged_mu2 == 3 * TENTH
    assert ledger.verify() == []


def test_when_a_process_has_ended_the_file_alone_is_the_ledger(tmp_path: Path) -> None:
    """Somebody who copies it copies every record, also if the interpreter collected no garbage at its end."""
    file = tmp_path / "ledger.sqlite"
    program = (
        "import gc, sys; from synth_core.ledger.sql import SqlLedger; "
        "ledger = SqlLedger(sys.argv[1]); ledger.self = ledger; gc.freeze()"
    )
    subprocess.run([sys.executable, "-c", program, f"sqlite:///{file}"], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.sqlite"]


def test_a_failed_transaction_leaves_nothing_behind(url: str) -> None:
    opened(url)
    broken = {"at": "store:appended"}

    def fault(point: str) -> None:
        if point == broken["at"]:
            raise ConnectionAbortedError(point)

    ledger = SqlLedger(url, fault=fault)
    with pytest.raises(ConnectionAbortedError):
        answered(ledger)
    broken["at"] = "note:after-commit"
    with pytest.raises(ConnectionAbortedError):
        ledger.note(free_request())
    broken["at"] = ""
    answered(ledger)
    states = [record.state.value for record in ledger.records()]
    first = ["account", "reserved", "measuring", "noted"]
    assert states == [*first, "forfeited", "reserved", "measuring", "measured"]
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("not a url", "the ledger's URL cannot be read"),
        ("mysql://db/ledger", "a ledger cannot live in 'mysql'"),
        (
            "sqlite:////nowhere/at/all/ledger.sqlite",
            "the ledger's database refused: unable to open database file",
        ),
        ("postgresql+nodriver://db/ledger", "the driver for 'postgresql\\+nodriver' is not installed"),
        ("postgresql+psycopg2://someone:secret@127.0.0.1:1/ledger", "the ledger's database does not answer"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_in_one_line(url: str, refusal: str) -> None:
    with pytest.raises(LedgerError, match=refusal) as caught:
        SqlLedger(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    ledger.chain.url = make_url("postgresql+psycopg2://me:secret@db/ledger")
    assert repr(ledger) == "SqlLedger('postgresql+psycopg2://me:***@db/ledger')"


def test_a_ledger_that_stays_locked_is_reported(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_database, "WAIT_SECONDS", 0.01)
    ledger = opened(sqlite_url)
    monkeypatch.setattr(ledger_database, "PAUSES", (0.0, 0.0))
    blocker = sqlite3.connect(make_url(sqlite_url).database or "", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="the ledger is busy: others kept it locked for too long"):
        ledger.reserve(request())
    assert ledger.balance(DATASET).charged_mu2 == 0
    blocker.execute("ROLLBACK")
    ledger.reserve(request())


def test_work_that_lost_a_race_is_done_again(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(ledger.chain._process.database)
    real, calls = kind._write_once, []

    def losing(self: object, work: object, fault: object) -> object:
        calls.append(1)
        result = real(self, work, fault)  # type: ignore[arg-type]
        if len(calls) == 1:  # the commit went through but its confirmation was lost
            raise DBAPIError("COMMIT", {}, psycopg2.OperationalError("lost"), connection_invalidated=True)
        return result

    monkeypatch.setattr(kind, "_write_once", losing)
    ledger.reserve(request())
    assert len(calls) == 2
    assert ledger.balance(DATASET).charged_mu2 == TENTH
    assert ledger.verify() == []


@pytest.mark.postgres
@pytest.mark.parametrize("losses", [1, 99])
def test_a_connection_that_is_ended_is_made_anew_or_said_in_one_line(postgres_server: URL, losses: int) -> None:
    """A killed server ended in SQLAlchemy's complaint about a transaction of the lost connection."""
    url = create_database(postgres_server)
    server = create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    name, left = make_url(url).database, [losses]

    def end_connections(point: str) -> None:
        if point == "reserve:begun" and left[0]:
            left[0] -= 1
            with server.connect() as connection:
                every = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
                connection.execute(text(every), {"name": name})

    ledger = opened(url, fault=end_connections)
    if losses == 1:
        ledger.reserve(request())
    else:
        with pytest.raises(LedgerUnreachable, match=r"does not answer: .*; run again when it does, or check") as caught:
            ledger.reserve(request())
        assert "\n" not in str(caught.value)
        left[0] = 0
        ledger.reserve(request())
    server.dispose()
    assert ledger.verify() == []
    assert [record.state for record in ledger.records()].count(State.RESERVED) == 1


def test_only_lost_races_and_lost_connections_are_tried_again() -> None:
    assert not _worth_retrying(DBAPIError("x", {}, psycopg2.ProgrammingError("no such table")))
    assert _worth_retrying(DBAPIError("x", {}, psycopg2.OperationalError("gone"), connection_invalidated=True))


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE])
def test_a_full_disk_is_called_one(code: int) -> None:
    """Where no room is left for the index of its journal, SQLite speaks of an error of the disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    said = str(ledger_database._unanswered(DBAPIError("", {}, error)))
    assert "the disk is full" in said
    assert "make room" in said
    assert "check" not in said
