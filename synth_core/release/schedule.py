"""When the releases of a spec are made: by cron, by a calendar in words, or when an upstream asset is updated.

Every day a calendar names is counted from the first day of a month, quarter, half-year or year; "after quarter end" and
"of quarter" are the same count, because the day after a quarter's end is the first day of the next. A count that some
period is too short for is refused, so each period has exactly one day and the days of a calendar never change order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from synth_core.errors import SpecError

CRON = re.compile(r"\S+( \S+){4}")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
PERIODS = {"month": 1, "quarter": 3, "half-year": 6, "year": 12}
"""Months of each period."""
WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
LAST = -1
"""Place of the last day of a period, counted from its end."""
SHORTEST = {1: 28, 3: 90, 6: 181, 12: 365}
"""Days of the shortest period of this number of months."""

PHRASE = re.compile(
    r"(?P<ordinal>[a-z]+|\d+(?:st|nd|rd|th)) (?P<day>working day|day|[a-z]+day) "
    r"(?:after (?P<ended>month|quarter|half-year|year) end|of (?P<running>month|quarter|half-year|year))"
)
EXAMPLES = '"third Tuesday after quarter end", "last Friday of month", "10th working day after month end"'


class Schedule(BaseModel):
    """Exactly one of cron, calendar and asset; a plain text in a spec is a cron line or a calendar."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cron: str | None = Field(default=None, description="five cron fields, such as `0 6 1 * *`")
    calendar: str | None = Field(default=None, description="such as `third Tuesday after quarter end`")
    at: str = Field(default="00:00", description="time of day for a calendar, HH:MM")
    timezone: str = Field(default="UTC", description="time zone of cron or calendar, such as Europe/Vienna")
    asset: str | None = Field(default=None, description="name of an Airflow asset; each update makes a release")
    uri: str | None = Field(default=None, description="the asset's URI, where it is not its name")

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        words = " ".join(value.split())
        return {"cron" if CRON.fullmatch(words) and not words[0].isalpha() else "calendar": words}

    @field_validator("calendar")
    @classmethod
    def _is_a_calendar(cls, value: str | None) -> str | None:
        try:
            return value and Calendar.parse(value).words
        except SpecError as wrong:
            raise ValueError(str(wrong)) from None

    @field_validator("cron")
    @classmethod
    def _has_five_fields(cls, value: str | None) -> str | None:
        if value is not None and not CRON.fullmatch(value):
            raise ValueError(f"{value!r} is not a cron line; write five fields, such as `0 6 1 * *`")
        return value

    @field_validator("at", mode="before")
    @classmethod
    def _is_a_time(cls, value: Any) -> Any:
        # YAML reads 09:30 without quotes as a number, so that number is what arrives here.
        if not isinstance(value, str) or not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
            raise ValueError('write the time of day as HH:MM, in quotes: at: "09:30"')
        return value

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, value: str) -> str:
        try:
            return ZoneInfo(value).key
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{value!r} is not a time zone; write for example Europe/Vienna") from None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum(value is not None for value in (self.cron, self.calendar, self.asset)) != 1:
            raise ValueError("a schedule has exactly one of cron, calendar and asset")
        if self.uri is not None and self.asset is None:
            raise ValueError("uri belongs to an asset")
        return self

    @property
    def at_most_daily(self) -> bool:
        """Whether two releases can never fall on the same day."""
        if self.cron is not None:
            return all(field.isdecimal() for field in self.cron.split()[:2])
        return self.calendar is not None

    @property
    def in_words(self) -> str:
        """The schedule as people say it."""
        if self.cron is not None:
            return f"cron {self.cron} ({self.timezone})"
        if self.calendar is not None:
            return f"{self.calendar}, {self.at} ({self.timezone})"
        return f"after each update of {self.asset}"

    def after(self, moment: datetime) -> datetime:
        """Find the calendar's next moment.

        Args:
            moment: A moment with its time zone.

        Returns:
            The first moment after it.
        """
        return min(found for found in self._near(moment) if found > moment)

    def until(self, moment: datetime) -> datetime:
        """Find the calendar's last moment.

        Args:
            moment: A moment with its time zone.

        Returns:
            The last moment that is not after it.
        """
        return max(found for found in self._near(moment) if found <= moment)

    def _near(self, moment: datetime) -> list[datetime]:
        """The calendar's moments in the period of this one, the period before and the period after."""
        zone, at = ZoneInfo(self.timezone), time.fromisoformat(self.at)
        days = Calendar.parse(self.calendar or "").days_near(moment.astimezone(zone).date())
        return [datetime.combine(day, at, zone) for day in days]


@dataclass(frozen=True, slots=True)
class Calendar:
    """One day of each period: the `ordinal`-th of its kind, or the last."""

    words: str
    ordinal: int
    day: str
    months: int

    @classmethod
    def parse(cls, words: str) -> Calendar:
        """Understand a phrase; one that has no day in some period is refused."""
        found = PHRASE.fullmatch(" ".join(words.lower().split()))
        ordinal = _number(found["ordinal"]) if found else None
        day = found["day"] if found else ""
        if not found or ordinal is None or day not in (*WEEKDAYS, "day", "working day"):
            raise SpecError(f"{words!r} is not a release calendar; write for example {EXAMPLES}")
        if ordinal == LAST and found["ended"]:
            raise SpecError(f"{words!r}: there is no last day after an end; write `of` instead of `after`")
        months = PERIODS[found["ended"] or found["running"]]
        most = _fewest(day, SHORTEST[months])
        if ordinal > most:
            raise SpecError(f"{words!r}: some periods have only {most}; choose an earlier one, or `last`")
        return cls(words, ordinal, day, months)

    def days_near(self, day: date) -> list[date]:
        """The calendar's days in the period before this day's, in its own, and in the next."""
        start = date(day.year, day.month - (day.month - 1) % self.months, 1)
        return [self._in_period(_shifted(start, turn * self.months)) for turn in (-1, 0, 1)]

    def _in_period(self, start: date) -> date:
        length = (_shifted(start, self.months) - start).days
        days = [start + timedelta(days=number) for number in range(length)]
        found = [day for day in days if self._counts(day)]
        return found[-1] if self.ordinal == LAST else found[self.ordinal - 1]

    def _counts(self, day: date) -> bool:
        if self.day == "working day":
            return day.weekday() < 5
        return self.day in ("day", WEEKDAYS[day.weekday()])


def _number(ordinal: str) -> int | None:
    if ordinal == "last":
        return LAST
    if ordinal in WORDS:
        return WORDS.index(ordinal) + 1
    number = int(ordinal[:-2]) if ordinal[0].isdecimal() else 0
    return number or None


def _fewest(day: str, days: int) -> int:
    """How many days of a kind each period of this many days has at least, whatever weekday it begins with."""
    if day == "day":
        return days
    weeks, rest = divmod(days, 7)
    return 5 * weeks + max(0, rest - 2) if day == "working day" else weeks


def _shifted(start: date, months: int) -> date:
    years, month = divmod(start.month - 1 + months, 12)
    return date(start.year + years, month + 1, 1)
