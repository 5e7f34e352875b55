"""The disclosure gate without Airflow: what is shown, what is recorded, and what cannot be published."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.small_release import write_release

from synth_core.errors import PublishError
from synth_core.events.journal import Kind, read
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Runner, State
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, ask_approval, decide, end_run, prepare, run_step

OFFICER = Runner(actor="officer")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A release that waits at the gate."""
    folder = tmp_path_factory.mktemp("gate")
    spec = write_release(folder, approval=True, quality_share=0.1)
    address = prepare(spec, workspace=folder / "workspace", runner=Runner(dag="d", run="r"))
    for step in STEPS[:-1]:
        run_step(step, address)
    return folder / "workspace", address


@pytest.fixture
def waiting(evaluated, tmp_path):
    """A copy of it, for a decision of its own."""
    import shutil

    shutil.copytree(evaluated[0], tmp_path / "workspace")
    paths = ReleasePaths(tmp_path / "workspace", "r1")
    return paths, str(paths.spec), SqlLedger(ledger_url(paths.workspace, None))


@pytest.mark.slow
def test_people_are_told_and_shown_the_certificate(waiting, monkeypatch):
    paths, address, _ = waiting
    told = []
    monkeypatch.setattr("synth_core.steps.approval.notify", told.append)
    digest, text = ask_approval(address, runner=OFFICER)
    assert [event.kind for event in told] == [Kind.APPROVAL]
    assert told[0].release == "r1"
    assert read(paths.workspace)[-1].kind is Kind.APPROVAL
    for words in (
        "Privacy loss | ε 1 at δ 1e-06, spent 1",
        "one person",
        "fit",
        "Mean error, 2-way",
        "cap 2",
    ):
        assert words in text
    assert ask_approval(address)[0] == digest, "the same draft has the same digest"


def test_nobody_is_asked_where_the_spec_asks_for_no_approval(tmp_path):
    spec = write_release(tmp_path)
    assert ask_approval(prepare(spec, workspace=tmp_path / "workspace")) is None


def test_without_a_decision_nothing_is_published(waiting):
    paths, address, _ = waiting
    with pytest.raises(PublishError, match=r"'r1' waits for approval; approve it in Airflow, or with `synth approve`"):
        run_step("publish", address)
    assert not paths.manifest.exists()


def test_an_approval_lets_it_through_and_is_in_ledger_and_manifest(waiting):
    paths, address, ledger = waiting
    decide(address, approved=True, seen=ask_approval(address)[0], runner=OFFICER)
    run_step("publish", address)
    assert verify_release(paths.public) == []
    assert json.loads(paths.manifest.read_text())["provenance"]["approval"]["by"] == "officer"
    noted = [record for record in ledger.records(release="r1") if record.step == "approve"]
    assert [(record.state, record.mu2, record.runner.actor) for record in noted] == [(State.NOTED, 0, "officer")]


def test_a_rejection_keeps_the_charge_and_frees_the_rest(waiting):
    _, address, ledger = waiting
    before = ledger.balance("people").charged_mu2
    decide(address, approved=False, seen=ask_approval(address)[0], runner=OFFICER)
    assert ledger.balance("people").charged_mu2 == before > 0
    assert ledger.balance("people").held_mu2 == 0
    with pytest.raises(PublishError, match="'r1' was rejected by officer"):
        run_step("publish", address)


@pytest.mark.slow
def test_people_may_change_their_mind_and_the_last_word_counts(waiting):
    paths, address, _ = waiting
    seen = ask_approval(address)[0]
    for approved in (True, False, True):
        decide(address, approved=approved, seen=seen, runner=OFFICER)
    run_step("publish", address)
    assert paths.manifest.exists()


def test_an_approval_is_for_what_was_seen_and_nothing_else(waiting):
    paths, address, _ = waiting
    seen = ask_approval(address)[0]
    decide(address, approved=True, seen=seen, runner=OFFICER)
    paths.shard(0).write_bytes(paths.shard(1).read_bytes())
    with pytest.raises(PublishError, match="has changed since officer approved it"):
        run_step("publish", address)
    with pytest.raises(PublishError, match="is not the draft that was decided about"):
        decide(address, approved=True, seen=seen, runner=OFFICER)


def test_a_decision_has_a_name(waiting):
    _, address, _ = waiting
    with pytest.raises(PublishError, match="needs the name of the person"):
        decide(address, approved=True, seen=ask_approval(address)[0], runner=replace(OFFICER, actor=""))


def test_a_release_that_is_not_evaluated_has_no_draft(tmp_path):
    spec = write_release(tmp_path, approval=True)
    with pytest.raises(PublishError, match=r"scores.json is missing; run the steps up to `evaluate` first"):
        ask_approval(prepare(spec, workspace=tmp_path / "workspace"))


def test_a_run_that_ended_gives_back_what_it_held_and_no_others(waiting, tmp_path):
    paths, _, ledger = waiting
    assert end_run(paths.workspace, reason="its run failed", runner=Runner(dag="d", run="another")) == []
    assert ledger.balance("people").held_mu2 >= 0
    held = [record for record in ledger.records(release="r1") if record.state is State.HELD]
    assert held
    assert end_run(paths.workspace, reason="its run failed", runner=Runner(dag="d", run="r")) == ["r1"]
    assert ledger.balance("people").held_mu2 == 0
    closed = [record for record in ledger.records(release="r1") if record.state is State.CLOSED]
    assert [record.reason for record in closed] == ["its run failed"]
    assert end_run(paths.workspace, reason="again", runner=Runner(dag="d", run="r")) == ["r1"]
    assert len([record for record in ledger.records(release="r1") if record.state is State.CLOSED]) == 1
