"""What all tests share: sample tables, quiet libraries, and nothing of the caller's own settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import seeding
from support.prepared import commands
from support.sample_tables import write_samples

pytest_plugins = ("support.busy_workspace", "support.servers", "support.work_sharing")

os.environ["MPLBACKEND"] = "Agg"
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # two test workers share the cores; more threads only get in their way
for name in [name for name in os.environ if name.startswith(("SYNTH_", "AIRFLOW_"))]:
    del os.environ[name]  # a test never touches the caller's workspace, ledger, cluster or Airflow home
os.environ["SYNTH_SPEED"] = "1"  # what a plan says does not depend on the machine
if "TEST_THREADS" in os.environ:
    os.environ["SYNTH_THREADS"] = os.environ["TEST_THREADS"]

# A loaded machine is slow, which is no fault of the code: laws are judged by their outcome, not by a clock. They are
# tried on the same cases each time; `make explore` looks for others.
LAWS = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "database": None,
    "print_blob": True,
}
settings.register_profile("test", derandomize=True, **LAWS)
settings.register_profile("explore", derandomize=False, **LAWS)
settings.load_profile("explore" if seeding.SEED else "test")
seeding.install()


def pytest_report_header() -> str:
    """Say which noise and which cases this run has."""
    return f"noise and hypothesis: seed {seeding.SEED}" + (" (make test has 0)" if seeding.SEED else "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Give each test its own noise, or the operating system's where it asks for it."""
    own = None if item.get_closest_marker("system_entropy") else item.nodeid
    with seeding.noise_of(own):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Give what several tests share its own noise: it is the same whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param', '')}]"
    with seeding.noise_of(name):
        return (yield)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the made-up tables `survey` and `census`, each a CSV file with its domain."""
    folder = tmp_path_factory.mktemp("samples")
    write_samples(folder)
    return folder


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a `synth` and a `python` that have done their imports already."""
    with commands(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


@pytest.fixture
def synth(monkeypatch, capsys):
    """Run the command in this process, which has everything imported; returns (exit code, output, error output)."""

    from synth_core.__main__ import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["synth", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
