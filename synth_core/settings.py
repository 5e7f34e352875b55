"""What the environment of a process may set, read in one place; `docs/operations/upgrade.md` says what each is for."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

PREFIX = "SYNTH_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The variables of ours, as texts; None for one that is not set, or empty.

    Attributes:
        arrays: the array library of a worker: numpy, cupy or auto (cupy where a GPU answers).
        dask_address: the Dask scheduler that tasks of Airflow use.
        dask_dashboard: where a link of Airflow's tasks leads.
        ledger_head: a file in a second place that keeps the ledger's head.
        ledger_url: the ledger's database; a SQLite file in the workspace without it.
        lineage: a file or collector that OpenLineage events go to.
        notify: a YAML file with the channels of notices.
        notify_webhook: one webhook for all notices.
        releases: the folder of the specs that are released by schedule.
        signing_key: a PEM file with the agency's own private key.
        speed: how fast this machine is for the estimates of `synth plan`, 1 for the one that was measured.
        threads: how many threads the compiled kernels may use.
        workspace: the folder of the two zones and the ledger.
    """

    arrays: str | None = None
    dask_address: str | None = None
    dask_dashboard: str | None = None
    ledger_head: str | None = None
    ledger_url: str | None = None
    lineage: str | None = None
    notify: str | None = None
    notify_webhook: str | None = None
    releases: str | None = None
    signing_key: str | None = None
    speed: str | None = None
    threads: str | None = None
    workspace: str | None = None

    @classmethod
    def from_environment(cls) -> Settings:
        """Returns what the environment of this process says now."""
        return cls(**{name: os.environ.get(variable(name)) or None for name in NAMES})


def cache_folder() -> Path:
    """Returns the user's folder of caches, which need not exist: that of XDG_CACHE_HOME, or `.cache` in the home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synth-core"


def variable(name: str) -> str:
    """Returns the variable of a setting: SYNTH_LEDGER_URL for `ledger_url`."""
    return f"{PREFIX}{name.upper()}"


NAMES = tuple(one.name for one in fields(Settings))
VARIABLES = frozenset(map(variable, NAMES))
"""All variables of ours."""
