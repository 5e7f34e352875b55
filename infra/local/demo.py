"""`make demo`: a fictional census released by a real Airflow run on this machine, and where to find the results.

Kernels that are not compiled yet are compiled while Airflow starts, and the demo says at its end where the time went.

A short-lived standalone Airflow is used rather than an in-process `dags test`: the run then has a scheduler, task
processes, parallel shards, retries and logs, and looks under `make up` like every later run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.local.console import say
from infra.local.example import provide_example
from infra.local.rest import FINISHED, AirflowApi, ApiError
from infra.local.services import LOG_TAIL, Service, airflow, dask_cluster, service, stop_on_signals, wait_until
from infra.local.site import Site, SiteError, free_port

DAG = "census_release"
PLACES = {
    "synthetic table": "extract",
    "manifest": "manifest",
    "public report": "public report",
    "page of tables": "page of tables",
    "internal report": "internal report",
    "ledger": "ledger",
}
SHOWN = FINISHED | {"up_for_retry", "skipped"}

IMPORTS = """
import airflow.api_fastapi.core_api.app, airflow.api_fastapi.execution_api.app, airflow.sdk.execution_time.task_runner
import airflow.jobs.dag_processor_job_runner, airflow.jobs.scheduler_job_runner, airflow.jobs.triggerer_job_runner
from synth_core.steps import import_steps; import_steps()
"""
"""Run once, so that the parts of Airflow, which start together, find their modules compiled."""


class Stopwatch:
    """Says how long each part of the demo takes, and all of them together."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._parts: list[tuple[str, float]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the block."""
        begin = time.monotonic()
        yield
        self._parts.append((name, time.monotonic() - begin))

    def report(self) -> None:
        """Write where the time went."""
        say("\nWhere the time went\n")
        for name, seconds in self._parts:
            say(f"  {name:<32} {seconds:5.0f} s")
        say(f"  {'in all':<32} {time.monotonic() - self._began:5.0f} s")


def main() -> int:
    """Prepare the example, release it, show the result."""
    from synth_core.errors import SynthError

    stop_on_signals()
    site, release, watch = Site(), f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}", Stopwatch()
    try:
        with site.locked():
            with watch.part("a fictional population"):
                provide_example(site)
            with compiled_kernels(site) as compiling:
                address = _released(site, release, watch, compiling)
            _results(address)
            watch.report()
            _invite(address)
    except (SiteError, ApiError, SynthError) as error:
        say(f"make demo: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped; all processes have ended")
        return 130
    return 0


def _released(site: Site, release: str, watch: Stopwatch, compiling: Service) -> str:
    """Start all services, run the release, and return its address."""
    with watch.part("importing Airflow once"):
        importing = [sys.executable, "-c", IMPORTS]
        with service("the import", importing, env=site.environment(port=0), log=site.home / "imports.log") as imports:
            imports.process.wait()
    say("starting Dask (scheduler and 2 workers) and Airflow …")
    with ExitStack() as services:
        with watch.part("starting Dask and Airflow"):
            dask = services.enter_context(dask_cluster(site))
            running, api = services.enter_context(airflow(site, port=free_port(), dask=dask))
        with watch.part("compiling kernels, beyond that"):
            if compiling.process.wait():
                raise SiteError(f"the kernels were not compiled; the end of {compiling.log}:\n{compiling.tail()}")
        with watch.part("the release"):
            return run(api, running, params={"release": release})


@contextmanager
def compiled_kernels(site: Site) -> Iterator[Service]:
    """Compile what the release needs beside everything else; where that is done already it takes some seconds."""
    warming = [sys.executable, "-m", "synth_core.warm", "--small"]
    with service("compiling", warming, env=site.environment(port=0), log=site.home / "kernels.log") as compiling:
        yield compiling


def run(api: AirflowApi, running: Service, *, params: dict[str, Any]) -> str:
    """Trigger the DAG, follow it to its end, and return the address of the release."""
    wait_until(lambda: api.dag_is_known(DAG), service=running)
    api.unpause(DAG)
    name = api.trigger(DAG, params)
    say(f"run {name}")
    began, seen = time.monotonic(), set[tuple[Any, ...]]()
    while True:
        running.check()
        state = api.run_state(DAG, name)
        instances = api.task_instances(DAG, name)
        for instance in sorted(instances, key=lambda one: one["end_date"] or ""):
            event = tuple(instance[key] for key in ("task_id", "map_index", "try_number", "state"))
            if instance["state"] in SHOWN and event not in seen:
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


def _results(address: str) -> None:
    from synth_core import steps

    found = steps.summary(address)
    say(f"\nRelease {found['release']} is published.\n")
    for title, key in PLACES.items():
        say(f"  {title:<16} {_shown(found[key])}")
    say(f"  {'privacy':<16} epsilon {found['epsilon']} at delta {found['delta']}\n")
    say("How good the table is, by public figures; true errors are in the internal report alone\n")
    for name, value in found["quality"].items():
        say(f"  {name:<38} {value}")
    say("\n`make up` shows this run in Airflow, with the form for the next one.")


def _invite(address: str) -> None:
    """End with what to open first."""
    from synth_core import steps

    page = _shown(steps.summary(address)["page of tables"])
    say(f"\nAsk the release for any small table, with its error: open {page} in a browser.")


def _shown(path: str) -> str:
    """A path as it is typed from here."""
    place = Path(path)
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main())
