"""A release of two linked tables through Airflow with the real steps: it equals one run without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.linked_release import write_linked_release
from support.strata_release import copy_answers

from synth_core import steps
from synth_core.errors import SpecError
from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release

pytestmark = pytest.mark.airflow


def manifest(workspace: Path):
    return json.loads(ReleasePaths(workspace, "r1").manifest.read_text())


def in_the_form(spec, workspace):
    """The values as a person types them."""
    sources = ", ".join(f"{table}: {path}" for table, path in spec["source"].items())
    return {**spec, "source": f"{{{sources}}}", "workspace": str(workspace)}


def test_airflow_gives_the_release_that_the_steps_give_without_it(release_dag, workspace, tmp_path_factory):
    source, second = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("second")
    spec = write_linked_release(source, method="independent")
    shutil.copytree(source / "workspace", workspace, dirs_exist_ok=True)
    address = steps.prepare(spec, workspace=workspace)
    for step in steps.STEPS:
        steps.run_step(step, address)
    copy_answers(workspace, second)

    run = release_dag.test(run_conf=in_the_form(spec, second), logical_date=None)
    assert run.state == "success"
    assert manifest(second)["digest"] == manifest(workspace)["digest"]
    assert manifest(second)["tables"]["household"] > 0
    assert verify_release(ReleasePaths(second, "r1").public) == []
    charged = [open_ledger(one).balance("homes").charged_mu2 for one in (workspace, second)]
    assert charged[0] == charged[1]


def test_sources_of_the_form_start_at_the_workspace(airflow_home):
    from synth_airflow.operators import release_spec  # Airflow's home is set before it is imported

    form = {"dataset": "homes", "workspace": "/w", "schema": "linked.yaml", "release": "r1"}
    spec, _ = release_spec({**form, "source": "{household: h.csv, person: s3://there/p.csv}"}, run_id="x")
    assert spec["source"] == {"household": "/w/h.csv", "person": "s3://there/p.csv"}
    with pytest.raises(SpecError, match=r"source: write it as \{household"):
        release_spec({**form, "source": "{household: h.csv"}, run_id="x")
