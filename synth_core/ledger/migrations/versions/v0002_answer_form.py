"""Records say what their answers are; those that were written before have an empty text there and keep their hashes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; no row is touched, so the append-only triggers have nothing to refuse."""
    op.add_column("ledger_records", sa.Column("form", sa.Text(), nullable=False, server_default=""))
