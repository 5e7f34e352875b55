"""What listens to runs: holds end with their run whoever ended it, and a late run is told of."""

from __future__ import annotations

import asyncio
import importlib
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.local.site import Site
from synth_core.events.journal import Kind, read
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account, Runner, State

pytestmark = pytest.mark.airflow


@pytest.fixture
def watch(airflow_home: Site) -> Any:
    """The plugin's module; importing it imports Airflow, which reads its environment then."""
    return importlib.import_module("synth_airflow.listeners")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlLedger:
    """A ledger with one account and a release that run r1 holds budget for."""
    monkeypatch.setenv("SYNTH_WORKSPACE", str(tmp_path))
    opened = SqlLedger(ledger_url(tmp_path, None))
    opened.declare(Account(dataset="people", delta=1e-6, cap_epsilon=2.0), actor="test")
    opened.hold("people", "q1", mu2=Fraction(1, 100), runner=Runner(dag="release_q", run="r1"))
    return opened


def ended(run: str, *, tags: Any = ("privacy",), conf: Any = None) -> Any:
    return SimpleNamespace(dag_id="release_q", run_id=run, conf=conf, dag=SimpleNamespace(tags=tags))


@pytest.mark.parametrize("hook", ["on_dag_run_failed", "on_dag_run_success"])
def test_a_run_that_ends_gives_its_hold_back(watch, ledger, hook):
    getattr(watch, hook)(dag_run=ended("another"), msg="")
    getattr(watch, hook)(dag_run=ended("r1", tags=("etl",)), msg="")
    assert ledger.balance("people").held_mu2 == Fraction(1, 100)
    getattr(watch, hook)(dag_run=ended("r1"), msg="marked by hand")
    assert ledger.balance("people").held_mu2 == 0
    assert next(record.reason for record in ledger.records() if record.state is State.CLOSED).endswith("by hand")


def starting(*pools: str, tags: Any = ("privacy",)) -> Any:
    return SimpleNamespace(dag=SimpleNamespace(tags=tags, tasks=[SimpleNamespace(pool=name) for name in pools]))


def test_a_run_that_starts_gets_the_pools_that_are_missing(watch, monkeypatch):
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        monkeypatch.setattr("sqlalchemy.orm.object_session", lambda _: session)
        session.add(Pool(pool="wide", slots=8, description="by hand", include_deferred=False))
        session.flush()
        watch.on_dag_run_running(dag_run=starting("default_pool", "wide", "people", "people"))
        watch.on_dag_run_running(dag_run=starting("people"))
        watch.on_dag_run_running(dag_run=starting("other", tags=("etl",)))
        found = {pool.pool: pool.slots for pool in session.scalars(select(Pool))}
        session.rollback()
    assert found.pop("default_pool") > 1
    assert found == {"wide": 8, "people": 1}


def test_the_forms_own_workspace_is_used(watch, ledger, tmp_path, monkeypatch):
    monkeypatch.delenv("SYNTH_WORKSPACE")
    watch.on_dag_run_failed(dag_run=ended("r1"), msg="")
    assert ledger.balance("people").held_mu2 > 0
    watch.on_dag_run_failed(dag_run=ended("r1", conf={"workspace": str(tmp_path)}), msg="")
    assert ledger.balance("people").held_mu2 == 0


def test_a_ledger_out_of_reach_is_a_warning(watch, ledger, monkeypatch, capsys):
    monkeypatch.setenv("SYNTH_LEDGER_URL", "sqlite:////nowhere/at/all.sqlite")
    watch.on_dag_run_failed(dag_run=ended("r1"), msg="")
    assert "was not closed" in capsys.readouterr().out


def test_a_late_run_is_recorded_and_told(watch, ledger, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("synth_core.events.notices.notify", lambda event: told.append(event) or [])
    run = {"dag_id": "release_q", "dag_run_id": "r1"}
    asyncio.run(watch.late(hours=6.0, dataset="people", context={"dag_run": run}))
    (event,) = [event for event in read(tmp_path) if event.kind is Kind.DEADLINE]
    assert (event.runner.dag, event.runner.run, event.dataset) == ("release_q", "r1", "people")
    assert "more than 6 hours" in event.text
    assert [one.text for one in told] == [event.text]


@pytest.mark.parametrize(
    ("command", "executor", "imported"),
    [
        ("scheduler", "LocalExecutor", True),
        ("scheduler", "CeleryExecutor", False),
        ("triggerer", "LocalExecutor", False),
    ],
)
def test_a_scheduler_that_forks_its_tasks_has_their_modules(watch, monkeypatch, command, executor, imported):
    seen = []
    monkeypatch.setattr("synth_core.steps.import_steps", lambda: seen.append(True))
    monkeypatch.setattr("sys.argv", ["airflow", command])
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    watch.on_starting()
    assert bool(seen) is imported
