"""Releases by methods whose model is no Markov random field pass through all steps."""

import numpy as np
import pytest
from support.small_release import write_release

from synth_core.errors import SourceError
from synth_core.models.mixture import load_model
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, prepare, run_step

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", ["privbayes", "privmn"])
def test_the_paper_presets_are_published(method, tmp_path):
    spec = write_release(tmp_path, method=method, preset="paper")
    address = prepare(spec, workspace=tmp_path / "workspace")
    for step in STEPS:
        run_step(step, address)
    assert verify_release(tmp_path / "workspace" / "public" / "r1") == []


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "model.npz", header=np.frombuffer(b'{"format": "x"}', dtype=np.uint8))
    with pytest.raises(SourceError, match="not a stored model"):
        load_model(tmp_path / "model.npz")
