"""What the release DAG does with the steps' answers and refusals, seen with steps that only keep a diary."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synth_core import steps
from synth_core.errors import BudgetRefused, ClusterError, ReleaseEnded, SynthError
from synth_core.events.journal import Kind
from synth_core.privacy.accounts import Runner

pytestmark = pytest.mark.airflow


@dataclass
class Diary:
    """Stands in for `synth_core.steps`: notes who called what, and refuses where it is told to."""

    refusals: dict[str, list[SynthError]] = field(default_factory=dict)
    calls: list[tuple[str, Runner, str | None]] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    most: int = 4

    def prepare(self, spec: dict[str, Any], *, workspace: Path, runner: Runner) -> str:
        self.spec = spec
        return self._answer("prepare", runner, None, str(workspace / "public" / spec["release"] / "release.yaml"))

    def run_step(
        self,
        name: str,
        address: str,
        *,
        part: steps.PartId | None = None,
        cluster: str | None,
        runner: Runner,
        progress: steps.Progress,
    ) -> str:
        progress(f"{name} goes on")
        said = name if part is None else f"{name} {Path(str(part)).name}"
        written = f"{part}/model.npz" if isinstance(part, str) else f"{Path(address).parent}/{said}"
        return self._answer(said, runner, cluster, written)

    def cost(self, spec: dict[str, Any], *, workspace: Path) -> list[tuple[str, list[tuple[str, str]]]]:
        return [("Release", [("cost", f"epsilon {spec['epsilon']}")])]

    def most_parts(self, spec: dict[str, Any]) -> int:
        return self.most

    def needs_approval(self, address: str) -> bool:
        return False

    def ask_approval(self, address: str, *, runner: Runner) -> None:
        raise AssertionError("the gate was asked although its task is skipped")

    def list_parts(self, name: str, address: str) -> list[steps.PartId]:
        return {"fit": [f"{Path(address).parent}/strata/{part}" for part in self.parts], "sample": [0, 1]}[name]

    def cancel(self, address: str, *, reason: str, runner: Runner) -> None:
        self.cancelled.append(reason)

    def _answer(self, name: str, runner: Runner, cluster: str | None, address: str) -> str:
        self.calls.append((name, runner, cluster))
        if self.refusals.get(name):
            raise self.refusals[name].pop(0)
        return address

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Diary:
    diary = Diary()
    verbs = ("cost", "most_parts", "prepare", "run_step", "list_parts")
    for verb in (*verbs, "needs_approval", "ask_approval", "cancel"):
        monkeypatch.setattr(steps, verb, getattr(diary, verb))
    return diary


def states(run: Any) -> dict[str, str]:
    return {instance.task_id: str(instance.state) for instance in run.get_task_instances()}


def test_a_run_passes_the_release_from_step_to_step(release_dag, diary, workspace, monkeypatch, capfd):
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setenv("SYNTH_DASK_ADDRESS", address)
    run = release_dag.test(run_conf={"epsilon": 0.5, "rows": None, "source": "intake/*.csv"}, logical_date=None)

    assert run.state == "success"
    assert diary.names[:5] == ["prepare", "ingest", "score", "select", "fit"]
    assert sorted(diary.names[5:7]) == ["sample 0", "sample 1"], "shards may be drawn in any order"
    assert diary.names[7:] == ["evaluate", "publish"]
    assert {cluster for name, _, cluster in diary.calls if name != "prepare"} == {address}
    assert diary.spec["epsilon"] == 0.5
    assert diary.spec["source"] == str(workspace / "intake/*.csv")
    assert diary.spec["release"].startswith("fictional-census-manual-")
    assert {"rows", "options", "workspace"} & set(diary.spec) == set()
    assert diary.cancelled == []
    assert {task for task, state in states(run).items() if state == "skipped"} == {"stratum", "approve"}
    assert "fit goes on" in capfd.readouterr().out
    listening.close()


def test_the_ledger_is_told_who_ran_what(release_dag, diary):
    run = release_dag.test(logical_date=None)
    who = {name: runner for name, runner, _ in diary.calls}
    assert {(runner.dag, runner.run) for runner in who.values()} == {("census_release", run.run_id)}
    assert (who["fit"].task, who["fit"].map_index, who["fit"].attempt) == ("fit", -1, 1)
    assert (who["sample 1"].task, who["sample 1"].map_index) == ("sample", 1)
    assert who["fit"].actor


def test_only_addresses_and_shard_numbers_pass_between_tasks(release_dag, diary, workspace):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run = release_dag.test(logical_date=None)
    with create_session() as session:
        rows = session.execute(select(XComModel).where(XComModel.run_id == run.run_id)).scalars().all()
        values = {(row.task_id, row.map_index, row.key): XComModel.deserialize_value(row) for row in rows}
    assert values.pop(("select", -1, "return_value")) == [], "no strata"
    assert values.pop(("fit", -1, "return_value")) == [0, 1], "the shards"
    assert {task for task, _, key in values if key == "address"} == {"select", "fit"}
    assert len(values) == 9
    assert all(str(value).startswith(str(workspace / "public")) for value in values.values())


def test_a_refusal_is_final_says_its_line_and_gives_the_rest_back(release_dag, diary, capfd):
    line = "dataset 'fictional-census' has epsilon 0.31 of 2.00 left"
    diary.refusals["score"] = [BudgetRefused(line)]
    run = release_dag.test(logical_date=None)

    assert run.state == "failed"
    assert diary.names == ["prepare", "ingest", "score"]
    assert states(run)["score"] == "failed"
    assert states(run)["publish"] == "upstream_failed"
    assert diary.cancelled == ["task score failed"]
    assert line in capfd.readouterr().out


def test_a_task_whose_release_was_ended_ends_nothing_and_tells_nobody(release_dag, diary, monkeypatch):
    told = []
    monkeypatch.setattr("synth_core.events.notices.notify", lambda event: told.append(event) or [])
    diary.refusals["score"] = [ReleaseEnded("release 'r1' was ended while step 'score' was at work")]
    run = release_dag.test(logical_date=None)
    assert run.state == "failed"
    assert diary.names == ["prepare", "ingest", "score"]
    assert (diary.cancelled, told) == ([], []), "the hold may be that of a run that resumed the release"


def test_a_release_refused_at_once_has_nothing_to_give_back(release_dag, diary):
    diary.refusals["prepare"] = [SynthError("no")]
    run = release_dag.test(logical_date=None)
    assert run.state == "failed"
    assert diary.names == ["prepare"]
    assert diary.cancelled == []


def test_more_parts_than_airflow_makes_tasks_of_are_refused_before_anything_is_set_aside(release_dag, diary, capfd):
    """Before, `score` or `fit` spent its budget, and then its list of parts was refused, for ever."""
    diary.most = 1025
    assert states(release_dag.test())["prepare"] == "failed"
    assert "1,025 parts of a step would be more tasks than Airflow makes of one (1,024)" in capfd.readouterr().out
    assert diary.names == []


def test_a_lost_cluster_is_tried_again(release_dag, diary, monkeypatch):
    monkeypatch.setattr(release_dag.get_task("fit"), "retry_delay", timedelta(seconds=0))
    diary.refusals["fit"] = [ClusterError("no Dask scheduler answers")]
    run = release_dag.test(logical_date=None)
    assert run.state == "success"
    assert [runner.attempt for name, runner, _ in diary.calls if name == "fit"] == [1, 2]
    assert diary.cancelled == []


def test_without_a_workspace_the_run_is_refused(release_dag, diary, monkeypatch, capfd):
    monkeypatch.delenv("SYNTH_WORKSPACE")
    assert release_dag.test(logical_date=None).state == "failed"
    assert diary.names == []
    assert "no workspace: set SYNTH_WORKSPACE" in capfd.readouterr().out


def test_a_named_release_and_workspace_are_used_as_they_are(release_dag, diary, tmp_path):
    conf = {"release": "q3", "workspace": str(tmp_path / "other"), "schema": str(tmp_path / "schema.yaml")}
    release_dag.test(run_conf=conf, logical_date=None)
    assert diary.spec["release"] == "q3"
    assert diary.spec["source"] == str(tmp_path / "other" / "example/data/people.csv")
    assert diary.spec["schema"] == str(tmp_path / "schema.yaml")


@pytest.mark.parametrize("run_id", ["manual__2026-11-16T04:00:00.5+00:00_aBcD", "x" * 200, "_", "ünïcode run"])
def test_names_made_from_runs_are_names(run_id):
    from synth_airflow.operators import release_name
    from synth_core.names import NAME

    assert NAME.fullmatch(release_name("census-2026", run_id))
    assert release_name("census-2026", run_id) == release_name("census-2026", run_id)


def test_people_are_told_of_a_final_failure_and_not_of_a_retry(release_dag, diary, monkeypatch):
    told = []
    monkeypatch.setattr("synth_core.events.notices.notify", lambda event: told.append(event) or [])
    monkeypatch.setattr(release_dag.get_task("score"), "retry_delay", timedelta(seconds=0))
    diary.refusals["score"] = [ClusterError("no Dask scheduler answers")]
    diary.refusals["fit"] = [BudgetRefused("no room")]
    run = release_dag.test(logical_date=None)
    assert run.state == "failed"
    assert [(event.kind, event.step, event.text) for event in told] == [(Kind.REFUSAL, "fit", "no room")]
    assert told[0].runner.run == run.run_id
    assert told[0].release.startswith("fictional-census-manual-")


def test_a_dry_run_ends_after_the_cost(release_dag, diary, capfd):
    run = release_dag.test(run_conf={"dry_run": True, "epsilon": 0.25}, logical_date=None)
    assert run.state == "success"
    assert diary.names == []
    assert set(states(run).values()) == {"skipped"}
    assert "Release: cost: epsilon 0.25" in capfd.readouterr().out
