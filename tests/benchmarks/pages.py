"""What pages and metrics of a long ledger cost: time as releases are added, and memory at 1,000,000 records.

    python tests/benchmarks/pages.py          measure, then write pages.md
    python tests/benchmarks/pages.py --quick  the same with few records, and write nothing

Records are made by the ledger's own verbs in memory and put into a file of SQLite a release at a time. Times are CPU
seconds of a process that has the pages open; memory is the peak of a process that asks for each page twice.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sqlalchemy import create_engine, insert

HERE = Path(__file__).resolve().parent
PAGES = ("/", "/account?dataset=houses", "/releases", "/records", "/release?name=r1", "/metrics")
RELEASES = 500
SMALL, LARGE = 10, 666
"""Questions of a release whose time is measured, and of one of 500 that have 1,000,000 records together."""

HEAD = """# Pages and metrics of a long ledger

Written by `python tests/benchmarks/pages.py` on a machine that had other work.

## Time

CPU milliseconds of a page right after a release of {small} questions was added, the chain's verification left out (it
takes at most a hundredth of the time): median of releases 6 to 55, and of the last 50 of {releases} in another ledger.
The two are asked in turns.

| page | first | last | last / first |
|---|---:|---:|---:|
"""

LONG = """
## Memory

A ledger of {records:,} records in {releases} releases ({megabytes:,} MB of SQLite). First is the CPU time of a
process, again that of the next request; the very first request also reads everything once and verifies the chain. The
peak is that of the process so far, in MB; the program itself had {start:,} MB before it opened the ledger.

| what | first s | again s | peak MB |
|---|---:|---:|---:|
"""


class Growing:
    """A ledger in a workspace to which whole releases are added."""

    def __init__(self, workspace: Path) -> None:
        from synth_core.ledger.memory import MemoryLedger
        from synth_core.ledger.sql import SqlLedger, open_ledger
        from synth_core.privacy.accounts import Account

        self.workspace, self.made = workspace, MemoryLedger()
        account = Account(dataset="houses", delta=1e-6, cap_epsilon=200.0, largest_n=100_000)
        open_ledger(workspace, create=True)
        self.made.declare(account, actor="board")
        self.engine = create_engine(f"sqlite:///{workspace / 'ledger.sqlite'}")
        self.stored: SqlLedger = open_ledger(workspace, compare=False)
        self._move()

    def add(self, release: str, questions: int) -> None:
        """A release that asks so many questions, and is published."""
        from synth_core.privacy.accounts import Runner, SpendRequest
        from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
        from synth_core.privacy.budget import gaussian_for

        runner = Runner(dag="census", run=f"run-{release}", task="fit", actor="airflow")
        each = Fraction(1, 100 * questions)
        mechanism = gaussian_for(each, sensitivity=Fraction(1), count=2)
        self.made.hold("houses", release, mu2=questions * mechanism.mu2(), runner=runner)
        for number in range(questions):
            request = SpendRequest(
                dataset="houses",
                snapshot="s" * 64,
                release=release,
                step="fit",
                purpose=f"round {number // 20}: marginal {number}",
                mechanism=mechanism,
                form=AnswerForm(
                    fingerprint=fingerprint("page", [release, number]),
                    blocks=(Block(kind=AnswerKind.SCORES, shape=(2,)),),
                ),
                runner=runner,
            )
            reservation = self.made.reserve(request)
            self.made.begin(reservation)
            self.made.store(reservation, np.array([1, number], dtype=np.int64))
        self.made.close("houses", release, reason="published", runner=runner)
        self._move()

    def _move(self) -> None:
        """Put what was made into the file."""
        from synth_core.ledger.head import write_head
        from synth_core.ledger.tables import ANSWERS, RECORDS

        chain = self.made.chain
        with self.engine.begin() as connection:
            connection.execute(insert(RECORDS), chain.rows)
            if chain.answers:
                connection.execute(insert(ANSWERS), list(chain.answers.values()))
        chain.rows.clear()
        chain.answers.clear()
        chain.reserved.clear()
        write_head(self.workspace / "ledger.sqlite.head", self.stored.end())


def client_of(workspace: Path) -> tuple[Any, Any]:
    """The pages of a workspace, and the office behind them."""
    from fastapi.testclient import TestClient

    from synth_core.events.office import Office
    from synth_core.web.application import create_app
    from synth_core.web.routes import Visitor

    office, who = Office(workspace), Visitor("vera", may_edit=True)
    app = create_app(office=lambda: office, visitor=lambda: who, secret=lambda: "s" * 32)
    return TestClient(app), office


class Watched:
    """A ledger that grows while its pages are open."""

    def __init__(self, workspace: Path, releases: int) -> None:
        self.ledger, self.releases = Growing(workspace), 0
        for _ in range(releases):
            self._add()
        self.client, office = client_of(workspace)
        status = office.chain_status()
        office.chain_status = lambda **_: status

    def _add(self) -> None:
        self.ledger.add(f"r{self.releases}", SMALL)
        self.releases += 1

    def after_one_more(self) -> dict[str, float]:
        """CPU seconds of each page right after a release was added."""
        self._add()
        self.client.get("/metrics")  # what is new is read by the first page that is asked for
        found = {}
        for page in PAGES:
            began = time.process_time()
            assert self.client.get(page.replace("r1", f"r{self.releases - 1}")).status_code == 200
            found[page] = time.process_time() - began
        return found


def growth(releases: int) -> dict[str, tuple[list[float], list[float]]]:
    """CPU seconds of each page with few and with many releases, asked in turns, so that other work weighs on both."""
    rounds = min(50, releases // 2)
    with TemporaryDirectory() as few, TemporaryDirectory() as many:
        both = Watched(Path(few), 5), Watched(Path(many), releases - rounds)
        seen = [[one.after_one_more() for one in both] for _ in range(rounds)]
    return {page: tuple([found[side][page] for found in seen] for side in (0, 1)) for page in PAGES}


def long(workspace: Path) -> None:
    """The part of a process of its own: every page twice; prints a line of JSON for each."""
    from synth_core.web.records import RecordFilter, csv_portions

    client, office = client_of(workspace)
    say("start", [])
    for page in (*PAGES, "/records?page=50", "/records?step=fit&each=true"):
        say(page, [timed(lambda page=page: client.get(page)) for _ in range(2)])
    # The client of the tests would keep the whole file.
    say("/records.csv", [timed(lambda: sum(map(len, csv_portions(office, RecordFilter())))) for _ in range(2)])


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds of something that succeeds."""
    began = time.process_time()
    assert getattr(work(), "status_code", 200) == 200
    return time.process_time() - began


def say(what: str, seconds: list[float]) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"what": what, "seconds": seconds, "peak": peak}), flush=True)


def main() -> int:
    """Measure both, and write the page."""
    if "--long" in sys.argv:
        long(Path(sys.argv[-1]))
        return 0
    quick = "--quick" in sys.argv
    releases, questions = (12, 5) if quick else (RELEASES, LARGE)
    with TemporaryDirectory() as folder:
        workspace = Path(os.environ.get("PAGES_WORKSPACE", folder))
        if not (workspace / "ledger.sqlite").exists():
            ledger = Growing(workspace)
            for number in range(releases):
                ledger.add(f"r{number}", questions)
            del ledger
        from synth_core.ledger.sql import open_ledger

        records = open_ledger(workspace, compare=False).end().records
        size = (workspace / "ledger.sqlite").stat().st_size >> 20
        command = [sys.executable, __file__, "--long", str(workspace)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    times = growth(releases)
    text = HEAD.format(small=SMALL, releases=releases)
    for page, seconds in times.items():
        first, last = (1000 * median(part) for part in seconds)
        text += f"| `{page}` | {first:.1f} | {last:.1f} | {last / first:.2f} |\n"
    text += LONG.format(records=records, releases=releases, megabytes=size, start=seen[0]["peak"])
    for one in seen[1:]:
        first, again = one["seconds"]
        text += f"| `{one['what']}` | {first:.2f} | {again:.2f} | {one['peak']:,} |\n"
    print(text)
    if not quick:
        (HERE / "pages.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
