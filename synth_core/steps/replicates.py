"""Replicates of the model, made when it is fitted: how far its numbers may be off, without a further question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from synth_core.files import atomic_write
from synth_core.inference.replicates import Replicates, parameters
from synth_core.measurement import Measurement
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture, Model
from synth_core.models.refined import Refined
from synth_core.steps.context import StepRun
from synth_core.synthesizers.base import Fit
from synth_core.synthesizers.replicates import STREAM, Redrawing

LEAST_ROWS = 1.0
"""Rows that a part has at least, whatever noise says."""


def write_replicates(run: StepRun, model: Model, fit: Fit | None, one_way: Sequence[Measurement]) -> None:
    """Fit the model again to redrawn noise, as often as the spec says, and keep what differs.

    Args:
        run: the release, or one part of it.
        model: the model.
        fit: how its field was fitted; None for a model of another kind, which gets no replicates.
        one_way: one-way measurements by which rare codes were merged.
    """
    count, seed = run.spec.uncertainty, run.spec.seed
    if not count:
        return
    found = [Replicates.of(model, [])]
    if fit is not None and isinstance(model, MarkovRandomField | Refined):
        redrawing = Redrawing.of(model, fit, one_way, seed=seed)
        found += run.cluster.map(_replicate, list(range(count)), redrawing=redrawing)
    _keep(run, Replicates.joined(found), f"{len(found) - 1} replicates of the model, redrawn from seed {seed}")


def join_replicates(run: StepRun, model: Mixture, parts: Sequence[Path], *, sigma: Sequence[float]) -> None:
    """Join the replicates of all parts to those of the whole, with the parts' numbers of rows redrawn.

    Args:
        run: the release.
        model: the model of all parts.
        parts: files of the parts' replicates.
        sigma: standard deviation of each part's number of rows.
    """
    count, seed = run.spec.uncertainty, run.spec.seed
    if not count:
        return
    stored = [Replicates.load(path) for path in parts]
    found = [Replicates.of(model, [])]
    if min(map(len, stored)) >= count:
        for number in range(count):
            rng = np.random.default_rng([seed, STREAM, number, len(parts)])
            own = [one.single(number) for one in stored]
            found.append(Replicates.of(model, [_joined(model, own, sigma, rng)]))
    _keep(run, Replicates.joined(found), f"{len(found) - 1} replicates of the model, rows redrawn from seed {seed}")


def _replicate(number: int, *, redrawing: Redrawing) -> Replicates:
    """One replicate, forgotten but for what is stored of it; runs on a worker."""
    return Replicates.of(redrawing.model, [redrawing.replicate(number)])


def _joined(model: Mixture, own: Sequence[Replicates], sigma: Sequence[float], rng: np.random.Generator) -> Mixture:
    """A mixture of one replicate of each part.

    A part's model was changed after its fit to agree with what is known of all parts; its replicates change alike, by
    the potentials that this has added.
    """
    components = []
    for part, one, spread in zip(model.components, own, sigma, strict=True):
        missing = len(parameters(part.model)) - one.changes.shape[1]
        changes = np.pad(one.changes, ((0, 0), (0, max(missing, 0))))[:, : len(parameters(part.model))]
        (inner,) = Replicates(changes, one.totals, (), np.zeros(0), np.zeros((1, 0), np.float32)).models(part.model)
        rows = max(part.rows + spread * rng.standard_normal(), LEAST_ROWS)
        components.append(replace(part, model=inner, rows=float(rows)))
    return replace(model, components=tuple(components))


def _keep(run: StepRun, replicates: Replicates, purpose: str) -> None:
    with atomic_write(run.paths.replicates) as temporary:
        replicates.save(temporary)
    run.note("fit", purpose)
