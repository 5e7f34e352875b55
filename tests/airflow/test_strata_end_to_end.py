"""A stratified release through Airflow with the real steps is the one that the steps give without it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.strata_release import DISTRICTS, run_steps, write_release

from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release

pytestmark = pytest.mark.airflow


def test_one_task_for_each_stratum_and_the_same_release(release_dag, workspace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    spec = write_release(folder)
    run_steps(spec, folder)
    first = folder / "workspace"
    shutil.copytree(first / "confidential" / ".keys", workspace / "confidential" / ".keys")
    for answered in first.glob("ledger.sqlite*"):
        shutil.copy(answered, workspace)

    run = release_dag.test(run_conf=spec, logical_date=None)
    assert run.state == "success"
    mapped = [ti for ti in run.get_task_instances() if ti.task_id == "stratum"]
    assert sorted(ti.map_index for ti in mapped) == list(range(len(DISTRICTS)))
    assert {str(ti.state) for ti in mapped} == {"success"}
    paths = [ReleasePaths(place, "r1") for place in (first, workspace)]
    assert verify_release(paths[1].public) == []
    one, two = (json.loads(Path(own.manifest).read_text()) for own in paths)
    assert one["digest"] == two["digest"]
    balances = [SqlLedger(ledger_url(place, None)).balance("people") for place in (first, workspace)]
    assert balances[0].charged_mu2 == balances[1].charged_mu2
