"""A release under a real standalone Airflow with task processes and a Dask cluster: by REST, and in a browser.

`dag.test()` runs everything in one process, so it cannot show what only breaks in real task processes.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import MetaData, create_engine, select
from support.airflow_browser import Person
from support.live_airflow import (
    PATIENCE,
    Live,
    ledger_of_the_site,  # noqa: F401 - a fixture for every test
    ledger_variable,
)
from support.servers import installed_browser
from support.small_release import CANARY, CANARY_SCHEMA, people, write_release

from infra.local.demo import run
from infra.local.rest import ApiError
from infra.local.services import wait_until
from infra.local.site import SiteError
from synth_core import steps
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

ROWS = 61_379
"""A number that no port, process or clock is likely to show."""

STRATA = {"strata": "sex", "method": "independent", "epsilon": 0.5}


@pytest.fixture(scope="module")
def crowd(live: Live, twins_due: object) -> dict[str, Any]:
    """The spec of a release of a larger table, whose account the running Airflow has; the twins are under way."""
    folder = live.site.home.parent / "crowd"
    folder.mkdir()
    frame = people(rows=ROWS)
    frame.loc[17, "job"] = CANARY
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ledger_variable(live.site).items():
            patch.setenv(name, value)
        return write_release(folder, declared=CANARY_SCHEMA, frame=frame, cap=4.0, account="crowd")


def test_a_release_by_rest_is_published_and_verified(live, crowd, capsys):
    address = run(live.api, live.running, params=crowd)

    workspace = live.site.workspace
    assert ReleasePaths.of_address(address) == ReleasePaths(workspace, "r1")
    assert verify_release(ReleasePaths(workspace, "r1").public) == []
    records = live.ledger.records(release="r1")
    assert set(steps.STEPS) <= {record.step for record in records if record.runner.dag == "census_release"}
    assert {record.runner.actor for record in records if record.runner.dag} == {"admin"}
    events = live.api.get("/assets/events")["asset_events"]
    (event,) = [event for event in events if event["extra"]["release"] == "r1"]
    instances = live.api.task_instances("census_release", event["source_run_id"])
    ran = [instance for instance in instances if instance["state"] != "skipped"]
    assert {instance["task_id"] for instance in instances if instance not in ran} == {
        "approve",
        "stratum",
    }
    logs = {instance["task_id"]: live.api.log(instance) for instance in ran}
    assert "encoding file 1 of 1" in logs["ingest"]
    assert not [line for lines in logs.values() for line in lines if "error" in line.lower()]
    told = capsys.readouterr().out
    assert all(name in told for name in ("prepare", "fit", "sample[0]", "sample[1]", "publish"))


def test_values_out_of_range_are_refused_when_triggered(live, crowd):
    with pytest.raises(ApiError, match=r"400[\s\S]*epsilon"):
        live.api.trigger("census_release", {**crowd, "epsilon": 0})
    with pytest.raises(ApiError, match=r"400[\s\S]*delta"):
        live.api.trigger("census_release", {**crowd, "delta": 1.5})


def test_a_refusal_names_the_task_and_says_its_line(live, crowd):
    with pytest.raises(SiteError, match=r"task prepare failed[\s\S]*matches no file"):
        run(live.api, live.running, params={**crowd, "release": "r2", "source": "nowhere.csv"})


def test_strangers_see_nothing(live):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{live.api.url}/api/v2/dags", timeout=PATIENCE)


@pytest.fixture(scope="module")
def person(live: Live, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody who has logged in with headless Chromium."""
    somebody = Person(browser, live.api.url, pictures=tmp_path_factory.mktemp("pictures"))
    somebody.log_in("ops", live.site.passwords["ops"])
    yield somebody
    browser.get("about:blank")  # a page of Airflow that is left open asks it for news all the time


@pytest.fixture(scope="module")
def stratified(live: Live, crowd: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """The finished run of a stratified release: typed into the form, or begun by REST where there is no browser."""
    spec = {**crowd, **STRATA, "release": "strata"}
    if all(installed_browser()):
        run_id = type_in(request.getfixturevalue("person"), live, spec)
    else:
        run_id = live.api.trigger("census_release", spec)
    live.finished(run_id)
    return live.api.get(f"/dags/census_release/dagRuns/{run_id}")


def type_in(person: Person, live: Live, spec: dict[str, Any]) -> str:
    """Fill in the form and return the run that it has started."""
    person.open_form("census_release")
    form = person.text()
    for words in ("Privacy loss ε", "Dry run", "Quality and approval", "spends from the account", "Strata"):
        assert words in form
    person.choose("method", spec["method"])
    fields = ("dataset", "source", "schema", "epsilon", "release", "strata")
    for name in (*fields, *fields):  # a person looks the form over again
        person.fill(name, spec[name])
    person.picture("form")
    person.click("Output")
    person.fill("shards", 2)
    person.press("//*[@role='dialog']//button[normalize-space()='Trigger']")
    wait_until(lambda: "/runs/manual__" in person.browser.current_url, service=live.running)
    return str(person.browser.current_url.rpartition("/runs/")[2])


def mapped(live: Live, release: str) -> dict[str, list[str]]:
    """States of the mapped tasks of the run that made a release."""
    runs = live.api.get("/dags/census_release/dagRuns")["dag_runs"]
    (run_id,) = [one["dag_run_id"] for one in runs if one["conf"].get("release") == release]
    instances = live.api.task_instances("census_release", run_id)
    found = sorted((one["task_id"], one["map_index"], one["state"]) for one in instances if one["map_index"] >= 0)
    return {task: [state for name, _, state in found if name == task] for task, _, _ in found}


def test_a_stratified_release_has_one_task_for_each_stratum_and_shard(live, stratified):
    assert stratified["state"] == "success"
    assert mapped(live, "strata") == {"stratum": ["success"] * 2, "sample": ["success"] * 2}
    paths = ReleasePaths(live.site.workspace, "strata")
    assert verify_release(paths.public) == []  # the certificate's spends, added up again, among others
    spends = json.loads(paths.certificate.read_text())["spends"]
    assert {spend["stratum"][1] for spend in spends if spend["stratum"]} == {"0 f", "1 m"}


@pytest.mark.browser
def test_a_person_fills_in_the_form_and_the_release_is_made(live, crowd, person, stratified):
    assert (stratified["triggered_by"], stratified["triggering_user_name"]) == ("ui", "ops")
    wanted = {**crowd, **STRATA, "release": "strata"}
    assert wanted == {name: stratified["conf"][name] for name in wanted}


@pytest.mark.browser
def test_a_person_finds_budget_release_and_run_from_the_navigation(person, stratified):
    person.open_budget()
    with person.in_frame("Privacy budget"):
        assert "of 4 left" in person.text()
        assert "Ledger verified" in person.text()
        person.click("crowd")
    with person.in_frame("crowd"):
        person.click("Releases")
    with person.in_frame("Releases"):
        person.click("strata")
    with person.in_frame("Release strata"):
        assert "ε 0.50" in person.text()
        person.click("Check all files now")
    with person.in_frame("Release strata"):
        person.shown("//dl[@role='status']")
        for thing in ("Signature", "Files", "Certificate", "Ledger"):
            assert re.search(rf"^{thing}\W+agrees: ", person.text(), re.MULTILINE)
        person.picture("release")
        person.click(stratified["dag_run_id"])  # leaves the frame for Airflow's own page of the run
    person.click("Task Instances")
    person.click("Privacy budget")
    with person.in_frame("Release strata"):
        person.picture("run")
        person.click("The release's records")
    with person.in_frame("Records"):
        assert "rows of each stratum" in person.text()
    assert person.complaints() == []


@pytest.mark.browser
def test_the_pages_follow_the_colours_of_airflow(person, stratified):
    person.open_budget()
    seen = {}
    for theme in ("Dark", "Light"):
        person.wear(theme)
        with person.in_frame("Privacy budget"):
            person.shown(f"/html[@data-theme='{theme.lower()}']")
            seen[theme] = person.background()
        person.picture(theme)
    assert seen["Dark"] != seen["Light"]
    assert person.complaints() == []


# Numbers of the machine, with as many digits as exact counts have: by chance, one of them would be a secret.
MACHINE_NUMBERS = re.compile(
    r"""[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}  # random identifiers
    | \b(p?pid|process|port)\b\W{0,4}\d+
    | \.py\s+\d+                                    # the process that reads a DAG file, in a table
    | (://[^\s/]*|\b127\.0\.0\.1|\blocalhost):\d+    # addresses with a port
    | \bduration\w*\W{1,3}[\d.]+
    | date_?time\([^()]*                             # microseconds
    """,
    re.IGNORECASE | re.VERBOSE,
)


def words_of(text: str) -> set[str]:
    """All words and numbers of a text; a number with a fraction is one word, and so is what is letters and digits."""
    return set(re.findall(r"[A-Za-z0-9]+(?:\.\d+)?", MACHINE_NUMBERS.sub("", text)))


def test_numbers_of_the_machine_are_no_secrets_and_counts_stay():
    log = """Started server process [61379] on http://127.0.0.1:61379 or http://[::]:61379 or tls://127.0.0.1:61379
    client_addr=127.0.0.1:61379 duration_us=61379 loc=a.py:7 at datetime.datetime(2026, 11, 18, 8, 5, 7, 61379)
    run_after=DateTime(2026, 11, 18, 8, 5, 7, 61379), release.py  61379  0.01s pid=61379
    workload 12ab34cd-0000-0000-0000-000000061379"""
    assert "61379" not in words_of(log)
    for leak in ("61379 rows", "count=61379", "rows: 61379", "{'rows':61379}", "path=/x/61379", "a.py:61379"):
        assert "61379" in words_of(f"{log} {leak} {log}"), leak


def database_text(address: str) -> str:
    """Every row of every table of a database, without numbers of processes."""
    engine = create_engine(address)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        kept = [[column for column in table.c if column.name != "pid"] for table in tables.sorted_tables]
        rows = [str(row) for columns in kept for row in connection.execute(select(*columns))]
    engine.dispose()
    return "\n".join(rows)


def test_nothing_confidential_reached_airflow_dask_or_the_public_zone(live, crowd, stratified, twins):
    """After whole releases: no exact count and no undeclared value in logs, XComs, database, events, public files."""
    frame = pd.read_csv(crowd["source"])
    secrets = {CANARY, str(len(frame)), *(str(count) for count in frame["sex"].value_counts())}
    secrets |= {str(count) for count in frame["job"].value_counts() if count > 1000}
    assert len(secrets) == 7
    home, workspace = live.site.home, live.site.workspace
    places = [home, workspace / "public", workspace / "events.jsonl"]
    files = [path for place in places for path in [place, *place.rglob("*")] if path.is_file()]
    assert {"events.jsonl", "manifest.json", "standalone.log"} <= {path.name for path in files}
    assert any(path.suffix == ".log" and "task_id=fit" in str(path) for path in files)
    for path in files:
        words = words_of(path.read_bytes().decode("utf-8", errors="replace"))
        # Noisy numbers may meet an exact one by chance; other tests replay answers over other rows.
        wanted = {CANARY} if path.is_relative_to(workspace / "public") else secrets
        assert not wanted & words, path
    stored = words_of(database_text(live.site.database))
    assert {"census", "publish"} <= stored
    assert not secrets & stored
    assert CANARY in words_of(Path(crowd["source"]).read_text()), "the search would have found it"
