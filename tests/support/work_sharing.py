"""Who runs which tests: files that share a server go to one worker, and what takes longest begins first."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LIVE = (
    "tests/airflow/test_standalone.py",
    "tests/airflow/test_production.py",
    "tests/evaluation/test_report_in_browser.py",
)
"""Files that share the one running Airflow or the one browser, in the order in which they are run."""

LIVE_TIMEOUT = 3600
"""Seconds that a test of these may take, servers included: a machine may be several times slower than ours."""

FIRST = (
    *LIVE,
    "tests/airflow/",
    "tests/plugins/",
    "tests/docs/test_code_blocks.py",
    "tests/storage/test_record_wise.py",
    "tests/steps/test_published_numbers.py",
)
"""Files and folders that are begun before all others, in this order."""

LIVE_SERVERS = pytest.StashKey[ExitStack]()
"""Servers that end with the last test of `LIVE`, before the worker does: an idle Airflow takes a third of a core."""


def group_of(path: str) -> str:
    """Returns the name that files have in common whose tests must run in one process."""
    if path in LIVE:
        return "live"
    return "airflow" if path.startswith("tests/airflow/") else path


def database_of(nodeid: str) -> str:
    """The database that a test is for, by its parameter; each has its own Airflow and its own half of the work."""
    return next((name for name in ("sqlite", "postgres") if name in re.split(r"[][-]", nodeid)), "")


class GroupScheduling(LoadFileScheduling):
    """Gives whole groups to workers, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(super()._split_scope(nodeid)) + (database_of(nodeid) if "tests/soak/" in nodeid else "")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    """Used for `--dist loadfile`."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what takes longest first, and gives tests with a running Airflow their time."""
    items.sort(key=lambda item: _place(_path(item)))
    for item in items:
        if _path(item) in LIVE:
            item.add_marker(pytest.mark.timeout(LIVE_TIMEOUT))


def live_servers(config: pytest.Config) -> ExitStack:
    """Returns what a fixture enters its servers into that only the tests of `LIVE` use."""
    return config.stash.setdefault(LIVE_SERVERS, ExitStack())


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends these servers after the last test that needs them."""
    if _path(item) in LIVE and (nextitem is None or _path(nextitem) not in LIVE):
        live_servers(item.config).close()


def _path(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


def _place(path: str) -> int:
    return next((k for k, start in enumerate(FIRST) if path.startswith(start)), len(FIRST))
