"""The ledger's two append-only tables, and what each version of them added.

There is one chain for all accounts: its head is a single hash that proves every account at once, and a whole account
cannot vanish unnoticed. The price, that writers of different accounts wait for each other, is a few milliseconds.
An account is its own records: with no table of accounts nothing in the database is mutable.

Tables only ever gain columns, with a default, because rows are never rewritten; so a version is one statement of SQL,
run in the ledger's own transaction.

The PostgreSQL role under which releases run may read and append (`append_only_grants`). The tables are made once by
the owner of the tables; a release never needs the owner's rights. Triggers refuse even the owner's UPDATE, DELETE and
TRUNCATE, but an owner can drop a trigger: only a role that owns nothing is bound.
"""

from __future__ import annotations

import re
from itertools import product

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    event,
    insert,
    inspect,
    select,
    text,
)

from synth_core.errors import LedgerError

ASKED = "key <> ''"
"""Which records belong to a question: an account, a cap or a hold has no key."""

METADATA = MetaData()

RECORDS = Table(
    "ledger_records",
    METADATA,
    # SQLite makes only a plain INTEGER key the row's own number.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("previous_hash", String(64), nullable=False, unique=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("state", String(16), nullable=False),
    Column("dataset", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("key", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("stratum", Text, nullable=False),
    Column("release", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("mechanism", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("mu2", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("runner", Text, nullable=False),
    Column("library", Text, nullable=False),
    Column("entropy", Text, nullable=False),
    Column("cap_mu2", Text, nullable=False),
    Column("remaining_mu2", Text, nullable=False),
    Column("answer_digest", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("form", Text, nullable=False, server_default=""),
    Index("ledger_records_dataset_release", "dataset", "release"),
    # The database itself refuses a second record of one state for one attempt.
    Index(
        "ledger_records_once",
        "key",
        "attempt",
        "state",
        unique=True,
        sqlite_where=text(ASKED),
        postgresql_where=text(ASKED),
    ),
)

ANSWERS = Table(
    "ledger_answers",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("vector", LargeBinary, nullable=False),
)

VERSION = Table("ledger_version", METADATA, Column("version_num", String(32), primary_key=True))

ADDED = {"0002": "ALTER TABLE ledger_records ADD COLUMN form TEXT NOT NULL DEFAULT ''"}
"""What each version after the first added to the tables above, in order; never edited once released."""

SCHEMA_VERSION = max(ADDED)

APPEND_ONLY = {
    "sqlite": (
        *(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            for table, verb in product((RECORDS, ANSWERS), ("UPDATE", "DELETE"))
        ),
        # INSERT OR REPLACE deletes without firing a DELETE trigger, so inserts have to be at the end and new.
        "CREATE TRIGGER ledger_records_at_the_end BEFORE INSERT ON ledger_records "
        "WHEN NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM ledger_records) "
        "BEGIN SELECT RAISE(ABORT, 'the ledger grows only at its end'); END",
        "CREATE TRIGGER ledger_answers_keep_first BEFORE INSERT ON ledger_answers "
        "WHEN EXISTS (SELECT 1 FROM ledger_answers WHERE key = NEW.key) "
        "BEGIN SELECT RAISE(ABORT, 'the first answer of a key is kept'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
        *(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
            for table in (RECORDS, ANSWERS)
        ),
    ),
}
"""The triggers that keep the tables as written, by kind of database."""

for _dialect, _statements in APPEND_ONLY.items():
    for _statement in _statements:
        _ddl = DDL(_statement)  # type: ignore[no-untyped-call]
        event.listen(METADATA, "after_create", _ddl.execute_if(dialect=_dialect))


def version_of(connection: Connection) -> str | None:
    """The version of the tables in a database; None if it has no ledger."""
    if not inspect(connection).has_table(VERSION.name):
        return None
    return connection.execute(select(VERSION.c.version_num)).scalar()


def bring_up_to_date(connection: Connection) -> None:
    """Create the tables, or add what earlier versions lack; nothing, where another process was faster.

    Args:
        connection: One in the transaction in which the tables are to change.

    Raises:
        LedgerError: If a newer program made the tables.
    """
    version = version_of(connection)
    if version is None:
        METADATA.create_all(connection, checkfirst=False)
    elif version > SCHEMA_VERSION:
        raise LedgerError(f"the ledger has schema {version}, newer than this program's; upgrade synth-core")
    elif version == SCHEMA_VERSION:
        return
    else:
        for statement in (ADDED[added] for added in ADDED if added > version):
            connection.exec_driver_sql(statement)
    connection.execute(delete(VERSION))
    connection.execute(insert(VERSION), {"version_num": SCHEMA_VERSION})


ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def append_only_grants(role: str) -> list[str]:
    """The statements that the tables' owner runs once to make an existing role append-only."""
    if not ROLE.fullmatch(role):
        raise LedgerError(f"{role!r} is not a plain role name; use lower-case letters, digits and underscores")
    tables = "ledger_records, ledger_answers"
    return [
        f"REVOKE ALL ON {tables}, ledger_version FROM PUBLIC, {role};",
        f"GRANT SELECT, INSERT ON {tables} TO {role};",
        f"GRANT SELECT ON ledger_version TO {role};",
    ]
