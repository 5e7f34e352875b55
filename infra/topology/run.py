"""`make topology`: one release through the processes of a production site, each on a host of its own.

PostgreSQL, Airflow's API server, scheduler, DAG processor and triggerer, a Dask scheduler and two workers: each runs in
a network namespace, with an address that exists nowhere else. They meet over TCP alone, and over the shared folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.console import say
from infra.local.demo import run
from infra.local.example import provide_example
from infra.local.rest import AirflowApi, ApiError
from infra.local.services import Service, stop_on_signals, wait_until
from infra.local.site import Dask, Site, SiteError
from infra.topology.hosts import Host, bridge, host, restart_apart
from infra.topology.postgres import postgres

HOSTS = (
    "database", "api-server", "scheduler", "dag-processor", "triggerer", "dask-scheduler", "worker-1", "worker-2",
)  # fmt: skip
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
WORKERS = ("worker-1", "worker-2")
WEB, DASK, DASHBOARD = 8080, 8786, 8787
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Place:
    """The hosts by name, and the folder that they share."""

    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def log(self, name: str) -> Path:
        """Where a process writes what it says."""
        return self.folder / f"{name}.log"


def main() -> int:
    """Set everything up, release, verify, take everything down."""
    return run_apart("infra.topology.run", _release, name="make topology")


def run_apart(module: str, work: Callable[[Path], None], *, name: str) -> int:
    """Run work on hosts of their own, in a folder that lasts as long; what goes wrong is said in one line.

    Args:
        module: the program that calls, which is started once more where it may make networks.
        work: what is done, in the folder that the hosts share.
        name: what the program is called for people.

    Returns:
        The exit code of the program.
    """
    stop_on_signals()
    try:
        if "--apart" not in sys.argv:
            restart_apart(module)
        with tempfile.TemporaryDirectory(prefix="topology") as scratch:
            Path(scratch).chmod(0o711)  # the database's user has to reach its own folder
            work(Path(scratch))
    except (SiteError, ApiError) as error:
        say(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped")
        return 130
    say("all processes have ended, and their networks with them")
    return 0


def _release(folder: Path) -> None:
    began = time.monotonic()
    with site_apart(folder) as (_, site, api, leader):
        say(f"all parts are healthy after {time.monotonic() - began:.0f} s")
        address = run(api, leader, params={"release": "topology"})
        verify(site, address)
        say(f"released and verified after {time.monotonic() - began:.0f} s")


@contextmanager
def site_apart(folder: Path) -> Iterator[tuple[Place, Site, AirflowApi, Service]]:
    """All parts on hosts of their own, with the example to release, for the time of a `with` block."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # nothing here is reached through a proxy
    with ExitStack() as stack:
        place = Place(folder)
        say(f"this program is {bridge()} on a bridge; the hosts beside it:")
        for number, name in enumerate(HOSTS, start=2):
            made = stack.enter_context(host(name, number, log=place.log(f"host-{name}")))
            place.hosts[name] = made
            say(f"  {made.address:<15} {name}")
        databases = stack.enter_context(postgres(place.hosts["database"], folder / "postgres"))
        site = Site(folder / "home", folder / "workspace", databases["airflow"], databases["ledger"])
        os.environ["SYNTH_LEDGER_URL"] = databases["ledger"]
        provide_example(site)
        dask = stack.enter_context(_dask(place, site))
        api, leader = stack.enter_context(_airflow(place, site, dask))
        yield place, site, api, leader


@contextmanager
def _dask(place: Place, site: Site) -> Iterator[Dask]:
    """The Dask scheduler and its two workers, each on its host."""
    leader = place.hosts["dask-scheduler"]
    dask = Dask(f"tcp://{leader.address}:{DASK}", f"http://{leader.address}:{DASHBOARD}/status")
    env = site.environment(port=WEB)
    command = [str(BIN / "dask"), "scheduler", "--host", leader.address, "--port", str(DASK)]
    command += ["--dashboard-address", f"{leader.address}:{DASHBOARD}"]
    with ExitStack() as stack:
        running = stack.enter_context(leader.runs(command, env=env, log=place.log("dask-scheduler")))
        for name in WORKERS:
            worker = place.hosts[name]
            command = [str(BIN / "dask"), "worker", dask.address, "--host", worker.address, "--nthreads", "1"]
            command += ["--name", name, "--local-directory", str(place.folder / name), "--no-dashboard"]
            stack.enter_context(worker.runs(command, env=env, log=place.log(name)))
        wait_until(lambda: _workers(dask) == {place.hosts[name].address for name in WORKERS}, service=running)
        yield dask


def _workers(dask: Dask) -> set[str]:
    """Addresses of the hosts whose workers the scheduler knows."""
    from distributed import Client

    try:
        with Client(dask.address, timeout="10s") as client:
            known = client.scheduler_info(n_workers=-1)["workers"]
    except OSError:
        return set()
    return {address.removeprefix("tcp://").rsplit(":", 1)[0] for address in known}


@contextmanager
def _airflow(place: Place, site: Site, dask: Dask) -> Iterator[tuple[AirflowApi, Service]]:
    """Airflow's four parts, each on its host; yields access to it when all are healthy."""
    web = place.hosts["api-server"].address
    url = f"http://{web}:{WEB}"
    env = site.environment(port=WEB, dask=dask) | {
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": web,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
    }
    api = AirflowApi(url, user="admin", password=site.passwords["admin"])
    airflow = str(BIN / "airflow")
    _once(place.hosts["scheduler"], [airflow, "db", "migrate"], env=env)
    with ExitStack() as stack:
        parts = [
            stack.enter_context(place.hosts[name].runs([airflow, name], env=env, log=place.log(name)))
            for name in AIRFLOW
        ]
        wait_until(lambda: _all_live(parts) and api.healthy(), service=parts[0])
        yield api, parts[1]


def _once(where: Host, command: list[str], *, env: dict[str, str]) -> None:
    """Run a command on a host to its end."""
    done = subprocess.run(where.inside(command), env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SiteError(f"{' '.join(command)} failed on host {where.name}:\n{done.stderr[-2000:]}")


def _all_live(parts: list[Service]) -> bool:
    for part in parts:
        part.check()
    return True


def verify(site: Site, address: str) -> None:
    """Refuse a release that does not verify, or a ledger that does not."""
    from synth_core.ledger.sql import open_ledger
    from synth_core.privacy.accounts import State
    from synth_core.release.paths import ReleasePaths
    from synth_core.release.verify import verify_release

    ledger, paths = open_ledger(site.workspace, site.ledger), ReleasePaths.of_address(address)
    wrong = [*verify_release(paths.public), *ledger.verify()]
    if wrong:
        raise SiteError(f"the release does not verify: {'; '.join(map(str, wrong))}")
    answered = [record for record in ledger.records() if record.state is State.MEASURED]
    say(f"manifest, files and ledger agree; {len(answered)} noisy answers in the ledger on the database's host")


if __name__ == "__main__":
    sys.exit(main())
