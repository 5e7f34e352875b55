"""Tasks of Airflow are killed as they enter system calls, and tried again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import cycle

import psutil
import pytest
from support.live_airflow import FORM, assert_sound, ledger_of_the_site  # noqa: F401
from support.system_calls import NOT_THERE, Moment, attacked, has_died, installed

from infra.local.rest import FINISHED
from synth_core.privacy.accounts import State

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3600)]

RELEASES = 3
"""Releases whose tasks are all killed at system calls, at once."""

MOMENTS = [
    Moment(call, number, "")
    for number in (1, 3, 6, 2, 9, 4)
    for call in ("fdatasync", "rename", "fsync", "pwrite64", "write", "sendto")
]


@pytest.mark.skipif(not installed(), reason=NOT_THERE)
def test_tasks_that_are_killed_at_system_calls_are_tried_again(live, tmp_path, record_property):
    """Every task of several releases at once, at its first try; the calls are cycled through."""
    record_property("case", "SIGKILL to tasks as they enter a rename, fsync, write or commit")
    runs = {f"killed-at-calls-{k}": live.trigger(f"killed-at-calls-{k}", epsilon=0.5) for k in range(RELEASES)}
    moments, logs = cycle(MOMENTS), []
    with ExitStack() as tracers:
        under_way, met = set(runs.values()), set()
        while under_way:
            for run in sorted(under_way):
                for one in live.api.task_instances(FORM, run):
                    name = (run, one["task_id"], one["map_index"])
                    fresh = one["state"] == "running" and one["try_number"] == 1 and name not in met
                    if fresh and one["pid"] and psutil.pid_exists(one["pid"]):
                        met.add(name)
                        logs.append(tmp_path / f"{len(logs)}.trace")
                        tracers.enter_context(attacked(one["pid"], next(moments), log=logs[-1]))
                if live.api.run_state(FORM, run) in FINISHED:
                    under_way.remove(run)
            live.running.check()
            time.sleep(0.1)
    record_property("times", died := sum(map(has_died, logs)))
    given_up = 0
    for release, run in runs.items():
        assert live.api.run_state(FORM, run) == "success"
        given_up += sum(record.state is State.FORFEITED for record in assert_sound(live, release))
    record_property("given up", given_up)
    assert died >= RELEASES, "most tasks meet their moment"
