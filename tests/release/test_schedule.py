"""Schedules of a spec: what may be written, when releases are due, and how a folder of specs is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.errors import SpecError
from synth_core.release.schedule import Schedule
from synth_core.release.spec import ReleaseSpec, date_release, read_releases

BASIC = {
    "release": "q",
    "dataset": "people",
    "source": "a.csv",
    "schema": "s.yaml",
    "epsilon": 1,
    "delta": 1e-6,
}
VIENNA = {"calendar": "third Tuesday after quarter end", "at": "09:30", "timezone": "Europe/Vienna"}


def spec(**changes) -> ReleaseSpec:
    return ReleaseSpec.parse({**BASIC, **changes})


def test_plain_text_is_a_cron_line_or_a_calendar():
    assert spec(schedule="0 6 1 * *").schedule.cron == "0 6 1 * *"
    assert spec(schedule="*/5  * * * *").schedule.cron == "*/5 * * * *"
    assert spec(schedule="third Tuesday after quarter end").schedule.calendar == VIENNA["calendar"]
    assert spec(schedule={"asset": "intake"}).schedule.in_words == "after each update of intake"
    assert spec(schedule=VIENNA).schedule.in_words.endswith("quarter end, 09:30 (Europe/Vienna)")
    assert spec().schedule is None


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        ("whenever", "schedule.*is not a release calendar"),
        ({"cron": "0 6 *"}, "is not a cron line"),
        ({"calendar": "third Tuesday of month", "at": 570}, 'in quotes: at: "09:30"'),
        ({"calendar": "third Tuesday of month", "at": "24:00"}, "HH:MM"),
        ({"calendar": "third Tuesday of month", "timezone": "Mars/Base"}, "is not a time zone"),
        ({"calendar": "third Tuesday of month", "timezone": "Europe"}, "is not a time zone"),
        ({"cron": "0 6 1 * *", "asset": "intake"}, "exactly one of cron, calendar and asset"),
        ({"timezone": "UTC"}, "exactly one of"),
        ({"cron": "0 6 1 * *", "uri": "s3://x"}, "uri belongs to an asset"),
        ({"every": "day"}, "every"),
    ],
)
def test_a_wrong_schedule_is_refused_in_one_line(schedule, line):
    with pytest.raises(SpecError, match=line) as refusal:
        spec(schedule=schedule)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("hours", "fine"), [(6, True), (0, False), (9000, False)])
def test_a_deadline_is_between_nothing_and_a_year(hours, fine):
    if fine:
        assert spec(deadline_hours=hours).deadline_hours == hours
    else:
        with pytest.raises(SpecError, match="deadline_hours"):
            spec(deadline_hours=hours)


@given(st.datetimes(datetime(2020, 1, 1), datetime(2050, 1, 1)))
@settings(max_examples=60)
def test_moments_follow_each_other_across_daylight_saving(naive):
    schedule, moment = Schedule(**VIENNA), naive.replace(tzinfo=UTC)
    before, after = schedule.until(moment), schedule.after(moment)
    assert before <= moment < after
    assert schedule.after(before) == after
    assert schedule.until(after) == after
    assert (after.hour, after.minute, after.weekday()) == (9, 30, 1)
    assert after.tzinfo == ZoneInfo("Europe/Vienna")


def test_a_release_is_named_after_the_day_in_its_own_time_zone():
    late = datetime(2026, 1, 19, 23, 30, tzinfo=UTC)
    planned = date_release(spec(schedule={**VIENNA, "at": "00:30"}), late, planned=True)
    assert planned.release == "q-2026-01-20"
    assert planned.schedule is None
    assert date_release(spec(schedule="30 23 * * *"), late, planned=True).release == "q-2026-01-19"
    assert date_release(spec(schedule="*/5 * * * *"), late, planned=True).release == "q-2026-01-19-233000"
    assert date_release(spec(schedule={"asset": "x"}), late, planned=False).release == "q-2026-01-19-233000"
    assert date_release(spec(schedule=VIENNA), late, planned=False).release == "q-2026-01-20-003000"
    assert date_release(spec(), late + timedelta(seconds=7), planned=False).release == "q-2026-01-19-233007"


def write(folder: Path, name: str, **changes) -> None:
    import yaml

    (folder / name).write_text(yaml.safe_dump({**BASIC, **changes}))


def test_a_broken_spec_is_named_and_hides_no_other(tmp_path):
    write(tmp_path, "a.yaml", release="a", schedule="0 6 1 * *")
    write(tmp_path, "b.yml", release="b")
    write(tmp_path, "copy.yaml", release="a")
    write(tmp_path, "long.yaml", release="x" * 90)
    (tmp_path / "torn.yaml").write_text("release: [")
    (tmp_path / "latin.yaml").write_bytes(b"release: \xff\xfe")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "s.yaml").write_text("columns: []")
    found = read_releases(tmp_path)
    assert [series.spec.release for series in found.series] == ["a", "b"]
    assert found.series[0].spec.source == str(tmp_path / "a.csv")
    names = [line.split(":")[0].rsplit("/", 1)[1] for line in found.broken]
    assert names == ["copy.yaml", "latin.yaml", "long.yaml", "torn.yaml"]
    assert "also in a.yaml" in found.broken[0]
    assert "at most 82 characters" in found.broken[2]


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(SpecError, match="is not a folder; create it"):
        read_releases(tmp_path / "nowhere")
