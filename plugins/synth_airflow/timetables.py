"""When scheduled releases are due: timetables for cron lines and for release calendars in words.

Both differ from Airflow's own in what happens around a pause, because a run spends privacy budget: unpausing a DAG does
not make up for dates that have passed, while a scheduler that was away for less than a day does.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.plugins_manager import AirflowPlugin
from airflow.timetables.base import DagRunInfo, DataInterval, Timetable
from airflow.timetables.trigger import CronTriggerTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import TimeRestriction
    from pendulum import DateTime

    from synth_core.release.schedule import Schedule

GRACE = timedelta(days=1)
"""A date that was missed for no longer than this is made up for."""

FIRST_GRACE = timedelta(minutes=5)
"""The same before a DAG's first run: just so much that a busy scheduler does not lose the date."""


class ReleaseTimetable(Timetable):
    """Moments of a schedule, without those that were missed long ago."""

    @abstractmethod
    def last_moment(self, moment: DateTime) -> DateTime:
        """The schedule's last moment that is not after this one."""

    @abstractmethod
    def next_moment(self, moment: DateTime) -> DateTime:
        """The schedule's first moment after this one."""

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """A release covers no interval of its own."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next run: one that was missed a short while ago, else the next in the future."""
        now = pendulum.now("UTC")
        due, last = self.last_moment(now), last_automated_data_interval
        patience = GRACE if last else FIRST_GRACE
        if now - due > patience or (last and due <= last.end):
            due = self.next_moment(max(now, last.end) if last else now)
        if restriction.earliest and due < restriction.earliest:
            due = self.next_moment(restriction.earliest.subtract(seconds=1))
        if restriction.latest and due > restriction.latest:
            return None
        return DagRunInfo.exact(due)


class ReleaseCron(ReleaseTimetable, CronTriggerTimetable):
    """A cron line in a time zone."""

    def last_moment(self, moment: DateTime) -> DateTime:
        """The cron line's last moment that is not after this one."""
        return self._align_to_prev(moment)

    def next_moment(self, moment: DateTime) -> DateTime:
        """The cron line's first moment after this one."""
        return self._get_next(moment)


class ReleaseCalendar(ReleaseTimetable):
    """A calendar in words, such as "third Tuesday after quarter end"."""

    def __init__(self, calendar: str, *, at: str, timezone: str) -> None:
        from synth_core.release.schedule import Schedule

        self._schedule = Schedule(calendar=calendar, at=at, timezone=timezone)
        self.description = self._schedule.in_words

    @property
    def summary(self) -> str:
        """The calendar in words, for lists of DAGs."""
        return self.description

    def serialize(self) -> dict[str, Any]:
        """What `deserialize` reads."""
        return self._schedule.model_dump(include={"calendar", "at", "timezone"})

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> ReleaseCalendar:
        """Read what `serialize` wrote."""
        return cls(**data)

    def last_moment(self, moment: DateTime) -> DateTime:
        """The calendar's last moment that is not after this one."""
        return _utc(self._schedule.until(moment))

    def next_moment(self, moment: DateTime) -> DateTime:
        """The calendar's first moment after this one."""
        return _utc(self._schedule.after(moment))


def timetable(schedule: Schedule) -> ReleaseTimetable:
    """The timetable of a schedule by cron or calendar; a cron line that is none is refused."""
    if schedule.calendar is not None:
        return ReleaseCalendar(schedule.calendar, at=schedule.at, timezone=schedule.timezone)
    made = ReleaseCron(schedule.cron or "", timezone=schedule.timezone)
    made.validate()
    return made


def _utc(moment: datetime) -> DateTime:
    return pendulum.instance(moment).in_timezone("UTC")


class ReleaseSchedulePlugin(AirflowPlugin):
    """What Airflow registers."""

    name = "release_schedule"
    timetables = [ReleaseCron, ReleaseCalendar]  # noqa: RUF012
