"""Estimation: a Markov random field from noisy measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from synth_core.arrays import Arrays, chosen, to_numpy
from synth_core.domain import Domain
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import Answered, total_of
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import Progress, balanced, maximum_entropy
from synth_core.models.problem import Problem, merge

__all__ = ["Progress", "estimate", "merge"]


def estimate(
    domain: Domain,
    measurements: Sequence[Answered],
    *,
    total: float | None = None,
    warm: MarkovRandomField | None = None,
    until: float = 1.0,
    gain: float | None = None,
    max_passes: int = 3000,
    limit_cells: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    arrays: Arrays | None = None,
) -> MarkovRandomField:
    """Fit the Markov random field of greatest entropy that explains the measurements (see `maximum_entropy`).

    Records that the domain's rules exclude get no probability.
    Residuals are weighted by the noise of each measurement. The fit ends when the weighted squared loss is at most
    `until` * answers / 2 (1.0: the loss expected from noise alone) and no single measurement is left out, or when
    it has converged, or after `max_passes` passes of belief propagation. With a `gain` there is no such
    level: the loss is weighed against the entropy, which counts less and less as long as that gains so much (see
    `balanced`). `warm` starts from another model's
    potentials; the solution it converges to does not depend on that. Without a `total` the number of records is
    estimated from the measurements.
    """
    if not measurements:
        raise ValueError("a model cannot be estimated without measurements")
    arrays = arrays or chosen()
    merged = merge(domain, measurements)
    n = max(total_of(measurements) if total is None else total, 1.0)
    problem = Problem.of(domain, merged, total=n, arrays=arrays)
    tree = junction_tree(domain, problem.cliques, limit_cells=limit_cells)
    oracle = marginal_oracle(tree, problem.cliques, arrays)
    problem = problem.within_rules(oracle)
    start = problem.multipliers(warm)
    if gain is None:
        found = maximum_entropy(problem, oracle, start, until=until, max_passes=max_passes, progress=progress)
    else:
        found = balanced(
            problem, oracle, start, gain=gain, cells=tree.cells, max_passes=max_passes, progress=progress
        )
    return MarkovRandomField(tree, problem.cliques, to_numpy(problem.potentials(found)), total=n)
