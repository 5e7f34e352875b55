"""`synth run` is killed at system calls over a whole release, and run again: nothing is lost or paid twice.

A first release is recorded. Each of its renames, flushes, writes and commits is a moment at which a process may die; of
each kind they are tried evenly from the first to the last, again and again. strace kills before the call is made. A
release is killed at several moments, one after the other, before it may end: what a killed one left is killed too.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.forked_releases import new_case, require_whole
from support.servers import create_schema
from support.system_calls import NOT_THERE, Moment, installed, killing, moments, recording, spread, watched

pytestmark = [
    pytest.mark.timeout(3000),
    pytest.mark.system_entropy,
    pytest.mark.skipif(not installed(), reason=NOT_THERE),
]

KINDS = ("rename", "fsync", "write", "commit")

TIMES = 45
"""How often releases are killed at a moment of each kind, on each database."""

KILLS = 3
"""Upper limit of the kills of one release, the last of which may fall on its second or third process."""

RELEASE = {"uncertainty": 3, "replicates": 2, "csv": True, "quality_share": 0.05}
"""What is asked for, so that every kind of file is written."""

SECONDS = 240
"""Seconds after which a case begins no further release, and says how many processes it has killed."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Every moment of an undisturbed release, and where further ones find a ledger."""
    folder = tmp_path_factory.mktemp(request.param)
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None

    def new_url() -> str | None:
        return create_schema(server) if server is not None else None

    case = new_case(folder / "recorded", url=new_url(), **RELEASE)
    process = case.begun(stopped=True)
    with watched(process.pid, *recording(), log=folder / "trace"):
        process.join()
    assert process.exitcode == 0, case.output
    require_whole(case)
    return moments(folder / "trace"), new_url


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_that_is_killed_at_a_system_call_is_finished_by_running_it_again(
    recorded, kind, tmp_path, record_property
):
    record_property("case", f"SIGKILL as `synth run` enters a {kind}, up to {KILLS} times a release; run again")
    every, new_url = recorded
    ahead = endless(spread([one for one in every if one.kind == kind], TIMES))
    died, releases, failed, given_up, began = 0, 0, [], 0, time.monotonic()
    while died < TIMES and time.monotonic() - began < SECONDS:
        releases += 1
        folder, tried = tmp_path / str(releases), []
        try:
            killed, paid_again = kill_and_finish(ahead, folder, new_url(), tried)
        except AssertionError as problem:
            failed.append(f"{tried}: {problem}")
            died += len(tried)
            continue
        died, given_up = died + killed, given_up + paid_again
        shutil.rmtree(folder)
    for name, value in (("times", died), ("failed", len(failed)), ("given up", given_up)):
        record_property(name, value)
    assert not failed, "\n".join(failed)
    assert died >= releases, "most moments come again in the next release"


def endless(moments: list[Moment]) -> Iterator[Moment]:
    """The moments in an order in which those of a case that is cut short still come from the whole release."""
    rng = random.Random(len(moments))
    while True:
        yield from rng.sample(moments, len(moments))


def kill_and_finish(ahead: Iterator[Moment], folder: Path, url: str | None, tried: list[Moment]) -> tuple[int, int]:
    """How often a release was killed, and how many questions were paid again; `tried` gets the moments."""
    case, killed = new_case(folder, url=url, **RELEASE), 0
    for number in range(KILLS):
        tried.append(moment := next(ahead))
        process = case.begun(stopped=True)
        with watched(process.pid, *killing(moment), log=folder / f"trace-{number}"):
            process.join()
        case.said.append(case.output)
        assert process.exitcode in (-9, 0), f"it ended with {process.exitcode}: {case.output}"
        if process.exitcode == 0:
            break
        killed += 1
    else:
        assert case.run() == 0, case.output
    return killed, require_whole(case)
