"""Services of one machine (Dask, Airflow), each in a session of its own, ended with all its descendants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from infra.local.rest import AirflowApi
from infra.local.site import LOOPBACK, Credentials, Dask, Site, SiteError

GRACE_SECONDS = 30.0
START_SECONDS = 900.0
"""Seconds that a service may take to be ready; one that has died is reported at once."""

LOG_TAIL = 30

QUIET_DASK = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}
"""Settings with which an idle scheduler with two workers takes 4 % of a core instead of 15 %."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running command, the leader of its own session, and the file it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Refuse to go on without this service."""
        if self.process.poll() is not None:
            raise SiteError(f"{self.name} stopped unexpectedly; the end of {self.log}:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:])

    def members(self) -> list[int]:
        """Every live process of the session: Airflow puts its tasks into process groups of their own."""
        return [pid for pid in psutil.pids() if _session(pid) == self.process.pid and _alive(pid)]

    def stop(self) -> None:
        """End the whole session: politely first, for good after a while."""
        deadline = time.monotonic() + GRACE_SECONDS
        _signal(self.members(), signal.SIGTERM)
        while self.members() and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(0.1)
        _signal(self.members(), signal.SIGKILL)
        self.process.wait()


@contextmanager
def service(name: str, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Iterator[Service]:
    """Run a command for the time of a `with` block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Service(name, process, log)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def dask_cluster(site: Site, *, workers: int = 2, port: int = 0) -> Iterator[Dask]:
    """A Dask scheduler and its workers beside Airflow; yields where they answer.

    Tasks connect to it, because a cluster of processes cannot be started inside an Airflow task. It speaks TLS, and
    a process without the certificate cannot use it: on the loopback interface any process of the machine reaches it.
    """
    credentials, described = Credentials(site.home / "dask-tls"), site.home / "dask.json"
    credentials.renew()
    env = site.environment(port=0) | credentials.variables | QUIET_DASK
    described.unlink(missing_ok=True)
    dask = str(Path(sys.executable).with_name("dask"))
    shared = ["--host", LOOPBACK, "--scheduler-file", str(described), "--dashboard-address", f"{LOOPBACK}:0"]
    shared += ["--protocol", "tls"]
    scheduler = [dask, "scheduler", *shared, "--port", str(port)]
    worker = [dask, "worker", *shared, "--nworkers", str(workers), "--nthreads", "1"]
    worker += ["--local-directory", str(site.home / "dask")]
    with service("the Dask scheduler", scheduler, env=env, log=site.home / "dask-scheduler.log") as leader:
        wait_until(lambda: bool(read_scheduler_file(described)), service=leader)
        about = read_scheduler_file(described)
        dashboard = f"http://{LOOPBACK}:{about['services']['dashboard']}/status"
        with service("the Dask workers", worker, env=env, log=site.home / "dask-workers.log"):
            yield Dask(str(about["address"]), dashboard, credentials)


def read_scheduler_file(path: Path) -> dict[str, Any]:
    """What a Dask scheduler says of itself; empty while the file is not there or not yet whole.

    Dask creates the file first and writes it afterwards, so that it may be found with nothing, or half of it, in it.
    """
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return about


@contextmanager
def airflow(site: Site, *, port: int, dask: Dask | None) -> Iterator[tuple[Service, AirflowApi]]:
    """A standalone Airflow, yielded when all its parts are healthy, with an administrator's access to it."""
    env = site.environment(port=port, dask=dask)
    api = AirflowApi(f"http://{LOOPBACK}:{port}", user="admin", password=site.passwords["admin"])
    command = [str(Path(sys.executable).with_name("airflow")), "standalone"]
    with service("Airflow", command, env=env, log=site.home / "standalone.log") as running:
        wait_until(api.healthy, service=running)
        yield running, api


def stop_on_signals() -> None:
    """Let Ctrl-C, a closed terminal and `kill` all end the program the same way, with its services."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def wait_until(ready: Callable[[], bool], *, service: Service, seconds: float = START_SECONDS) -> None:
    """Wait until something is ready; a service that dies or takes too long is an error with its log's end."""
    deadline = time.monotonic() + seconds
    while not ready():
        service.check()
        if time.monotonic() > deadline:
            raise SiteError(f"{service.name} is not ready after {seconds:.0f} s; the log ends:\n{service.tail()}")
        time.sleep(0.5)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _alive(pid: int) -> bool:
    """A dead orphan may stay in the process table until its parent collects it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
