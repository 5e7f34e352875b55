"""Release calendars: the days they mean, that each period has one, and the phrases that are refused."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.errors import SpecError
from synth_core.release.schedule import PERIODS, WEEKDAYS, Calendar

DAYS = st.dates(date(2020, 1, 1), date(2060, 12, 31))
PHRASES = [
    "third Tuesday after quarter end",
    "last Friday of month",
    "10th working day after month end",
    "first day of half-year",
    "last working day of quarter",
    "52nd Monday of year",
    "28th day of month",
]


def day_after(calendar: Calendar, day: date) -> date:
    return min(found for found in calendar.days_near(day) if found > day)


def day_until(calendar: Calendar, day: date) -> date:
    return max(found for found in calendar.days_near(day) if found <= day)


@pytest.mark.parametrize(
    ("words", "day", "expected"),
    [
        ("third Tuesday after quarter end", date(2026, 11, 16), date(2027, 1, 19)),
        ("third Tuesday after quarter end", date(2026, 10, 19), date(2026, 10, 20)),
        ("third Tuesday after quarter end", date(2026, 10, 20), date(2027, 1, 19)),
        ("last Friday of month", date(2026, 2, 1), date(2026, 2, 27)),
        ("last Friday of month", date(2026, 2, 27), date(2026, 3, 27)),
        ("10th working day after month end", date(2026, 11, 1), date(2026, 11, 13)),
        ("First  DAY of half-year", date(2026, 1, 1), date(2026, 7, 1)),
        ("last working day of year", date(2026, 1, 1), date(2026, 12, 31)),
        ("2nd Monday of year", date(2026, 12, 31), date(2027, 1, 11)),
    ],
)
def test_the_next_day_is_the_one_on_the_wall_calendar(words, day, expected):
    assert day_after(Calendar.parse(words), day) == expected


@given(st.sampled_from(PHRASES), DAYS)
@settings(max_examples=150)
def test_before_and_after_are_neighbours_and_each_period_has_one_day(words, day):
    calendar = Calendar.parse(words)
    before, after = day_until(calendar, day), day_after(calendar, day)
    assert before <= day < after
    assert day_after(calendar, before) == after
    assert day_until(calendar, after) == after
    assert day_until(calendar, after - timedelta(days=1)) == before
    months = (after.year - before.year) * 12 + after.month - before.month
    assert after - before < timedelta(days=32 * calendar.months + 31)
    assert abs(months - calendar.months) <= calendar.months


@given(st.sampled_from([*WEEKDAYS, "day", "working day"]), st.sampled_from(list(PERIODS)), DAYS)
@settings(max_examples=100)
def test_the_largest_count_that_is_accepted_exists_in_every_period(day_name, period, day):
    def accepted(count: int) -> bool:
        try:
            Calendar.parse(f"{count}th {day_name} of {period}")
        except SpecError:
            return False
        return True

    most = max(count for count in range(1, 367) if accepted(count))
    found = day_after(Calendar.parse(f"{most}th {day_name} of {period}"), day)
    months = PERIODS[period]
    first = day_until(Calendar.parse(f"first day of {period}"), found)
    assert (found.month - 1) // months == (first.month - 1) // months


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("sometimes", "is not a release calendar; write for example"),
        ("third Blursday of month", "is not a release calendar"),
        ("umpteenth Monday of month", "is not a release calendar"),
        ("0th Monday of month", "is not a release calendar"),
        ("third Tuesday of quarter end", "is not a release calendar"),
        ("last Friday after month end", "write `of` instead of `after`"),
        ("fifth Monday of month", "some periods have only 4"),
        ("29th day of month", "some periods have only 28"),
        ("21st working day after month end", "some periods have only 20"),
    ],
)
def test_phrases_without_a_day_in_each_period_are_refused(words, line):
    with pytest.raises(SpecError, match=line):
        Calendar.parse(words)
