"""Airflow as in production: PostgreSQL for Airflow and ledger, task processes, a Dask scheduler with two workers.

Scheduled releases, the disclosure gate, and what people do to runs: clear, repeat, cancel.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.live_airflow import (
    DEADLINE_HOURS,
    FORM,
    TWINS,
    Live,
    assert_sound,
    ledger_of_the_site,  # noqa: F401 - a fixture for every test
)

from infra.local.rest import FINISHED, AirflowApi, ApiError
from synth_core.events.journal import Kind, read
from synth_core.privacy.accounts import State
from synth_core.privacy.wording import exact_text, loss_text

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


INTAKE = "release_after-intake"
"""The DAG of a series that is released when its asset is updated."""


def charged(live: Live, release: str) -> list[str]:
    return [record.key for record in live.ledger.records(release=release) if record.state is State.MEASURED]


def manifest(live: Live, release: str) -> dict:
    return json.loads(live.paths(release).manifest.read_text())


def asked_at_the_gate(live: Live, run: str, *, dag: str = FORM) -> dict:
    """What a person is shown and answers at the gate of a run."""
    return live.api.get(f"/dags/{dag}/dagRuns/{run.replace('+', '%2B')}/taskInstances/approve/-1/hitlDetails")


def test_each_spec_is_a_paused_dag_and_a_broken_one_an_import_error(live, twins_due):
    live.until(lambda: "release_quarterly" in live.known_dags())
    found = live.known_dags()
    assert set(found) == {FORM, *(f"release_{name}" for name in ("quarterly", "after-intake", *TWINS))}
    assert found["release_quarterly"]["is_paused"]
    assert found["release_quarterly"]["timetable_summary"].startswith("third Tuesday after quarter end")
    assert found["release_quarterly"]["next_dagrun_run_after"] > "2026"
    errors = live.until(lambda: live.api.get("/importErrors")["import_errors"])
    assert [error["filename"] for error in errors] == ["broken_release_specs.py"]
    assert "broken.yaml: key 'dataset' is missing" in errors[0]["stack_trace"]


def test_of_two_releases_at_the_same_moment_the_one_without_room_reads_nothing(live, twins_due, twins):
    """The cap was 1.2 and each asked for 1.0."""
    assert sorted(state for _, state in twins.values()) == ["failed", "success"]
    loser, winner = sorted(twins, key=lambda dag: twins[dag][1] == "success")
    states = live.states(twins[loser][0], dag=loser)
    assert states["prepare"] == "failed"
    assert {state for task, state in states.items() if task != "prepare"} <= {"upstream_failed", "skipped"}
    instances = live.api.task_instances(loser, twins[loser][0])
    log = live.api.log(next(one for one in instances if one["task_id"] == "prepare"))
    assert any("dataset 'people' has epsilon 0." in line and "left" in line for line in log)
    released = f"{winner.removeprefix('release_')}-{twins_due:%Y-%m-%d}"
    assert_sound(live, released)
    assert live.paths(released).manifest.exists()
    beginnings = [path.name for path in (live.site.workspace / "confidential").iterdir() if path.is_dir()]
    assert not [name for name in beginnings if name.startswith(loser.removeprefix("release_"))]


@pytest.fixture(scope="module")
def waiting(live: Live, twins: object) -> str:
    """The run of a release that will wait at its gate; `twins` comes first because the cap has no room before."""
    return live.trigger("rejected", approval=True, epsilon=0.5)


@pytest.fixture(scope="module")
def after_intake(live: Live, waiting: object) -> str:
    """The run of a release that an update of an asset has started, and that waits at its gate."""
    live.until(lambda: INTAKE in live.known_dags())
    live.api.unpause(INTAKE)
    live.api.update_asset("census_intake")
    (run,) = live.until(lambda: live.api.get(f"/dags/{INTAKE}/dagRuns")["dag_runs"])
    assert run["run_type"] == "asset_triggered"
    live.waits_for_approval(run["dag_run_id"], dag=INTAKE)
    return run["dag_run_id"]


def test_a_pool_that_nobody_has_made_does_not_hold_a_release_up(live, after_intake):
    (pool,) = [one for one in live.api.get("/pools")["pools"] if one["name"] == "intake"]
    assert pool["slots"] == 1
    assert {one["pool"] for one in live.api.task_instances(INTAKE, after_intake)} == {"intake"}


def test_people_are_told_of_a_run_that_misses_its_deadline(live, after_intake, webhook):
    (late,) = live.until(lambda: [one for one in read(live.site.workspace) if one.kind is Kind.DEADLINE])
    assert (late.runner.dag, late.runner.run, late.dataset) == (INTAKE, after_intake, "people")
    assert f"more than {DEADLINE_HOURS:g} hours" in late.text
    live.until(lambda: any(late.text in text for text in webhook[1]))
    assert live.api.run_state(INTAKE, after_intake) == "running", "it goes on"


@pytest.fixture(scope="module")
def approved(live: Live, after_intake: str) -> str:
    """The name of that release, after `ops` let it through the gate."""
    (release,) = {record.release for record in live.ledger.records() if record.release.startswith("after-intake-")}
    assert not live.paths(release).manifest.exists()
    ops = AirflowApi(live.api.url, user="ops", password=live.site.passwords["ops"])
    ops.decide(INTAKE, after_intake, task="approve", option="Approve")
    assert live.finished(after_intake, dag=INTAKE) == "success"
    return release


def test_an_approved_release_is_published_and_says_who_approved(live, after_intake, approved):
    assert_sound(live, approved)
    provenance = manifest(live, approved)["provenance"]
    assert (provenance["run"], provenance["approval"]["by"]) == (after_intake, "ops")
    notes = live.records(approved, step="approve")
    assert [(note.runner.actor, note.mu2) for note in notes] == [("ops", 0)]
    assert Kind.APPROVAL in [event.kind for event in read(live.site.workspace) if event.release == approved]
    assert live.states(after_intake, dag=INTAKE)["publish"] == "success"
    events = [one["extra"] for one in live.api.get("/assets/events")["asset_events"]]
    assert approved in [extra.get("release") for extra in events]


def test_the_certificate_is_what_the_person_saw(live, after_intake, approved):
    seen = asked_at_the_gate(live, after_intake, dag=INTAKE)
    assert seen["subject"] == f"Publish release {approved}?"
    stated = manifest(live, approved)["guarantee"]
    assert f"ε {loss_text(stated['epsilon'])} at δ {exact_text(stated['delta'])}" in seen["body"]
    assert seen["responded_by_user"]["name"] == "ops"


def test_every_log_line_of_a_step_names_its_release(live, after_intake, approved):
    folder = Path(live.site.home) / "logs" / f"dag_id={INTAKE}" / f"run_id={after_intake}" / "task_id=fit"
    lines = [json.loads(line) for line in (folder / "attempt=1.log").read_text().splitlines()]
    told = [line for line in lines if "fitted in" in line.get("event", "") or "round" in line.get("event", "")]
    assert {(line["release"], line["step"]) for line in told} == {(approved, "fit")}
    assert any("loss" in line["event"] for line in told)
    assert Kind.STEP in {event.kind for event in read(live.site.workspace) if event.step == "fit"}


def test_clearing_tasks_of_a_published_release_changes_no_byte_of_it(live, after_intake, approved):
    answers, published = charged(live, approved), live.paths(approved).manifest.read_bytes()
    live.api.clear(INTAKE, after_intake, tasks=["fit"])
    live.until(lambda: live.api.run_state(INTAKE, after_intake) not in FINISHED)
    assert live.finished(after_intake, dag=INTAKE) == "success"
    assert live.task(after_intake, "fit", dag=INTAKE)["try_number"] == 2
    states = live.states(after_intake, dag=INTAKE)
    assert states["approve"] == "skipped", "a decision about it would come too late"
    assert_sound(live, approved)
    assert charged(live, approved) == answers
    assert live.paths(approved).manifest.read_bytes() == published


def draft_of(live: Live, run: str) -> str:
    """The digest of the draft that a person is asked about."""
    return asked_at_the_gate(live, run)["body"].rpartition(" · draft ")[2]


def test_clearing_a_fit_repeats_it_from_stored_answers(live, waiting):
    live.waits_for_approval(waiting)
    answers, draft = charged(live, "rejected"), draft_of(live, waiting)
    live.api.clear(FORM, waiting, tasks=["fit"])
    live.waits_for_approval(waiting, attempt=2)
    assert live.task(waiting, "fit")["try_number"] == 2
    assert charged(live, "rejected") == answers
    assert draft_of(live, waiting) == draft


def test_a_rejected_release_keeps_its_charge_and_leaves_the_public_alone(live, waiting):
    live.until(lambda: live.states(waiting)["approve"] == "awaiting_input")
    charge = live.ledger.balance("people").charged_mu2
    public = sorted(path.parent.name for path in (live.site.workspace / "public").glob("*/manifest.json"))
    live.api.decide(FORM, waiting, task="approve", option="Reject")
    assert live.finished(waiting) == "success"
    assert live.states(waiting)["publish"] == "skipped"
    assert_sound(live, "rejected", published=False)
    assert charged(live, "rejected")
    assert live.ledger.balance("people").charged_mu2 == charge
    assert public == sorted(path.parent.name for path in (live.site.workspace / "public").glob("*/manifest.json"))
    closed = [record.reason for record in live.ledger.records(release="rejected") if record.state is State.CLOSED]
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


def test_a_run_that_a_person_ends_gives_its_hold_back(live, twins):
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
