"""The ledger's database schema, version by version (alembic)."""
