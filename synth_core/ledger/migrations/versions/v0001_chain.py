"""Records and answers, both append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXTS = (
    "snapshot",
    "stratum",
    "release",
    "step",
    "purpose",
    "mechanism",
    "asked",
    "mu2",
    "reason",
    "runner",
    "library",
    "entropy",
    "cap_mu2",
    "remaining_mu2",
)

SQLITE = (
    *(
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for table in ("ledger_records", "ledger_answers")
        for verb in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE deletes without firing a DELETE trigger, so inserts have to be at the end and new.
    "CREATE TRIGGER ledger_records_at_the_end BEFORE INSERT ON ledger_records "
    "WHEN NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM ledger_records) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger grows only at its end'); END",
    "CREATE TRIGGER ledger_answers_keep_first BEFORE INSERT ON ledger_answers "
    "WHEN EXISTS (SELECT 1 FROM ledger_answers WHERE key = NEW.key) "
    "BEGIN SELECT RAISE(ABORT, 'the first answer of a key is kept'); END",
)

POSTGRESQL = (
    "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    *(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        for table in ("ledger_records", "ledger_answers")
    ),
)


def upgrade() -> None:
    """Create the chain and the stored answers with the triggers that keep them as written."""
    op.create_table(
        "ledger_records",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False
        ),
        sa.Column("previous_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in TEXTS),
        sa.Column("answer_digest", sa.String(64), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_index("ledger_records_dataset_release", "ledger_records", ["dataset", "release"])
    op.create_index(
        "ledger_records_once",
        "ledger_records",
        ["key", "attempt", "state"],
        unique=True,
        sqlite_where=sa.text("key <> ''"),
        postgresql_where=sa.text("key <> ''"),
    )
    op.create_table(
        "ledger_answers",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
    )
    for statement in POSTGRESQL if op.get_bind().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)
