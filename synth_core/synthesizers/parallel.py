"""Cliques estimated each on its own, on many workers at once, and joined into one model (ABSyn, Section VII).

Only tables inside a clique take part in its fit, so fits do not wait for each other's messages. They are joined by
conditional distributions along the junction tree, never by gluing rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.calibration import Table, split
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.synthesizers.base import Fit, Tools

LEAST = 1e-30
"""Least probability of a separator's cell that is divided by. Where a fit goes deep, some are too small for floating
point and read 0; dividing by less than they truly have would make the impossible the likeliest of all."""


def estimate_by_clique(
    domain: Domain,
    measurements: Sequence[Measurement],
    tools: Tools,
    *,
    total: float,
    level: Callable[[Domain, Sequence[Measurement]], float],
    max_passes: int,
) -> MarkovRandomField:
    """A model of all the measurements from one fit for each clique of their junction tree.

    `level` says where the fit of some measurements may stop (the `until` of the estimator).
    """
    tree = junction_tree(domain, [m.clique for m in measurements])
    fits = []
    for clique in tree.cliques:
        inside = tuple(m for m in measurements if set(m.clique) <= set(clique))
        own = domain.project(clique)
        fits.append(Fit(own, inside, {"total": total, "until": level(own, inside), "max_passes": max_passes}))
    return joined(tree, tools.estimate_each(fits), total=total)


def joined(tree: JunctionTree, models: Sequence[MarkovRandomField], *, total: float) -> MarkovRandomField:
    """The distribution in which each clique follows its own model given its separator, parents first.

    That is p(x) = product over cliques C of p_C(x_C) / p_C(x_S), S being what C shares with its parent. Each factor is
    a conditional distribution, so p sums to 1 whatever the models say of S; and it is a Markov random field: the
    models' potentials added up, minus the logarithms of their separators' marginals. Drawing rows from it is
    conditional sampling along the tree.
    """
    potentials: dict[Clique, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    for i, model in enumerate(models):
        tables = split(model.domain, model.cliques, model.potentials)
        separator = tree.separator(i)
        if separator:
            share = model.marginal(separator) / model.total
            tables.append(Table(separator, -np.log(np.maximum(share, LEAST))))
        for clique, table in tables:
            potentials[clique] = potentials.get(clique, 0.0) + table
    vector = np.concatenate([table.ravel() for table in potentials.values()])
    return MarkovRandomField(tree, list(potentials), vector, total=total)
