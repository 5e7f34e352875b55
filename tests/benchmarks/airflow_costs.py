"""What Airflow itself costs: seconds to parse a folder of 200 specs, and seconds around the work of each task.

PYTHONPATH=.:tests python tests/benchmarks/airflow_costs.py [--parsing]
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from support.live_airflow import FORM, live_airflow

from infra.local.site import Site
from synth_core.events.journal import Kind, read

REPOSITORY = Path(__file__).resolve().parents[2]
SPECS = 200
FILES = ("census_release", "scheduled_releases", "broken_release_specs")
SCHEDULES = ('"0 6 1 * *"', '"third Tuesday after quarter end"', "{asset: intake}", "null")
PARSE = """
import gc, runpy, sys, time
import airflow.dag_processing.processor, airflow.sdk
gc.freeze()
began = time.process_time()
runpy.run_path(sys.argv[1])
print(time.process_time() - began)
"""


def parsing(folder: Path) -> None:
    """CPU seconds to run each DAG file, the best of five new processes.

    Each begins as the processes of Airflow's DAG processor do: with Airflow imported, and frozen for the garbage
    collector.
    """
    site = Site(home=folder / "home", workspace=folder / "workspace")
    places = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "dags", REPOSITORY / "plugins")))
    environment = site.environment(port=0) | {"PYTHONPATH": places}
    for number in range(SPECS):
        (site.releases / f"{number}.yaml").write_text(
            f"release: series-{number}\ndataset: people\nsource: people.csv\nschema: schema.yaml\nepsilon: 1.0\n"
            f"delta: 1.0e-6\napproval: {str(number % 2 == 0).lower()}\nschedule: {SCHEDULES[number % 4]}\n"
        )
    for name in FILES:
        command = [sys.executable, "-c", PARSE, str(REPOSITORY / "dags" / f"{name}.py")]
        seconds = [
            float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout.split()[-1])
            for _ in range(5)
        ]
        print(f"parsing {name}.py with {SPECS} specs: {min(seconds):.2f} s CPU")


def overhead(folder: Path) -> None:
    """Wall seconds of a run's tasks beside the work they do, and between one task's end and the next one's start."""
    with live_airflow(folder, cap=20.0) as live:
        for release in ("warm", "measured"):
            run = live.trigger(release)
            live.finished(run)
        tasks = sorted(live.api.task_instances(FORM, run), key=lambda one: one["start_date"] or "")
        work = {
            (event.step, event.runner.map_index): event.seconds
            for event in read(live.site.workspace)
            if event.release == "measured" and event.kind is Kind.STEP
        }
    tasks = [one for one in tasks if one["state"] == "success" and (one["task_id"], one["map_index"]) in work]
    start_up = [one["duration"] - work[one["task_id"], one["map_index"]] for one in tasks]
    single = [one for one in tasks if one["map_index"] < 0]
    gaps = [
        (datetime.fromisoformat(after["start_date"]) - datetime.fromisoformat(before["end_date"])).total_seconds()
        for before, after in itertools.pairwise(single)
        if after["task_id"] not in ("evaluate", "publish")  # other tasks lie between
    ]
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"starting a task and importing what it needs: {statistics.median(start_up):.1f} s")
    print(f"from one task's end to the next one's start: {statistics.median(gaps):.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parsing(Path(scratch))
        if "--parsing" not in sys.argv:
            (Path(scratch) / "live").mkdir()
            overhead(Path(scratch) / "live")
