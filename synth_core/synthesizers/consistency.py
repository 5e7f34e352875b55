"""Noisy tables that share attributes are made to agree, and freed of negative counts; post-processing only.

PrivBayes (Section 3.2) and PrivMN (Section 4.4) describe the same steps, which go back to Hay et al. (2010) and to
PriView (Qardaji, Yang & Li 2014).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.measurement import Measurement
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, Hierarchies, spread, summed

Table = NDArray[np.float64]


def consistent(
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    hierarchies: Hierarchies = NO_HIERARCHIES,
    update: bool = True,
) -> list[Measurement]:
    """The measurements, changed so that any two of them agree on all they share (PrivBayes, Algorithm 5).

    Shared sets are taken from small to large, beginning with the empty one: the totals. On each, the tables that hold
    it agree on the mean of what they say, weighted by inverse variance (3.1), and each spreads its difference evenly
    over its cells (3.2). `total`, if given, is the total of all tables. A measurement of the empty clique, a noisy
    number of records, takes part like any other. With `hierarchies`, a table of an attribute also tells about its
    coarser versions; as these come first, agreement goes top-down.

    Agreement once reached stays: a step on B moves a table's sums over B' only through its sums over B and B'
    together, on which the tables had to agree before. Therefore B runs over the intersections of any number of
    tables, as in PriView, not only of pairs.

    `update` weighs each step by the variances that the steps before have left (3.3), and these are the sigmas of the
    result. It takes the cells of a table for independent, which after the first step they are not. Without it the noise
    as measured decides and stays the (now cautious) sigma; the result is the least-squares one, because what B
    adds to its subsets is orthogonal to all that earlier steps touched, so its noise is still the measured one.
    (Groups of unequal sizes make that approximate.)
    """
    tables = [np.array(m.noisy) for m in measurements]
    variances = [m.sigma**2 for m in measurements]
    scopes = [hierarchies.extended(m.clique) for m in measurements]
    cliques = [m.clique for m in measurements]
    for shared in shared_sets(scopes):
        holders = [k for k, scope in enumerate(scopes) if shared <= scope]
        weights = _weights([tables[k].size * variances[k] for k in holders])
        target = hierarchies.finest(shared)
        sums = [_ordered_sum(tables[k], cliques[k], target, hierarchies) for k in holders]
        agreed = sum(weight * part for weight, part in zip(weights, sums, strict=True))
        if not shared and total is not None:
            agreed = np.array(total)
        for k, weight, part in zip(holders, weights, sums, strict=True):
            tables[k] += _even(agreed - part, tables[k], cliques[k], target, hierarchies)
            if update:
                variances[k] *= variance_left(weight, cells=tables[k].size / part.size)
    return [
        Measurement(clique, table, math.sqrt(variance))
        for clique, table, variance in zip(cliques, tables, variances, strict=True)
    ]


def shared_sets(scopes: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The intersections of two or more of the sets, and the empty set, smaller before larger."""
    found: set[frozenset[str]] = {frozenset()}
    earlier: list[frozenset[str]] = []
    for scope in scopes:
        found |= {scope & other for other in (*found, *earlier)}
        earlier.append(scope)
    return sorted(found, key=lambda names: (len(names), sorted(names)))


def variance_left(weight: float, *, cells: float) -> float:
    """The factor of a cell's variance after a step on sums of `cells` cells each, in which its table had `weight`.

    This is (3.3) collected. A cell is the mean of its sum and a deviation from it; they are uncorrelated, and the mean
    has 1/cells of the variance. The step leaves the deviation and replaces the sum by the weighted mean of all
    tables' sums, whose variance is `weight` times that of the table's own. In print, w_i stands for 1 - weight in the
    first two terms, and the last one adds the other tables' parts.
    """
    return 1 - (1 - weight) / cells


def non_negative(table: Table, *, threshold: float = 0.0) -> Table:
    """Counts below the threshold become 0 and the others shrink in proportion; the total stays (PrivMN, Section 4.4).

    With threshold 0 this is also PrivBayes' rule: set negative values to 0, normalise. A table whose total is not
    positive becomes 0.
    """
    kept = np.where(table >= threshold, table, 0.0)
    mass, total = kept.sum(), table.sum()
    if mass <= 0 or total <= 0:
        return np.zeros_like(table)
    return np.asarray(kept * (total / mass))


def nearest_non_negative(table: Table) -> Table:
    """The table without negative counts that is nearest in squares and has the same total, 0 if that is negative.

    Every count gives up the same amount, but none more than it has: a projection onto a simplex. Small counts that are
    noise vanish, while large ones keep all but a little; shrinking in proportion takes most from the large ones.
    """
    total = float(table.sum())
    if total <= 0:
        return np.zeros_like(table)
    falling = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    last = int(np.flatnonzero(falling > levels)[-1])
    return np.asarray(np.maximum(table - levels[last], 0.0))


def as_published(
    measurements: Sequence[Measurement], *, hierarchies: Hierarchies = NO_HIERARCHIES
) -> list[Measurement]:
    """PrivBayes' own order (Tables 2 to 4): remove negative counts, then agree; what is negative again becomes 0."""
    positive = [Measurement(m.clique, non_negative(m.noisy), m.sigma) for m in measurements]
    agreed = consistent(positive, hierarchies=hierarchies)
    return [Measurement(m.clique, np.maximum(m.noisy, 0.0), m.sigma) for m in agreed]


def reconciled(
    measurements: Sequence[Measurement], *, rounds: int = 3, hierarchies: Hierarchies = NO_HIERARCHIES
) -> list[Measurement]:
    """Tables without negative counts that nearly agree: agreement and the nearest table without them take turns.

    Each undoes a little of the other, less in every round; the last word has the second, so that one can draw from
    the result. In PrivBayes' own order and with its rule, agreement gains next to nothing, as its authors found; this
    way it lowers errors of three-way marginals by a third and more.
    """
    found = list(measurements)
    for _ in range(rounds):
        agreed = consistent(found, hierarchies=hierarchies, update=False)
        found = [Measurement(m.clique, nearest_non_negative(m.noisy), m.sigma) for m in agreed]
    return found


def _weights(variances: Sequence[float]) -> Table:
    inverse = 1.0 / np.array(variances)
    return np.asarray(inverse / inverse.sum())


def _ordered_sum(table: Table, clique: Clique, target: dict[str, str], hierarchies: Hierarchies) -> Table:
    """The table's sums with axes in the target's order, whatever the clique's is."""
    own = [hierarchies.attribute(name) for name in clique if hierarchies.attribute(name) in target]
    return summed(table, clique, target, hierarchies=hierarchies).transpose(
        [own.index(attribute) for attribute in target]
    )


def _even(
    change: Table, table: Table, clique: Clique, target: dict[str, str], hierarchies: Hierarchies
) -> Table:
    """What each cell of the table gets when every change is divided evenly among the cells summed there."""
    cells = _ordered_sum(np.ones(table.shape), clique, target, hierarchies)
    order = list(target)
    own = [hierarchies.attribute(name) for name in clique if hierarchies.attribute(name) in target]
    share = (change / cells).transpose([order.index(attribute) for attribute in own])
    return spread(share, clique, target, hierarchies=hierarchies)
