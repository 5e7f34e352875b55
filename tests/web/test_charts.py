"""Bars and lines stay in their boxes and keep their proportions."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.web.pages import course, stack_segments

START = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.floats(0, 1e3, allow_subnormal=False)


@given(st.lists(amounts, max_size=6), st.floats(1e-6, 1e4))
@settings(max_examples=60)
def test_a_stacked_bar_has_no_gaps_and_ends_in_its_box(values, full):
    bar = stack_segments([("part", value) for value in values], full=full)
    for before, after in pairwise(bar):
        assert abs(before.start + before.length - after.start) < 0.01
    assert all(piece.length >= 0 and piece.start + piece.length <= 100.01 for piece in bar)
    if sum(values) <= full:
        assert all(abs(piece.length - 100 * piece.value / full) < 0.01 for piece in bar)


def test_nothing_is_a_bar_of_nothing():
    assert [piece.length for piece in stack_segments([("fit", 0.0)], full=0.0)] == [0]


@given(st.lists(st.tuples(st.integers(0, 10**6), amounts, st.floats(1, 1e3)), min_size=2, max_size=50))
@settings(max_examples=60)
def test_a_course_stays_in_its_box_and_goes_forward(raw):
    points = sorted((START + timedelta(seconds=seconds), committed, cap) for seconds, committed, cap in raw)
    lines = course(points)
    if points[0][0] == points[-1][0]:
        assert lines is None
        return
    for line in (lines.committed, lines.cap):
        corners = [tuple(map(float, corner.split(","))) for corner in line.split()]
        assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in corners)
        assert [x for x, _ in corners] == sorted(x for x, _ in corners)
        assert corners[0][0] == 0
        assert corners[-1][0] == 100


def test_a_course_of_nothing_is_none():
    assert course([]) is None


def test_a_long_course_keeps_its_end():
    points = [(START + timedelta(hours=hour), float(hour), 10_000.0) for hour in range(9_999)]
    lines = course(points)
    assert len(lines.committed.split()) < 6_000
    assert lines.last == points[-1][0]
