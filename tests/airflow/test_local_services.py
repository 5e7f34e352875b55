"""The processes behind `make demo` and `make up`: they start, end with all their descendants, and fail aloud."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import ClassVar

import psutil
import pytest

from infra.local import rest, services, up
from infra.local.demo import Stopwatch, compiled_kernels
from infra.local.rest import AirflowApi, ApiError, ServerBusy
from infra.local.services import dask_cluster, read_scheduler_file, service, wait_until
from infra.local.site import REPOSITORY, Dask, Site, SiteError, free_port

PATIENCE = 300
"""Seconds that a process may take to answer or to end on a machine that is busy with other work."""

STUBBORN_FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setpgid(0, 0)
print("ready", flush=True)
time.sleep(600)
"""


PROGRAM = """
import os, sys, time
from pathlib import Path
from infra.local.services import service, stop_on_signals
stop_on_signals()
try:
    with service("idle", ["sleep", "600"], env=os.environ, log=Path({log!r})) as running:
        print(running.process.pid, flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    sys.exit(0)
"""


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(home=tmp_path / "home", workspace=tmp_path / "workspace")


def gone(pids) -> bool:
    """Wait until all have ended: a killed process may take a moment to leave a busy machine."""
    running = [psutil.Process(pid) for pid in pids if services._alive(pid)]
    _, alive = psutil.wait_procs(running, timeout=PATIENCE)
    return not [process for process in alive if services._alive(process.pid)]


def test_a_scheduler_that_is_still_writing_its_file_is_waited_for(tmp_path):
    file = tmp_path / "dask.json"
    assert read_scheduler_file(file) == {}
    for begun in ("", '{"address": "tls://127'):
        file.write_text(begun)
        assert read_scheduler_file(file) == {}
    file.write_text('{"address": "tls://127.0.0.1:8786"}')
    assert read_scheduler_file(file) == {"address": "tls://127.0.0.1:8786"}


def test_a_service_ends_with_descendants_that_ignore_signals_and_changed_group(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "GRACE_SECONDS", 0.5)
    command = [sys.executable, "-c", STUBBORN_FAMILY]
    with service("family", command, env=os.environ, log=tmp_path / "log") as running:
        wait_until(lambda: running.tail().count("ready") == 2, service=running)
        members = running.members()
        assert len(members) == 2
        assert len({os.getpgid(pid) for pid in members}) == 2
    assert gone(members)


def test_a_service_ends_when_the_block_fails(tmp_path):
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        _fail_beside_a_service(tmp_path, seen)
    assert seen
    assert gone(seen)


def _fail_beside_a_service(tmp_path, seen: list[int]) -> None:
    with service("idle", ["sleep", "600"], env=os.environ, log=tmp_path / "log") as running:
        seen += running.members()
        raise ZeroDivisionError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_program_with_its_services(tmp_path, number):
    program = PROGRAM.format(log=str(tmp_path / "log"))
    # A background job of a shell ignores Ctrl-C unless it asks for it.
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as running:
        member = int(running.stdout.readline())
        running.send_signal(number)
        assert running.wait(timeout=PATIENCE) == 0
    assert gone([member])


def test_a_dead_service_is_reported_with_the_end_of_its_log(tmp_path):
    command = [sys.executable, "-c", "print('no such database'); raise SystemExit(3)"]
    with (
        service("Airflow", command, env=os.environ, log=tmp_path / "log") as running,
        pytest.raises(SiteError, match=r"Airflow stopped unexpectedly[\s\S]*no such database"),
    ):
        wait_until(lambda: False, service=running, seconds=30)


def test_a_slow_service_is_reported_too(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        service("Airflow", command, env=os.environ, log=tmp_path / "log") as running,
        pytest.raises(SiteError, match="Airflow is not ready after 0 s"),
    ):
        wait_until(lambda: False, service=running, seconds=0.2)


def test_the_dask_cluster_computes_is_closed_to_other_processes_and_ends(site):
    """On the loopback interface everybody reaches it; whoever has no certificate cannot use it."""
    from distributed import Client

    with dask_cluster(site) as running:
        address = running.address
        assert urllib.request.urlopen(running.dashboard, timeout=PATIENCE).status == 200
        assert address.startswith("tls://127.0.0.1:")
        with running.client() as client:
            client.wait_for_workers(2, timeout=PATIENCE)
            assert client.submit(sum, [1, 2, 3]).result(timeout=PATIENCE) == 6
            kept = client.run(lambda dask_worker: type(dask_worker.memory_manager.data).__name__)
            assert list(kept.values()) == ["dict", "dict"], "workers hold exact counts, and their disk is no zone"
        with pytest.raises(OSError), Client(address.replace("tls:", "tcp:"), timeout="2s"):  # noqa: PT011
            pass
        env = site.environment(port=8080, dask=running)
        done = subprocess.run([sys.executable, "-c", CONNECT], env=env, capture_output=True, text=True, check=False)
        assert done.stdout == "6\n", "tasks of Airflow may use it: " + done.stderr
    for path in (running.credentials.folder, running.credentials.key, running.credentials.certificate):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    host, port = address.removeprefix("tls://").split(":")
    with pytest.raises(OSError), socket.create_connection((host, int(port)), timeout=1):  # noqa: PT011
        pass


CONNECT = """
import os
from synth_core.cluster import connect
if __name__ == "__main__":
    with connect(os.environ["SYNTH_DASK_ADDRESS"]) as cluster:
        print(cluster.call(sum, [1, 2, 3]))
"""


def test_one_home_runs_one_airflow_at_a_time(site):
    with (
        site.locked(),
        pytest.raises(SiteError, match=r"already running in .*home; stop it first"),
        site.locked(),
    ):
        pass
    with site.locked():
        pass


def test_secrets_are_drawn_once_and_closed_to_others(site):
    first, second = site.environment(port=1), site.environment(port=1)
    kept = ["AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET"]
    assert [first[name] for name in kept] == [second[name] for name in kept]
    assert len({first[name] for name in kept}) == 3
    assert site.passwords == site.passwords
    assert len(set(site.passwords.values())) == len(site.passwords) == 3
    for name in ("secrets.json", "passwords.json"):
        assert stat.S_IMODE((site.home / name).stat().st_mode) == 0o600


def test_the_environment_is_local_quiet_and_the_callers_airflow_stays_out(site, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = site.environment(port=8080, dask=Dask("tcp://127.0.0.1:8786", "http://127.0.0.1:8787/status"))
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:8080/execution/"
    assert env["SYNTH_DASK_ADDRESS"] == "tcp://127.0.0.1:8786"
    assert env["SYNTH_DASK_DASHBOARD"] == "http://127.0.0.1:8787/status"
    assert env["SYNTH_RELEASES"] == str(site.workspace / "releases")
    assert "PYTHONDONTWRITEBYTECODE" not in env
    assert "SYNTH_DASK_ADDRESS" not in site.environment(port=8080)
    other = replace(site, database="postgresql+psycopg2://airflow", ledger="postgresql+psycopg2://ledger")
    env = other.environment(port=8080)
    assert env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].endswith("://airflow")
    assert env["SYNTH_LEDGER_URL"].endswith("://ledger")


def test_a_taken_port_is_passed_over_or_refused(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SiteError, match=f"port {port} is in use; choose another"):
            free_port(first=port)
        assert port < free_port(first=port, last=port + 50) <= port + 50
    monkeypatch.setenv("PORT", "eighty")
    with pytest.raises(SiteError, match="PORT=eighty is not a port number"):
        up._port()


class Answers(BaseHTTPRequestHandler):
    """A web server that answers as it was told to, in order."""

    script: ClassVar[list[tuple[int, object]]] = []

    def do_GET(self) -> None:
        status, body = self.script.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch) -> Iterator[AirflowApi]:
    monkeypatch.setattr(rest, "PAUSES", (0.01,))
    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield AirflowApi(f"http://127.0.0.1:{listening.server_port}", user="admin", password="x")
        listening.shutdown()
        thread.join()


def test_a_busy_server_is_asked_again_but_not_for_ever(server):
    Answers.script[:] = [
        (200, {"access_token": "t"}),
        (500, "database is locked"),
        (200, {"state": "success"}),
    ]
    assert server.run_state("census_release", "r") == "success"
    Answers.script[:] = [(500, "database is locked")] * 2
    with pytest.raises(ServerBusy, match="database is locked"):
        server.run_state("census_release", "r")


def test_a_refused_request_is_raised_with_airflows_own_words(server):
    Answers.script[:] = [(200, {"access_token": "t"}), (400, {"detail": "Invalid input for param epsilon"})]
    with pytest.raises(ApiError, match=r"400.*Invalid input for param epsilon"):
        server.trigger("census_release", {"epsilon": 0})


def test_a_dag_that_does_not_import_is_an_error_and_one_not_yet_parsed_is_not(server):
    broken = {"import_errors": [{"filename": "census_release.py", "stack_trace": "SyntaxError"}]}
    Answers.script[:] = [(200, {"access_token": "t"}), (404, "not found"), (200, broken)]
    with pytest.raises(ApiError, match=r"census_release.py: SyntaxError"):
        server.dag_is_known("census_release")
    Answers.script[:] = [(404, "not found"), (200, {"import_errors": []})]
    assert not server.dag_is_known("census_release")


def test_health_needs_every_part(server):
    parts = {"scheduler": {"status": "healthy"}, "triggerer": {"status": None}}
    Answers.script[:] = [(200, parts), (200, {"scheduler": {"status": "healthy"}})]
    assert not server.healthy()
    assert server.healthy()
    assert not AirflowApi("http://127.0.0.1:9", user="a", password="b").healthy()
    with pytest.raises(ServerBusy, match="does not answer"):
        AirflowApi("http://127.0.0.1:9", user="a", password="b").get("/dags")


def test_waiting_is_over_as_soon_as_it_is_ready(tmp_path, monkeypatch):
    pauses, answers = [], iter([False, True])
    with service("idle", ["sleep", "600"], env=os.environ, log=tmp_path / "log") as running:
        monkeypatch.setattr(services, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
        wait_until(lambda: next(answers), service=running)
        monkeypatch.undo()
    assert len(pauses) == 1


def test_the_first_screen_of_make_up_offers_the_newest_reports(site, capsys):
    """What `make demo` has published, newest first; a draft is none of it."""
    for age, name in enumerate(["demo-4", "demo-3", ".drafts", "demo 2", "demo-1"]):
        report = site.workspace / "public" / name / "report.html"
        report.parent.mkdir(parents=True)
        report.write_text("")
        os.utime(report, (1_000_000 - age, 1_000_000 - age))
    up._welcome(site, SimpleNamespace(url="http://127.0.0.1:8080"))
    links = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["report"]]
    address = "http://127.0.0.1:8080/budget/report?release="
    assert links == [f"{address}demo-4", f"{address}demo-3", f"{address}demo%202"]


def test_the_demo_says_where_its_time_went(capsys):
    watch = Stopwatch()
    for part in ("first", "second"):
        with watch.part(part):
            pass
    watch.report()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [words[0] for words in lines] == ["first", "second", "in"]
    assert all(words[-1] == "s" and words[-2].isdecimal() for words in lines)


def test_kernels_are_compiled_in_a_process_that_ends_with_the_demo(tmp_path):
    with compiled_kernels(Site(tmp_path / "home", tmp_path / "workspace")) as compiling:
        assert compiling.process.poll() is None
    assert compiling.members() == []
