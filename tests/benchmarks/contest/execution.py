"""Make one table in a process of its own, so that its time and memory are its own and a limit can end it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from contest.environments import python_of
from contest.jobs import OURS, PEERS, REAL, DataSet, Job
from synth_core.domain import Codes

_LOOK_EVERY = 0.1
MAX_SAID = 120
"""Characters kept of why a contestant failed."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job gave: the table, or None with the reason; and what it took, imports and compilation included."""

    table: Codes | None
    cpu_seconds: float
    wall_seconds: float
    peak_mb: float
    note: str = ""


def execute(job: Job, dataset: DataSet, *, delta: float, limit: float, cache: Path) -> Outcome:
    """Run the contestant's script on the rows it may see; after `limit` seconds of CPU time it is ended."""
    rows = dataset.training(job.fold)
    if job.contestant.library == REAL:
        return Outcome(table=rows, cpu_seconds=0, wall_seconds=0, peak_mb=0)
    with TemporaryDirectory(prefix="synth-bench-") as folder:
        order = Path(folder) / "order.json"
        np.save(Path(folder) / "rows.npy", rows)
        order.write_text(
            json.dumps(
                {
                    "rows": str(Path(folder) / "rows.npy"),
                    "out": str(Path(folder) / "table.npy"),
                    "sizes": dict(zip(dataset.domain.attributes, dataset.domain.sizes, strict=True)),
                    "method": job.contestant.method,
                    "preset": job.contestant.preset,
                    "epsilon": job.epsilon,
                    "delta": delta,
                    "seed": 1000 * job.run + (0 if job.fold is None else 1 + job.fold),
                }
            ),
            encoding="utf-8",
        )
        return _watch(_command(job, cache), order, limit=limit)


def _command(job: Job, cache: Path) -> list[str]:
    library = job.contestant.library
    interpreter = sys.executable if library == OURS else python_of(PEERS[library], cache)
    script = Path(__file__).with_name(f"with_{library.replace('-', '_')}.py")
    return [str(interpreter), "-P", str(script)]  # without the modules beside the script


def _watch(command: list[str], order: Path, *, limit: float) -> Outcome:
    started = time.monotonic()
    said = order.with_name("said.txt")
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(order)],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, **_ONE_THREAD},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2)),
        )
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - started > 4 * limit:  # asleep, not at work
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY)
    process.returncode = os.waitstatus_to_exitcode(status)
    table = order.with_name("table.npy")
    done = process.returncode == 0 and table.exists()
    return Outcome(
        table=np.load(table) if done else None,
        cpu_seconds=used.ru_utime + used.ru_stime,
        wall_seconds=time.monotonic() - started,
        peak_mb=used.ru_maxrss / 1024,
        note="" if done else _reason(process.returncode, said.read_text("utf-8", "replace"), limit=limit),
    )


def _reason(code: int, said: str, *, limit: float) -> str:
    """Why there is no table; benchmarks run on public rows, so the last thing said may be shown."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"ended after {limit:g} CPU s"
    last = said.strip().splitlines()[-1:]
    return f"failed with exit code {code}" + "".join(f": {line[:MAX_SAID]}" for line in last)
