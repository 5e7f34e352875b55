"""Release calendars in words, such as "third Tuesday after quarter end": which days they mean.

Every day a calendar names is counted from the first day of a month, quarter, half-year or year; "after quarter end" and
"of quarter" are the same count, because the day after a quarter's end is the first day of the next. A count that some
period is too short for is refused, so each period has exactly one day and the days of a calendar never change order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from synth_core.errors import SpecError

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
PERIODS = {"month": 1, "quarter": 3, "half-year": 6, "year": 12}
WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
LAST = -1
SHORTEST = {1: 28, 3: 90, 6: 181, 12: 365}
"""Days of the shortest period of so many months."""

PHRASE = re.compile(
    r"(?P<ordinal>[a-z]+|\d+(?:st|nd|rd|th)) (?P<day>working day|day|[a-z]+day) "
    r"(?:after (?P<ended>month|quarter|half-year|year) end|of (?P<running>month|quarter|half-year|year))"
)
EXAMPLES = '"third Tuesday after quarter end", "last Friday of month", "10th working day after month end"'


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

    def after(self, day: date) -> date:
        """The calendar's first day after this one."""
        start = self._start(day)
        found = self._in_period(start)
        return found if found > day else self._in_period(_shifted(start, self.months))

    def until(self, day: date) -> date:
        """The calendar's last day that is not after this one."""
        start = self._start(day)
        found = self._in_period(start)
        return found if found <= day else self._in_period(_shifted(start, -self.months))

    def _start(self, day: date) -> date:
        return date(day.year, day.month - (day.month - 1) % self.months, 1)

    def _in_period(self, start: date) -> date:
        if self.ordinal == LAST:
            day = _shifted(start, self.months) - timedelta(days=1)
            while not self._counts(day):
                day -= timedelta(days=1)
            return day
        day, count = start, int(self._counts(start))
        while count < self.ordinal:
            day += timedelta(days=1)
            count += self._counts(day)
        return day

    @property
    def _counts(self) -> Callable[[date], bool]:
        if self.day == "working day":
            return lambda day: day.weekday() < 5
        if self.day == "day":
            return lambda _: True
        return lambda day: WEEKDAYS[day.weekday()] == self.day


def _number(ordinal: str) -> int | None:
    if ordinal == "last":
        return LAST
    if ordinal in WORDS:
        return WORDS.index(ordinal) + 1
    number = int(ordinal[:-2]) if ordinal[0].isdecimal() else 0
    return number or None


def _fewest(day: str, days: int) -> int:
    """How many days of a kind each period of so many days has at least, whatever weekday it begins with."""
    if day == "day":
        return days
    weeks, rest = divmod(days, 7)
    return 5 * weeks + max(0, rest - 2) if day == "working day" else weeks


def _shifted(start: date, months: int) -> date:
    years, month = divmod(start.month - 1 + months, 12)
    return date(start.year + years, month + 1, 1)
