"""System calls of a process, watched by strace: which it makes, and its death at the one that is asked for.

strace stops a process before a call is made, so what was done up to there is on the disk and nothing after it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RENAMES = ("rename", "renameat", "renameat2")
SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "pwrite64", "writev")
SENDS = ("sendto",)
CALLS = (*RENAMES, *SYNCS, *WRITES, *SENDS)
NOT_THERE = "strace is not installed (Debian: strace)"
ATTACH_SECONDS = 60.0

_CALL = re.compile(r"^(\d+)\s+(\w+)\((.*)")


@dataclass(frozen=True, slots=True)
class Moment:
    """The n-th time that a thread makes a call, and what kind of change that is."""

    call: str
    number: int
    kind: str


def installed() -> bool:
    """Whether strace is here and may look at other processes."""
    return shutil.which("strace") is not None and os.geteuid() == 0


@contextmanager
def watched(pid: int, *options: str, log: Path) -> Iterator[None]:
    """strace beside a stopped process and its threads, for the time of a `with` block, in which the process goes on."""
    _wait(lambda: _state(pid) == "T", "the process did not stop")
    said = log.with_suffix(".attached")
    command = ["strace", "-f", "-p", str(pid), "-o", str(log), *options]
    with said.open("wb") as errors, subprocess.Popen(command, stderr=errors) as tracer:
        try:
            _wait(lambda: b"attached" in said.read_bytes(), "strace did not attach")
            os.kill(pid, signal.SIGCONT)
            yield
        finally:
            tracer.terminate()  # it leaves the process alone, and has ended if that has


def recording() -> tuple[str, ...]:
    """Options that note every call that changes something, with the names of files."""
    return ("-y", "-s", "64", "-e", f"trace={','.join(CALLS)}", "-e", "signal=none")


def killing(moment: Moment) -> tuple[str, ...]:
    """Options that kill the process when a thread of it reaches the moment."""
    return ("-e", f"trace={moment.call}", "-e", f"inject={moment.call}:signal=KILL:when={moment.number}")


def moments(log: Path) -> list[Moment]:
    """What was noted, in its order; of several threads the first that makes a call for the n-th time."""
    made: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, int], Moment] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := _CALL.match(line):
            thread, call, rest = match.groups()
            made[thread, call] += 1
            number = made[thread, call]
            found.setdefault((call, number), Moment(call, number, _kind(call, rest)))
    return list(found.values())


def _kind(call: str, rest: str) -> str:
    """A commit is what makes a transaction last: the journal of SQLite on the disk, or the word to PostgreSQL."""
    if call in SENDS:
        return "commit" if "COMMIT" in rest else "send"
    if call in RENAMES:
        return "rename"
    if call in SYNCS:
        return "commit" if "ledger.sqlite-wal" in rest else "fsync"
    return "write"


def spread(choices: list[Moment], number: int) -> list[Moment]:
    """So many of them, evenly over the whole; all, if there are no more."""
    if len(choices) <= number:
        return choices
    return [choices[k * len(choices) // number] for k in range(number)]


@contextmanager
def attacked(pid: int, moment: Moment, *, log: Path) -> Iterator[None]:
    """strace beside a process that is at work and dies at the moment, for the time of a `with` block."""
    command = ["strace", "-f", "-p", str(pid), "-o", str(log), *killing(moment)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        try:
            yield
        finally:
            tracer.terminate()


def has_died(log: Path) -> bool:
    """Whether the process was killed at its moment."""
    return log.exists() and "killed by SIGKILL" in log.read_text(encoding="utf-8", errors="replace")


def _wait(ready: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + ATTACH_SECONDS
    while not ready():
        assert time.monotonic() < end, otherwise
        time.sleep(0.005)


def _state(pid: int) -> str:
    """The letter by which Linux says what a process does: T if it was stopped; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
