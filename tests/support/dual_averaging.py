"""Private-PGM's Algorithm 2 (accelerated dual averaging), with which the engine's estimators are compared.

No release fits with it: it needs a smooth loss, its averaged marginals have no potentials until another fit finds them,
and it takes more passes than `estimate` (tests/benchmarks/engine.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from synth_core.arrays import NUMPY, to_numpy
from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.models.calibration import split_tables
from synth_core.models.inference import Oracle, marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.losses import Loss, Problem, SquaredLoss
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import maximum_entropy
from synth_core.models.mirror_descent import Iterate


def smoothness(loss: SquaredLoss) -> float:
    """A Lipschitz constant of the gradient over distributions p, in the dual of the L1 norm.

    Each block contributes total^2 ||Q||^2 / sigma^2, because the L2 distance of two marginals is at most the
    L1 distance of their distributions.
    """
    constant = 0.0
    sigmas = loss.problem.sigmas
    for (_, matrices), begin in zip(loss.problem.queries.blocks, loss.problem.starts, strict=False):
        norms = [float(np.linalg.norm(np.asarray(m), 2)) for m in matrices or ()]
        constant += (loss.problem.total * math.prod(norms) / float(sigmas[int(begin)])) ** 2
    return constant


def accelerate_descent(
    oracle: Oracle, loss: Loss, cells: np.ndarray, *, total: float, smoothness: float
) -> Iterator[Iterate]:
    """Algorithm 2: Nesterov's dual averaging for losses with a Lipschitz gradient; `cells` is a vector of zeros.

    `smoothness` is the gradient's Lipschitz constant over distributions. The averaged marginals of an iterate belong
    to no potentials yet; `recover_model` finds them.
    """
    average = np.zeros_like(cells)
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


def recover_model(domain: Domain, loss: Loss, iterate: Iterate, *, total: float) -> MarkovRandomField:
    """The Markov random field whose marginals are those of an averaged iterate, by maximum likelihood.

    The averaged marginals are fitted as if they were measured with a noise of one thousandth of a record a cell.
    """
    tree = junction_tree(domain, loss.cliques)
    parts = split_tables(domain, loss.cliques, to_numpy(iterate.marginals))
    tables = [Measurement(part.clique, part.values, 1e-3 * math.sqrt(total)) for part in parts]
    problem = Problem.of(domain, tables, total=total, arrays=NUMPY)
    oracle = marginal_oracle(tree, loss.cliques, NUMPY)
    found = maximum_entropy(problem, oracle, problem.multipliers(None), until=1.0, max_passes=500)
    return MarkovRandomField(tree, loss.cliques, to_numpy(problem.potentials(found)), total=total)
