"""A fresh clone where no package index answers: every message says what to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9/simple"
"""The port that discards: nothing listens there."""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["setup", "demo", "up"])
def test_without_packages_it_says_how_to_bring_them(tmp_path, target):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE"))}
    nothing = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0", "UV_NO_CACHE": "1"}
    done = subprocess.run(["make", target], cwd=tmp_path, env=kept | nothing, capture_output=True, text=True)
    assert done.returncode
    assert done.stdout == "", "a recipe is no message"
    assert "{ echo" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("make: ")]
    assert "packages could not be installed" in said[0]
    assert "PIP_INDEX_URL=URL UV_DEFAULT_INDEX=URL make setup" in said[1]
    assert "pip download uv==" in said[2]
    assert f"PIP_FIND_LINKS={tmp_path}/wheels" in said[3]
