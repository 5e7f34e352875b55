"""The method that the handbook shows is a method: it passes the suite that every method passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.page_blocks import blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "add-a-method.md"
REGISTERED = """
import sys

import chain
from synth_core.synthesizers.methods import METHODS, Method

sys.modules["synth_core.synthesizers.chain"] = chain
METHODS["chain"] = {entry}
"""


def test_the_method_of_the_page_passes_the_conformance_suite(tmp_path):
    files = {block.title: block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.title}
    (tmp_path / "chain.py").write_text(files["chain.py"])
    (tmp_path / "registered.py").write_text(REGISTERED.format(entry=files["entry.py"].strip()))
    suite = "tests/synthesizers/test_conformance.py"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "registered",
            "-p",
            "no:cacheprovider",
            suite,
            "-k",
            "chain",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "9 passed" in done.stdout, done.stdout[-3000:]
