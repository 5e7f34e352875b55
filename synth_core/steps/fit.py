"""Step 4: measure marginals through the curator and fit the model to the noisy answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from synth_core.models.estimators import estimate
from synth_core.steps.context import StepRun
from synth_core.storage.files import atomic_write
from synth_core.synthesizers.base import Tools, load_structure


def fit(run: StepRun) -> Path:
    """Let the method measure and estimate; the estimation runs where the cluster says, a GPU worker if it has one."""
    tools = Tools(estimate=partial(run.cluster.call, estimate), progress=run.progress)
    model = run.method.fit(run.curator("fit"), run.plan, load_structure(run.paths.structure), tools)
    with atomic_write(run.paths.model) as temporary:
        model.save(temporary)
    run.note("fit")
    return run.paths.model
