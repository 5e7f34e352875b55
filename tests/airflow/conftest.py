"""An Airflow home for the tests of one worker, set up before Airflow is first imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in (".", "tests/steps", "dags", "plugins")]

from infra.local.site import Site  # noqa: E402 — the scripts are no part of the installed package


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with an initialised database, in this process's environment."""
    place = tmp_path_factory.mktemp("airflow")
    site = Site(home=place / "home", workspace=place / "workspace")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.environment(port=0).items():
            if not name.startswith("SYNTH_"):  # each test names its own workspace
                patch.setenv(name, value)
        from airflow.dag_processing.bundles.manager import DagBundlesManager
        from airflow.utils.db import initdb

        initdb()
        DagBundlesManager().sync_bundles_to_db()
        yield site


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
