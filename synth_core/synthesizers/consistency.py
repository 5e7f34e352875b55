"""Noisy tables that share attributes are made to agree, and freed of negative counts; post-processing only.

PrivBayes (Section 3.2) and PrivMN (Section 4.4) describe the same steps, which go back to Hay et al. (2010) and to
PriView (Qardaji, Yang & Li 2014).

`model_in_turn` makes a model of tables that need not agree: each attribute is drawn given what an earlier table has
drawn. This is how PrivBayes turns noisy marginals into rows (Zhang et al. 2017): negative counts become 0 and tables
become conditional distributions. Nothing weighs the noise of one table against another; a graphical model does.

`agree_with_upper` makes tables of strata agree with the level above: districts that add up to their state. An upper
table was measured directly, so it has the noise of one table; the sum of its strata's tables has the noise of many.
Both are averaged by inverse variance, then the strata take up the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.synthesizers.base import sum_onto
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, Hierarchies, spread_from, sum_to


def make_consistent(
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
    number of records, takes part like any other. With `hierarchies`, a table of an attribute also informs about its
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
        precisions = 1.0 / np.array([tables[k].size * variances[k] for k in holders])
        weights = precisions / precisions.sum()
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


def non_negative(table: Floats, *, threshold: float = 0.0) -> Floats:
    """Counts below the threshold become 0 and the others shrink in proportion; the total stays (PrivMN, Section 4.4).

    With threshold 0 this is also PrivBayes' rule: set negative values to 0, normalise. A table whose total is not
    positive becomes 0.
    """
    kept = np.where(table >= threshold, table, 0.0)
    mass, total = kept.sum(), table.sum()
    if mass <= 0 or total <= 0:
        return np.zeros_like(table)
    return np.asarray(kept * (total / mass))


def nearest_non_negative(table: Floats) -> Floats:
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
    agreed = make_consistent(positive, hierarchies=hierarchies)
    return [Measurement(m.clique, np.maximum(m.noisy, 0.0), m.sigma) for m in agreed]


def reconcile(
    measurements: Sequence[Measurement], *, rounds: int = 3, hierarchies: Hierarchies = NO_HIERARCHIES
) -> list[Measurement]:
    """Tables without negative counts that nearly agree: agreement and the nearest table without them take turns.

    Each undoes a little of the other, less in every round; the last word has the second, so that one can draw from
    the result. In PrivBayes' own order and with its rule, agreement raises errors (docs/privbayes.md has figures); this
    way it lowers errors of three-way marginals by a third and more.
    """
    found = list(measurements)
    for _ in range(rounds):
        agreed = make_consistent(found, hierarchies=hierarchies, update=False)
        found = [Measurement(m.clique, nearest_non_negative(m.noisy), m.sigma) for m in agreed]
    return found


def _ordered_sum(table: Floats, clique: Clique, target: dict[str, str], hierarchies: Hierarchies) -> Floats:
    """The table's sums with axes in the target's order, whatever the clique's is."""
    own = [hierarchies.attribute(name) for name in clique if hierarchies.attribute(name) in target]
    return sum_to(table, clique, target, hierarchies=hierarchies).transpose(
        [own.index(attribute) for attribute in target]
    )


def _even(change: Floats, table: Floats, clique: Clique, target: dict[str, str], hierarchies: Hierarchies) -> Floats:
    """What each cell of the table gets when every change is divided evenly among the cells summed there."""
    cells = _ordered_sum(np.ones(table.shape), clique, target, hierarchies)
    order = list(target)
    own = [hierarchies.attribute(name) for name in clique if hierarchies.attribute(name) in target]
    share = (change / cells).transpose([order.index(attribute) for attribute in own])
    return spread_from(share, clique, target, hierarchies=hierarchies)


LEAST_PROBABILITY = 1e-12
"""Probability of a cell whose noisy count is not positive, so that its logarithm exists."""


def model_in_turn(domain: Domain, tables: Iterable[tuple[Clique, Floats]], *, total: float) -> MarkovRandomField:
    """The product of p(new attributes | attributes shared with one earlier table) over the tables, in their order.

    A table shares attributes with several earlier ones at times; then only those of the largest overlap are given,
    which keeps running intersection: no table of the model is larger than those handed in. Attributes without a table
    are uniform.
    """
    used: list[Clique] = []
    logs: list[Floats] = []
    for clique, table in tables:
        given, fresh = _split(clique, used)
        if not fresh:
            continue
        kept = tuple(a for a in clique if a in given or a in fresh)
        conditional = _conditional(sum_onto(table, clique, kept), kept, fresh)
        used.append(kept)
        logs.append(np.log(np.maximum(conditional, LEAST_PROBABILITY)))
    potentials = np.concatenate([np.zeros(0), *(log.ravel() for log in logs)])
    return MarkovRandomField(junction_tree(domain, used), used, potentials, total=total)


def order_by_dependence(tables: Sequence[tuple[Clique, Floats]]) -> list[tuple[Clique, Floats]]:
    """The tables in the order in which each adds most: new attributes that depend most on what is already there."""
    left, ordered = list(tables), list[tuple[Clique, Floats]]()
    while left:
        used = [clique for clique, _ in ordered]
        best = max(range(len(left)), key=lambda k: _gain(*left[k], used))
        ordered.append(left.pop(best))
    return ordered


def _split(clique: Clique, used: Sequence[Clique]) -> tuple[Clique, Clique]:
    known = {attribute for earlier in used for attribute in earlier}
    given = max((tuple(a for a in clique if a in earlier) for earlier in used), key=len, default=())
    return given, tuple(a for a in clique if a not in known)


def _gain(clique: Clique, table: Floats, used: Sequence[Clique]) -> float:
    """Mutual information in nats between new and given attributes; of the first attribute and the rest at the start."""
    given, fresh = _split(clique, used) if used else (clique[:1], clique[1:])
    if not fresh:
        return -np.inf
    kept = tuple(a for a in clique if a in given or a in fresh)
    joint = np.maximum(sum_onto(table, clique, kept), 0.0) + LEAST_PROBABILITY
    joint /= joint.sum()
    new, old = (tuple(k for k, a in enumerate(kept) if (a in fresh) is side) for side in (True, False))
    product = joint.sum(axis=new, keepdims=True) * joint.sum(axis=old, keepdims=True)
    return float((joint * np.log(joint / product)).sum())


def _conditional(table: Floats, clique: Clique, fresh: Clique) -> Floats:
    positive = np.maximum(table, 0.0)
    axes = tuple(k for k, a in enumerate(clique) if a in fresh)
    mass = positive.sum(axis=axes, keepdims=True)
    even = 1.0 / np.prod([table.shape[k] for k in axes])
    return np.where(mass > 0, positive / np.where(mass > 0, mass, 1.0), even)


MAX_RAKING_ROUNDS = 500
"""Upper limit of the rounds of raking; what is left after them is moved at once."""
RAKED = 1e-9
"""Raking ends when no margin is further off than this share of the total."""
LEAST = 1e-6
"""Records that every cell has at least before raking, so that a margin without records in it can still be met."""


@dataclass(frozen=True, slots=True, eq=False)
class Upper:
    """One table of the level above: a row for each of its codes, a column for each code of the attribute."""

    attribute: str
    noisy: Floats
    sigma: float


def stratum_rows(counts: Measurement, uppers: Sequence[Upper], *, upper_of: Sequence[int] | None) -> Floats:
    """The number of rows of each stratum, never negative, from noisy answers alone.

    Inside each upper code, its strata's counts and the total of each upper table estimate the same number of records;
    they are averaged by inverse variance, and the strata, being equally noisy, share the difference evenly. So
    strata add up to their upper code, and all of them to the total.
    """
    noisy = np.array(counts.noisy, dtype=np.float64)
    groups = np.zeros(noisy.size, dtype=np.int64) if upper_of is None else np.asarray(upper_of)
    for group in np.unique(groups):
        own = groups == group
        totals = [float(noisy[own].sum()), *(float(upper.noisy[group].sum()) for upper in uppers)]
        variances = [
            own.sum() * counts.sigma**2,
            *(upper.noisy.shape[1] * upper.sigma**2 for upper in uppers),
        ]
        agreed = float(np.average(totals, weights=1 / np.array(variances)))
        noisy[own] = nearest_non_negative(noisy[own] + (agreed - totals[0]) / own.sum())
    return noisy


def agree_with_upper(
    tables: Sequence[Measurement], above: Floats, *, sigma: float, rows: Sequence[float]
) -> list[Measurement]:
    """One attribute's tables of the parts of one upper code, changed so that they add up to a table of that code.

    `above` is that code's own noisy table and `rows` the parts' numbers of rows. First the least-squares answer: with
    S the sum of the parts' tables, of variance V = sum of v_p, and U the upper table of variance u, the upper table
    becomes the mean of U and S weighted by inverse variance, and part p takes v_p / V of the difference. A cell of p
    keeps the variance v_p (1 - v_p / (V + u)), its own less what it learns from all others. Then, as no count is
    negative, the nearest upper table without negative counts, and the parts raked to it and to their rows.
    """
    if sum(rows) <= 0:
        return [Measurement(m.clique, np.zeros_like(m.noisy), m.sigma) for m in tables]
    variances = np.array([m.sigma**2 for m in tables])
    whole = float(variances.sum())
    stacked = np.stack([m.noisy for m in tables])
    summed = stacked.sum(axis=0)
    upper = (above * whole + summed * sigma**2) / (whole + sigma**2)
    stacked = stacked + np.outer(variances / whole, upper - summed)
    upper = nearest_non_negative(upper + (sum(rows) - upper.sum()) / upper.size)
    raked = fit_margins(stacked, np.asarray(rows, dtype=np.float64), upper)
    left = variances * (1 - variances / (whole + sigma**2))
    return [
        Measurement(m.clique, row, math.sqrt(variance)) for m, row, variance in zip(tables, raked, left, strict=True)
    ]


def fit_margins(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """A table without negative counts that has these row sums and column sums, of which the totals are equal.

    Raking scales rows and columns in turn and converges, because every cell is positive at the start; but where a
    margin can only be met by cells that began near 0 it does so slowly. What rows are off by after the last round is
    therefore moved between them (`_moved_to_rows`), so that both margins hold to rounding however far raking came.
    """
    found = np.maximum(table, LEAST)
    for _ in range(MAX_RAKING_ROUNDS):
        found *= np.divide(rows, found.sum(axis=1), out=np.zeros_like(rows), where=rows > 0)[:, None]
        sums = found.sum(axis=0)
        found *= np.divide(columns, sums, out=np.zeros_like(columns), where=(columns > 0) & (sums > 0))
        if np.abs(found.sum(axis=1) - rows).max() <= RAKED * rows.sum():
            break
    return _moved_to_rows(found, rows)


def _moved_to_rows(table: Floats, rows: Floats) -> Floats:
    """The table with these row sums and its own column sums.

    A row with too much keeps its proportions and gives the rest away; what is given in a column stays in it and goes
    to the rows with too little, in proportion to what they lack. Givers give in all what takers lack in all, so each
    taker gets just that. Nothing becomes negative, and no cell moves by more than its row was off.
    """
    sums = table.sum(axis=1)
    kept = np.divide(np.minimum(rows, sums), sums, out=np.zeros_like(sums), where=sums > 0)[:, None] * table
    lacking = np.maximum(rows - sums, 0.0)
    given = (table - kept).sum(axis=0)
    taken = np.outer(lacking / lacking.sum(), given) if lacking.sum() > 0 else 0.0
    return np.asarray(kept + taken)
