"""PostgreSQL is killed and started again, or its standby is promoted, in the middle of releases.

A standby that confirms each commit loses nothing. One that lags loses the end of the chain: then nothing is spent any
more, because the kept head knows a later record, until the ledger is restored and the lost records are charged.
"""

from __future__ import annotations

import time

import pytest
from support.database_pair import address_of, one_server, standby_of
from support.forked_releases import new_case, require_whole

from synth_core.errors import LedgerError
from synth_core.ledger.sql import SqlLedger

pytestmark = [pytest.mark.timeout(1800), pytest.mark.system_entropy]

RESTARTS = 10
"""Releases during which the server is killed, each after one record more than the one before."""

FAILOVERS = 4


def test_a_server_that_is_killed_and_started_again_is_gone_on_with(tmp_path, record_property):
    record_property("case", "the server is killed during a release and started again; run again")
    given_up = 0
    with one_server(tmp_path / "server") as server:
        for number in range(RESTARTS):
            case = new_database(server, f"restart_{number}", tmp_path / str(number))
            process = in_the_middle(case, server, f"restart_{number}", records=2 + number)
            server.kill()
            server.start()
            process.join()
            finish(case, process)
            given_up += require_whole(case)
    for name, value in (("database", "PostgreSQL"), ("times", RESTARTS), ("given up", given_up)):
        record_property(name, value)


def test_a_standby_that_confirms_commits_takes_over_without_a_loss(tmp_path, record_property):
    record_property("case", "the server is killed during a release, its synchronous standby is promoted; run again")
    given_up = 0
    for number in range(FAILOVERS):
        with one_server(tmp_path / f"primary-{number}") as primary:
            primary.execute("CREATE DATABASE ledger")
            with standby_of(primary, tmp_path / f"standby-{number}") as standby:
                primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                primary.execute("SELECT pg_reload_conf()")
                until(
                    lambda: primary.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
                )
                case = new_case(tmp_path / str(number), url=address_of(primary, standby, database="ledger"))
                process = in_the_middle(case, primary, "ledger", records=3 + 2 * number)
                primary.kill()
                promote(standby)
                process.join()
                finish(case, process)
                given_up += require_whole(case)
    for name, value in (("database", "PostgreSQL"), ("times", FAILOVERS), ("given up", given_up)):
        record_property(name, value)


def test_a_standby_that_lags_takes_over_and_nothing_is_spent_any_more(tmp_path, record_property):
    record_property(
        "case", "the server is killed after a release, a standby that lags is promoted: refused as rolled back"
    )
    record_property("database", "PostgreSQL")
    with one_server(tmp_path / "primary") as primary:
        primary.execute("CREATE DATABASE ledger")
        with standby_of(primary, tmp_path / "standby") as standby:
            case = new_case(tmp_path / "case", url=address_of(primary, standby, database="ledger"))
            until(lambda: has_caught_up(primary, standby))
            standby.execute("ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")
            standby.execute("SELECT pg_reload_conf()")
            until(lambda: primary.execute("SELECT count(*) FROM pg_stat_replication") == 0)
            assert case.run() == 0, case.output
            signed = {path: path.read_bytes() for path in case.paths.public.rglob("*") if path.is_file()}
            primary.kill()
            promote(standby)
            assert case.run("--again") != 0
            assert "rolled back" in case.output
            ledger = SqlLedger(case.url, workspace=case.workspace)
            with pytest.raises(LedgerError, match="rolled back"):
                ledger.balance("people")
            assert signed == {path: path.read_bytes() for path in case.paths.public.rglob("*") if path.is_file()}


def new_database(server, name, folder):
    server.execute(f"CREATE DATABASE {name}")
    return new_case(folder, url=address_of(server, database=name))


def in_the_middle(case, server, database, *, records):
    """A process whose release has written so many records, or has ended."""
    process = case.begun()
    ledger = SqlLedger(address_of(server, database=database), head_paths=())
    until(lambda: len(ledger.records(release=case.release)) >= records or not process.is_alive())
    return process


def finish(case, process):
    """Run the release again until it is published; what the one before said was one line."""
    case.said.append(case.output)
    if process.exitcode:
        assert "ledger" in case.output, case.output
    assert case.run() == 0, case.output


def promote(standby):
    standby.execute("SELECT pg_promote()")
    until(lambda: standby.execute("SELECT pg_is_in_recovery()") is False)


def has_caught_up(primary, standby):
    return primary.execute("SELECT pg_current_wal_lsn()::text") == standby.execute(
        "SELECT pg_last_wal_replay_lsn()::text"
    )


def until(ready):
    end = time.monotonic() + 300
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)
