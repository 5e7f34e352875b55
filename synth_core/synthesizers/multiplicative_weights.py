"""Multiplicative weights over disjoint groups of attributes: the estimation of MWEM before graphical models.

The distribution is a product of one full table for each group (Hardt, Ligett & McSherry 2012). A measurement that
spans several groups joins them, so overlapping measurements soon need a table of the whole domain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError
from synth_core.exclusions import forbidden_cells
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

Log = NDArray[np.float64]
EXCLUDED = -1e4
"""Potential of an excluded cell: finite, because potentials are multiplied by marginals of 0; the rules do the rest."""


def weights_model(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float,
    warm: MarkovRandomField | None,
    passes: int,
    limit_cells: int,
) -> MarkovRandomField:
    """Go through all measurements `passes` times, from the uniform distribution or from an earlier model of this kind.

    The cells of one marginal are disjoint queries, so their updates p ∝ p exp(q (y - q·p) / 2n) commute and are made
    together, one measurement after the other.
    """
    cliques = [*domain.rule_cliques, *(m.clique for m in measurements)]
    groups = joined(domain, cliques, limit_cells=limit_cells)
    tables: list[Log] = []
    for group in groups:
        inside = [m for m in measurements if set(m.clique) <= set(group)]
        table = _start(domain, group, warm)
        for _ in range(passes):
            for measurement in inside:
                table = _updated(table, group, measurement, total)
        tables.append(np.maximum(_log_normalised(table), EXCLUDED))
    potentials = np.concatenate([table.ravel() for table in tables])
    return MarkovRandomField(junction_tree(domain, groups), groups, potentials, total=total)


def joined(domain: Domain, cliques: Sequence[Clique], *, limit_cells: int) -> tuple[Clique, ...]:
    """The smallest disjoint groups such that every clique lies inside one; too large a group is refused."""
    groups: list[Clique] = [(attribute,) for attribute in domain]
    for clique in cliques:
        touched = [group for group in groups if set(group) & set(clique)]
        union = domain.clique(attribute for group in touched for attribute in group)
        if domain.cells(union) > limit_cells:
            raise FeasibilityError(
                f"measuring {', '.join(clique)} joins {', '.join(union)} into one table of {domain.cells(union):,} "
                f"cells, over the limit of {limit_cells:,}; use the preset 'default', which needs no such table"
            )
        groups = [group for group in groups if group not in touched] + [union]
    return tuple(groups)


def _start(domain: Domain, group: Clique, warm: MarkovRandomField | None) -> Log:
    """The product of the earlier groups that this one joins, or what the rules leave of the uniform distribution."""
    table = np.where(forbidden_cells(domain, group), -np.inf, 0.0)
    if warm is None:
        return table
    for earlier in warm.cliques:
        if set(earlier) <= set(group):
            table += warm.potential(earlier).reshape(_spread(domain, earlier, group))
    return table


def _spread(domain: Domain, clique: Clique, group: Clique) -> tuple[int, ...]:
    """The clique's shape with axes of length 1 for the rest of the group; both are in the domain's order."""
    return tuple(domain.size(attribute) if attribute in clique else 1 for attribute in group)


def _updated(table: Log, group: Clique, measurement: Measurement, total: float) -> Log:
    others = tuple(axis for axis, attribute in enumerate(group) if attribute not in measurement.clique)
    shares = np.exp(_log_normalised(table)).sum(axis=others, keepdims=True)
    step = (measurement.noisy.reshape(shares.shape) / total - shares) / 2
    return np.asarray(table + step)


def _log_normalised(table: Log) -> Log:
    peak = table.max()
    return np.asarray(table - peak - np.log(np.exp(table - peak).sum()))
