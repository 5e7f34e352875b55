"""A single-machine Airflow: where it lives, its secrets, and the environment its processes are given."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
USERS = {"admin": "admin", "ops": "op", "viewer": "viewer"}


class SiteError(Exception):
    """The local Airflow cannot be run as asked; the text is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Dask:
    """Where a Dask scheduler and its dashboard answer, and the credentials that it asks for."""

    address: str
    dashboard: str
    credentials: Credentials | None = None

    def client(self, *, timeout: str = "30s") -> Any:
        """A client that may connect."""
        from distributed import Client
        from distributed.security import Security

        known = self.credentials
        security = known and Security(
            require_encryption=True,
            tls_ca_file=str(known.certificate),
            tls_client_cert=str(known.certificate),
            tls_client_key=str(known.key),
        )
        return Client(self.address, security=security, timeout=timeout)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A certificate and its key in a folder that only its owner may enter; both together give access to the cluster."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """The certificate, which is its own authority."""
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        """The private key."""
        return self.folder / "key.pem"

    def renew(self) -> None:
        """Draw a new key; those who have the old one are locked out of clusters that start from now on."""
        from distributed.security import Security

        drawn = Security.temporary()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        for path, text in ((self.certificate, drawn.tls_ca_file), (self.key, drawn.tls_client_key)):
            path.unlink(missing_ok=True)
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")

    @property
    def variables(self) -> dict[str, str]:
        """The environment of processes that start, join or use the cluster."""
        prefix = "DASK_DISTRIBUTED__COMM__"
        found = {
            f"{prefix}REQUIRE_ENCRYPTION": "True",
            f"{prefix}TLS__CA_FILE": str(self.certificate),
        }
        for role in ("SCHEDULER", "WORKER", "CLIENT"):
            found[f"{prefix}TLS__{role}__CERT"] = str(self.certificate)
            found[f"{prefix}TLS__{role}__KEY"] = str(self.key)
        return found


@dataclass(frozen=True, slots=True)
class Site:
    """An Airflow home and the workspace its releases are written to."""

    home: Path = REPOSITORY / "airflow_home"
    workspace: Path = REPOSITORY / "workspace"
    database: str | None = None  # of Airflow; a SQLite file in its home if there is no other
    ledger: str | None = None  # a SQLite file in the workspace if there is no other

    @property
    def releases(self) -> Path:
        """Folder of the specs that are released by schedule."""
        return self.workspace / "releases"

    @property
    def passwords(self) -> dict[str, str]:
        """The users' passwords, drawn once for this home."""
        return _keep(self.home / "passwords.json", lambda: {user: secrets.token_urlsafe(9) for user in USERS})

    def environment(self, *, port: int, dask: Dask | None = None) -> dict[str, str]:
        """Variables for every process of this Airflow and its Dask; they listen on the loopback interface alone."""
        from synth_core.cluster import NO_SPILLING

        address = f"http://{LOOPBACK}:{port}"
        keys = _keep(self.home / "secrets.json", _secrets)
        self.releases.mkdir(parents=True, exist_ok=True)
        variables = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API__BASE_URL": address,
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__INSTANCE_NAME": "Synthetic census releases",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__SECRET_KEY": keys["session"],
            "AIRFLOW__API_AUTH__JWT_SECRET": keys["jwt"],
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__FERNET_KEY": keys["fernet"],
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{u}:{role}" for u, role in USERS.items()),
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "150",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database or f"sqlite:///{self.home / 'airflow.db'}",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "SYNTH_RELEASES": str(self.releases),
            "SYNTH_WORKSPACE": str(self.workspace),
        }
        if self.database:  # an asynchronous driver is used by nothing that runs here
            variables["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] = ""
        if self.ledger:
            variables["SYNTH_LEDGER_URL"] = self.ledger
        if dask:
            variables |= {"SYNTH_DASK_ADDRESS": dask.address, "SYNTH_DASK_DASHBOARD": dask.dashboard}
        if dask and dask.credentials:
            variables |= dask.credentials.variables
        variables |= {f"DASK_{name.upper().replace('.', '__')}": str(value) for name, value in NO_SPILLING.items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # Airflow's processes would compile every module anew
        return {**kept, **variables}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold this home for one Airflow: two schedulers on one SQLite file would get in each other's way."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SiteError(f"an Airflow is already running in {self.home}; stop it first") from None
            yield


def free_port(*, first: int = 0, last: int | None = None) -> int:
    """The first free port of a range on the loopback interface; any free one without a range."""
    for port in range(first, (last or first) + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SiteError(f"port {first} is in use; choose another with PORT=…")


def _keep(path: Path, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What was made once and is kept in a file that only its owner can read."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(make()), encoding="utf-8")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _secrets() -> dict[str, str]:
    fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return {"session": secrets.token_hex(32), "jwt": secrets.token_hex(32), "fernet": fernet}
