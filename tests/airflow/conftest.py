"""The running Airflow that the live tests share, and an Airflow home for tests within one process.

The home is set up before Airflow is first imported.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy.engine import URL
from support.live_airflow import DEADLINE_HOURS, TWINS, Live, live_airflow
from support.work_sharing import live_servers

from infra.local.site import Site

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with an initialised database, in this process's environment."""
    place = tmp_path_factory.mktemp("airflow")
    site = Site(home=place / "home", workspace=place / "workspace")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.environment(port=0).items():
            if not name.startswith("SYNTH_"):  # each test names its own workspace
                patch.setenv(name, value)
        _check_each_schema_once(patch)
        from airflow.dag_processing.bundles.manager import DagBundlesManager
        from airflow.utils.db import initdb

        initdb()
        DagBundlesManager().sync_bundles_to_db()
        yield site


def _check_each_schema_once(patch: pytest.MonkeyPatch) -> None:
    """Airflow checks the schema of a field whenever it reads its value: a third of the work of `dag.test()`."""
    from jsonschema import Draft202012Validator as Validator

    check, checked = Validator.check_schema, set()

    def once(schema: Any, *more: Any, **options: Any) -> None:
        text = json.dumps([schema, more, options], default=repr)
        if text not in checked:
            check(schema, *more, **options)
            checked.add(text)

    patch.setattr(Validator, "check_schema", staticmethod(once))


@pytest.fixture
def bag(airflow_home: Site) -> Any:
    """The DAGs, parsed as Airflow parses them; anew for each test, because a test run changes a DAG's params."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(REPOSITORY / "dags")


@pytest.fixture
def release_dag(bag: Any) -> Any:
    """The release DAG, without its deadline: `dag.test()` cannot store one."""
    found = bag.dags["census_release"]
    assert found.deadline
    found.deadline = None
    return found


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of its own for one test, and no cluster."""
    monkeypatch.setenv("SYNTH_WORKSPACE", str(tmp_path))
    monkeypatch.delenv("SYNTH_DASK_ADDRESS", raising=False)
    assert "SYNTH_LEDGER_URL" not in os.environ
    return tmp_path


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """A webhook on this machine: its address, and the texts that were posted to it."""
    told: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", told
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def webhook() -> Iterator[tuple[str, list[str]]]:
    """Where the people of the running Airflow are told what happens."""
    with listener() as listening:
        yield listening


@pytest.fixture(scope="session")
def live(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: URL,
    webhook: tuple[str, list[str]],
    pytestconfig: pytest.Config,
) -> Live:
    """Airflow as in production: on PostgreSQL, with task processes and Dask workers, and a folder of series."""
    folder = tmp_path_factory.mktemp("live")
    releases = folder / "workspace" / "releases"
    releases.mkdir(parents=True)
    calendar = {"calendar": "third Tuesday after quarter end", "timezone": "Europe/Vienna"}
    write_series(releases, "quarterly", schedule=calendar)
    asset = {"schedule": {"asset": "census_intake"}, "approval": True, "epsilon": 0.5}
    write_series(releases, "after-intake", **asset, pool="intake", deadline_hours=DEADLINE_HOURS)
    variables = {"SYNTH_NOTIFY_WEBHOOK": webhook[0]}
    running = live_servers(pytestconfig).enter_context(
        live_airflow(folder, cap=1.2, server=postgres_server, variables=variables)
    )
    (releases / "broken.yaml").write_text("release: broken\nepsilon: -1\n")
    return running


def write_series(releases: Path, name: str, **changes: Any) -> None:
    series = {"dataset": "people", "source": "../../people.csv", "schema": "../../schema.yaml", "delta": 1e-6}
    spec = {"release": name, **series, "epsilon": 1.0, "shards": 1, **changes}
    (releases / f"{name}.yaml").write_text(yaml.safe_dump(spec))


@pytest.fixture(scope="session")
def twins_due(live: Live) -> datetime:
    """The moment at which both twins start, once; they are known to Airflow and not paused any more."""
    due = datetime.now(UTC) + timedelta(minutes=2)
    for name in TWINS:
        write_series(live.site.releases, name, schedule=f"{due:%M %H %d %m} *")
    for name in TWINS:
        dag = f"release_{name}"
        assert live.until(lambda dag=dag: live.known_dags().get(dag))["is_paused"]
        live.api.unpause(dag)
    return due


@pytest.fixture(scope="session")
def twins(live: Live, twins_due: datetime) -> dict[str, tuple[str, str]]:
    """Run and final state of each twin; afterwards there is room for other releases."""
    dags = [f"release_{name}" for name in TWINS]
    runs = {
        dag: live.until(lambda dag=dag: live.api.get(f"/dags/{dag}/dagRuns")["dag_runs"])[0]["dag_run_id"]
        for dag in dags
    }
    ends = {dag: (run, live.finished(run, dag=dag)) for dag, run in runs.items()}
    live.ledger.set_cap("people", epsilon=20.0, actor="test", reason="room for the other tests")
    return ends
