"""The workspace's event log: what happened in its releases, one JSON line each, appended and never rewritten.

It holds names, steps, durations and the texts of refusals, which by contract carry no value and no count. The text of
any other exception never gets here, because it may quote data. Durations reveal something of the data's size, so the
log lies beside the two zones and is not published.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from synth_core.documents import parse_json
from synth_core.errors import ClusterError, StorageError, SynthError, WallError
from synth_core.privacy.accounts import Runner

UNEXPECTED = "stopped by an unexpected error; the runner's log of this step says more"
"""What an event says of an exception that is not ours."""

_log = logging.getLogger(__name__)


class Kind(StrEnum):
    """What an event is about."""

    STEP = "step"  # a step finished
    REFUSAL = "refusal"  # a step was refused, with a reason that asking again does not change
    FAILURE = "failure"  # a step failed
    APPROVAL = "approval"  # a person must approve a release before it is published
    DEADLINE = "deadline"  # a run takes longer than it should
    CAP = "cap"  # an account has committed much of its cap
    LIMIT = "limit"  # many refusals have depended on an account's records
    CHAIN = "chain"  # the ledger is not as it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a release, an account or the ledger."""

    kind: Kind
    dataset: str = ""
    release: str = ""
    step: str = ""
    text: str = ""
    seconds: float | None = None  # of a finished step
    level: float | None = None  # of a cap or limit: the share of it that was reached
    cap_epsilon: float | None = None
    limit: int | None = None
    runner: Runner = field(default_factory=Runner)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_json(self) -> dict[str, Any]:
        """The event as plain data, without what is not set."""
        values = asdict(self) | {"at": self.at.isoformat(timespec="milliseconds")}
        return {name: value for name, value in values.items() if value not in ("", None)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Event:
        """Read what `to_json` wrote; names that a later version added are passed over."""
        return _EVENT.validate_python(values)


_EVENT = TypeAdapter(Event)


def event_log(workspace: Path) -> Path:
    """Where a workspace keeps its events."""
    return workspace / "events.jsonl"


def append(workspace: Path, event: Event) -> None:
    """Add an event and flush it to the disk; a log that cannot be written is a warning, never a failed step."""
    line = json.dumps(event.to_json(), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    try:
        handle = os.open(event_log(workspace), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            end = os.lseek(handle, 0, os.SEEK_END)
            torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # a crash cut the line before
            os.write(handle, b"\n" + line if torn else line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        _log.warning("event %s was not recorded: %s", event.kind.value, error.strerror)


def read(workspace: Path) -> list[Event]:
    """All events, oldest first; a line that a crash tore is passed over."""
    return read_from(workspace, 0)[1]


def read_from(workspace: Path, start: int) -> tuple[int, list[Event]]:
    """The events after a number of bytes of the log, and how many bytes it has now up to the end of its last line.

    A log that is shorter than that is another one, and read from its beginning; the end then lies before `start`.
    """
    try:
        with event_log(workspace).open("rb") as file:
            if os.fstat(file.fileno()).st_size < start:
                start = 0
            file.seek(start)
            text = file.read()
    except OSError:
        return 0, []
    end = text.rfind(b"\n") + 1
    return start + end, [event for line in text[:end].splitlines() if (event := _parsed(line))]


@contextmanager
def record_outcome(workspace: Path, *, dataset: str, release: str, step: str, runner: Runner) -> Iterator[None]:
    """Record how a step ends: its duration, its refusal or its failure, which goes on to the caller unchanged."""
    start = time.monotonic()
    facts = Event(kind=Kind.STEP, dataset=dataset, release=release, step=step, runner=runner)

    def ended(kind: Kind, text: str = "") -> None:
        taken = round(time.monotonic() - start, 3)
        append(workspace, replace(facts, kind=kind, text=text, seconds=taken, at=datetime.now(UTC)))

    try:
        yield
    except Exception as error:
        ended(*_in_words(error))
        raise
    ended(Kind.STEP)


def failure_of(error: BaseException | None, *, release: str, step: str, runner: Runner) -> Event:
    """The event of a step that failed for good; only the texts of our own errors may be shown."""
    kind, text = _in_words(error)
    return Event(kind=kind, release=release, step=step, text=text, runner=runner)


def _in_words(error: BaseException | None) -> tuple[Kind, str]:
    if isinstance(error, SynthError):
        kind = Kind.FAILURE if isinstance(error, (ClusterError, StorageError, WallError)) else Kind.REFUSAL
        return kind, str(error)
    return Kind.FAILURE, UNEXPECTED


def _parsed(line: bytes) -> Event | None:
    try:
        return Event.from_json(parse_json(line))
    except ValueError:
        return None
