"""Airflow as in production: PostgreSQL for Airflow and ledger, task processes, a Dask scheduler with two workers.

Scheduled releases, the disclosure gate, and what people do to runs: clear, repeat, cancel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from live_airflow import FORM, Live, assert_sound, live_airflow

from infra.local.rest import FINISHED, AirflowApi, ApiError
from synth_core.operations.events import Kind, read
from synth_core.privacy.ledger import State

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.timeout(1800)]

SERIES = ("twin-a", "twin-b")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("production")
    releases = folder / "workspace" / "releases"
    releases.mkdir(parents=True)
    calendar = {"calendar": "third Tuesday after quarter end", "timezone": "Europe/Vienna"}
    write_series(releases, "quarterly", schedule=calendar)
    write_series(releases, "after-intake", schedule={"asset": "census_intake"})
    (releases / "broken.yaml").write_text("release: broken\nepsilon: -1\n")
    with live_airflow(folder, cap=1.2, postgres=True) as running:
        yield running


def write_series(releases: Path, name: str, **changes) -> None:
    series = {"dataset": "people", "source": "../../people.csv", "schema": "../../schema.yaml", "delta": 1e-6}
    spec = {"release": name, **series, "epsilon": 1.0, "shards": 1, **changes}
    (releases / f"{name}.yaml").write_text(yaml.safe_dump(spec))


def known_dags(live: Live) -> dict[str, dict]:
    return {one["dag_id"]: one for one in live.api.get("/dags?limit=100")["dags"]}


def charged(live: Live, release: str) -> list[str]:
    return [record.key for record in live.ledger.records(release=release) if record.state is State.MEASURED]


def manifest(live: Live, release: str) -> dict:
    return json.loads(live.paths(release).manifest.read_text())


def test_each_spec_is_a_paused_dag_and_a_broken_one_an_import_error(live):
    live.until(lambda: "release_quarterly" in known_dags(live))
    found = known_dags(live)
    assert set(found) == {FORM, *(f"release_{name}" for name in ("quarterly", "after-intake"))}
    assert all(one["is_paused"] for name, one in found.items() if name != FORM)
    assert found["release_quarterly"]["timetable_summary"].startswith("third Tuesday after quarter end")
    assert found["release_quarterly"]["next_dagrun_run_after"] > "2026"
    errors = live.until(lambda: live.api.get("/importErrors")["import_errors"])
    assert [error["filename"] for error in errors] == ["broken_release_specs.py"]
    assert "broken.yaml: key 'dataset' is missing" in errors[0]["stack_trace"]
    assert [one["name"] for one in live.api.get("/assets?name_pattern=census_intake")["assets"]] == [
        "census_intake"
    ]


def test_of_two_releases_at_the_same_moment_the_one_without_room_reads_nothing(live):
    """The cap is 1.2 and each asks for 1.0; both are due in two minutes, once."""
    dags = [f"release_{name}" for name in SERIES]
    due = datetime.now(UTC) + timedelta(minutes=2)
    for name in SERIES:
        write_series(live.site.releases, name, schedule=f"{due:%M %H %d %m} *")
    for dag in dags:
        live.until(lambda dag=dag: dag in known_dags(live))
        live.api.unpause(dag)
    runs = {
        dag: live.until(lambda dag=dag: live.api.get(f"/dags/{dag}/dagRuns")["dag_runs"])[0] for dag in dags
    }
    ends = {dag: live.finished(run["dag_run_id"], dag=dag) for dag, run in runs.items()}
    assert sorted(ends.values()) == ["failed", "success"]
    loser, winner = sorted(dags, key=lambda dag: ends[dag] == "success")
    states = live.states(runs[loser]["dag_run_id"], dag=loser)
    assert states["prepare"] == "failed"
    assert {state for task, state in states.items() if task != "prepare"} <= {"upstream_failed", "skipped"}
    instances = live.api.task_instances(loser, runs[loser]["dag_run_id"])
    log = live.api.log(next(one for one in instances if one["task_id"] == "prepare"))
    assert any("dataset 'people' has epsilon 0." in line and "left" in line for line in log)
    released = f"{winner.removeprefix('release_')}-{due:%Y-%m-%d}"
    assert_sound(live, released)
    assert live.paths(released).manifest.exists()
    beginnings = [path.name for path in (live.site.workspace / "confidential").iterdir() if path.is_dir()]
    assert not [name for name in beginnings if name.startswith(loser.removeprefix("release_"))]
    live.ledger.set_cap("people", epsilon=20.0, actor="test", reason="room for the other tests")


@pytest.fixture(scope="module")
def approved(live: Live) -> tuple[str, dict, list[str]]:
    """A release that `ops` let through the gate, by REST with the form's values."""
    run = live.trigger("gated", approval=True, epsilon=0.5)
    live.waits_for_approval(run)
    assert not live.paths("gated").manifest.exists()
    ops = AirflowApi(live.api.url, user="ops", password=live.site.passwords["ops"])
    ops.decide(FORM, run, task="approve", option="Approve")
    assert live.finished(run) == "success"
    return run, manifest(live, "gated"), charged(live, "gated")


def test_an_approved_release_is_published_and_says_who_approved(live, approved):
    run, published, _ = approved
    assert_sound(live, "gated")
    assert published["provenance"]["approval"]["by"] == "ops"
    notes = live.records("gated", step="approve")
    assert [(note.runner.actor, note.mu2) for note in notes] == [("ops", 0)]
    assert "approval" in [event.kind.value for event in read(live.site.workspace) if event.release == "gated"]
    assert live.states(run)["publish"] == "success"
    events = [one["extra"] for one in live.api.get("/assets/events")["asset_events"]]
    assert "gated" in [extra.get("release") for extra in events]


def test_the_certificate_is_what_the_person_saw(live, approved):
    run, published, _ = approved
    path = f"/dags/{FORM}/dagRuns/{run.replace('+', '%2B')}/taskInstances/approve/-1/hitlDetails"
    seen = live.api.get(path)
    assert seen["subject"] == "Publish release gated?"
    assert f"ε {published['guarantee']['epsilon']:.4f} at δ 1e-06" in seen["body"]
    assert seen["responded_by_user"]["name"] == "ops"


def test_clearing_a_finished_fit_repeats_it_from_stored_answers(live, approved):
    run, published, answers = approved
    live.api.clear(FORM, run, tasks=["fit"])
    live.until(lambda: live.api.run_state(FORM, run) not in FINISHED)
    live.waits_for_approval(run)
    live.api.decide(FORM, run, task="approve", option="Approve")
    assert live.finished(run) == "success"
    assert live.task(run, "fit")["try_number"] == 2
    assert_sound(live, "gated")
    assert charged(live, "gated") == answers
    assert manifest(live, "gated")["digest"] == published["digest"]


def test_a_rejected_release_keeps_its_charge_and_leaves_the_public_alone(live):
    before = live.ledger.balance("people").charged_mu2
    public = sorted(path.parent.name for path in (live.site.workspace / "public").glob("*/manifest.json"))
    run = live.trigger("rejected", approval=True, epsilon=0.5)
    live.waits_for_approval(run)
    live.api.decide(FORM, run, task="approve", option="Reject")
    assert live.finished(run) == "success"
    assert live.states(run)["publish"] == "skipped"
    assert_sound(live, "rejected", published=False)
    assert live.ledger.balance("people").charged_mu2 > before
    assert public == sorted(
        path.parent.name for path in (live.site.workspace / "public").glob("*/manifest.json")
    )
    closed = [
        record.reason for record in live.ledger.records(release="rejected") if record.state is State.CLOSED
    ]
    assert closed == ["rejected by admin"]


def test_a_dry_run_shows_the_cost_and_spends_nothing(live):
    before = live.ledger.head()
    run = live.trigger("dry", dry_run=True)
    assert live.finished(run) == "success"
    assert set(live.states(run).values()) == {"skipped"}
    log = live.api.log(live.task(run, "prepare"))
    assert any("How the budget is shared: marginals" in line for line in log)
    assert any("left after:" in line for line in log)
    assert live.ledger.head() == before


def test_a_run_that_a_person_ends_gives_its_hold_back(live):
    """Marking a run as failed kills its task without asking it, so the listener closes the hold."""
    run = live.trigger("cancelled", epsilon=0.5)
    live.in_the_middle_of("score", "cancelled")
    assert live.ledger.balance("people").held_mu2 > 0
    live.api.end_run(FORM, run, state="failed")
    live.until(lambda: live.ledger.balance("people").held_mu2 == 0)
    own = live.ledger.records(release="cancelled")
    assert next(record.reason for record in own if record.state is State.CLOSED).startswith("its run failed")
    assert live.ledger.verify() == []
    assert not live.paths("cancelled").manifest.exists()


def test_values_out_of_range_are_refused_when_triggered(live):
    with pytest.raises(ApiError, match=r"400[\s\S]*dry_run"):
        live.trigger("odd", dry_run="perhaps")


def test_every_log_line_of_a_step_names_its_release(live, approved):
    run, _, _ = approved
    folder = Path(live.site.home) / "logs" / f"dag_id={FORM}" / f"run_id={run}" / "task_id=fit"
    lines = [json.loads(line) for line in (folder / "attempt=1.log").read_text().splitlines()]
    told = [
        line for line in lines if "fitted in" in line.get("event", "") or "round" in line.get("event", "")
    ]
    assert {(line["release"], line["step"]) for line in told} == {("gated", "fit")}
    assert any("loss" in line["event"] for line in told)
    assert Kind.STEP in {event.kind for event in read(live.site.workspace) if event.step == "fit"}
