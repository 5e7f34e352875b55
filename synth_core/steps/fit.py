"""Step 4: measure marginals through the curator and fit the model to the noisy answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from synth_core.cluster import Cluster
from synth_core.files import atomic_write
from synth_core.models.estimators import estimate
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import Progress as FitProgress
from synth_core.steps.context import StepRun
from synth_core.synthesizers.base import Fit, Progress, Tools, load_structure, silent

GPU_CELLS = 300_000
"""Cliques of so many cells go to a GPU worker; a guess of where the journey pays, never measured on a GPU."""


def fit(run: StepRun) -> Path:
    """Let the method measure and estimate; the estimation runs where the cluster says, a GPU worker if it has one."""
    tools = cluster_tools(run.cluster, run.progress)
    model = run.method.fit(run.curator("fit"), run.plan, load_structure(run.paths.structure), tools)
    with atomic_write(run.paths.model) as temporary:
        model.save(temporary)
    run.note("fit")
    return run.paths.model


def cluster_tools(cluster: Cluster, progress: Progress = silent) -> Tools:
    """What a cluster lends to a method; each fit is told with its loss, which is computed from noisy answers alone."""

    def told(*args: Any, **settings: Any) -> MarkovRandomField:
        model, end = cluster.call(_estimate_and_loss, *args, **settings)
        if end:
            progress(f"fitted in {end.passes} passes: loss {end.loss:.4g}, stops at {end.target:.4g}")
        return model

    return Tools(estimate=told, progress=progress, spread=partial(_estimate_each, cluster))


def _estimate_and_loss(*args: Any, **settings: Any) -> tuple[MarkovRandomField, FitProgress | None]:
    """A model and where its fit ended; runs on a worker, which cannot tell progress from there."""
    seen: deque[FitProgress] = deque(maxlen=1)
    model = estimate(*args, progress=seen.append, **settings)
    return model, seen[0] if seen else None


def _estimate_each(cluster: Cluster, fits: Sequence[Fit]) -> list[MarkovRandomField]:
    sizes = [one.domain.cells() for one in fits]
    return cluster.map_by_size(_estimated, fits, sizes=sizes, large=GPU_CELLS)


def _estimated(one: Fit) -> MarkovRandomField:
    return one.by(estimate)
