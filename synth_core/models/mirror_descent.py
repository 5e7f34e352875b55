"""Private-PGM's own estimators, for any convex loss: Algorithm 1 (proximal) and Algorithm 2 (accelerated).

`maximum_entropy.estimate` is faster for the squared loss; these serve every other loss, and comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from synth_core.arrays import Arrays, default_backend, namespace, to_numpy
from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.calibration import split_tables
from synth_core.models.inference import Oracle, marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import Vector
from synth_core.models.losses import Loss, Problem
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import maximum_entropy

SHORTEST = 1e-30
"""A step this short is taken as it is: the loss is flat to the last digit."""


@dataclass(frozen=True, slots=True)
class Iterate:
    """One accepted step: passes made so far, the loss, the potentials, and their marginals in counts."""

    passes: int
    loss: float
    potentials: Vector
    marginals: Vector


def estimate_by_loss(
    domain: Domain,
    loss: Loss,
    *,
    total: float,
    warm: MarkovRandomField | None = None,
    until: float = -math.inf,
    max_passes: int = 1000,
    limit_cells: int | None = None,
    progress: Callable[[Iterate], None] | None = None,
    arrays: Arrays | None = None,
) -> MarkovRandomField:
    """Fit a Markov random field by any convex loss of its marginals (Private-PGM, Algorithm 1).

    Args:
        domain: the attributes, their sizes and their rules.
        loss: a convex function of marginals.
        total: number of records.
        warm: a model whose potentials the fit starts from, if it has the loss's cliques.
        until: stop when the loss is at most this.
        max_passes: upper limit of the passes of belief propagation.
        limit_cells: upper limit of the junction tree in cells; None sets none.
        progress: called with each accepted step.
        arrays: the array library; `default_backend` if it is None.

    Returns:
        The model of least loss that was seen.

    Raises:
        FeasibilityError: the junction tree would be larger than `limit_cells`.
    """
    arrays = arrays or default_backend()
    tree = junction_tree(domain, loss.cliques, limit_cells=limit_cells)
    cells = sum(map(domain.cells, loss.cliques))
    start = arrays.xp.zeros(cells)
    if warm is not None and warm.cliques == loss.cliques:
        start = arrays.xp.asarray(np.array(warm.potentials))
    iterates = descend_mirror(marginal_oracle(tree, loss.cliques, arrays), loss, start, total=total)
    best = next(iterates)
    for iterate in chain([best], iterates):
        if progress is not None:
            progress(iterate)
        best = min(best, iterate, key=lambda found: found.loss)
        if not (best.loss > until and iterate.passes < max_passes):
            break
    return MarkovRandomField(tree, loss.cliques, to_numpy(best.potentials), total=total)


def descend_mirror(
    oracle: Oracle, loss: Loss, start: Vector, *, total: float, tolerance: float = 1e-9
) -> Iterator[Iterate]:
    """Algorithm 1: entropic mirror descent, theta ← theta - eta grad L(mu).

    For a smooth loss eta is found by line search: a step is taken if the loss falls by at least half of what its
    gradient promises, and the next trial is twice as long. For others eta falls as 1/sqrt(t), which converges
    for every convex loss though not at every step. Ends when 20 steps change the loss by less than `tolerance` of it.
    """
    passes, potentials = 1, start
    marginals = oracle(potentials)[0] * total
    value, gradient = loss(marginals)
    step = _first_step(gradient)
    recent = [value]
    while len(recent) <= 20 or max(recent[-20:]) - min(recent[-20:]) > tolerance * abs(value):
        yield Iterate(passes, value, potentials, marginals)
        if not loss.smooth:
            step = _first_step(gradient) / math.sqrt(len(recent))
        while True:
            following = potentials - step * gradient
            moved = oracle(following)[0] * total
            passes += 1
            reached, slope = loss(moved)
            if not loss.smooth or value - reached >= float(gradient @ (marginals - moved)) / 2 or step < SHORTEST:
                break
            step /= 2
        potentials, marginals, value, gradient = following, moved, reached, slope
        step *= 2
        recent.append(value)
    yield Iterate(passes, value, potentials, marginals)


def accelerate_descent(
    oracle: Oracle, loss: Loss, cells: Vector, *, total: float, smoothness: float
) -> Iterator[Iterate]:
    """Algorithm 2: Nesterov's dual averaging for losses with a Lipschitz gradient; `cells` is a vector of zeros.

    `smoothness` is the gradient's Lipschitz constant over distributions. The averaged marginals of an iterate belong
    to no potentials yet; `recover_model` finds them.
    """
    xp = namespace(cells)
    average = xp.zeros_like(cells)
    following = marginals = oracle(cells)[0] * total
    passes = 1
    for t in range(1, 2**31):
        share = 2.0 / (t + 1)
        between = (1 - share) * marginals + share * following
        average = (1 - share) * average + share * loss(between)[1] * total
        potentials = average * (-t * (t + 1) / (4.0 * smoothness))
        following = oracle(potentials)[0] * total
        passes += 1
        marginals = (1 - share) * marginals + share * following
        yield Iterate(passes, loss(marginals)[0], potentials, marginals)


def recover_model(
    domain: Domain, loss: Loss, iterate: Iterate, *, total: float, arrays: Arrays | None = None
) -> MarkovRandomField:
    """The Markov random field whose marginals are those of an averaged iterate, by maximum likelihood.

    The averaged marginals are fitted as if they were measured with a noise of one thousandth of a record a cell.
    """
    arrays = arrays or default_backend()
    tree = junction_tree(domain, loss.cliques)
    parts = split_tables(domain, loss.cliques, to_numpy(iterate.marginals))
    tables = [Measurement(part.clique, part.values, 1e-3 * math.sqrt(total)) for part in parts]
    problem = Problem.of(domain, tables, total=total, arrays=arrays)
    oracle = marginal_oracle(tree, loss.cliques, arrays)
    found = maximum_entropy(problem, oracle, problem.multipliers(None), until=1.0, max_passes=500)
    return MarkovRandomField(tree, loss.cliques, to_numpy(problem.potentials(found)), total=total)


def _first_step(gradient: Vector) -> float:
    """A step that changes no potential by more than 1."""
    largest = float(namespace(gradient).max(namespace(gradient).abs(gradient)))
    return 1.0 / largest if largest > 0 else 1.0
