"""Whole releases by `synth run`, each in a process that begins in milliseconds, and what must hold afterwards.

The processes are forked from a server that has imported everything and run one release, so that hundreds of them can be
killed in the time that one takes to start.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.small_release import CANARY, CANARY_SCHEMA, people, write_release
from synth_core.ledger.book import charged_records
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import State
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import verify_release

WARM = "FORKED_RELEASES"
"""Variable that has the server of forks run a release when it imports this module."""


def rows_with_a_canary() -> pd.DataFrame:
    """A table with one value that is not in the schema."""
    frame = people()
    frame.loc[17, "job"] = CANARY
    return frame


@dataclass(frozen=True)
class Case:
    """A release of its own workspace, run by the command as often as asked, and everything that it said."""

    folder: Path
    url: str | None = None
    release: str = "r1"
    account: str = "people"
    said: list[str] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def paths(self) -> ReleasePaths:
        return ReleasePaths(self.workspace, self.release)

    @property
    def environment(self) -> dict[str, str]:
        return (
            {"SYNTH_LEDGER_URL": self.url, "SYNTH_LEDGER_HEAD": str(self.workspace / "ledger.head")} if self.url else {}
        )

    @property
    def spec(self) -> Path:
        return self.folder / f"{self.release}.yaml"

    def ledger(self) -> SqlLedger:
        """The ledger without a comparison, which `verify` does."""
        return SqlLedger(ledger_url(self.workspace, self.url), head_paths=())

    def run(self, *options: str) -> int:
        """Run the release to its end; returns the exit code, negative if a signal ended it."""
        process = self.begun(*options)
        process.join()
        self.said.append(self.output)
        return int(process.exitcode)

    def begun(self, *options: str, stopped: bool = False) -> Any:
        """A process that runs the release; if `stopped`, it waits for SIGCONT before it does anything."""
        arguments = ["synth", "run", str(self.spec), *options]
        process = fork_server().Process(
            target=run_command, args=(arguments, self.environment, self._log), kwargs={"stopped": stopped}
        )
        process.start()
        return process

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.release}.log"

    @property
    def output(self) -> str:
        """What the last process of the release said."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""


def new_case(folder: Path, *, url: str | None = None, cap: float = 20.0, **changes: Any) -> Case:
    """A release whose account is declared and whose spec is written."""
    folder.mkdir(parents=True, exist_ok=True)
    case = Case(folder, url)
    with environment_of(case):
        frame, asked = rows_with_a_canary(), {"method": "independent"} | changes
        spec = write_release(folder, declared=CANARY_SCHEMA, frame=frame, cap=cap, **asked)
    ReleaseSpec.parse(spec).save(case.spec)
    return case


@contextmanager
def environment_of(case: Case) -> Iterator[None]:
    """A block in which this process finds the case's ledger."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in case.environment.items():
            patch.setenv(name, value)
        yield


def run_command(arguments: Sequence[str], variables: Mapping[str, str], log: Path, *, stopped: bool) -> None:
    """The command in a fork, with output and errors in a file."""
    from synth_core.__main__ import main

    _forget_threads()
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    with log.open("w", encoding="utf-8") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(variables)
    sys.argv = list(arguments)
    main()


def _forget_threads() -> None:
    """A fork has none of the threads that Dask thinks it has."""
    import dask.threaded as pools

    pools.default_pool = None
    pools.pools.clear()


def fork_server() -> Any:
    """The context whose processes are forked from the server."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["support.forked_releases"])
    with pytest.MonkeyPatch.context() as patch:  # the server finds what it preloads by its own path only
        tests = Path(__file__).parents[1]
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests), str(tests.parent)]))
        patch.setenv(WARM, "1")
        forkserver.ensure_running()
    return context


def _warm() -> None:
    """Run one release, which imports and compiles what a release needs."""
    from synth_core.__main__ import main

    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nothing:
        case = new_case(Path(folder))
        sys.argv, output = ["synth", "run", str(case.spec)], (sys.stdout, sys.stderr)
        sys.stdout = sys.stderr = nothing
        try:
            with suppress(SystemExit):
                main()
        finally:
            sys.stdout, sys.stderr = output


def require_whole(case: Case) -> int:
    """All that must hold of a published release; returns how many questions were paid again.

    Raises:
        AssertionError: Something does not hold, in words.
    """
    ledger = SqlLedger(ledger_url(case.workspace, case.url), workspace=case.workspace)
    assert ledger.verify() == []
    records = ledger.records(release=case.release)
    latest = {(record.key, record.attempt): record for record in records if record.key}
    answered = [key for (key, _), record in latest.items() if record.state is State.MEASURED]
    assert answered, "nothing was asked"
    assert len(answered) == len(set(answered)), "a question has two answers"
    charged = charged_records(records)
    open_states = {record.state for record in charged} - {State.MEASURED, State.FORFEITED}
    assert not open_states, f"attempts were left {open_states}"
    assert {record.key for record in charged} == set(answered), "a question was paid and has no answer"
    balance = ledger.balance(case.account)
    everything = charged_records(ledger.records(dataset=case.account))
    assert balance.charged_mu2 == sum((record.mu2 for record in everything), Fraction(0)), (
        "charged is not what was asked"
    )
    assert balance.held_mu2 == 0, "budget is still set aside"
    with environment_of(case):
        assert [str(problem) for problem in verify_release(case.paths.public)] == []
    require_no_leak(case)
    return sum(record.state is State.FORFEITED for record in charged)


def require_no_leak(case: Case) -> None:
    """No temporary file is left, and nothing that was said or published has the canary."""
    left = [path for path in case.workspace.rglob(".*") if path.name not in (".keys", ".drafts")]
    assert left == [], f"temporary files are left: {[str(path.relative_to(case.workspace)) for path in left]}"
    said = "\n".join([*case.said, (case.workspace / "events.jsonl").read_text(encoding="utf-8")])
    assert CANARY not in said, "something confidential was said"
    assert "Traceback" not in said, said[-4000:]
    for path in (case.workspace / "public").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


if os.environ.get(WARM):
    _warm()
