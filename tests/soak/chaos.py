"""A release under Airflow while things break: every way of repeating, killing and losing, on SQLite and on PostgreSQL.

Run with `make soak`; the name keeps it out of `make test`. After each blow the release finishes or fails cleanly, no
question is answered or charged twice, and no answer is lost. Only what was begun and not answered may cost again, and
the ledger says so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in (".", "tests/airflow", "tests/steps")]

from live_airflow import FORM, Live, assert_sound, kill, live_airflow, processes  # noqa: E402

from infra.local.rest import FINISHED  # noqa: E402
from infra.local.services import dask_cluster  # noqa: E402
from synth_core.privacy.ledger import State  # noqa: E402

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp(request.param)
    with live_airflow(folder, cap=20.0, postgres=request.param == "postgres") as running:
        yield running


@pytest.fixture(scope="module")
def until_the_end(live: Live) -> Iterator[ExitStack]:
    """Keeps what was started again after a blow, for the tests that follow."""
    with ExitStack() as kept:
        yield kept


def answers(live: Live, release: str) -> list[str]:
    return [record.key for record in live.ledger.records(release=release) if record.state is State.MEASURED]


def given_up(live: Live, release: str) -> list[str]:
    return [record.key for record in live.ledger.records(release=release) if record.state is State.FORFEITED]


def digest(live: Live, release: str) -> str:
    return json.loads(live.paths(release).manifest.read_text())["digest"]


def test_a_run_that_is_repeated_as_a_whole_costs_nothing(live):
    run = live.trigger("again", epsilon=0.5)
    assert live.finished(run) == "success"
    before = (answers(live, "again"), digest(live, "again"), live.ledger.balance("people").charged_mu2)
    live.api.clear(FORM, run)
    live.until(lambda: live.api.run_state(FORM, run) not in FINISHED)
    assert live.finished(run) == "success"
    assert (
        answers(live, "again"),
        digest(live, "again"),
        live.ledger.balance("people").charged_mu2,
    ) == before
    assert_sound(live, "again")


@pytest.mark.parametrize("step", ["score", "fit"])
def test_a_task_that_is_killed_is_tried_again_without_a_second_answer(live, step):
    release = f"killed-in-{step}"
    run = live.trigger(release, epsilon=0.5)
    live.in_the_middle_of(step, release)
    kill(psutil.Process(live.task(run, step)["pid"]))
    assert live.finished(run) == "success"
    assert live.task(run, step)["try_number"] >= 2
    assert_sound(live, release)
    assert len(given_up(live, release)) <= 1


def test_a_scheduler_that_is_killed_and_started_again_goes_on(live, until_the_end):
    """The same `airflow scheduler` is started again beside the other components, as a supervisor of services would."""
    release = "scheduler"
    run = live.trigger(release, epsilon=0.5)
    live.in_the_middle_of("score", release)
    (scheduler,) = [one for one in processes(live, "scheduler") if "airflow" in one.cmdline()[1]]
    command, environment = scheduler.cmdline(), scheduler.environ()
    for child in scheduler.children(recursive=True):
        if psutil.pid_exists(child.pid):
            kill(child)
    kill(scheduler)
    restarted = psutil.Popen(command, env=environment, start_new_session=True)
    until_the_end.callback(_end, restarted)
    assert live.finished(run) == "success"
    assert_sound(live, release)


def test_a_dask_scheduler_that_is_lost_in_the_middle_is_waited_for(live, until_the_end):
    """The step fails with a cluster error, waits as a deferred task, and goes on when a new scheduler answers."""
    release = "lost-dask"
    run = live.trigger(release, epsilon=0.5)
    live.in_the_middle_of("fit", release)
    titles = {f"dask scheduler [{live.dask.address}]"}
    (scheduler,) = [one for one in psutil.process_iter() if titles & set(_command(one))]
    kill(scheduler)
    live.until(lambda: live.states(run)["fit"] in ("up_for_retry", "deferred"))
    port = int(live.dask.address.rsplit(":", 1)[1])
    live.until(lambda: live.states(run)["fit"] == "deferred")
    time.sleep(10)
    assert live.states(run)["fit"] == "deferred", "it waits, and fails no other way"
    until_the_end.enter_context(dask_cluster(live.site, port=port))
    assert live.finished(run) == "success"
    assert_sound(live, release)
    assert len(given_up(live, release)) <= 1


def _end(process: psutil.Popen) -> None:
    for one in [*process.children(recursive=True), process]:
        if one.is_running():
            one.kill()
    process.wait()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def test_nothing_was_left_behind(live):
    assert live.ledger.verify() == []
    assert live.ledger.balance("people").held_mu2 == 0
    assert os.path.exists(live.site.workspace / "events.jsonl")  # noqa: PTH110
