"""`make up`: Airflow with its user interface and a Dask cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from urllib.parse import quote

from infra.local.console import say
from infra.local.example import provide_example
from infra.local.rest import AirflowApi
from infra.local.services import Service, airflow, dask_cluster, stop_on_signals
from infra.local.site import Site, SiteError, free_port

FIRST_PORT = 8080
REPORTS = 3
"""Upper limit of the reports that the first screen offers."""


def main() -> int:
    """Run until interrupted; all processes end with it."""
    stop_on_signals()
    site = Site()
    try:
        with site.locked():
            port = _port()
            provide_example(site)
            say("starting Airflow and Dask (about a minute) …")
            with dask_cluster(site) as dask, airflow(site, port=port, dask=dask) as (running, api):
                _welcome(site, api)
                _wait(running)
    except SiteError as error:
        say(f"make up: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped; all processes have ended")
    return 0


def _port() -> int:
    if wanted := os.environ.get("PORT"):
        if not wanted.isdecimal():
            raise SiteError(f"PORT={wanted} is not a port number")
        return free_port(first=int(wanted))
    return free_port(first=FIRST_PORT, last=FIRST_PORT + 50)


def _welcome(site: Site, api: AirflowApi) -> None:
    say(f"\n  Airflow   {api.url}")
    for user, password in site.passwords.items():
        say(f"  user      {user:<7} password {password}")
    say(f"  logs      {site.home}")
    for release in _published(site):
        say(f"  report    {api.url}/budget/report?release={quote(release)}")
    say("\nCtrl-C ends it.")


def _published(site: Site) -> list[str]:
    """The releases of this workspace that have a public report, newest first; `make demo` makes one."""
    reports = [
        path for path in (site.workspace / "public").glob("*/report.html") if not path.parent.name.startswith(".")
    ]
    newest = sorted(reports, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent.name for path in newest[:REPORTS]]


def _wait(running: Service) -> None:
    while True:
        running.check()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
