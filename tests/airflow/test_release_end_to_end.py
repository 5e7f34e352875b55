"""A tiny release through Airflow with the real steps: what it leaves behind, and that it equals one run without."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.small_release import write_release
from support.strata_release import copy_answers

from synth_core import steps
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import State
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release

pytestmark = pytest.mark.airflow


@pytest.fixture
def spec(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A spec whose source and account exist; the account is in the test's own workspace."""
    folder = tmp_path_factory.mktemp("source")
    values = write_release(folder)
    shutil.copytree(folder / "workspace", workspace, dirs_exist_ok=True)
    return values


def manifest(workspace: Path) -> dict[str, Any]:
    return json.loads(ReleasePaths(workspace, "r1").manifest.read_text())


def charged(workspace: Path) -> tuple[Fraction, int]:
    ledger = SqlLedger(ledger_url(workspace, None))
    measured = [record for record in ledger.records(release="r1") if record.state is State.MEASURED]
    return ledger.balance("people").charged_mu2, len(measured)


def test_a_release_through_airflow_is_complete_and_verified(release_dag, spec, workspace):
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run = release_dag.test(run_conf=spec, logical_date=None)

    assert run.state == "success"
    assert verify_release(ReleasePaths(workspace, "r1").public) == []
    records = SqlLedger(ledger_url(workspace, None)).records(release="r1")
    by_airflow = {record.step for record in records if record.runner.run == run.run_id}
    assert set(steps.STEPS) <= by_airflow
    assert manifest(workspace)["guarantee"]["epsilon"] == spec["epsilon"]

    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == run.run_id)).all()
        extras = [event.extra for event in events]
    assert [extra["release"] for extra in extras] == ["r1"], "the asset event says which release, and where"
    assert extras[0]["manifest"] == str(ReleasePaths(workspace, "r1").manifest)


def test_airflow_gives_the_release_that_the_steps_give_without_it(release_dag, spec, workspace, tmp_path_factory):
    second = tmp_path_factory.mktemp("second")
    address = steps.prepare(spec, workspace=workspace)
    for step in steps.STEPS:
        steps.run_step(step, address)
    copy_answers(workspace, second)

    run = release_dag.test(run_conf={**spec, "workspace": str(second)}, logical_date=None)
    assert run.state == "success"
    assert manifest(second)["digest"] == manifest(workspace)["digest"]
    assert manifest(second)["provenance"]["run"] == run.run_id
    assert charged(second) == charged(workspace)


def test_a_second_run_of_a_release_resumes_it_at_no_cost(release_dag, spec, workspace):
    assert release_dag.test(run_conf=spec, logical_date=None).state == "success"
    before, digest = charged(workspace), manifest(workspace)["digest"]
    assert release_dag.test(run_conf=spec, logical_date=None).state == "success"
    assert charged(workspace) == before
    assert manifest(workspace)["digest"] == digest


def test_a_release_over_the_cap_fails_before_data_is_read(release_dag, spec, workspace, capfd):
    assert release_dag.test(run_conf={**spec, "epsilon": 50.0}, logical_date=None).state == "failed"
    assert not ReleasePaths(workspace, "r1").snapshot.exists()
    assert charged(workspace) == (Fraction(0), 0)
    assert "left" in capfd.readouterr().out


def test_a_bad_source_fails_once_and_gives_the_hold_back(release_dag, spec, workspace, capfd):
    Path(spec["source"]).write_text("sex,age\nf,12\n")
    run = release_dag.test(run_conf=spec, logical_date=None)
    assert run.state == "failed"
    assert "'job'" in capfd.readouterr().out
    balance = SqlLedger(ledger_url(workspace, None)).balance("people")
    assert (balance.charged_mu2, balance.held_mu2) == (0, 0)
