"""The hosts of `make topology`: they reach each other and nothing else, and what goes wrong is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.site import Site, SiteError
from infra.topology import hosts, postgres, run
from synth_core.ledger.sql import open_ledger

REPOSITORY = Path(__file__).resolve().parents[2]

HERE = hosts.Host("here", "127.0.0.1", keeper=0)
TWO_HOSTS = """
import os, subprocess, sys, urllib.request
from pathlib import Path
from infra.local.services import wait_until
from infra.topology.hosts import bridge, host

folder = Path(sys.argv[1])
bridge()
with host("a", 2, log=folder / "a") as a, host("b", 3, log=folder / "b") as b:
    web = [sys.executable, "-m", "http.server", "8000", "--bind", a.address, "--directory", str(folder)]
    fetch = f"import urllib.request as u; print(u.urlopen('http://{a.address}:8000/', timeout=60).status)"
    ask = b.inside([sys.executable, "-c", fetch])
    with a.runs(web, env=os.environ, log=folder / "web") as running:
        wait_until(lambda: subprocess.run(ask, capture_output=True).stdout == b"200\\n", service=running)
    routes = subprocess.run(b.inside(["ip", "route"]), capture_output=True, text=True).stdout.splitlines()
print(*routes, sep="\\n")
"""


@pytest.mark.slow
def test_hosts_reach_each_other_and_nothing_else_or_it_says_what_is_missing(tmp_path):
    if subprocess.run([*hosts.SEPARATE, "true"], capture_output=True, check=False).returncode:
        with pytest.raises(SiteError, match=r"namespaces are not permitted here .*; run it as root"):
            hosts.restart_apart("nothing")
        return
    command = [*hosts.SEPARATE, sys.executable, "-c", TWO_HOSTS, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    (route,) = done.stdout.splitlines()
    assert route.startswith(f"{hosts.NETWORK}.0/24 dev eth0"), "there is a way out"


def test_without_permission_it_says_so(monkeypatch):
    monkeypatch.setattr(hosts, "SEPARATE", ("sh", "-c", "echo unshare failed: not permitted >&2; exit 1"))
    with pytest.raises(SiteError, match=r"namespaces are not permitted here \(unshare failed.*; run it as root"):
        hosts.restart_apart("nothing")


def test_a_network_that_cannot_be_made_is_an_error():
    with pytest.raises(SiteError, match="ip link delete no-such-cable: "):
        hosts._ip("link", "delete", "no-such-cable")


def test_a_database_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "_is_root", lambda: False)
    monkeypatch.setattr(postgres, "program", lambda _: "false")
    with pytest.raises(SiteError, match="initdb: "):
        postgres._initialise_with_password(tmp_path / "data", "secret")
    assert not (tmp_path / "password").exists()


def test_a_command_that_fails_on_a_host_is_an_error(monkeypatch):
    monkeypatch.setattr(hosts.Host, "inside", lambda _, command: ["sh", "-c", "echo no database >&2; exit 1"])
    with pytest.raises(SiteError, match=r"airflow db migrate failed on host here:\nno database"):
        run._once(HERE, ["airflow", "db", "migrate"], env={})


def test_a_release_that_does_not_verify_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("synth_core.release.verify.verify_release", lambda _: ["a file is missing"])
    site = Site(tmp_path / "home", tmp_path / "workspace", ledger=f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    open_ledger(site.workspace, site.ledger, create=True).accounts()
    with pytest.raises(SiteError, match="does not verify: a file is missing"):
        run.verify(site, str(tmp_path / "workspace" / "confidential" / "r1" / "release.yaml"))


def test_errors_end_the_program_with_one_line(monkeypatch, capsys):
    def refuse(module: str) -> None:
        raise SiteError("network namespaces are not permitted here")

    monkeypatch.setattr(run, "restart_apart", refuse)
    monkeypatch.setattr(run, "stop_on_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["run"])
    assert run.main() == 1
    assert capsys.readouterr().out == "make topology: network namespaces are not permitted here\n"
