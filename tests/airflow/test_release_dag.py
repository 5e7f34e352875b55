"""The release DAG as it is parsed: its form, its shape, its promises about retries, and how long parsing takes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
DAG_FILE = ROOT / "dags" / "census_release.py"
ORDER = ["prepare", "ingest", "score", "select", "stratum", "fit", "sample", "evaluate", "approve", "publish"]
GROUPS = {
    "begin": {"prepare", "ingest"},
    "model": {"score", "select", "stratum", "fit"},
    "extract": {"sample"},
    "disclosure": {"evaluate", "approve", "publish"},
}
PARSE = """
import json, runpy, sys
import airflow.sdk
before = set(sys.modules)
runpy.run_path(sys.argv[1])
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""
HEAVY = {"numpy", "pandas", "pyarrow", "dask", "distributed", "numba", "scipy", "sklearn", "matplotlib"}


def test_dags_import_without_errors(bag):
    assert bag.import_errors == {}
    assert "census_release" in bag.dags


def test_parsing_imports_nothing_heavy(airflow_home):
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "dags", ROOT / "plugins")))
    command = [sys.executable, "-c", PARSE, str(DAG_FILE)]
    environment = os.environ | {"PYTHONPATH": folders}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    imported = set(json.loads(output.splitlines()[-1]))
    assert "synth_airflow" in imported
    assert not HEAVY & imported


def test_the_steps_follow_each_other_and_sampling_is_mapped(release_dag):
    assert [task.task_id for task in release_dag.topological_sort()] == ORDER
    for task, following in itertools.pairwise(ORDER):
        more = {"evaluate": {"publish"}, "select": {"fit"}}.get(task, set())
        assert release_dag.get_task(task).downstream_task_ids == {following, *more}
    assert release_dag.get_task("sample").is_mapped
    assert release_dag.get_task("stratum").is_mapped


def test_groups_show_the_steps_and_leave_their_names_alone(release_dag):
    groups = release_dag.task_group.get_task_group_dict()
    assert {name: set(groups[name].children) for name in GROUPS} == GROUPS


def test_the_dag_covers_every_step_of_the_package(release_dag):
    from synth_core.steps import STEPS

    assert [task for task in ORDER if task in STEPS] == list(STEPS)


def test_it_runs_when_asked_and_never_by_itself(release_dag):
    assert release_dag.schedule is None
    assert release_dag.is_paused_upon_creation
    assert not release_dag.catchup


def test_every_task_is_documented_and_retried_with_growing_patience(release_dag):
    for task in release_dag.tasks:
        assert task.doc_md, task.task_id
        assert task.retries >= 2
        assert task.retry_exponential_backoff > 1
        assert task.max_retry_delay


def test_publishing_updates_the_asset(release_dag):
    assert [asset.name for asset in release_dag.get_task("publish").outlets] == ["synthetic_census_extract"]


def test_the_form_starts_valid_and_explains_every_field(release_dag):
    release_dag.params.validate()
    for name in release_dag.params:
        schema = release_dag.params.get_param(name).schema
        assert schema["title"], name
        assert len(schema["description_md"]) > 20, name


def test_the_form_offers_every_method_and_only_known_keys(release_dag):
    from synth_core.release.spec import ROUTINE, ReleaseSpec
    from synth_core.synthesizers.methods import METHODS

    known = {field.alias or name for name, field in ReleaseSpec.model_fields.items()}
    assert set(release_dag.params) - {"workspace", "dry_run"} == known - set(ROUTINE)
    method = release_dag.params.get_param("method").schema
    assert set(method["enum"]) == set(METHODS)
    assert all(name in method["description_md"] for name in METHODS)


LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def test_the_form_has_the_words_and_limits_of_the_spec(release_dag):
    from synth_core.release.spec import ROUTINE, ReleaseSpec

    declared = ReleaseSpec.model_json_schema()["properties"]
    for name in set(declared) - set(ROUTINE):
        shown = release_dag.params.get_param(name).schema
        assert shown["title"] == declared[name]["title"]
        assert declared[name]["description"][1:] in shown["description_md"]
        kinds = [declared[name], *declared[name].get("anyOf", ())]
        limits = {key: kind[key] for kind in kinds for key in LIMITS if key in kind}
        if name == "seed":  # no browser keeps more digits
            limits = {"minimum": limits["minimum"], "maximum": 2**53 - 1}
        assert {key: shown[key] for key in LIMITS if key in shown} == limits, name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", "Census 2026"),
        ("dataset", ""),
        ("source", ""),
        ("schema", ""),
        ("method", "magic"),
        ("preset", "magic"),
        ("epsilon", 0),
        ("epsilon", -1),
        ("epsilon", 101),
        ("epsilon", "1"),
        ("delta", 0),
        ("delta", 1),
        ("delta", 1.5),
        ("rows", 0),
        ("rows", 1.5),
        ("shards", 0),
        ("shards", 10_001),
        ("release", "../elsewhere"),
        ("seed", -1),
        ("options", [1]),
    ],
)
def test_the_form_refuses_values_out_of_range(release_dag, field, value):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        release_dag.params.get_param(field).resolve(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.01),
        ("epsilon", 100),
        ("delta", 1e-9),
        ("rows", None),
        ("rows", 1),
        ("release", ""),
        ("release", "q3"),
    ],
)
def test_the_form_accepts_values_within_range(release_dag, field, value):
    assert release_dag.params.get_param(field).resolve(value) == value
