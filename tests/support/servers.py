"""Servers that all tests of a run share, whichever process a test runs in: one PostgreSQL, one Chromium.

Each is started by the first test that needs it. PostgreSQL serves both workers of a run and is ended by the process
that started the workers, so that a worker that dies leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL

from infra.local.services import Service, wait_until
from infra.topology.postgres import OWNER, answers, initialise, serve_command

PLACE = "TEST_SERVERS"
"""Variable with the folder of this run's servers, which the workers inherit."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--window-size=1280,2000", "--force-prefers-reduced-motion",
)  # fmt: skip
NO_BROWSER = "Chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
PATIENCE = 300.0
"""Seconds that a server may take to start or to end on a machine that is busy with other work."""

numbers = itertools.count(1)


def pytest_configure() -> None:
    """Names the folder of this run's servers; a worker has it from the process that started it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ[PLACE] = str(Path(tempfile.gettempdir()) / f"servers-{os.getpid()}")


def pytest_unconfigure() -> None:
    """Ends the servers of this run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    folder = Path(os.environ.pop(PLACE))
    if (about := folder / "postgres.json").exists():
        _end(json.loads(about.read_text(encoding="utf-8"))["pid"])
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> URL:
    """The address of the run's PostgreSQL server, as its administrator."""
    folder = Path(os.environ[PLACE])
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        about = folder / "postgres.json"
        if not about.exists():
            about.write_text(json.dumps({"pid": _start_postgres(folder)}), encoding="utf-8")
    return _address(folder)


def create_database(server: URL) -> str:
    """Returns the address of a new and empty database."""
    name = _name("database")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


def create_schema(server: URL) -> str:
    """Returns the address of a new and empty schema, which is quicker to make than a database."""
    name = _name("schema")
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    engine.dispose()
    mine = server.update_query_dict({"options": f"-csearch_path={name}"})
    return mine.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium that keeps its console's messages, where it is installed."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def window(browser: Any) -> Iterator[Any]:
    """The shared browser, with what others have done to its window and console forgotten."""
    browser.get("about:blank")
    browser.get_log("browser")
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def installed_browser() -> tuple[str | None, str | None]:
    """Returns where Chromium and its driver are; None for what is not installed."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None), shutil.which("chromedriver")


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Chromium with a profile of its own for the time of a `with` block."""
    from selenium import webdriver

    binary, driver = installed_browser()
    if not binary or not driver:
        pytest.skip(NO_BROWSER)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*BROWSER_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.command_executor.client_config.timeout = PATIENCE
    opened.set_page_load_timeout(PATIENCE)
    try:
        yield opened
    finally:
        opened.quit()


def _name(kind: str) -> str:
    """A name that no other test of the run has."""
    return f"{kind}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{next(numbers)}"


def _address(folder: Path) -> URL:
    return URL.create("postgresql+psycopg2", OWNER, database="postgres", query={"host": str(folder)})


def _start_postgres(folder: Path) -> int:
    """Starts the server in a session of its own and returns the number of its process."""
    initialise(folder / "data", "--auth=trust")
    folder.chmod(0o1777)  # its socket lies here, whoever it runs as
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "max_connections": "200",
        "fsync": "off",  # what is lost with the machine is thrown away a few minutes later
    }
    log = folder / "postgres.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            serve_command(folder / "data", settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    engine = create_engine(_address(folder))
    wait_until(lambda: answers(engine), service=Service("PostgreSQL", process, log), seconds=PATIENCE)
    engine.dispose()
    return process.pid


def _end(pid: int) -> None:
    """Ends the server at once, whoever is still connected, and waits until it is gone."""
    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=PATIENCE)
    except psutil.NoSuchProcess:
        pass
