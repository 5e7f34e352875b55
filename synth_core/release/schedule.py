"""When the releases of a spec are made: by cron, by a calendar in words, or when an upstream asset is updated."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from synth_core.errors import SpecError
from synth_core.release.calendar import Calendar

CRON = re.compile(r"\S+( \S+){4}")


class Schedule(BaseModel):
    """Exactly one of cron, calendar and asset; a plain text in a spec is a cron line or a calendar."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cron: str | None = Field(default=None, description="five cron fields, such as `0 6 1 * *`")
    calendar: str | None = Field(default=None, description="such as `third Tuesday after quarter end`")
    at: str = Field(default="00:00", description="time of day for a calendar, HH:MM")
    timezone: str = Field(default="UTC", description="time zone of cron or calendar, such as Europe/Vienna")
    asset: str | None = Field(
        default=None, description="name of an Airflow asset; each update makes a release"
    )
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
        """The calendar's first moment after this one."""
        calendar = Calendar.parse(self.calendar or "")
        day = calendar.after(moment.astimezone(ZoneInfo(self.timezone)).date() - timedelta(days=1))
        found = self._on(day)
        return found if found > moment else self._on(calendar.after(day))

    def until(self, moment: datetime) -> datetime:
        """The calendar's last moment that is not after this one."""
        calendar = Calendar.parse(self.calendar or "")
        day = calendar.until(moment.astimezone(ZoneInfo(self.timezone)).date())
        found = self._on(day)
        return found if found <= moment else self._on(calendar.until(day - timedelta(days=1)))

    def _on(self, day: date) -> datetime:
        return datetime.combine(day, time.fromisoformat(self.at), ZoneInfo(self.timezone))
