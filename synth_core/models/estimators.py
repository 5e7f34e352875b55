"""Estimation: the Markov random field of greatest entropy that explains noisy measurements as well as noise allows.

Among all distributions whose weighted squared loss 1/2 ||(Q mu - y) / sigma||^2 is at most T, find the one of
greatest entropy. With answers and multipliers in units of their noise, the Lagrange dual of this convex problem is

    minimise over lam:  n log Z(theta(lam)) - <lam, y / sigma> + phi(||lam||),   theta(lam) = Q^T (lam / sigma),

with phi(r) = sqrt(2T) r. It is convex, its gradient costs one pass of belief propagation, and its solution is a
Markov random field: potentials come with it. Its residual is -phi'(||lam||) lam / ||lam||, so the loss at the
solution is T. Where T cannot be reached (noisy tables that contradict each other or are negative) the dual would
be unbounded; phi therefore turns quadratic where its slope reaches `RIDGE * r`, which caps the potentials and ends
at a small multiple of the entropy traded for the least possible loss. A limited-memory quasi-Newton method whose first
guess of the curvature is the Poisson one, Var(cell) = mu, needs a third of the passes of accelerated mirror descent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Arrays, chosen, namespace, to_numpy
from synth_core.domain import Clique, Domain
from synth_core.errors import SchemaError
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models.inference import Oracle, marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

Vector = Any
"""A one-dimensional float64 array of the library in use."""

RIDGE = 3e-3
"""Least weight of the entropy against the loss."""
SLACK = 0.9
"""The dual aims this far below the loss at which a fit may stop, so that it gets there in finitely many passes."""
MEMORY = 20
"""Pairs of steps and gradient changes kept by the quasi-Newton method."""
CONVERGED = 0.05
"""A gradient this small against the residual ends a fit that cannot reach its loss."""

LEFT_OUT = 10.0
"""A table with more than this many times its expected share of the loss counts as not fitted yet."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a fit stands: passes made, its loss, and the loss it may stop at."""

    passes: int
    loss: float
    target: float


def estimate(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    warm: MarkovRandomField | None = None,
    until: float = 1.0,
    max_passes: int = 1000,
    limit_cells: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    arrays: Arrays | None = None,
) -> MarkovRandomField:
    """Fit a Markov random field to the measurements.

    The fit ends when the weighted squared loss is at most `until` * cells / 2 (1.0: the loss expected from noise
    alone) and every single table is within the spread expected of its own share, or when the dual has converged,
    or after `max_passes` passes of belief propagation. `warm` starts from another model's potentials; the solution
    does not depend on it.
    """
    if not measurements:
        raise ValueError("a model cannot be estimated without measurements")
    arrays = arrays or chosen()
    merged = merge(domain, measurements)
    cliques = tuple(m.clique for m in merged)
    tree = junction_tree(domain, cliques, limit_cells=limit_cells)
    n = max(total_by_inverse_variance(list(measurements)) if total is None else total, 1.0)
    problem = Problem.of(merged, n, arrays)
    start = problem.zeros() if warm is None else problem.lifted(warm)
    solution = maximum_entropy(
        problem,
        marginal_oracle(tree, cliques, arrays),
        start,
        until=until,
        max_passes=max_passes,
        progress=progress,
    )
    return MarkovRandomField(tree, cliques, to_numpy(problem.potentials(solution)), total=n)


def merge(domain: Domain, measurements: Sequence[Measurement]) -> list[Measurement]:
    """One measurement for each clique, in the domain's axis order; repeated ones combined by inverse variance."""
    tables: dict[Clique, list[tuple[NDArray[np.float64], float]]] = {}
    for m in measurements:
        clique = domain.clique(m.clique)
        if m.noisy.shape != domain.shape(m.clique):
            raise SchemaError(
                f"the measurement of {', '.join(m.clique)} does not have the shape of its columns"
            )
        noisy = np.transpose(m.noisy, [m.clique.index(a) for a in clique])
        tables.setdefault(clique, []).append((noisy, m.sigma))
    return [Measurement(clique, *_combined(parts)) for clique, parts in tables.items()]


def _combined(parts: list[tuple[NDArray[np.float64], float]]) -> tuple[NDArray[np.float64], float]:
    precision = sum(sigma**-2 for _, sigma in parts)
    mean = sum(noisy * sigma**-2 for noisy, sigma in parts) / precision
    return np.asarray(mean, dtype=np.float64), precision**-0.5


@dataclass(frozen=True, slots=True)
class Problem:
    """Measured tables as vectors, in units of their noise."""

    cliques: tuple[Clique, ...]
    starts: NDArray[np.int64]
    answers: Vector  # y / sigma
    sigmas: Vector
    total: float

    @classmethod
    def of(cls, merged: Sequence[Measurement], total: float, arrays: Arrays) -> Problem:
        """Lay the tables out one after the other."""
        lengths = [m.noisy.size for m in merged]
        noisy = np.concatenate([m.noisy.ravel() for m in merged])
        sigmas = np.repeat([m.sigma for m in merged], lengths)
        starts = np.concatenate(([0], np.cumsum(lengths)))
        as_array = arrays.xp.asarray
        return cls(tuple(m.clique for m in merged), starts, as_array(noisy / sigmas), as_array(sigmas), total)

    def zeros(self) -> Vector:
        """Multipliers of the uniform distribution."""
        return namespace(self.answers).zeros_like(self.answers)

    def lifted(self, warm: MarkovRandomField) -> Vector:
        """The multipliers of another model where it measured the same cliques, 0 elsewhere."""
        values = np.zeros(int(self.starts[-1]))
        known = set(warm.cliques)
        for k, clique in enumerate(self.cliques):
            if clique in known:
                values[self.starts[k] : self.starts[k + 1]] = warm.potential(clique).ravel()
        return namespace(self.answers).asarray(values) * self.sigmas

    def potentials(self, multipliers: Vector) -> Vector:
        """Log potentials of the measured cliques."""
        return multipliers / self.sigmas

    def fitted(self, residual: Vector, until: float) -> tuple[float, bool]:
        """The loss, and whether it is at the level of noise with no table left out.

        A fit of greatest entropy keeps larger residuals where the dependence is strong, so a table may hold
        several times its expected share; a table that was not fitted yet, as after a warm start, holds far more.
        Half a chi-square variable with k degrees of freedom has mean k/2 and variance k/2.
        """
        squares = to_numpy(residual) ** 2
        shares = np.add.reduceat(squares, self.starts[:-1]) / 2
        expected = np.diff(self.starts) / 2
        loss = float(shares.sum())
        close = bool((shares <= LEFT_OUT * until * expected + 3 * np.sqrt(expected)).all())
        return loss, close and loss <= until * float(expected.sum())


@dataclass(frozen=True, slots=True)
class _Point:
    multipliers: Vector
    value: float
    gradient: Vector
    residual: Vector  # (Q mu - y) / sigma
    marginals: Vector  # mu, in counts


def maximum_entropy(
    problem: Problem,
    oracle: Oracle,
    start: Vector,
    *,
    until: float,
    max_passes: int,
    progress: Callable[[Progress], None] | None = None,
) -> Vector:
    """Minimise the dual from `start` by limited-memory BFGS; the multipliers of the fitted model."""
    target = until * float(problem.starts[-1]) / 2
    radius = math.sqrt(2 * SLACK * target)
    passes = 0

    def evaluated(multipliers: Vector) -> _Point:
        nonlocal passes
        passes += 1
        return _evaluated(problem, oracle, multipliers, radius)

    point = evaluated(start)
    pairs: deque[tuple[Vector, Vector, float]] = deque(maxlen=MEMORY)
    while passes < max_passes:
        loss, fitted = problem.fitted(point.residual, until)
        if progress is not None:
            progress(Progress(passes, loss, target))
        if fitted or _norm(point.gradient) <= CONVERGED * _norm(point.residual):
            break
        direction = _direction(point, pairs, problem)
        following = _line_search(point, direction, evaluated, max_passes - passes)
        if following is None:
            if not pairs:
                break
            pairs.clear()
            continue
        step = following.multipliers - point.multipliers
        change = following.gradient - point.gradient
        curvature = _dot(step, change)
        if curvature > 1e-12 * _norm(step) * _norm(change):
            pairs.append((step, change, 1.0 / curvature))
        point = following
    return point.multipliers


def _evaluated(problem: Problem, oracle: Oracle, multipliers: Vector, radius: float) -> _Point:
    shares, log_mass = oracle(problem.potentials(multipliers))
    marginals = shares * problem.total
    residual = marginals / problem.sigmas - problem.answers
    norm = _norm(multipliers)
    slope = max(radius, RIDGE * norm)
    knee = radius / RIDGE
    penalty = radius * norm if norm <= knee else radius * knee + RIDGE * (norm**2 - knee**2) / 2
    value = problem.total * log_mass - _dot(multipliers, problem.answers) + penalty
    gradient = residual + multipliers * (slope / norm) if norm > 0 else residual
    return _Point(multipliers, value, gradient, residual, marginals)


def _direction(point: _Point, pairs: deque[tuple[Vector, Vector, float]], problem: Problem) -> Vector:
    """The quasi-Newton direction by the two-loop recursion.

    The inverse curvature starts from the diagonal 1 / (mu / sigma^2 + tau), tau being the penalty's own curvature.
    """
    tau = min(_norm(point.gradient - point.residual) / max(_norm(point.multipliers), 1e-300), 10.0)
    inverse = 1.0 / (point.marginals / problem.sigmas**2 + max(tau, RIDGE))
    q = point.gradient
    factors = []
    for step, change, scale in reversed(pairs):
        factor = scale * _dot(step, q)
        factors.append(factor)
        q = q - factor * change
    gamma = 0.25
    if pairs:
        step, change, scale = pairs[-1]
        gamma = 1.0 / (scale * _dot(change, inverse * change))
    q = gamma * inverse * q
    for (step, change, scale), factor in zip(pairs, reversed(factors), strict=True):
        q = q + (factor - scale * _dot(change, q)) * step
    return -q


def _line_search(
    point: _Point, direction: Vector, evaluated: Callable[[Vector], _Point], tries: int
) -> _Point | None:
    """The first point along the direction that decreases the dual enough, shrinking by quadratic interpolation."""
    slope = _dot(direction, point.gradient)
    if not slope < 0:
        return None
    length = 1.0
    for _ in range(min(max(tries, 1), 30)):
        trial = evaluated(point.multipliers + length * direction)
        gain = trial.value - point.value
        if gain <= 1e-4 * length * slope + 1e-14 * abs(point.value):
            return trial
        best = -slope * length**2 / (2 * (gain - slope * length)) if math.isfinite(gain) else 0.0
        length = min(max(best, 0.1 * length), 0.5 * length)
    return None


def _dot(x: Vector, y: Vector) -> float:
    return float(x @ y)


def _norm(x: Vector) -> float:
    return math.sqrt(max(_dot(x, x), 0.0))
