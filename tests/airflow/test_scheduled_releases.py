"""DAGs made from a folder of specs: their schedules, names, gates and pools, and what a broken spec does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pendulum
import pytest
import yaml
from support.work_counter import count_calls

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).resolve().parents[2] / "dags"
BASIC = {
    "dataset": "people",
    "source": "p.csv",
    "schema": "s.yaml",
    "epsilon": 1.0,
    "delta": 1e-6,
    "shards": 3,
}
MANY = 200
PARSE = """
import json, runpy, sys
import airflow.sdk
before = set(sys.modules)
found = runpy.run_path(sys.argv[1])
made = [name for name in found if name.startswith("release_") and hasattr(found[name], "task_dict")]
print(json.dumps([made, sorted({name.split(".")[0] for name in set(sys.modules) - before})]))
"""
HEAVY = {"numpy", "pandas", "pyarrow", "dask", "distributed", "numba", "scipy", "sklearn", "matplotlib"}


@pytest.fixture
def releases(tmp_path: Path, airflow_home: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty releases folder."""
    folder = tmp_path / "releases"
    folder.mkdir()
    monkeypatch.setenv("SYNTH_RELEASES", str(folder))
    monkeypatch.setenv("SYNTH_WORKSPACE", str(tmp_path / "workspace"))
    return folder


def write(folder: Path, name: str, **changes: Any) -> None:
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"release": name, **BASIC, **changes}))


def parsed(folder: Path) -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(DAGS)


def test_each_spec_becomes_a_dag_with_its_schedule(releases):
    write(releases, "monthly", schedule="0 6 1 * *", pool="people", deadline_hours=6)
    write(releases, "quarterly", schedule={"calendar": "third Tuesday after quarter end", "at": "09:30"})
    write(releases, "following", schedule={"asset": "intake", "uri": "s3://intake/census"})
    write(releases, "by-hand", approval=True)
    bag = parsed(releases)
    assert bag.import_errors == {}
    dags = {name.removeprefix("release_"): dag for name, dag in bag.dags.items() if name != "census_release"}
    assert set(dags) == {"monthly", "quarterly", "following", "by-hand"}
    assert dags["monthly"].timetable.summary == "0 6 1 * *"
    assert "third Tuesday" in dags["quarterly"].timetable.description
    assert dags["following"].timetable.asset_condition.uri == "s3://intake/census"
    assert dags["by-hand"].schedule is None
    for dag in dags.values():
        assert dag.is_paused_upon_creation
        assert not dag.catchup
        assert dag.max_active_runs == 1
        assert {"privacy", "people"} <= dag.tags
    assert dags["monthly"] == dags["monthly"] != dags["quarterly"]
    assert {task.pool for task in dags["monthly"].tasks} == {"people"}
    assert dags["monthly"].deadline[0].interval == timedelta(hours=6)
    assert not dags["quarterly"].deadline
    assert "approve" in dags["by-hand"].task_ids
    assert "approve" not in dags["monthly"].task_ids
    assert dags["monthly"].get_task("fit").parts_of is None, "the shards are known from the spec"
    assert dags["by-hand"].get_task("evaluate").gate == "approve"


def test_a_broken_spec_is_an_import_error_of_its_own(releases):
    write(releases, "good", schedule="0 6 1 * *")
    write(releases, "odd-cron", schedule="99 6 1 * *")
    write(releases, "odd-key", sched="0 6 1 * *")
    bag = parsed(releases)
    assert set(bag.dags) == {"census_release", "release_good"}
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("broken_release_specs.py")
    assert "odd-cron.yaml: schedule: " in error
    assert re.search(r"odd-key\.yaml: line \d+: unknown key 'sched'", error)


def test_a_missing_folder_is_shown_and_no_folder_is_fine(releases, monkeypatch):
    monkeypatch.setenv("SYNTH_RELEASES", str(releases / "nowhere"))
    (error,) = parsed(releases).import_errors.values()
    assert "is not a folder; create it" in error
    monkeypatch.delenv("SYNTH_RELEASES")
    assert parsed(releases).import_errors == {}


def test_a_task_builds_no_dag_but_its_own(releases, monkeypatch):
    for name in ("a", "b"):
        write(releases, name)
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "release_b")
    made = runpy.run_path(str(DAGS / "scheduled_releases.py"))
    assert "release_b" in made
    assert "release_a" not in made


def test_many_specs_are_parsed_at_once_and_import_nothing_heavy(releases):
    for number in range(MANY):
        schedules = ("0 6 1 * *", "third Tuesday after quarter end", {"asset": "intake"}, None)
        write(releases, f"series-{number}", schedule=schedules[number % 4], approval=number % 2 == 0)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (DAGS.parent, DAGS, DAGS.parent / "plugins")))}
    command = [sys.executable, "-c", PARSE, str(DAGS / "scheduled_releases.py")]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    made, imported = json.loads(output.splitlines()[-1])
    assert len(made) == MANY
    assert "synth_airflow" in imported
    assert not HEAVY & set(imported)


def test_the_work_of_parsing_grows_with_the_number_of_specs_and_not_faster(releases):
    def parse(specs: int) -> int:
        for number in range(specs):
            write(releases, f"series-{number}", schedule="0 6 1 * *")
        return count_calls(lambda: runpy.run_path(str(DAGS / "scheduled_releases.py")))

    parse(1)  # imports what is imported once
    few = parse(20)
    assert parse(80) < 4.5 * few


def test_a_scheduled_release_is_named_after_its_date(releases, tmp_path, monkeypatch):
    from airflow.sdk.api.datamodels._generated import DagRunType

    from synth_airflow.operators import Prepare
    from synth_core import steps

    write(releases, "quarterly", schedule="third Tuesday after quarter end")
    seen = {}
    monkeypatch.setattr(steps, "cost", lambda spec, *, workspace: [])
    monkeypatch.setattr(steps, "prepare", lambda spec, **_: seen.update(spec) or "address")
    run = SimpleNamespace(
        run_after=pendulum.datetime(2027, 1, 19), run_type=DagRunType.SCHEDULED, triggering_user_name=None
    )
    instance = SimpleNamespace(dag_id="d", run_id="r", task_id="prepare", map_index=-1, try_number=1)
    task = Prepare(task_id="prepare", spec_file=str(releases / "quarterly.yaml"))
    assert task.execute({"dag_run": run, "ti": instance, "params": {}}) == "address"
    assert seen["release"] == "quarterly-2027-01-19"
    assert seen["source"] == str(releases / "p.csv")


NOW = pendulum.datetime(2026, 11, 16, 12)


def due(table: Any, *, last: Any = None, now: Any = NOW, earliest: Any = None, latest: Any = None) -> Any:
    from airflow.timetables.base import DataInterval, TimeRestriction

    interval = DataInterval.exact(last) if last else None
    with mock.patch.object(pendulum, "now", return_value=now):
        info = table.next_dagrun_info(
            last_automated_data_interval=interval, restriction=TimeRestriction(earliest, latest, False)
        )
    return info and info.run_after


@pytest.fixture(params=["cron", "calendar"])
def daily(request: pytest.FixtureRequest, airflow_home: Any) -> Any:
    """Due on the first of each month at 06:00, written in both ways."""
    from synth_airflow.timetables import timetable
    from synth_core.release.schedule import Schedule

    ways = {"cron": {"cron": "0 6 1 * *"}, "calendar": {"calendar": "first day of month", "at": "06:00"}}
    return timetable(Schedule(**ways[request.param]))


@pytest.mark.parametrize(
    ("now", "last", "expected"),
    [
        ((2026, 11, 16, 12), None, (2026, 12, 1, 6)),  # unpausing spends nothing
        ((2026, 11, 1, 7), None, (2026, 12, 1, 6)),
        ((2026, 11, 1, 6, 3), None, (2026, 11, 1, 6)),  # the scheduler was a little late
        ((2026, 11, 1, 6), (2026, 10, 1, 6), (2026, 11, 1, 6)),
        ((2026, 11, 2, 5), (2026, 10, 1, 6), (2026, 11, 1, 6)),  # the scheduler was away for less than a day
        ((2026, 11, 2, 7), (2026, 10, 1, 6), (2026, 12, 1, 6)),  # unpaused long after the date
        ((2026, 11, 1, 7), (2026, 11, 1, 6), (2026, 12, 1, 6)),
    ],
)
def test_dates_that_have_passed_are_not_made_up_for(daily, now, last, expected):
    found = due(daily, now=pendulum.datetime(*now), last=last and pendulum.datetime(*last))
    assert found == pendulum.datetime(*expected)


def test_bounds_of_a_dag_are_respected(daily):
    assert due(daily, earliest=pendulum.datetime(2027, 3, 1, 6)) == pendulum.datetime(2027, 3, 1, 6)
    assert due(daily, latest=pendulum.datetime(2026, 11, 20)) is None


def test_a_timetable_survives_the_way_to_the_scheduler(daily):
    from airflow.serialization.decoders import decode_timetable
    from airflow.serialization.encoders import encode_timetable

    again = decode_timetable(encode_timetable(daily))
    assert type(again).__name__ == type(daily).__name__
    assert due(again) == due(daily) == pendulum.datetime(2026, 12, 1, 6)
    assert again.infer_manual_data_interval(run_after=NOW).end == NOW


def test_the_trigger_fires_when_the_scheduler_answers(airflow_home, monkeypatch):
    from synth_airflow import triggers

    monkeypatch.setattr(triggers, "KNOCK_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    path, values = triggers.ClusterTrigger(address).serialize()
    assert (path, values) == ("synth_airflow.triggers.ClusterTrigger", {"address": address})

    async def wait() -> Any:
        answers, knocked = triggers.answers, asyncio.Semaphore(0)

        async def knock(where: str) -> bool:
            answered = await answers(where)
            knocked.release()
            return answered

        monkeypatch.setattr(triggers, "answers", knock)
        events = triggers.ClusterTrigger(**values).run()
        first = asyncio.ensure_future(anext(events))
        for _ in range(2):
            await knocked.acquire()
        assert not first.done()
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        async with server:
            return (await first).payload

    assert asyncio.run(wait()) == address


def test_a_step_waits_for_a_cluster_that_does_not_answer(airflow_home, monkeypatch):
    from airflow.sdk.exceptions import TaskDeferred

    from synth_airflow.operators import CLUSTER_PATIENCE, StepTask

    monkeypatch.setenv("SYNTH_DASK_ADDRESS", "tcp://127.0.0.1:9")
    with pytest.raises(TaskDeferred) as deferred:
        StepTask(task_id="score", step="score").execute({})
    assert deferred.value.method_name == "resume"
    assert deferred.value.timeout == CLUSTER_PATIENCE
    assert deferred.value.trigger.address == "tcp://127.0.0.1:9"
