"""Builds the wheel, installs it into empty environments and uses it there: `make wheel`.

Three environments, with the versions of requirements.lock: the core alone, whose packages and megabytes have a limit;
the command line, which makes a release and verifies it; and Airflow, which must list our plugins and parse our DAGs.
It needs a package index and about 3 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_PACKAGES = 35
"""Packages that the core alone may bring, itself included."""
MAX_MEGABYTES = 600
"""Size of the files in its site-packages without bytecode; a disk with blocks of 4 KiB takes 3 % more for them."""
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "synth_core", "plugins")
PLUGINS = {"privacy_budget", "release_schedule", "release_watch"}
UV = Path(sys.executable).with_name("uv")

SYNTHESIZE = """
import numpy as np, pandas as pd
from synth_core import Schema, synthesize
codes = np.random.default_rng(1).integers((2, 3, 4), size=(5000, 3))
codes[:, 1] = np.where(codes[:, 2] > 1, codes[:, 0], codes[:, 1])
frame = pd.DataFrame(codes, columns=list("abc"))
release = synthesize(frame, Schema.from_sizes({"a": 2, "b": 3, "c": 4}), epsilon=1.0, delta=1e-6)
assert list(release.table) == list("abc") and 4500 < len(release.table) < 5500, release.table.shape
print(f"synthesize: {len(release.records)} records of the ledger")
"""
PARSE = """
import sys
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
folder = Path(sys.argv[1])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
print(f"DAGs that parse: {', '.join(sorted(bag.dags))}")
assert bag.dags
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment into which the wheel was installed."""

    folder: Path

    def run(self, *command: str, **variables: str) -> str:
        """Run a program of the environment; returns what it printed, and ends the check where it fails."""
        ended = self.ended(*command, **variables)
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)[:200]}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def ended(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with nothing of the caller's Python or settings."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SYNTH_", "AIRFLOW_", "VIRTUAL"))}
        program, *arguments = command
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            env={**own, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def packages(self) -> int:
        """How many packages are installed."""
        listed = _uv("pip", "list", "--format", "json", "--python", str(self.folder / "bin" / "python"))
        return len(json.loads(listed))

    @property
    def megabytes(self) -> int:
        """Size of what is installed."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        return int(
            subprocess.run(
                ["du", "--apparent-size", "-sm", site], capture_output=True, text=True, check=True
            ).stdout.split()[0]
        )


def build(root: Path, scratch: Path) -> Path:
    """The wheel of the sources as they are, built from a copy: setuptools leaves files behind."""
    copy = scratch / "source"
    copy.mkdir()
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(root / name, copy)
    _uv("build", "--quiet", "--wheel", "--out-dir", str(scratch), str(copy))
    (wheel,) = scratch.glob("*.whl")
    return wheel


def install(wheel: Path, extra: str, *, lock: Path, scratch: Path) -> Environment:
    """A new environment with the wheel and an extra of it, and nothing else."""
    folder = scratch / (extra or "core")
    pins = scratch / "pins.txt"
    pins.write_text("\n".join(re.findall(r"^[\w.-]+==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE)))
    _uv("venv", "--quiet", "--python", sys.executable, str(folder))
    asked = f"synth-core[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    _uv("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "-c", str(pins), asked)
    made = Environment(folder)
    _tell(f"{extra or 'core'}: {made.packages} packages, {made.megabytes} MB")
    return made


def check_core(core: Environment) -> None:
    """The core is light, synthesizes, and says what its command would need."""
    if core.packages > MAX_PACKAGES or core.megabytes > MAX_MEGABYTES:
        raise SystemExit(f"the core may bring {MAX_PACKAGES} packages and {MAX_MEGABYTES} MB")
    _tell(core.run("python", "-c", SYNTHESIZE).strip())
    refused = core.ended("synth", "init", "x")
    if (refused.returncode, refused.stderr) != (2, "synth: this needs typer; install synth-core[cli]\n"):
        raise SystemExit(f"synth without its packages: {refused}")


def check_command(cli: Environment) -> None:
    """The command makes a release and verifies it."""
    folder = cli.folder / "example"
    cli.run("synth", "init", str(folder), "--rows", "3000")
    cli.run("synth", "run", str(folder / "release.yaml"))
    (published,) = (folder / "workspace" / "public").glob("*/manifest.json")
    _tell(cli.run("synth", "verify", str(published.parent)).strip())


def check_airflow(airflow: Environment) -> None:
    """Airflow lists our plugins and parses the DAGs that the command writes."""
    home, dags = airflow.folder / "home", airflow.folder / "dags"
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "SYNTH_WORKSPACE": str(airflow.folder / "workspace"),
    }
    airflow.run("synth", "airflow-dags", str(dags))
    airflow.run("airflow", "db", "migrate", **settings)
    listed = {plugin["name"] for plugin in json.loads(airflow.run("airflow", "plugins", "-o", "json", **settings))}
    _tell(f"plugins: {', '.join(sorted(listed))}")
    if missing := PLUGINS - listed:
        raise SystemExit(f"Airflow does not list {', '.join(sorted(missing))}")
    _tell(airflow.run("python", "-c", PARSE, str(dags), **settings).strip().splitlines()[-1])


CHECKS = {"": check_core, "cli": check_command, "airflow": check_airflow}
"""What is tried with each extra."""


def main(arguments: Sequence[str]) -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder, which is filled")
    parser.add_argument("--extras", default=",".join(CHECKS), help="comma-separated; the core is the empty one")
    given = parser.parse_args(arguments)
    scratch = given.scratch.resolve()
    wheel = build(given.root.resolve(), scratch)
    _tell(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} kB")
    for extra in given.extras.split(","):
        start = time.monotonic()
        CHECKS[extra](install(wheel, extra, lock=given.root / "requirements.lock", scratch=scratch))
        _tell(f"{extra or 'core'}: {time.monotonic() - start:.0f} s")


def _uv(*arguments: str) -> str:
    ended = subprocess.run([str(UV), *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"uv {' '.join(arguments)}:\n{ended.stderr}")
    return ended.stdout


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
