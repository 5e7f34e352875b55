"""A real Airflow with task processes and a Dask cluster for tests: triggered by REST, hurt on purpose, and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy.engine import URL

from infra.local.rest import FINISHED, AirflowApi
from infra.local.services import Service, airflow, dask_cluster, wait_until
from infra.local.site import Dask, Site, free_port
from support.servers import create_database
from support.small_release import write_release
from synth_core.ledger.sql import SqlLedger, open_ledger
from synth_core.privacy.accounts import Record, State
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release

PATIENCE = 1500.0
"""Seconds that a run may take on a machine that is busy with other tests."""

FORM = "census_release"

DEADLINE_HOURS = 0.005
"""Hours after which a run of the series `after-intake` is late."""

TWINS = ("twin-a", "twin-b")
"""Series that are due at the same moment, where there is room for one of them."""


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
        return open_ledger(self.site.workspace, self.site.ledger)

    def paths(self, release: str) -> ReleasePaths:
        return ReleasePaths(self.site.workspace, release)

    def known_dags(self) -> dict[str, dict[str, Any]]:
        """The DAGs that Airflow has parsed, by name."""
        return {one["dag_id"]: one for one in self.api.get("/dags?limit=100")["dags"]}

    def trigger(self, release: str, **changes: Any) -> str:
        """Start a run of the form's DAG."""
        return self.api.trigger(FORM, {**self.spec, "release": release, **changes})

    def records(self, release: str, *, step: str) -> list[Record]:
        return [record for record in self.ledger.records(release=release) if record.step == step and record.key]

    def states(self, run: str, *, dag: str = FORM) -> dict[str, str]:
        """State of each task; a mapped one is named with its index."""
        found = self.api.task_instances(dag, run)
        return {f"{one['task_id']}{one['map_index'] if one['map_index'] >= 0 else ''}": one["state"] for one in found}

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

    def waits_for_approval(self, run: str, *, dag: str = FORM, attempt: int = 1) -> None:
        """Wait until the gate waits and the scheduler has noticed that the task's process has ended.

        Airflow asks once more if the answer comes before that.
        """

        def waits() -> bool:
            assert self.api.run_state(dag, run) not in FINISHED, "the run has ended without asking anybody"
            found = self.tasks(run, "approve", dag=dag)
            return [(one["state"], one["try_number"]) for one in found] == [("awaiting_input", attempt)]

        self.until(waits)
        words = (
            f"dag_id='{dag}', task_id='approve', run_id='{run}', try_number={attempt},",
            "executor event",
        )
        self.until(lambda: any(all(word in line for word in words) for line in self._log()))

    def _log(self) -> list[str]:
        """Lines of all parts of Airflow."""
        return self.running.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def in_the_middle_of(self, step: str, release: str) -> None:
        """Return as soon as the step has reserved its first spend."""
        self.until(lambda: self.records(release, step=step), pause=0.02)

    def tasks(self, run: str, name: str, *, dag: str = FORM) -> list[dict[str, Any]]:
        """The instances of a task: one, unless it is mapped."""
        return [one for one in self.api.task_instances(dag, run) if one["task_id"] == name]

    def task(self, run: str, name: str, *, dag: str = FORM) -> dict[str, Any]:
        (instance,) = self.tasks(run, name, dag=dag)
        return instance


@contextmanager
def live_airflow(
    folder: Path, *, cap: float, server: URL | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[Live]:
    """Airflow and Dask for a folder, on SQLite or on databases of their own on a PostgreSQL server.

    The variables are those of Airflow's processes; the process of the tests gets none of them.
    """
    database, ledger = (create_database(server), create_database(server)) if server else (None, None)
    site = Site(folder / "home", folder / "workspace", database, ledger)
    with ExitStack() as services:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**(variables or {}), **ledger_variable(site)}.items():
                patch.setenv(name, value)
            spec = write_release(folder, cap=cap)
            dask = services.enter_context(dask_cluster(site))
            running, api = services.enter_context(airflow(site, port=free_port(), dask=dask))
        wait_until(lambda: api.dag_is_known(FORM), service=running)
        api.unpause(FORM)
        yield Live(site, running, api, dask, spec)


def ledger_variable(site: Site) -> dict[str, str]:
    """What tells a process where the site's ledger and its head are, whichever workspace it opens them for."""
    head = str(site.workspace / "ledger.head")
    return {"SYNTH_LEDGER_URL": site.ledger, "SYNTH_LEDGER_HEAD": head} if site.ledger else {}


@pytest.fixture(autouse=True)
def ledger_of_the_site(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time of a test in whose file it is imported, this process finds the ledger that Airflow's tasks use."""
    for name, value in ledger_variable(live.site).items():
        monkeypatch.setenv(name, value)


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
    turns = [record.state for record in own if record.state in (State.HELD, State.CLOSED)]
    assert turns[-1] is State.CLOSED, "budget is still set aside"
    if published:
        assert not open_attempts
        assert verify_release(live.paths(release).public) == []
    return own


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is gone, or dead and not yet asked for by its parent, which may read what it left."""
    process.kill()
    end = time.monotonic() + PATIENCE
    with suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.05)


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
