"""`make demo`: a fictional census released by a real Airflow run on this machine, and where to find the results.

A short-lived standalone Airflow is used rather than an in-process `dags test`: the run then has a scheduler, task
processes, parallel shards, retries and logs, and looks under `make up` like every later run.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any

from infra.local.rest import FINISHED, AirflowApi, ApiError
from infra.local.services import LOG_TAIL, Service, airflow, dask_cluster, wait_until
from infra.local.site import Site, SiteError, free_port
from infra.local.up import say

DAG = "census_release"
PEOPLE = 50_000
FINAL = FINISHED | {"upstream_failed", "skipped"}


def main() -> int:
    """Prepare the example, release it, show the result."""
    from synth_core.errors import SynthError

    site, release = Site(), f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    try:
        with site.locked():
            _example(site)
            say("starting Dask (scheduler and 2 workers) and Airflow …")
            with (
                dask_cluster(site) as dask,
                airflow(site, port=free_port(), dask=dask) as (running, api),
            ):
                address = run(api, running, params={"release": release})
            _results(address)
    except (SiteError, ApiError, SynthError) as error:
        say(f"make demo: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped; all processes have ended")
        return 130
    return 0


def run(api: AirflowApi, running: Service, *, params: dict[str, Any]) -> str:
    """Trigger the DAG, follow it to its end, and return the address of the release."""
    wait_until(lambda: api.dag_is_known(DAG), service=running)
    api.unpause(DAG)
    name = api.trigger(DAG, params)
    say(f"run {name}")
    began, seen = time.monotonic(), set[tuple[str, int, str]]()
    while True:
        running.check()
        state = api.run_state(DAG, name)
        instances = api.task_instances(DAG, name)
        for instance in sorted(instances, key=lambda one: one["end_date"] or ""):
            event = (instance["task_id"], instance["map_index"], instance["state"])
            if instance["state"] in FINAL | {"up_for_retry"} and event not in seen:
                seen.add(event)
                say(f"  {time.monotonic() - began:5.0f} s  {_label(instance):<10} {instance['state']}")
        if state in FINISHED:
            break
        time.sleep(1)
    for instance in instances:
        if instance["state"] == "failed":
            tail = "\n".join(f"    {line}" for line in api.log(instance)[-LOG_TAIL:])
            raise SiteError(f"task {_label(instance)} failed; the end of its log:\n{tail}")
    return str(api.xcom(DAG, name, task="prepare"))


def _label(instance: dict[str, Any]) -> str:
    shard = instance["map_index"]
    return str(instance["task_id"]) if shard < 0 else f"{instance['task_id']}[{shard}]"


def _example(site: Site) -> None:
    """The fictional population and its ledger account, made once."""


def _results(address: str) -> None:
    from synth_core import steps

    found = steps.summary(address)
    say("")
    for name, value in found.items():
        say(f"  {name:<18} {value}")


if __name__ == "__main__":
    sys.exit(main())
