"""Step 3: decide from noisy scores which marginals are worth measuring."""

from __future__ import annotations

from pathlib import Path

from synth_core.files import atomic_write
from synth_core.steps.context import StepRun
from synth_core.synthesizers.base import load_scores, save_structure


def select(run: StepRun) -> Path:
    """Let the method choose its structure; for most methods this reads no counts at all."""
    structure = run.method.select(run.curator("select"), run.plan, load_scores(run.paths.agreed))
    with atomic_write(run.paths.structure) as temporary:
        save_structure(structure, temporary)
    run.note("select")
    return run.paths.structure
