"""What could keep this installation from releasing, found before anything is spent: `synth doctor`."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from synth_core.cluster import connect
from synth_core.errors import ClusterError, PublishError, SpecError, SynthError
from synth_core.events.office import Office
from synth_core.privacy.accounts import State
from synth_core.privacy.budget import check_delta
from synth_core.release.paths import PRIVATE_MODE, ReleasePaths
from synth_core.release.signing import key_path, private_key
from synth_core.settings import PREFIX, VARIABLES

SAME_EVERYWHERE = ("synth-core", "dask", "distributed", "numpy", "pandas", "pyarrow", "numba")
"""Packages that must have one version on the client and on all workers: functions and arrays travel between them."""
EXTRAS = ("", "cluster", "evaluation", "report", "cli")
"""Extras whose packages the command line needs; the first is the package itself."""
LITTLE_SPACE = 10 * 2**30
"""Bytes of free disk below which the doctor warns."""
AHEAD = timedelta(minutes=1)
"""How far the ledger's last record may lie in the future before the clock is suspected."""


class Health(StrEnum):
    """How a finding stands."""

    GOOD = "ok"
    UNSEEN = "not checked"
    WORRYING = "warning"
    WRONG = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, what was seen, and what to do about it."""

    subject: str
    state: Health
    seen: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """The installation as it is configured."""

    workspace: Path | None = None
    cluster: str | None = None


Check = Callable[[Patient], Iterator[Finding]]


def examine(patient: Patient) -> Iterator[Finding]:
    """Look at everything, one thing after the other; a check that cannot be made is a finding itself."""
    for check in CHECKS:
        try:
            yield from check(patient)
        except SynthError as refusal:
            yield Finding(check.__name__, Health.WRONG, str(refusal))


def in_short(findings: Sequence[Finding]) -> str:
    """One line for all that is well; the rest is in a table of its own."""
    good = sum(finding.state is Health.GOOD for finding in findings)
    ill = len(findings) - good - sum(finding.state is Health.UNSEEN for finding in findings)
    rest = f"the other {good} things are well" if ill else f"healthy: {good} things were checked"
    unseen = [f"{one.subject}: {one.seen} ({one.remedy})" for one in findings if one.state is Health.UNSEEN]
    return "; ".join([f"{rest} (--all lists them)", *unseen])


def interpreter(_: Patient) -> Iterator[Finding]:
    """Python itself."""
    supported = (3, 11) <= sys.version_info < (3, 13)
    yield _judged("python", supported, platform.python_version(), "use Python 3.11 or 3.12")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        seen = "PYTHONDONTWRITEBYTECODE is set, so every Airflow process compiles its modules anew"
        yield Finding("python", Health.WORRYING, seen, "unset it")


def packages(_: Patient) -> Iterator[Finding]:
    """Whether what this package requires is installed."""
    wrong = []
    for line in metadata.requires("synth-core") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in EXTRAS):
            continue
        installed = _version(requirement.name)
        if installed is None:
            wrong.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{requirement.name} is {installed}, not {requirement.specifier}")
    if wrong:
        yield Finding("packages", Health.WRONG, "; ".join(wrong), "install requirements.lock again")
    else:
        airflow = _version("apache-airflow")
        beside = f"Airflow {airflow}" if airflow else "no Airflow (only the command line runs releases here)"
        yield Finding("packages", Health.GOOD, f"as required; synth-core {_version('synth-core')}, {beside}")


def kernels(_: Patient) -> Iterator[Finding]:
    """Whether the compiled kernels are on disk."""
    folder = importlib.import_module("synth_core.models.kernels").collect.stats.cache_path
    if folder and any(Path(folder).glob("kernels.collect-*.nbi")):
        yield Finding("kernels", Health.GOOD, "compiled")
    else:
        seen = "not compiled yet, so the first fit of every process waits some seconds"
        remedy = "run `python -m synth_core.warm` as the user who owns the installation"
        yield Finding("kernels", Health.WORRYING, seen, remedy)


def settings(_: Patient) -> Iterator[Finding]:
    """Settings that nothing reads are mistyped ones."""
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in VARIABLES)
    if unknown:
        yield Finding(
            "settings", Health.WORRYING, f"nothing reads {', '.join(unknown)}", "see the settings in the docs"
        )
    else:
        count = sum(name in os.environ for name in VARIABLES)
        yield Finding("settings", Health.GOOD, f"{count} of {len(VARIABLES)} variables are set")


def workspace(patient: Patient) -> Iterator[Finding]:
    """The two zones, their permissions and their space."""
    folder = patient.workspace
    if folder is None:
        seen = "none is named, so permissions, ledger and signing key were not looked at"
        yield Finding("workspace", Health.UNSEEN, seen, "set SYNTH_WORKSPACE, or name one with --workspace")
        return
    ReleasePaths(folder, "doctor").check_writable()
    yield Finding("workspace", Health.GOOD, f"{folder} can be written to")
    zone = folder / "confidential"
    if zone.exists():
        mode = stat.S_IMODE(zone.stat().st_mode)
        seen = f"the confidential zone has mode {mode:04o}"
        yield _judged("workspace", mode & 0o077 == 0, seen, f"chmod {PRIVATE_MODE:04o} {zone}")
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    if free < LITTLE_SPACE:
        seen = f"{free / 2**30:.0f} GiB are free"
        yield Finding("workspace", Health.WORRYING, seen, "make room before a large ingest")


def ledger(patient: Patient) -> Iterator[Finding]:
    """Whether the ledger answers and is as it was written, and whether clocks agree with it."""
    if patient.workspace is None:
        return
    office = Office(patient.workspace)
    status = office.chain_status(fresh=timedelta(0))
    seen = "; ".join(status.problems) or f"{status.records} records, chain unbroken"
    yield _judged("ledger", status.sound, seen, "stop all releases and read the runbook on a broken chain")
    yield from _deltas(office)
    now = datetime.now(UTC)
    last = max((record.at for record in office.ledger.records()), default=now)
    if last > now + AHEAD:
        seen = f"the last record was written at {last:%Y-%m-%d %H:%M:%S} UTC, which is still to come"
    else:
        seen = f"{now:%Y-%m-%d %H:%M:%S} UTC, not before the ledger's last record"
    yield _judged("clock", last <= now + AHEAD, seen, "synchronise the clocks of the machines that run tasks")


def _deltas(office: Office) -> Iterator[Finding]:
    """Accounts whose delta was never compared with their number of records, unless a reason is recorded."""
    for opened in office.ledger.records():
        if opened.state is not State.ACCOUNT:
            continue
        try:
            check_delta(opened.account.delta, opened.account.largest_n, opened.reason)
        except SpecError as refusal:
            subject = f"account {opened.dataset}"
            yield Finding(subject, Health.WORRYING, str(refusal), "delta is for life; use it for the next account")


def keys(patient: Patient) -> Iterator[Finding]:
    """The key that signs manifests."""
    if patient.workspace is None:
        return
    path = key_path(ReleasePaths(patient.workspace, "doctor"))
    if not path.exists():
        yield Finding("signing key", Health.GOOD, "none yet; the first publication makes one")
        return
    try:
        private_key(path, create=False)
    except PublishError as refusal:
        yield Finding("signing key", Health.WRONG, str(refusal))
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    remedy = f"chmod 0600 {path}; if others could read it, make a new one"
    yield _judged("signing key", mode & 0o077 == 0, f"readable, mode {mode:04o}", remedy)


def cluster(patient: Patient) -> Iterator[Finding]:
    """Whether the Dask cluster answers, has workers, and runs the same code on the same files."""
    if patient.cluster is None:
        yield Finding("cluster", Health.GOOD, "none is set; tasks use their own threads")
        return
    here = facts(patient.workspace)
    with connect(patient.cluster) as opened:
        try:
            workers = opened.on_each_worker(facts, patient.workspace)
        except ImportError:
            raise ClusterError("workers cannot import synth_core; install the same package on them as here") from None
    if not workers:
        yield Finding("cluster", Health.WRONG, "it answers and has no workers", "start `dask worker` processes")
        return
    yield Finding("cluster", Health.GOOD, f"{len(workers)} workers answer")
    different = sorted(
        {
            f"{name} {found.versions.get(name)} instead of {version}"
            for found in workers.values()
            for name, version in here.versions.items()
            if found.versions.get(name) != version
        }
    )
    if different:
        seen = f"workers have {', '.join(different)}"
        yield Finding("cluster", Health.WRONG, seen, "install the same lock file on them")
    if not all(found.sees_workspace for found in workers.values()):
        yield Finding("cluster", Health.WRONG, "some workers do not see the workspace", "mount it on every worker")


def gpu(_: Patient) -> Iterator[Finding]:
    """Graphics cards, and whether the code could use them."""
    cards = _cards()
    if not cards:
        yield Finding("gpu", Health.GOOD, "none here; fits run on the CPU")
    elif _version("cupy-cuda12x") is None:
        yield Finding("gpu", Health.WORRYING, f"{cards} found, but CuPy is not installed", "install the extra `cuda`")
    else:
        yield Finding("gpu", Health.GOOD, f"{cards} found, CuPy {_version('cupy-cuda12x')}")


CHECKS: tuple[Check, ...] = (interpreter, packages, kernels, settings, workspace, ledger, keys, cluster, gpu)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a process knows of its own machine."""

    versions: dict[str, str | None]
    sees_workspace: bool


def facts(workspace: Path | None) -> Facts:
    """The versions that must agree, and whether the workspace is there."""
    return Facts(
        {"python": platform.python_version(), **{name: _version(name) for name in SAME_EVERYWHERE}},
        workspace is None or workspace.is_dir(),
    )


def _judged(subject: str, good: bool, seen: str, remedy: str) -> Finding:
    return Finding(subject, Health.GOOD, seen) if good else Finding(subject, Health.WRONG, seen, remedy)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cards() -> int:
    from distributed.diagnostics import nvml

    return int(nvml.device_get_count())
