"""Runs the migrations on the connection, and inside the transaction, that the ledger opened for them."""

from __future__ import annotations

from alembic import context

from synth_core.ledger.rows import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="ledger_version",
)
context.run_migrations()
