"""The releases folder: one spec file for each series of releases, and the name of each single release."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from synth_core.errors import SpecError
from synth_core.release.spec import ReleaseSpec

LONGEST_NAME = 82
"""A series' name has to leave room for date and time: names of releases have at most 100 characters."""


@dataclass(frozen=True, slots=True)
class Series:
    """A spec file of the folder and what it says."""

    path: Path
    spec: ReleaseSpec


@dataclass(frozen=True, slots=True)
class Releases:
    """All that a releases folder holds: the series that can run, and for each other file what is wrong with it."""

    series: tuple[Series, ...]
    broken: tuple[str, ...]


def read_releases(folder: Path) -> Releases:
    """Read every YAML file of the folder, not of its subfolders; one that is wrong does not hide the others."""
    if not folder.is_dir():
        raise SpecError(
            f"SYNTH_RELEASES: {folder} is not a folder; create it, or name the folder of the specs"
        )
    found: dict[str, Series] = {}
    broken = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            spec = ReleaseSpec.load(path)
            if len(spec.release) > LONGEST_NAME:
                raise SpecError(
                    f"{path}: release names of a series get a date; use at most {LONGEST_NAME} characters"
                )
            if spec.release in found:
                raise SpecError(
                    f"{path}: release {spec.release!r} is also in {found[spec.release].path.name}; "
                    "give each series a name of its own"
                )
            found[spec.release] = Series(path, spec)
        except SpecError as wrong:
            broken.append(str(wrong))
    return Releases(tuple(found.values()), tuple(broken))


def dated(spec: ReleaseSpec, moment: datetime, *, planned: bool) -> ReleaseSpec:
    """The spec of the single release that a series makes at a moment; its name carries the date.

    `planned` says that cron or calendar named the moment. Moments that may share a day carry the time too.
    """
    zone = ZoneInfo(spec.schedule.timezone if spec.schedule else "UTC")
    alone = planned and spec.schedule is not None and spec.schedule.at_most_daily
    date = f"{moment.astimezone(zone):{'%Y-%m-%d' if alone else '%Y-%m-%d-%H%M%S'}}"
    return ReleaseSpec.parse({**spec.dump(), "release": f"{spec.release}-{date}", "schedule": None})
