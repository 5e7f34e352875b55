"""What PrivMN's paper compares with and is no method here: PriView, and one that draws from a junction tree, as JTree.

PriView (Qardaji, Yang & Li, SIGMOD 2014) measures fixed views, sets of eight binary attributes that cover every pair,
makes them agree, and answers a marginal by the table of greatest entropy that has what the views say of it. It draws
no rows. The other one takes PrivMN's graph and questions, and fits a Markov random field to the noisy tables by exact
inference, where PrivMN draws from a product of conditional distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate
from synth_core.privacy.budget import Mechanism, epsilon_of, mu2_of
from synth_core.synthesizers.consistency import reconcile
from synth_core.synthesizers.methods import synthesizer
from tests.benchmarks.papers.releases import public_curator

VIEW = 8
"""Attributes of a view, as PriView recommends."""
PASSES = 100
"""Upper limit of the rounds of proportional fitting of one marginal."""
NEAR = 1e-6
"""Fitting ends when no constraint is further off, as a share of all records."""

Name = TypeVar("Name", str, int)
Marginals = Callable[[Clique], NDArray[np.float64]]


def cover_pairs(names: Sequence[Name], size: int = VIEW) -> list[tuple[Name, ...]]:
    """Sets of attributes that hold every pair between them, found greedily; tables of designs have fewer."""
    left = {frozenset(pair) for pair in combinations(names, 2)}
    views: list[tuple[Name, ...]] = []
    while left:
        view = set(min(left, key=sorted))
        while len(view) < min(size, len(names)):
            others = [name for name in names if name not in view]
            view.add(max(others, key=lambda name: sum(frozenset((name, one)) in left for one in view)))
        left -= {frozenset(pair) for pair in combinations(view, 2)}
        views.append(tuple(name for name in names if name in view))
    return views


def priview(rows: pd.DataFrame, sizes: dict[str, int], *, epsilon: float, delta: float) -> Marginals:
    """Answers of PriView: with Gaussian noise, or without a delta (0) with Laplace noise, as the paper has it."""
    domain, views = Domain.of(sizes), cover_pairs(list(sizes))
    price = (
        mu2_of(epsilon, delta)
        if delta
        else Mechanism("discrete_laplace", Fraction(1), len(views) / Fraction(str(epsilon)), len(views)).mu2()
    )
    curator = public_curator(rows, domain, price)
    agreed = reconcile(curator.measure(views, price, purpose="views", pure=not delta))
    return lambda clique: largest_entropy(domain, clique, agreed)


def largest_entropy(domain: Domain, clique: Clique, views: Sequence[Measurement]) -> NDArray[np.float64]:
    """Shares of the cells of a marginal: of greatest entropy among those with the sums that the views know of it."""
    known = {tuple(name for name in clique if name in view.clique): view for view in views}
    largest = [own for own in known if own and not any(set(own) < set(other) for other in known)]
    targets = {own: _sums(known[own].noisy, known[own].clique, own) for own in largest}
    table = np.full(domain.shape(clique), 1 / domain.cells(clique))
    for _ in range(PASSES):
        furthest = 0.0
        for own, target in targets.items():
            sums, share = _sums(table, clique, own), target / target.sum()
            furthest = max(furthest, float(np.abs(sums - share).max()))
            factor = np.divide(share, sums, out=np.zeros_like(share), where=sums > 0)
            shape = [domain.size(name) if name in own else 1 for name in clique]
            table = table * factor.reshape(shape)
        if furthest < NEAR:
            break
    return table / table.sum()


def _sums(table: NDArray[np.float64], clique: Clique, kept: Clique) -> NDArray[np.float64]:
    return np.asarray(table.sum(axis=tuple(at for at, name in enumerate(clique) if name not in kept)))


def junction_tree_rows(
    rows: pd.DataFrame, sizes: dict[str, int], *, epsilon: float, delta: float
) -> NDArray[np.integer]:
    """Rows drawn from the Markov random field that fits PrivMN's noisy tables, by exact inference."""
    domain, price = Domain.of(sizes), mu2_of(epsilon, delta)
    method, curator = synthesizer("privmn", "paper"), public_curator(rows, domain, price)
    plan = method.plan(domain, price)
    structure = method.select(curator, plan, method.score(curator, plan))
    measured = curator.measure(structure.cliques, plan.mu2("clusters"), purpose="cluster tables")
    total = structure.scores.total
    model = estimate(domain, [*measured, *structure.scores.measurements], total=total)
    return model.sample(round(total), np.random.default_rng(0))


def epsilon_for_pure(sizes: dict[str, int], pure: float, *, delta: float) -> float:
    """The epsilon to ask for so that `privmn:pure` loses at most `pure` without a delta."""
    domain, method = Domain.of(sizes), synthesizer("privmn", "pure")
    low, high = Fraction(0), mu2_of(50.0, delta)
    for _ in range(40):
        middle = (low + high) / 2
        least = method.pure_epsilon(domain, method.plan(domain, middle))
        low, high = (middle, high) if least <= pure else (low, middle)
    return epsilon_of(low, delta)
