"""Releases during which one host of a production site is cut off for half a minute; prints a line of JSON for each.

It is started by `make soak PART=partitions`. The site is that of `make topology`: nothing but these hosts is touched.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from infra.local.demo import DAG
from infra.local.rest import FINISHED, AirflowApi, ApiError
from infra.local.site import Site, SiteError
from infra.topology.hosts import Host
from infra.topology.run import run_apart, site_apart, verify

CUTS = (
    ("worker-1", "score"),
    ("dask-scheduler", "score"),
    ("scheduler", "fit"),
    ("api-server", "fit"),
    ("database", "fit"),
)
"""The host that is cut off, and the step during which it is."""

SECONDS = 30.0
"""Seconds for which a host is cut off."""

MAX_SECONDS = 900.0
"""Seconds after which a release that has not ended counts as failed."""


def main() -> int:
    """Set the site up, cut one host after the other, take everything down."""
    return run_apart("infra.topology.partitions", _cut_each, name="make soak PART=partitions")


def _cut_each(folder: Path) -> None:
    with site_apart(folder) as (place, site, api, _):
        api.unpause(DAG)
        for number, (name, step) in enumerate(CUTS):
            _report(site, api, place.hosts[name], step, number)


def _report(site: Site, api: AirflowApi, host: Host, step: str, number: int) -> None:
    began, problem, given_up = time.monotonic(), "", 0
    try:
        given_up = _cut_and_release(site, api, host, step=step, release=f"cut-{number}")
    except (SiteError, ApiError) as error:
        problem = str(error)
    seconds = time.monotonic() - began
    outcome = {"host": host.name, "step": step, "problem": problem, "given_up": given_up, "seconds": seconds}
    print(json.dumps(outcome), flush=True)  # noqa: T201 - what it is for


def _cut_and_release(site: Site, api: AirflowApi, host: Host, *, step: str, release: str) -> int:
    """Release with one host cut off in the middle; returns how many questions were paid again."""
    run = api.trigger(DAG, {"release": release, "epsilon": 0.1})
    _until(lambda: _state(api, run, step) in ("running", "success") or api.run_state(DAG, run) in FINISHED)
    time.sleep(1)
    with host.cut_off():
        time.sleep(SECONDS)
    _until(lambda: _answer(api, run) in FINISHED)
    if api.run_state(DAG, run) != "success":
        raise SiteError(f"the run ended as {api.run_state(DAG, run)}")
    return _require_whole(site, release, str(api.xcom(DAG, run, task="prepare")))


def _require_whole(site: Site, release: str, address: str) -> int:
    from synth_core.ledger.book import charged_records
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import State

    verify(site, address)
    ledger = open_ledger(site.workspace, site.ledger)
    charged = charged_records(ledger.records(release=release))
    answered = [record.key for record in charged if record.state is State.MEASURED]
    given_up = [record.key for record in charged if record.state is State.FORFEITED]
    if len(answered) != len(set(answered)) or len(charged) != len(answered) + len(given_up):
        raise SiteError("a question has two answers, or was left open")
    if not set(given_up) <= set(answered) or ledger.balance(charged[0].dataset).held_mu2:
        raise SiteError("a question was paid and has no answer, or budget is still set aside")
    return len(given_up)


def _state(api: AirflowApi, run: str, step: str) -> str:
    return next((str(one["state"]) for one in api.task_instances(DAG, run) if one["task_id"] == step), "")


def _answer(api: AirflowApi, run: str) -> str:
    """The state of the run; nothing, as long as the server cannot be asked."""
    try:
        return api.run_state(DAG, run)
    except (ApiError, OSError):
        return ""


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not ready():
        if time.monotonic() > end:
            raise SiteError(f"the run has not ended after {MAX_SECONDS:.0f} s")
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(main())
