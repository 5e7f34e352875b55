"""Writes what `make soak` has seen to tests/benchmarks/soak.md, once every case has run."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "benchmarks" / "soak.md"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
HEAD = """# Releases under Airflow while things break

Written by `make soak` on {date} (UTC); {cores} cores, load {load:.1f} at the end. Each case is one release of a small
table under a real Airflow with LocalExecutor and an external Dask scheduler with two workers. Dask is held still when
the blow falls, so that the step is surely in the middle of a question. After each case the ledger verifies, no question
has two answers, no answer is lost, nothing stays set aside.

| case | database | outcome | seconds | tries of the step | begun and not answered, so paid again |
|---|---|---|---:|---:|---:|
"""

_reports: list[pytest.TestReport] = []
_whole = True


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A part of the cases is no record of all of them."""
    global _whole
    _whole = False


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome of each case; a fixture that fails is an outcome too."""
    if report.when == "call" or report.outcome == "failed":
        _reports.append(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    if not _whole or len(_reports) < session.testscollected:
        return
    head = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}", cores=os.cpu_count(), load=os.getloadavg()[0]
    )
    PAGE.write_text(head + "".join(_line(report) for report in _reports), encoding="utf-8")


def _line(report: pytest.TestReport) -> str:
    name, _, parameters = report.nodeid.split("::")[-1].partition("[")
    words = re.split(r"[-\]]", parameters)
    database = next(title for key, title in DATABASES.items() if key in words)
    seen = dict(report.user_properties)
    case = seen.get("case") or name.removeprefix("test_").replace("_", " ")
    cells = [case, database, report.outcome, f"{report.duration:.0f}"]
    cells += [str(seen.get(key, "–")) for key in ("tries", "given up")]
    return f"| {' | '.join(cells)} |\n"
