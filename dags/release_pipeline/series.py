"""The series of releases that the folder SYNTH_RELEASES declares, each with the schedule that Airflow understands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Asset
from release_schedule import timetable

from synth_core.errors import SpecError
from synth_core.release.releases import Series, read_releases
from synth_core.release.schedule import Schedule
from synth_core.settings import Settings


def declared() -> tuple[list[tuple[Series, Any]], list[str]]:
    """The series with their schedules, and one line for each spec that is broken; none without a folder."""
    folder = Settings.from_environment().releases
    if not folder:
        return [], []
    try:
        releases = read_releases(Path(folder))
    except SpecError as wrong:
        return [], [str(wrong)]
    sound, broken = [], list(releases.broken)
    for series in releases.series:
        try:
            sound.append((series, _schedule(series.spec.schedule)))
        except Exception as wrong:
            broken.append(f"{series.path}: schedule: {wrong}")
    return sound, broken


def _schedule(schedule: Schedule | None) -> Any:
    if schedule is None:
        return None
    if schedule.asset is not None:
        return Asset(name=schedule.asset, uri=schedule.uri or schedule.asset)
    return timetable(schedule)
