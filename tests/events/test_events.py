"""The event log keeps every line whole, among processes and after crashes, and never stops a step."""

import json
import multiprocessing
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.errors import BudgetRefused, ClusterError, WallError
from synth_core.events import journal as events
from synth_core.events.journal import UNEXPECTED, Event, Kind, append, event_log, read, record_outcome
from synth_core.privacy.accounts import Runner

WHO = {"dataset": "people", "release": "r1", "step": "fit", "runner": Runner(dag="d", run="r")}


@pytest.mark.slow
@given(
    kind=st.sampled_from(Kind),
    text=st.text(max_size=40),
    release=st.text(max_size=10),
    seconds=st.none() | st.floats(0, 1e6),
    attempt=st.integers(1, 9),
)
@settings(max_examples=50)
def test_an_event_is_read_as_it_was_written(kind, text, release, seconds, attempt):
    at = datetime(2026, 5, 4, 3, 2, 1, 5000, tzinfo=UTC)
    event = Event(kind=kind, text=text, release=release, seconds=seconds, runner=Runner(attempt=attempt), at=at)
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event


def test_a_later_version_may_add_names():
    values = Event(kind=Kind.STEP).to_json() | {"colour": "green"}
    assert Event.from_json(values).kind is Kind.STEP


def test_events_come_back_in_order_and_a_torn_line_is_passed_over(tmp_path):
    append(tmp_path, Event(kind=Kind.STEP, step="a"))
    with event_log(tmp_path).open("a") as log:
        log.write('{"kind": "st')  # the machine lost power here
    append(tmp_path, Event(kind=Kind.STEP, step="b"))
    assert [event.step for event in read(tmp_path)] == ["a", "b"]


def test_there_are_no_events_without_a_log(tmp_path):
    assert read(tmp_path) == []


def _many(folder, name):
    for number in range(40):
        append(folder, Event(kind=Kind.STEP, step=name, text=f"{number} " + "x" * 3000))


def test_lines_of_many_processes_are_never_mixed(tmp_path):
    processes = [multiprocessing.Process(target=_many, args=(tmp_path, name)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = read(tmp_path)
    assert len(found) == len(event_log(tmp_path).read_bytes().splitlines()) == 160
    for name in "abcd":
        texts = [event.text.split()[0] for event in found if event.step == name]
        assert texts == [str(number) for number in range(40)]


def test_a_finished_step_leaves_its_seconds(tmp_path, monkeypatch):
    clock = iter([100.0, 102.5])
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with record_outcome(tmp_path, **WHO):
        pass
    (event,) = read(tmp_path)
    assert (event.kind, event.release, event.step, event.runner.run) == (Kind.STEP, "r1", "fit", "r")
    assert event.seconds == 2.5


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (BudgetRefused("no room"), Kind.REFUSAL, "no room"),
        (ClusterError("scheduler is gone"), Kind.FAILURE, "scheduler is gone"),
        (WallError("failed behind the wall"), Kind.FAILURE, "failed behind the wall"),
        (ValueError("income of Ms Smith is 41,000"), Kind.FAILURE, UNEXPECTED),
    ],
)
def test_an_error_is_recorded_and_goes_on_unchanged(tmp_path, error, kind, text):
    with pytest.raises(type(error)) as caught, record_outcome(tmp_path, **WHO):
        raise error
    assert caught.value is error
    (event,) = read(tmp_path)
    assert (event.kind, event.text) == (kind, text)
    assert "Smith" not in event_log(tmp_path).read_text()


def test_a_log_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    with record_outcome(tmp_path / "missing", **WHO):
        pass
    assert "was not recorded" in caplog.text
