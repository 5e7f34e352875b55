"""Step 2: ask the curator for noisy scores; the counting is spread over the partitions by Dask."""

from __future__ import annotations

from pathlib import Path

from synth_core.files import atomic_write
from synth_core.steps.context import StepRun
from synth_core.synthesizers.base import save_scores


def score(run: StepRun) -> Path:
    """Let the method ask its first questions and keep the answers."""
    scores = run.method.score(run.curator("score"), run.plan)
    with atomic_write(run.paths.scores) as temporary:
        save_scores(scores, temporary)
    run.note("score")
    return run.paths.scores
