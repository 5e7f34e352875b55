"""The disk becomes full anywhere in a release: it is said in one line, and when there is room the release goes on.

A file system in memory has as much room as each case leaves it, from none to all that the release needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_release import SCHEMA, run_all, write_release

from synth_core.errors import SynthError
from synth_core.ledger.sql import open_ledger
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root, to mount a file system"),
]

LEVELS = 24
"""How much room there is, in parts of what the release needs."""

RELEASES = {
    "replicate tables, CSV and an internal report": {
        "method": "mst", "uncertainty": 6, "replicates": 2, "csv": True, "evaluate": "quick",
    },
    "strata": {"method": "independent", "strata": "sex", "uncertainty": 4, "csv": True, "evaluate": "none"},
    "sums inside bins": {"method": "privmrf", "uncertainty": 6, "moments_share": 0.1, "evaluate": "none"},
}  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with much room."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def limit(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def used(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize >> 10


@pytest.mark.parametrize("what", RELEASES)
def test_a_release_goes_on_when_there_is_room_again(disk, tmp_path, what, record_property):
    record_property("case", f"the disk is full somewhere in a release with {what}; run again when there is room")
    record_property("database", "SQLite")
    record_property("times", LEVELS)
    needed, failed = 0, []
    for level in range(LEVELS + 1):
        folder = disk / f"{level}"
        try:
            said = one_level(folder, what, room=needed * level // LEVELS if level else None)
        except AssertionError as problem:
            failed.append(f"{level}: {problem}")
        else:
            assert level or not said
        needed = needed or used(disk)
        shutil.rmtree(folder)
    record_property("failed", len(failed))
    assert failed == []


def one_level(folder: Path, what: str, *, room: int | None) -> str:
    """A release in a file system with this much room in kilobytes; returns what was said of it."""
    folder.mkdir()
    spec = write_release(folder, declared=SCHEMA.replace("bins: 5}", "bins: 5, moments: true}"), **RELEASES[what])
    if "moments_share" not in spec:
        (folder / "schema.yaml").write_text(SCHEMA)
    workspace, disk, said = folder / "workspace", folder.parent, ""
    if room is not None:
        limit(disk, used(disk) + room)
    try:
        run_all(spec, workspace)
    except SynthError as refusal:
        said = str(refusal)
        assert "\n" not in said, said
        assert "the disk is full" in said, said
        assert not said.startswith("a file"), "it is not named"
    finally:
        limit(disk, 100 << 10)
    run_all(spec, workspace)
    ledger, paths = open_ledger(workspace), ReleasePaths(workspace, "r1")
    assert ledger.verify() == []
    assert ledger.balance("people").held_mu2 == 0
    assert check_release(paths.public).sound
    left = [path.name for path in workspace.rglob(".*") if path.name not in (".keys", ".drafts")]
    assert left == [], left
    return said
