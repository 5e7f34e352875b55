"""Writes what `make soak` has seen to tests/benchmarks/soak.md: one line for each case, of the last time it ran.

A whole run takes at most an hour: what has not begun MINUTES after the start is not begun, and the page says so.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.live_airflow import Live, live_airflow

PAGE = Path(__file__).resolve().parents[1] / "benchmarks" / "soak.md"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
BEGAN = time.monotonic()
MINUTES = float(os.environ.get("SOAK_MINUTES", "52"))
"""Minutes after which no further case begins."""

HEAD = """# Releases while things break

Written by `make soak`, which begins nothing later than 52 minutes after its start; `PART=kills` runs one part.
Each case is one or more releases of a small table. After each release the ledger verifies, every question that was
paid has one answer or is noted as given up, nothing stays set aside, and the published folder verifies. In `kills`,
`crowd`, `failover` and `clock` the account is charged the sum of what was asked, no temporary file is left, and a
value that only the confidential rows have is nowhere outside of them.

- `kills`: `synth run` is killed by strace as it enters a system call, which is drawn evenly over all that a release
  makes, and run again; what is run again is killed too, up to three times a release.
- `tasks`: the same under a real Airflow: every task of several releases at once is killed at its first try.
- `chaos`: a real Airflow with LocalExecutor and an external Dask scheduler with two workers. Dask is held up when a
  blow falls, so that the step is surely in the middle of its questions.
- `partitions`: PostgreSQL, four parts of Airflow, a Dask scheduler and two workers, each in a network namespace; one of
  them is cut off for 30 s.
- `crowd`: 50 processes release at once from 5 accounts, each with room for 8 of its 10.
- `failover`: PostgreSQL is killed and started again, or its streaming standby is promoted, in the middle of a release.
- `clock`: the clock of a release is set while it runs (libfaketime).
- `disk`: the workspace lies in a file system in memory, with 1/24 to all of the room that the release needs.
- `migration`: a ledger of the first version with 100,000 records is brought up to date.

The load is that of the whole machine at the end: its two cores had other work too.

| part | case | database | times | failed | begun and not answered, so paid again | seconds | on (UTC) | load |
|---|---|---|---:|---:|---:|---:|---|---:|
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp(request.param)
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    with live_airflow(folder, cap=20.0, server=server) as running:
        yield running


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin nothing that would not end within the hour."""
    if "tests/soak/" in item.nodeid and time.monotonic() - BEGAN > 60 * MINUTES:
        pytest.skip(f"not reached in {MINUTES:.0f} minutes")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a case; a fixture that fails is an outcome too. Tests of other folders come here as well."""
    noted = report.when == "call" or report.outcome != "passed"
    if "tests/soak/" in report.nodeid and noted and "PYTEST_XDIST_WORKER" not in os.environ:
        line = _line(report)
        known = _rows()
        if report.skipped and _key(line) in known:
            return  # the last time that it ran is worth more
        rows = known | {_key(line): line}
        lines = sorted(rows.values())
        PAGE.write_text(HEAD + "".join(f"{row}\n" for row in lines) + _sum(lines), encoding="utf-8")


def _sum(lines: list[str]) -> str:
    """What the lines add up to, in words."""
    cells = [line.strip("| ").split(" | ") for line in lines]
    killed = sum(int(times) for part, _, _, times, *_ in cells if part == "kills")
    sound = sum(failed == "0" for *_, failed, _, _, _, _ in cells)
    missed = sum(failed == "not reached" for *_, failed, _, _, _, _ in cells)
    ended = sorted(on for *_, on, _ in cells)
    return (
        f"\n{len(cells)} cases, ended from {ended[0]} to {ended[-1]}: {sound} without a failure, "
        f"{len(cells) - sound - missed} with one, {missed} not reached.\n"
        f"{killed} processes were killed at system calls in `kills`.\n"
    )


def _rows() -> dict[tuple[str, ...], str]:
    """Lines of the table as it is now, by part, case and database."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    table = [line for line in lines if line.startswith("|")][2:]
    return {_key(line): line for line in table}


def _key(line: str) -> tuple[str, ...]:
    return tuple(line.removeprefix("| ").split(" | ")[:3])


def _line(report: pytest.TestReport) -> str:
    name, _, parameters = report.nodeid.split("::")[-1].partition("[")
    database = next((title for key, title in DATABASES.items() if key in re.split(r"[-\]]", parameters)), "–")
    seen = dict(report.user_properties)
    case = str(seen.get("case") or name.removeprefix("test_").replace("_", " "))
    failed = 0 if report.passed else "not reached" if report.skipped else seen.get("failed") or 1
    cells = [
        *(Path(report.nodeid.split("::")[0]).stem, case, str(seen.get("database", database))),
        *(str(seen.get("times", 0 if report.skipped else 1)), str(failed), str(seen.get("given up", "–"))),
        *(
            str(seen.get("seconds", f"{report.duration:.0f}")),
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            f"{os.getloadavg()[0]:.1f}",
        ),
    ]
    return f"| {' | '.join(cells)} |"
