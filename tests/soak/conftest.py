"""Writes what `make soak` has seen to tests/benchmarks/soak.md: one line for each case, of the last time it ran."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "benchmarks" / "soak.md"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
HEAD = """# Releases under Airflow while things break

Written by `make soak`. Each case is one release of a small table under a real Airflow with LocalExecutor and an
external Dask scheduler with two workers, on two cores that had other work too (the load is that of the whole machine at
the end). Dask is held up when the blow falls, so that the step is surely in the middle of its questions. After each
case the ledger verifies, no question has two answers, no answer is lost, and nothing stays set aside.

| case | database | outcome | on (UTC) | seconds | load | tries of the step | begun and not answered, so paid again |
|---|---|---|---|---:|---:|---:|---:|
"""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a case; a fixture that fails is an outcome too. Tests of other folders come here as well."""
    if "tests/soak/" in report.nodeid and (report.when == "call" or report.outcome == "failed"):
        rows = _rows() | {_key(line := _line(report)): line}
        PAGE.write_text(HEAD + "".join(f"{row}\n" for row in rows.values()), encoding="utf-8")


def _rows() -> dict[tuple[str, str], str]:
    """Lines of the table as it is now, by case and database."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    table = [line for line in lines if line.startswith("|")][2:]
    return {_key(line): line for line in table}


def _key(line: str) -> tuple[str, str]:
    case, database, *_ = line.removeprefix("| ").split(" | ")
    return case, database


def _line(report: pytest.TestReport) -> str:
    name, _, parameters = report.nodeid.split("::")[-1].partition("[")
    words = re.split(r"[-\]]", parameters)
    database = next(title for key, title in DATABASES.items() if key in words)
    seen = dict(report.user_properties)
    cells = [
        str(seen.get("case") or name.removeprefix("test_").replace("_", " ")),
        database,
        report.outcome,
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        f"{report.duration:.0f}",
        f"{os.getloadavg()[0]:.1f}",
        *(str(seen.get(key, "–")) for key in ("tries", "given up")),
    ]
    return f"| {' | '.join(cells)} |"
