"""Fifty releases at once from five accounts, each with room for eight of its ten: eight are published, two refused."""

from __future__ import annotations

import time

import pytest
from support.forked_releases import Case, new_case, require_whole
from support.servers import create_schema

from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import epsilon_of, mu2_of
from synth_core.release.spec import ReleaseSpec

pytestmark = [pytest.mark.timeout(3000), pytest.mark.system_entropy]

ACCOUNTS, RELEASES, ROOM = 5, 10, 8
TRIES = 20
"""How often a release is run that was told that the ledger is busy, as a scheduler would."""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_crowd_is_served_as_far_as_there_is_room(request, database, tmp_path, record_property):
    record_property("case", "50 releases at once over 5 accounts; told that the ledger is busy, they are run again")
    url = create_schema(request.getfixturevalue("postgres_server")) if database == "postgres" else None
    crowd = crowd_of_cases(tmp_path, url)
    began = [(case, case.begun()) for case in crowd]
    waited = 0
    published, refused = [], []
    while began:
        case, process = began.pop(0)
        process.join()
        case.said.append(case.output)
        if process.exitcode == 0:
            published.append(case)
        elif "busy" in case.output:
            waited += 1
            assert waited < TRIES * len(crowd)
            time.sleep(0.1)
            began.append((case, case.begun()))
        else:
            assert "left (delta" in case.output, case.output
            refused.append(case)
    record_property("times", len(crowd))
    assert len(published) == ACCOUNTS * ROOM
    assert len(refused) == ACCOUNTS * (RELEASES - ROOM)
    for account in {case.account for case in crowd}:
        assert sum(case.account == account for case in published) == ROOM
    record_property("given up", sum(require_whole(case) for case in published))


def crowd_of_cases(folder, url: str | None) -> list[Case]:
    """The releases, all in one workspace with one ledger; no release knows of the others."""
    first = new_case(folder, url=url)
    spec, ledger = ReleaseSpec.load(first.spec), SqlLedger(ledger_url(first.workspace, url), workspace=first.workspace)
    room = epsilon_of(ROOM * mu2_of(0.5, 1e-6) * 10001 / 10000, 1e-6)
    cases = []
    for name in (f"town-{k}" for k in range(ACCOUNTS)):
        ledger.declare(Account(dataset=name, delta=1e-6, cap_epsilon=room, largest_n=100_000), actor="board")
        # An account owns its rows, so each has a table of its own.
        source = folder / f"{name}.csv"
        source.write_text("".join((folder / "people.csv").read_text().splitlines(keepends=True)[: -1 - len(cases)]))
        for number in range(RELEASES):
            case = Case(folder, url, f"{name}-{number}", name)
            changes = {"release": case.release, "dataset": name, "source": str(source), "epsilon": 0.5}
            ReleaseSpec.parse(spec.dump() | changes).save(case.spec)
            cases.append(case)
    return sorted(cases, key=lambda case: case.release[::-1])
