"""A model changed as little as possible so that single attributes have given marginals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from synth_core.models.calibration import split
from synth_core.models.markov_random_field import MarkovRandomField

LEAST = 1e-12
"""Least share of a code, so that its logarithm exists."""


def raked(
    model: MarkovRandomField,
    targets: Mapping[str, NDArray[np.float64]],
    *,
    rounds: int = 50,
    close: float = 1e-7,
) -> MarkovRandomField:
    """The model nearest in relative entropy whose attributes follow the targets' shares.

    Attributes take turns: each multiplies the distribution by wanted / present share of its codes, which is the
    projection onto the distributions that have this marginal; turns converge to the projection onto all of them
    (Csiszar 1975). Ends when no marginal is further off than `close` in total variation, or after so many rounds.
    """
    wanted = {
        name: np.maximum(table / table.sum(), 0.0) for name, table in targets.items() if table.sum() > 0
    }
    for _ in range(rounds):
        furthest = 0.0
        for name, shares in wanted.items():
            present = model.marginal((name,)) / model.total
            distance = float(np.abs(present - shares).sum() / 2)
            furthest = max(furthest, distance)
            if distance > close:
                change = np.log(np.maximum(shares, LEAST)) - np.log(np.maximum(present, LEAST))
                model = _multiplied(model, name, change)
        if furthest <= close:
            break
    return model


def _multiplied(model: MarkovRandomField, name: str, change: NDArray[np.float64]) -> MarkovRandomField:
    """The model with a potential added to one attribute."""
    tables = {
        table.clique: np.asarray(table.values)
        for table in split(model.domain, model.cliques, model.potentials)
    }
    tables[name,] = tables.get((name,), 0.0) + change
    vector = np.concatenate([table.ravel() for table in tables.values()])
    return MarkovRandomField(model.tree, list(tables), vector, total=model.total)
