"""`synth run` is killed at system calls over a whole release, and run again: nothing is lost or paid twice.

A first release is recorded. Each of its renames, flushes, writes and commits is a moment at which a process may die; of
each kind so many are tried, evenly from the first to the last. strace kills before the call is made.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
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

TIMES = {"rename": 30, "fsync": 32, "write": 32, "commit": 32}
"""How many moments of each kind are tried on each database."""

SECONDS = 120
"""Seconds after which a case tries no further moment, and says how many it has tried."""

Note = Callable[[str, object], None]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Every moment of an undisturbed release, and where further ones find a ledger."""
    folder = tmp_path_factory.mktemp(request.param)
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None

    def new_url() -> str | None:
        return create_schema(server) if server is not None else None

    case = new_case(folder / "recorded", url=new_url())
    process = case.begun(stopped=True)
    with watched(process.pid, *recording(), log=folder / "trace"):
        process.join()
    assert process.exitcode == 0, case.output
    require_whole(case)
    return moments(folder / "trace"), new_url


@pytest.mark.parametrize("kind", TIMES)
def test_a_release_that_is_killed_at_a_system_call_is_finished_by_running_it_again(
    recorded, kind, tmp_path, record_property
):
    record_property("case", f"SIGKILL as `synth run` enters a {kind}; run again")
    every, new_url = recorded
    tried, died, failed, given_up, began = 0, 0, [], 0, time.monotonic()
    for number, moment in enumerate(shuffled(spread([one for one in every if one.kind == kind], TIMES[kind]))):
        if time.monotonic() - began > SECONDS:
            break
        tried += 1
        try:
            killed, paid_again = kill_and_finish(moment, tmp_path / str(number), new_url())
        except AssertionError as problem:
            failed.append(f"{moment}: {problem}")
            continue
        died, given_up = died + killed, given_up + paid_again
        shutil.rmtree(tmp_path / str(number))
    for name, value in (("times", died + len(failed)), ("failed", len(failed)), ("given up", given_up)):
        record_property(name, value)
    assert not failed, "\n".join(failed)
    assert died >= tried // 2, "most moments come again in the next release"


def shuffled(moments: list[Moment]) -> list[Moment]:
    """The moments in an order in which those of a case that is cut short still come from the whole release."""
    return random.Random(len(moments)).sample(moments, len(moments))


def kill_and_finish(moment: Moment, folder: Path, url: str | None) -> tuple[bool, int]:
    """Whether a release died at the moment, and how many questions were paid again until it was finished."""
    case = new_case(folder, url=url)
    process = case.begun(stopped=True)
    with watched(process.pid, *killing(moment), log=folder / "trace"):
        process.join()
    case.said.append(case.output)
    assert process.exitcode in (-9, 0), f"it ended with {process.exitcode}: {case.output}"
    assert case.run() == 0, case.output
    return process.exitcode == -9, require_whole(case)
