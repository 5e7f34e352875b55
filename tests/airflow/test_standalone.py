"""A release under a real standalone Airflow with task processes and a Dask cluster: by REST, and in a browser.

`dag.test()` runs everything in one process, so it cannot show what only breaks in real task processes.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from small_release import people, write_release

from infra.local.demo import run
from infra.local.rest import AirflowApi, ApiError
from infra.local.services import Service, airflow, dask_cluster, wait_until
from infra.local.site import Site, SiteError, free_port
from synth_core import steps
from synth_core.release.paths import ReleasePaths
from synth_core.steps.verify import verify_release
from synth_core.storage.sql_ledger import SqlLedger, ledger_url

pytestmark = pytest.mark.airflow

ROWS = 61_379
"""A number that no port, process or clock is likely to show."""

CANARY = "zyzzyva"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,1800",
)  # fmt: skip


@dataclass(frozen=True)
class Live:
    """A running Airflow and the spec of a small release whose account it has."""

    site: Site
    running: Service
    api: AirflowApi
    spec: dict[str, Any]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    frame = people(rows=ROWS)
    frame.loc[17, "job"] = CANARY
    spec = write_release(folder, frame=frame, cap=4.0)
    schema = folder / "schema.yaml"
    schema.write_text(schema.read_text().replace("nullable: true", "nullable: true, unseen: other"))
    site = Site(home=folder / "home", workspace=folder / "workspace")
    with dask_cluster(site) as dask, airflow(site, port=free_port(), dask=dask) as (running, api):
        wait_until(lambda: api.dag_is_known("census_release"), service=running)
        yield Live(site, running, api, spec)


def test_a_release_by_rest_is_published_and_verified(live, capsys):
    address = run(live.api, live.running, params=live.spec)

    workspace = live.site.workspace
    assert ReleasePaths.of_address(address) == ReleasePaths(workspace, "r1")
    assert verify_release(ReleasePaths(workspace, "r1").public) == []
    records = SqlLedger(ledger_url(workspace, None)).records(release="r1")
    assert set(steps.STEPS) <= {record.step for record in records if record.runner.dag == "census_release"}
    assert {record.runner.actor for record in records if record.runner.dag} == {"admin"}
    events = live.api.get("/assets/events")["asset_events"]
    assert [event["extra"]["release"] for event in events] == ["r1"]
    instances = live.api.task_instances("census_release", events[0]["source_run_id"])
    ran = [instance for instance in instances if instance["state"] != "skipped"]
    assert {instance["task_id"] for instance in instances if instance not in ran} == {
        "approve",
        "strata",
        "stratum",
    }
    logs = {instance["task_id"]: live.api.log(instance) for instance in ran}
    assert "encoding file 1 of 1" in logs["ingest"]
    assert not [line for lines in logs.values() for line in lines if "error" in line.lower()]
    told = capsys.readouterr().out
    assert all(name in told for name in ("prepare", "fit", "sample[0]", "sample[1]", "publish"))


def words_of(path: Path) -> set[str]:
    """All words and numbers of a file; of a database, those of every row."""
    if path.suffix == ".db":
        with closing(sqlite3.connect(path)) as database:
            text = "\n".join(database.iterdump())
    else:
        text = path.read_bytes().decode("utf-8", errors="replace")
    return set(re.findall(r"[A-Za-z]+|\d+", text))


def test_nothing_confidential_reached_airflow_dask_or_the_public_zone(live):
    """After a whole release: no exact count and no undeclared value in logs, XComs, database, events, public files."""
    frame = pd.read_csv(live.spec["source"])
    secrets = {CANARY, str(len(frame)), *(str(count) for count in frame["sex"].value_counts())}
    secrets |= {str(count) for count in frame["job"].value_counts() if count > 1000}
    assert len(secrets) == 7
    home, workspace = live.site.home, live.site.workspace
    places = [home, workspace / "public", workspace / "events.jsonl"]
    files = [path for place in places for path in [place, *place.rglob("*")] if path.is_file()]
    names = {path.name for path in files}
    assert {"airflow.db", "events.jsonl", "manifest.json"} <= names
    assert any(path.suffix == ".log" and "task_id=fit" in str(path) for path in files)
    for path in files:
        if path.is_relative_to(workspace / "public"):
            # Noisy numbers may meet an exact one by chance; other tests replay answers over other rows.
            assert CANARY not in words_of(path), path
        elif path.suffix not in (".db-wal", ".db-shm"):
            assert not secrets & words_of(path), path
    assert CANARY in words_of(Path(live.spec["source"])), "the search would have found it"


def test_values_out_of_range_are_refused_when_triggered(live):
    with pytest.raises(ApiError, match=r"400[\s\S]*epsilon"):
        live.api.trigger("census_release", {**live.spec, "epsilon": 0})
    with pytest.raises(ApiError, match=r"400[\s\S]*delta"):
        live.api.trigger("census_release", {**live.spec, "delta": 1.5})


def test_a_refusal_names_the_task_and_says_its_line(live):
    with pytest.raises(SiteError, match=r"task prepare failed[\s\S]*matches no file"):
        run(live.api, live.running, params={**live.spec, "release": "r2", "source": "nowhere.csv"})


def test_strangers_see_nothing(live):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{live.api.url}/api/v2/dags", timeout=30)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Headless Chromium, where it is installed."""
    from selenium import webdriver

    binary = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("Chromium and chromedriver are not installed (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in (*BROWSER_OPTIONS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(option)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.mark.browser
def test_a_person_logs_in_and_finds_the_run_and_the_form(live, browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import element_to_be_clickable
    from selenium.webdriver.support.ui import WebDriverWait

    def shown(xpath: str) -> Any:
        return WebDriverWait(browser, 60).until(element_to_be_clickable((By.XPATH, xpath)))

    browser.get(f"{live.api.url}/")
    shown("//input[@name='username']").send_keys("ops")
    browser.find_element(By.NAME, "password").send_keys(live.site.passwords["ops"])
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    shown("//a[contains(., 'Dags')] | //button[contains(., 'Dags')]")

    browser.get(f"{live.api.url}/dags/census_release")
    for task in ("prepare", "ingest", "sample", "publish"):
        shown(f"//*[contains(text(), '{task}')]")
    shown("//button[contains(., 'Trigger')]").click()
    shown("//*[contains(text(), 'Failure probability δ')]")
    form = browser.find_element(By.TAG_NAME, "body").text
    for words in (
        "Privacy loss ε",
        "Data set",
        "Dry run",
        "Quality and approval",
        "spends from the account",
        "nothing is spent twice",
    ):
        assert words in form
    assert browser.save_screenshot(str(tmp_path / "form.png"))
