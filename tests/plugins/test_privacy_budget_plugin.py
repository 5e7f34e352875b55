"""The plugin under Airflow's real API server and login, behind a base URL: who gets in, what Airflow shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.small_release import write_release

from infra.local.site import Site

pytestmark = pytest.mark.airflow
EDITORS, EVERYBODY = ("ops", "admin"), ("viewer", "ops", "admin")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What one API server answered; it has a process of its own, because Airflow is configured once for a process."""
    folder = tmp_path_factory.mktemp("plugin")
    write_release(folder)
    site = Site(home=folder / "home", workspace=folder / "workspace")
    assert site.passwords
    environment = site.environment(port=8080) | {
        "AIRFLOW__API__BASE_URL": "http://127.0.0.1:8080/statistics/airflow",
        "SYNTH_DASK_DASHBOARD": "http://dask.example:8787/status",
    }
    script = Path(__file__).with_name("api_server.py")
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=1500)
    assert run.returncode == 0, run.stderr[-3000:]
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("SEEN ")]
    return json.loads(line.removeprefix("SEEN "))


def test_anonymous_and_forged_visitors_get_nothing(seen):
    """Of no address that the application has: they are listed from the application itself."""
    assert len(seen["statuses"]["anonymous"]) == seen["routes"] == 17
    assert set(seen["statuses"]["anonymous"].values()) == {401}
    assert set(seen["statuses"]["forged"].values()) <= {401, 403}


def test_a_viewer_sees_the_pages_but_neither_true_errors_nor_the_form(seen):
    viewer = seen["statuses"]["viewer"]
    assert {path for path, status in viewer.items() if status == 403} == {"GET /internal-report", "POST /cap"}
    for path in ("GET /", "GET /account", "GET /records", "GET /metrics", "GET /style.css"):
        assert viewer[path] == 200


def test_one_address_changes_something_and_one_plugin_has_addresses(seen):
    """A new one would have to be guarded as this one is, and tested here."""
    assert [path for path in seen["statuses"]["viewer"] if not path.startswith("GET ")] == ["POST /cap"]
    serving = {
        plugin["name"]
        for plugin in seen["plugins"]
        if plugin["fastapi_apps"] or plugin["flask_blueprints"] or plugin["fastapi_root_middlewares"]
    }
    assert {name for name in serving if "airflow" not in name} == {"privacy_budget"}


def test_who_may_not_change_a_cap_changes_nothing_even_with_an_editors_form(seen):
    assert (seen["stranger_cap"], seen["viewer_cap"], seen["admin_with_others_token"]) == (401, 403, 403)
    assert "board 14" not in seen["before"]
    assert 'name="token"' not in seen["before"], "a viewer has no form"


def test_editors_may_change_a_cap_with_their_own_form_alone(seen):
    for role in EDITORS:
        assert seen["statuses"][role]["GET /internal-report"] == 404  # let in, but there is none
    assert seen["statuses"]["ops"]["POST /cap"] == 403  # a post without our form
    assert seen["ops_cap"] == 303
    assert "board 14" in seen["history"]
    assert "<td>ops</td>" in seen["history"]


def test_a_scraper_reads_metrics_with_a_bearer_token(seen):
    assert 'synth_budget_cap_epsilon{dataset="people"} 2.5' in seen["metrics"]


def test_airflow_shows_page_and_tabs(seen):
    assert seen["import_errors"] == []
    (plugin,) = [plugin for plugin in seen["plugins"] if plugin["name"] == "privacy_budget"]
    views = {view["destination"]: view for view in plugin["external_views"]}
    assert set(views) == {"nav", "dag", "dag_run"}
    assert len({view["url_route"] for view in views.values()}) == 3
    assert not any(view["href"].startswith("/") for view in views.values())
    assert "{DAG_ID}" in views["dag_run"]["href"]
    assert "{RUN_ID}" in views["dag_run"]["href"]


def test_tasks_of_releases_link_to_their_spends_and_to_the_cluster(seen):
    assert seen["links"] == {
        "Privacy spend": "http://127.0.0.1:8080/statistics/airflow/plugin/privacy-budget/statistics/airflow/budget/"
        "records?dag=census_release&run=manual__2026-01-01T00%3A00%3A00%2B00%3A00&task=fit",
        "Dask dashboard": "http://dask.example:8787/status",
    }
    assert set(seen["other_links"].values()) == {""}


def test_loading_the_plugin_is_cheap_for_every_process(seen):
    assert seen["heavy"] == []
