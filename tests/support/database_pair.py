"""A PostgreSQL server that can be killed and started again, and a streaming standby that can take its place."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Engine

from infra.local.services import Service, service, wait_until
from infra.topology.postgres import OWNER, answers, as_owner, initialise, program, serve_command


@dataclass
class Server:
    """A server with its own socket."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def engine(self) -> Engine:
        url = URL.create("postgresql+psycopg2", OWNER, database="postgres", query={"host": str(self.folder)})
        return create_engine(url, isolation_level="AUTOCOMMIT")

    def start(self) -> None:
        """Serve, and wait until it answers."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self.settings}
        running = service(f"PostgreSQL in {self.folder.name}", serve_command(self.data, settings), env=os.environ,
                          log=self.folder / "postgres.log")  # fmt: skip
        started: Service = self._running.enter_context(running)
        engine = self.engine
        wait_until(lambda: answers(engine), service=started)
        engine.dispose()

    def kill(self) -> None:
        """SIGQUIT, at which all its processes end at once and nothing is written."""
        subprocess.run(
            [*as_owner(), program("pg_ctl"), "-D", str(self.data), "stop", "-m", "immediate"],
            check=True, capture_output=True,
        )  # fmt: skip
        self._running.close()

    def execute(self, statement: str) -> object:
        """What a statement returns first."""
        engine = self.engine
        with engine.connect() as connection:
            found = connection.execute(text(statement))
            row = found.first() if found.returns_rows else None
        engine.dispose()
        return row[0] if row else None

    def close(self) -> None:
        self._running.close()


@contextmanager
def one_server(folder: Path) -> Iterator[Server]:
    """A server of its own for the time of a `with` block."""
    server = Server(folder)
    folder.mkdir(parents=True)
    folder.chmod(0o1777)  # its socket lies here, whoever it runs as
    initialise(server.data, "--auth=trust")
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def standby_of(primary: Server, folder: Path) -> Iterator[Server]:
    """A copy that follows the primary until it is promoted."""
    standby = Server(folder)
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    if os.geteuid() == 0:
        standby.data.mkdir(mode=0o700)
        shutil.chown(standby.data, OWNER)
    command = [*as_owner(), program("pg_basebackup"), "-D", str(standby.data), "-h", str(primary.folder), "-U", OWNER]
    subprocess.run([*command, "-R", "-X", "stream", "-c", "fast"], check=True, capture_output=True)
    try:
        standby.start()
        yield standby
    finally:
        standby.close()


def address_of(*servers: Server, database: str) -> str:
    """The address of a database wherever it may be written to at the moment."""
    hosts = [str(server.folder) for server in servers]
    more = {"target_session_attrs": "read-write"} if len(hosts) > 1 else {}
    url = URL.create(
        "postgresql+psycopg2",
        OWNER,
        database=database,
        query={"host": hosts[0] if len(hosts) == 1 else tuple(hosts), **more},
    )
    return url.render_as_string(hide_password=False)
