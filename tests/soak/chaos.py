"""A release under Airflow while things break: every way of repeating, killing and losing, on SQLite and on PostgreSQL.

Run with `make soak`; the name keeps it out of `make test`. After each blow the release finishes or fails cleanly, no
question is answered or charged twice, and no answer is lost. Only what was begun and not answered may cost again, and
the ledger says so.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest
from support.live_airflow import FORM, Live, assert_sound, kill, ledger_of_the_site  # noqa: F401

from infra.local.rest import FINISHED
from infra.local.services import dask_cluster
from synth_core.ledger.book import charged_records
from synth_core.privacy.accounts import State

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3600)]

BEFORE = {"score": "ingest", "fit": "select"}
"""The step before one that asks."""

ROUNDS = {"epsilon": 0.5, "method": "aim"}
"""A release whose `fit` asks several questions, one after the other."""

Seen = Callable[[str, object], None]


@pytest.fixture(scope="module")
def until_the_end(live: Live) -> Iterator[ExitStack]:
    """Keeps what was started again after a blow, for the tests that follow."""
    with ExitStack() as kept:
        yield kept


@pytest.fixture
def seen(record_property: Seen) -> Seen:
    """Notes something for the page of the run."""
    return record_property


def test_a_run_that_is_repeated_as_a_whole_costs_nothing(live, seen):
    seen("case", "a finished run is cleared as a whole")
    run = live.trigger("again", epsilon=0.5)
    assert live.finished(run) == "success"
    before = what_it_cost(live, "again")
    live.api.clear(FORM, run)
    live.until(lambda: live.api.run_state(FORM, run) not in FINISHED)
    assert live.finished(run) == "success"
    assert what_it_cost(live, "again") == before
    judge(live, "again", seen)


def test_a_finished_fit_that_is_cleared_costs_nothing(live, seen):
    seen("case", "a finished `fit` is cleared")
    run = live.trigger("cleared", epsilon=0.5)
    assert live.finished(run) == "success"
    before = what_it_cost(live, "cleared")
    live.api.clear(FORM, run, tasks=["fit"])
    live.until(lambda: live.api.run_state(FORM, run) not in FINISHED)
    assert live.finished(run) == "success"
    assert live.task(run, "fit")["try_number"] == 2
    assert what_it_cost(live, "cleared") == before
    judge(live, "cleared", seen)


@pytest.mark.parametrize("step", ["score", "fit"])
def test_a_task_that_is_killed_is_tried_again_without_a_second_answer(live, step, seen):
    seen("case", f"SIGKILL to the process of `{step}`")
    release = f"killed-in-{step}"
    run = live.trigger(release, **ROUNDS)
    with in_the_middle(live, run, step, release) as before:
        kill(psutil.Process(live.task(run, step)["pid"]))
    assert live.finished(run) == "success"
    assert live.task(run, step)["try_number"] >= 2
    assert set(before) <= set(answers(live, release)), "an answer was lost"
    judge(live, release, seen)


def test_one_of_the_mapped_tasks_of_a_stratified_release_is_killed(live, seen):
    """The mapped tasks fit one stratum each; the others go on, and together they cost what the dearest costs."""
    seen("case", "strata: SIGKILL to one of the mapped tasks")
    release = "stratum-killed"
    run = live.trigger(release, epsilon=0.5, strata="sex")
    with in_the_middle(live, run, "fit", release, task="stratum") as before:
        kill(psutil.Process(next(one["pid"] for one in live.tasks(run, "stratum") if one["state"] == "running")))
    assert live.finished(run) == "success"
    strata, shards = live.tasks(run, "stratum"), live.tasks(run, "sample")
    assert sorted(one["map_index"] for one in strata) == sorted(one["map_index"] for one in shards) == [0, 1]
    assert {one["state"] for one in (*strata, *shards)} == {"success"}
    assert sum(one["try_number"] for one in strata) >= 3
    assert set(before) <= set(answers(live, release)), "an answer was lost"
    asked = [record for record in live.ledger.records(release=release) if record.stratum]
    assert {record.stratum.part for record in asked if record.step == "fit"} == {"0 f", "1 m"}
    judge(live, release, seen)


@pytest.mark.parametrize("tasks", ["with its tasks", "alone"])
def test_a_scheduler_that_is_killed_and_started_again_goes_on(live, until_the_end, tasks, seen):
    """The same `airflow scheduler` is started again beside the other components, as a supervisor of services would.

    Killed alone, it leaves task processes that go on while the new scheduler starts the same tasks once more.
    """
    seen("case", f"SIGKILL to Airflow's scheduler {tasks}, during `score`; started again")
    release = f"scheduler-{tasks.replace(' ', '-')}"
    run = live.trigger(release, epsilon=0.5)
    with in_the_middle(live, run, "score", release) as before:
        scheduler = the_scheduler(live)
        command, environment = scheduler.cmdline(), scheduler.environ()
        family = scheduler.children(recursive=True)
        kill(scheduler)
        if tasks == "with its tasks":
            end(family)
        until_the_end.callback(end, family)
        # How soon the tasks of a dead scheduler are started again; five minutes unless set otherwise.
        environment["AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL"] = "20"
        restarted = psutil.Popen(command, env=environment, start_new_session=True)
        until_the_end.callback(end, [restarted])
    assert live.finished(run) == "success"
    assert set(before) <= set(answers(live, release)), "an answer was lost"
    judge(live, release, seen)


def test_a_dask_scheduler_that_is_lost_in_the_middle_is_waited_for(live, until_the_end, seen):
    """The step fails with a cluster error, waits as a deferred task, and goes on when a new scheduler answers."""
    seen("case", "SIGKILL to the Dask scheduler during `fit`; a new one 10 s after the step began to wait")
    release = "lost-dask"
    run = live.trigger(release, **ROUNDS)
    with in_the_middle(live, run, "fit", release) as before:
        (scheduler,) = [one for one in psutil.process_iter() if is_dask_scheduler(one, live.dask.address)]
        kill(scheduler)
    live.until(lambda: live.states(run)["fit"] == "deferred")
    time.sleep(10)
    assert live.states(run)["fit"] == "deferred", "it waits, and fails no other way"
    port = int(live.dask.address.rsplit(":", 1)[1])
    until_the_end.enter_context(dask_cluster(live.site, port=port))
    assert live.finished(run) == "success"
    assert set(before) <= set(answers(live, release)), "an answer was lost"
    judge(live, release, seen)


def test_a_run_that_is_cancelled_in_the_middle_keeps_its_charge_and_can_be_resumed(live, seen):
    seen("case", "the run is marked failed during `fit`; another run resumes the release")
    release, before_it = "cancelled", live.ledger.balance("people").charged_mu2
    run = live.trigger(release, **ROUNDS)
    with in_the_middle(live, run, "fit", release) as before:
        process = live.task(run, "fit")["pid"]
        live.api.end_run(FORM, run, state="failed")
        live.until(lambda: live.ledger.balance("people").held_mu2 == 0)
        live.until(lambda: not psutil.pid_exists(process))  # it is told at its next heartbeat
    assert_sound(live, release, published=False)
    assert not live.paths(release).manifest.exists()
    spent = charged_records(live.ledger.records(release=release))
    assert live.ledger.balance("people").charged_mu2 == before_it + sum(one.mu2 for one in spent), "it keeps its charge"
    resumed = live.trigger(release, **ROUNDS)
    assert live.finished(resumed) == "success"
    assert set(before) <= set(answers(live, release)), "an answer was lost"
    after = charged_records(live.ledger.records(release=release))
    attempts = {(one.key, one.attempt) for one in after}
    assert {(one.key, one.attempt) for one in spent} <= attempts, "a charge was taken back"
    assert live.ledger.balance("people").charged_mu2 == before_it + sum(one.mu2 for one in after), "paid what was asked"
    judge(live, release, seen)


def test_nothing_was_left_behind(live, seen):
    seen("case", "afterwards: the ledger verifies, nothing is set aside")
    assert live.ledger.verify() == []
    assert live.ledger.balance("people").held_mu2 == 0
    assert (live.site.workspace / "events.jsonl").exists()


@contextmanager
def in_the_middle(live: Live, run: str, step: str, release: str, *, task: str | None = None) -> Iterator[list[str]]:
    """A block in which a step has begun to ask and cannot go on, because Dask is kept busy.

    `score` stops in its first question. `fit` needs Dask before it asks, so it is stopped once it has begun a question,
    and stays in that one or in the estimation after it. Yields the keys of what had been answered by then. The task is
    named after the step, unless it is said otherwise; of a mapped one, some instance is at work.
    """
    live.until(lambda: has_passed(live, run, BEFORE[step]), pause=0.1)
    if step == "fit":
        live.in_the_middle_of(step, release)
    with dask_is_busy(live):
        live.in_the_middle_of(step, release)
        time.sleep(2)
        at_work = [one for one in live.tasks(run, task or step) if one["state"] == "running"]
        assert at_work, f"{step} was over before the blow"
        yield answers(live, release)


@contextmanager
def dask_is_busy(live: Live) -> Iterator[None]:
    """A block in which every worker has something to do that is not finished before its end."""
    from distributed import fire_and_forget

    flag = live.site.home / "busy"
    flag.touch()
    wait = ["sh", "-c", f"while [ -e '{flag}' ]; do sleep 0.1; done"]
    client = live.dask.client()
    try:
        for worker in client.scheduler_info(n_workers=-1)["workers"]:
            job = client.submit(subprocess.run, wait, workers=[worker], priority=1000, pure=False)
            fire_and_forget(job)
        yield
    finally:
        flag.unlink()
        client.close(timeout=5)


def has_passed(live: Live, run: str, step: str) -> bool:
    """Whether the run is beyond a step; one that failed before never will be."""
    state = live.states(run).get(step)
    assert state not in ("failed", "upstream_failed"), f"{step} failed before the blow"
    return state == "success"


def is_dask_scheduler(process: psutil.Process, address: str) -> bool:
    """Dask names its process after the address it listens at."""
    return f"dask scheduler [{address}]" in words(process)


def the_scheduler(live: Live) -> psutil.Process:
    """The process of `airflow scheduler` for this site."""
    found = [one for one in psutil.process_iter() if "scheduler" in words(one)[2:3] and of_site(one, live)]
    assert len(found) == 1
    return found[0]


def of_site(process: psutil.Process, live: Live) -> bool:
    return process.environ().get("AIRFLOW_HOME") == str(live.site.home)


def words(process: psutil.Process) -> list[str]:
    """A process's command line; empty if it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def end(processes: list[psutil.Process]) -> None:
    """SIGKILL to the processes and all that they started."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for one in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    kill(one)


def answers(live: Live, release: str) -> list[str]:
    return [record.key for record in live.ledger.records(release=release) if record.state is State.MEASURED]


def what_it_cost(live: Live, release: str) -> tuple[object, ...]:
    """Answers, digest of what was published, and what the account has been charged."""
    digest = json.loads(live.paths(release).manifest.read_text())["digest"]
    return answers(live, release), digest, live.ledger.balance("people").charged_mu2


def judge(live: Live, release: str, seen: Seen) -> None:
    """The release is sound, and at most the one question that was under way was given up."""
    records = assert_sound(live, release)
    given_up = [record.key for record in records if record.state is State.FORFEITED]
    assert len(given_up) <= 1
    seen("given up", len(given_up))
