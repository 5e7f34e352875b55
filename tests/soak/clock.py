"""The clock of a release is set forward and back while it runs: what is charged and published does not depend on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.forked_releases import new_case, require_whole

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
STEPS = {"a day back": "-1d", "a day forward": "+1d", "ten years back": "-3650d", "ten years forward": "+3650d"}

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not LIBRARY.exists(), reason="libfaketime is not installed (Debian: libfaketime)"),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_clock_that_is_set_in_the_middle_changes_nothing(step, tmp_path, record_property):
    """Set after the first answer of a release, set back before its last step, and killed and run again in between."""
    record_property(
        "case", f"the clock is set {step} during a release, which is killed then and run again with the right time"
    )
    case = new_case(tmp_path)
    clock = tmp_path / "clock"
    clock.write_text("+0d")
    process = begun(case, clock)
    until(lambda: answered(case) or process.poll() is not None)
    clock.write_text(STEPS[step])
    until(lambda: answered(case) > 1 or case.paths.model.exists() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    clock.write_text(STEPS[step])
    again = begun(case, clock)
    until(lambda: case.paths.model.exists() or again.poll() is not None)
    clock.write_text("+0d")
    said = again.communicate()[0]
    case.said.append(said)
    assert again.returncode == 0, said
    record_property("database", "SQLite")
    record_property("given up", require_whole(case))


def begun(case, clock: Path) -> subprocess.Popen[str]:
    variables = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-m", "synth_core", "run", str(case.spec)]
    return subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def answered(case) -> int:
    return sum(record.state.value == "measured" for record in case.ledger().records())


def until(ready) -> None:
    end = time.monotonic() + 600
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)
