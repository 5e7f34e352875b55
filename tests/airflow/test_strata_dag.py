"""Stratified releases in Airflow: one mapped task for each stratum, and none of that where there are no strata."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_release_refusals import diary, states  # noqa: F401 - the diary is a fixture

from synth_core.errors import BudgetRefused

pytestmark = pytest.mark.airflow

PARTS = ["00000-north", "00001-south"]


def test_each_stratum_is_fitted_by_a_task_of_its_own(release_dag, diary, workspace):  # noqa: F811
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    diary.parts = PARTS
    run = release_dag.test(run_conf={"strata": "region"}, logical_date=None)

    assert run.state == "success"
    assert diary.spec["strata"] == "region"
    assert diary.names[:4] == ["prepare", "ingest", "score", "select"]
    assert sorted(diary.names[4:6]) == [f"fit {part}" for part in PARTS], "strata may be fitted in any order"
    assert diary.names[6] == "fit"
    who = {name: runner for name, runner, _ in diary.calls}
    assert (who["fit 00001-south"].task, who["fit 00001-south"].map_index) == ("stratum", 1)
    with create_session() as session:
        rows = session.execute(select(XComModel).where(XComModel.run_id == run.run_id)).scalars().all()
        values = [XComModel.deserialize_value(row) for row in rows if row.task_id in ("select", "stratum")]
    found = [one for value in values for one in (value if isinstance(value, list) else [value])]
    assert len(found) == 5, "of what was selected, of both strata, and of both models"
    assert all(one.startswith(str(workspace / "public")) for one in found), "addresses and nothing else"


def test_without_strata_their_tasks_are_skipped_and_fit_runs(release_dag, diary):  # noqa: F811
    run = release_dag.test(logical_date=None)
    assert run.state == "success"
    assert states(run)["stratum"] == "skipped"
    assert states(run)["fit"] == "success"


def test_a_stratum_that_fails_stops_the_release(release_dag, diary):  # noqa: F811
    diary.parts = PARTS
    diary.refusals["fit 00001-south"] = [BudgetRefused("no room")]
    run = release_dag.test(run_conf={"strata": "region"}, logical_date=None)
    assert run.state == "failed"
    assert states(run)["fit"] == "upstream_failed"
    assert "fit" not in diary.names
    assert diary.cancelled == ["task stratum failed"]


@pytest.mark.parametrize("value", [None, "region", "district within state"])
def test_the_form_has_the_field(release_dag, value):
    assert release_dag.params.get_param("strata").resolve(value) == value


def test_a_series_has_these_tasks_only_if_its_spec_has_strata(airflow_home, tmp_path, monkeypatch):
    from airflow.dag_processing.dagbag import DagBag

    spec = "dataset: people\nsource: people.csv\nschema: schema.yaml\nepsilon: 1\ndelta: 1.0e-6\n"
    (tmp_path / "plain.yaml").write_text(f"release: plain\n{spec}")
    (tmp_path / "divided.yaml").write_text(f"release: divided\n{spec}strata: region\n")
    monkeypatch.setenv("SYNTH_RELEASES", str(tmp_path))
    bag = DagBag(Path(__file__).resolve().parents[2] / "dags")
    tasks = {name: set(bag.dags[f"release_{name}"].task_ids) for name in ("plain", "divided")}
    assert tasks["divided"] - tasks["plain"] == {"stratum"}
    assert bag.dags["release_divided"].get_task("stratum").is_mapped
