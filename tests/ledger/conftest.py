"""Every test of the ledger's behaviour runs on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from support import ledgers
from support.servers import create_schema

from synth_core.ledger.sql import SqlLedger


@pytest.fixture
def postgres_url(postgres_server: URL) -> str:
    """The address of an empty ledger."""
    return create_schema(postgres_server)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database, of each kind in turn."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def ledger(url: str) -> SqlLedger:
    """A ledger with one account that has room for ten requests."""
    return ledgers.opened(ledgers.with_tables(url))
