"""Who may enter and write to the two zones, whatever the umask and whatever lies there."""

import os

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import SpecError
from synth_core.release.paths import ReleasePaths
from synth_core.steps import prepare


@pytest.mark.parametrize("zone", ["confidential", "confidential/r1"])
def test_a_zone_that_is_a_symbolic_link_is_refused_and_its_target_stays_as_it_is(tmp_path, zone):
    spec = write_release(tmp_path, method="independent")
    open_to_all = tmp_path / "elsewhere"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    link = tmp_path / "workspace" / zone
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(open_to_all)
    with pytest.raises(SpecError, match="is a symbolic link; mount the other disk there"):
        prepare(spec, workspace=tmp_path / "workspace")
    assert list(open_to_all.iterdir()) == []
    assert open_to_all.stat().st_mode & 0o777 == 0o755


def test_nothing_public_can_be_written_by_everybody(tmp_path):
    before = os.umask(0)
    try:
        run_all(write_release(tmp_path, method="independent", csv=True), tmp_path / "workspace")
    finally:
        os.umask(before)
    public = ReleasePaths(tmp_path / "workspace", "r1").public
    there = [public.parent, public, *public.rglob("*")]
    assert [path for path in there if path.stat().st_mode & 0o002] == []
    assert len(there) > 10
