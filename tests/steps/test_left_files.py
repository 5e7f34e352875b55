"""What a killed step leaves is removed by the next one, and never under the hands of another that is at work."""

import signal
import subprocess
import sys

import pytest
from support.small_release import run_all, write_release

from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import check_release
from synth_core.steps import STEPS, prepare, run_step
from synth_core.steps.context import open_run

ENDED = """
import os, signal, sys
from synth_core.storage import ingest
from synth_core.__main__ import main

write = ingest.write_codes

def write_and_end(codes, path):
    write(codes, path)
    os.kill(os.getpid(), signal.SIGTERM)

ingest.write_codes = write_and_end
main()
"""


@pytest.fixture
def left(tmp_path):
    """A sampled release, and what killed steps have left in its two zones."""
    address = run_all(write_release(tmp_path, method="independent"), tmp_path / "workspace", steps=STEPS[:5])
    paths = ReleasePaths.of_address(address)
    files = [
        paths.confidential / ".encoded-killed" / "part-00000.parquet",
        paths.confidential / ".judged-killed" / "encoded" / "part-00000.parquet",
        paths.confidential / ".evaluation-12345678.json",
        paths.draft / ".model-12345678.npz",
        paths.extract / ".part-00000-12345678.parquet",
    ]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rows")
    return address, paths, files


def hidden(paths):
    return [path for path in paths.workspace.rglob(".*") if path.name not in (".keys", ".drafts")]


def test_the_next_step_removes_what_killed_ones_left(left):
    address, paths, _ = left
    run_step("evaluate", address)
    assert hidden(paths) == []
    run_step("publish", address)
    assert check_release(paths.public).sound


def test_nothing_is_removed_while_another_step_is_at_work(left):
    address, paths, files = left
    with open_run(address):
        kept = paths.confidential / ".of-the-other"
        kept.write_text("under way")
        with open_run(address):
            assert kept.exists()
    assert not any(path.exists() for path in files)
    with open_run(address):
        assert not kept.exists()


def test_what_is_published_is_not_touched(left):
    address, paths, _ = left
    run_step("evaluate", address)
    run_step("publish", address)
    stray = paths.public / "extract" / ".stray"
    stray.write_text("not ours")
    run_step("publish", address)
    assert stray.exists()


@pytest.mark.slow
def test_a_terminated_command_leaves_no_encoded_rows_and_goes_on_later(tmp_path):
    spec = write_release(tmp_path, method="independent")
    ReleaseSpec.parse(spec).save(tmp_path / "release.yaml")
    command = [sys.executable, "-c", ENDED, "run", str(tmp_path / "release.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert "Traceback" not in ended.stderr
    paths = ReleasePaths(tmp_path / "workspace", "r1")
    assert hidden(paths) == []
    assert not paths.encoded.exists()
    address = prepare(tmp_path / "release.yaml", workspace=tmp_path / "workspace")
    for step in STEPS:
        run_step(step, address)
    assert check_release(paths.public).sound
