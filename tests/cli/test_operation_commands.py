"""The commands `synth approve` and `synth releases`."""

from __future__ import annotations

import pytest
import yaml
from support.small_release import write_release
from typer.testing import CliRunner

from synth_core.cli import app
from synth_core.errors import SpecError
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, prepare, run_step


@pytest.fixture
def waiting(tmp_path):
    spec = write_release(tmp_path, approval=True)
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS[:-1]:
        run_step(step, address)
    return tmp_path / "workspace", address


def synth(*arguments, answer=""):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)


@pytest.mark.slow
def test_a_person_sees_the_certificate_and_decides(waiting):
    workspace, address = waiting
    asked = synth("approve", "r1", "--workspace", workspace, answer="n\n")
    assert "Privacy loss | ε" in asked.output
    assert "approve r1, draft" in asked.output
    rejected = synth("approve", "r1", "--workspace", workspace, "--reject", "--yes")
    assert "r1: rejected" in rejected.output
    approved = synth("approve", "r1", "--workspace", workspace, answer="y\n")
    assert "r1: approved" in approved.output
    run_step("publish", address)
    assert verify_release(workspace / "public" / "r1") == []


def test_there_is_nothing_to_approve_without_the_spec_asking(tmp_path):
    spec = write_release(tmp_path)
    prepare(spec, workspace=tmp_path / "workspace")
    outcome = synth("approve", "r1", "--workspace", tmp_path / "workspace")
    assert isinstance(outcome.exception, SpecError)
    assert "its spec does not say `approval: true`" in str(outcome.exception)
    outcome = synth("approve", "r9", "--workspace", tmp_path / "workspace")
    assert "was never begun" in str(outcome.exception)


def test_a_folder_of_specs_is_checked(tmp_path):
    basic = {"dataset": "people", "source": "p.csv", "schema": "s.yaml", "epsilon": 1.0, "delta": 1e-6}
    calendar = {"release": "a", **basic, "schedule": "third Tuesday after quarter end"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(calendar))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"release": "b", **basic}))
    fine = synth("releases", tmp_path)
    assert fine.exit_code == 0
    assert "a: third Tuesday after quarter end, 00:00 (UTC); next 20" in fine.output
    assert "b: when triggered" in fine.output
    (tmp_path / "c.yaml").write_text("release: c\n")
    broken = synth("releases", tmp_path)
    assert isinstance(broken.exception, SpecError)
    assert "c.yaml: key 'dataset' is missing" in str(broken.exception)
    assert "a: third Tuesday" in broken.output
