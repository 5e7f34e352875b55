"""Steps 2 to 4: the three phases of a method, each a step that reads and leaves a public artifact.

`score` asks the curator for noisy scores, with the counting spread over the partitions by Dask; `select` decides which
marginals are worth measuring; `fit` measures them, fits the model to the noisy answers, and buys sums of numbers where
columns declare them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from synth_core.cluster import Cluster
from synth_core.files import write_text
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import FitProgress as FitProgress
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mixture import Model, load_model
from synth_core.privacy.curator import Curator
from synth_core.release.strata import Division
from synth_core.steps.context import StepRun
from synth_core.steps.replicates import write_replicates
from synth_core.storage.counting import PartitionCounts
from synth_core.synthesizers.base import (
    Fit,
    Progress,
    Tools,
    ask_first,
    load_scores,
    load_structure,
    save_scores,
    save_structure,
    silent,
)
from synth_core.synthesizers.moments import ask_moments, count_errors, summed_domain, write_moments
from synth_core.synthesizers.replicates import LastFit

GPU_CELLS = 300_000
"""Minimum cells of a clique that is sent to a GPU worker: a guess of where that pays, never measured on a GPU."""


def score(run: StepRun) -> Path:
    """Let the method ask its first questions and keep the answers."""
    scores = ask_first(run.method, run.curator("score"), run.plan, run.earlier, run.learn_prior())
    for release in scores.set_aside:
        run.progress(f"answers of release {release} disagree with those of now and are set aside")
    if run.spec.prior and scores.reference is None:
        run.progress("the noisy answers do not bear out the public table, which is set aside")
    return run.finish("score", run.paths.scores, partial(save_scores, scores))


def select(run: StepRun) -> Path:
    """Let the method choose its structure; for most methods this reads no counts at all."""
    structure = run.method.select(run.curator("select"), run.plan, load_scores(run.paths.agreed))
    return run.finish("select", run.paths.structure, partial(save_structure, structure))


def fit(run: StepRun) -> Path:
    """Let the method measure and estimate, and keep the model."""
    return run.finish("fit", run.paths.model, fit_model(run).save)


def fit_model(run: StepRun) -> Model:
    """Let the method measure and estimate; the estimation runs where the cluster says, a GPU worker if it has one."""
    watched, structure = LastFit(), load_structure(run.paths.structure)
    tools = cluster_tools(run.cluster, run.progress)
    if run.spec.refits:
        tools = watched.observing(tools)
    model = run.method.fit(run.curator("fit"), run.plan, structure, tools)
    if run.spec.refits:
        write_replicates(run, model, watched.of(model), structure.scores.mergeable)
    return model


def buy_moments(run: StepRun) -> None:
    """Ask for the sums of all columns that declare them and write the answers; nothing without such a column.

    They are about all records, also where there are strata, and are kept as a public file for those that draw rows.
    They are asked when the model is there: what it says of the columns decides how their budget is divided.
    """
    if not run.budget.moments:
        return
    parts = len(Division.load(run.paths.division).parts) if run.spec.strata else 1
    errors = count_errors(run.method, run.domain, run.plan, parts=parts)
    counts = PartitionCounts(run.partitions, summed_domain(run.schema), run.cluster)
    curator = Curator(counts=counts, ledger=run.ledger, spending=run.spending("fit"))
    marginal = load_model(run.paths.model).marginal
    answers = ask_moments(curator, run.schema, run.budget.moments, marginal=marginal, errors=errors)
    write_text(run.paths.moments, write_moments(answers))


def cluster_tools(cluster: Cluster, progress: Progress = silent) -> Tools:
    """What a cluster lends to a method; each fit is logged with its loss, computed from noisy answers alone."""

    def estimate_and_log(*args: Any, **settings: Any) -> MarkovRandomField:
        model, end = cluster.call(_estimate_and_loss, *args, **settings)
        if end:
            progress(f"fitted in {end.passes} passes: loss {end.loss:.4g}, stops at {end.target:.4g}")
        return model

    return Tools(estimate=estimate_and_log, progress=progress, spread=partial(_estimate_each, cluster))


def _estimate_and_loss(*args: Any, **settings: Any) -> tuple[MarkovRandomField, FitProgress | None]:
    """A model and where its fit ended; runs on a worker, which cannot report progress from there."""
    seen: deque[FitProgress] = deque(maxlen=1)
    model = estimate(*args, progress=seen.append, **settings)
    return model, seen[0] if seen else None


def _estimate_each(cluster: Cluster, fits: Sequence[Fit]) -> list[MarkovRandomField]:
    sizes = [one.domain.cells() for one in fits]
    return cluster.map_by_size(_estimated, fits, sizes=sizes, large=GPU_CELLS)


def _estimated(one: Fit) -> MarkovRandomField:
    return one.by(estimate)
