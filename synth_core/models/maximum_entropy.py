"""The distribution of greatest entropy that explains noisy answers as well as noise allows.

Among all distributions whose weighted squared loss 1/2 ||(Q mu - y) / sigma||^2 is at most T, find the one of
greatest entropy. With answers and multipliers in units of their noise, the Lagrange dual of this convex problem is

    minimise over lambda:  n log Z(theta) - <lambda, y / sigma> + phi(||lambda||),   theta = Q^T (lambda / sigma),

with phi(r) = sqrt(2T) r. It is convex, its gradient costs one pass of belief propagation, and its solution is a
Markov random field: potentials come with it. Its residual is -phi'(||lambda||) lambda / ||lambda||, so the loss at
the solution is T. Where T cannot be reached (noisy tables contradict each other or are negative) the dual would be
unbounded; phi therefore turns quadratic where its slope reaches `RIDGE` * r, which bounds the potentials and trades
that little entropy for the least loss. On the way there the dual may fall while the loss grows beyond all bounds, so
a fit that does not arrive returns the point of least loss it has seen. The method is limited-memory BFGS whose first
guess of the curvature is the Poisson one, Var(cell) = mu; on census extracts it needs a fraction of the passes of the
paper's algorithms. scipy's L-BFGS-B, with the same memory and the same end, needs 1.26 times as many passes over
twelve fits of 8 to 30 columns (tests/benchmarks/by_hand.py), takes numpy arrays only, and cannot change the weight of
the entropy without starting anew; a pass is nearly all of the time, so the method is written here.

With phi(r) = w r^2 / 2 the same dual belongs to another problem: minimise the loss minus w times the entropy (of n
records). It has one solution whatever the tables say, so it needs no level of loss that tables might not allow: the
better choice for a last fit (`balance_entropy`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dtrtrs

from synth_core.arrays import Arrays, Floats, default_backend, namespace, one_thread, to_numpy
from synth_core.domain import Domain
from synth_core.models.inference import Oracle, marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import Answered, Vector, estimate_total
from synth_core.models.losses import Problem
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.reference import Reference, RelativeOracle, with_reference

RIDGE = 3e-3
"""Least weight of the entropy against the loss, in nats for each unit of weighted squared loss."""
SLACK = 0.8
"""The dual aims this far below the loss at which a fit may stop, so that it gets there in finitely many passes."""
MEMORY = 40
"""Upper limit of the pairs of steps and gradient changes that the quasi-Newton method keeps."""
MEMORY_CELLS = 2**25
"""Upper limit of the numbers in these pairs (128 MiB); five pairs are kept in any case."""
BLOCK = 4096
"""Columns of these pairs that are taken at a time: 40 rows of them, 0.7 MB, stay in a processor's cache."""
CONVERGED = 0.05
"""Ratio of gradient to residual below which a fit that cannot reach its loss stops."""
PATIENCE = 100
"""Passes without improvement after which a fit stops."""
DIVERGED = 100.0
"""Multiple of the least loss so far at which a fit stops."""
HEAVIEST = 0.16
"""Weight of the entropy at which `balance_entropy` begins to halve it."""
NEARLY_BALANCED = 1.0
"""Root mean square gradient of every measurement, in units of its noise, at which the weight is halved; where loss and
entropy balance, the gradient is 0."""
BALANCED = 0.3
"""Root mean square gradient, in the same units, at which the fit ends."""
HEAVIER = 3.0, 1.0
"""Multiples of the entropy's weight by which `settle` comes to it."""
POLISH = 50, 500
"""Passes after the last halving: as many may be made in any case, and as many at most."""
POLISH_CELLS = 1e8
"""Cells of the junction tree that passes visit from nearly balanced on, within those limits: a large model pays much
for each pass. A fit that is not yet nearly balanced goes on whatever a pass costs: it may be far from every answer."""
HARDLY_BELOW = 0.9
"""A loss between this and 1 times that of noise, once out of reach, is given up for that of noise."""


@dataclass(frozen=True, slots=True)
class FitProgress:
    """Where a fit stands: passes made, its loss, and the loss it may stop at."""

    passes: int
    loss: float
    target: float


@dataclass(frozen=True, slots=True)
class _Point:
    multipliers: Vector
    value: float
    gradient: Vector
    residual: Vector  # (Q mu - y) / sigma
    marginals: Vector  # mu, in counts


@one_thread
def estimate(
    domain: Domain,
    measurements: Sequence[Answered],
    *,
    total: float | None = None,
    warm: MarkovRandomField | None = None,
    until: float = 1.0,
    gain: float | None = None,
    ridge: float | None = None,
    reference: Reference | None = None,
    max_passes: int = 3000,
    limit_cells: int | None = None,
    progress: Callable[[FitProgress], None] | None = None,
    arrays: Arrays | None = None,
) -> MarkovRandomField:
    """Fit the Markov random field of greatest entropy that explains the measurements.

    Residuals are weighted by the noise of each measurement; records that the domain's rules exclude get no probability.

    Args:
        domain: the attributes, their sizes and their rules.
        measurements: noisy marginals, or noisy answers to linear queries.
        total: number of records; estimated from the measurements if it is None.
        warm: a model whose potentials the fit starts from; what it converges to does not depend on them. With a
            reference, a model that was fitted with it.
        until: stop when the loss is at most `until` times its expectation under noise alone, and no single measurement
            is left out.
        gain: if given, weigh the loss against the entropy instead: the entropy's weight is halved as long as that
            lowers the loss by at least this share (see `balance_entropy`).
        ridge: if given, the entropy's weight, as an earlier fit has found it (see `entropy_weight`).
        reference: if given, what the model departs from as little as possible, instead of the uniform distribution.
        max_passes: upper limit of the passes of belief propagation.
        limit_cells: upper limit of the junction tree in cells; None sets none.
        progress: called with where the fit stands, before each step.
        arrays: the array library; `default_backend` if it is None.

    Returns:
        The model, with potentials on the measured cliques.

    Raises:
        ValueError: there are no measurements.
        SchemaError: a measurement does not fit the domain, or the total can neither be found nor was given.
        FeasibilityError: the junction tree would be larger than `limit_cells`.
    """
    if not measurements:
        raise ValueError("a model cannot be estimated without measurements")
    arrays = arrays or default_backend()
    n = max(estimate_total(measurements) if total is None else total, 1.0)
    problem = Problem.of(domain, measurements, total=n, arrays=arrays)
    cliques = with_reference(problem.cliques, reference)
    tree = junction_tree(domain, cliques, limit_cells=limit_cells)
    oracle = marginal_oracle(tree, cliques, arrays)
    base = arrays.xp.zeros(sum(map(domain.cells, cliques)))
    if reference is not None:
        problem = problem.within_rules(RelativeOracle(oracle, base, problem.cells))
        base = arrays.xp.asarray(reference.on(domain, cliques))
        oracle = RelativeOracle(oracle, base, problem.cells)
    else:
        problem = problem.within_rules(oracle)
    start = problem.multipliers(warm, reference)
    if ridge is not None:
        found = settle(problem, oracle, start, ridge=ridge, max_passes=max_passes, progress=progress)
    elif gain is None:
        found = maximum_entropy(problem, oracle, start, until=until, max_passes=max_passes, progress=progress)
    else:
        found = balance_entropy(
            problem, oracle, start, gain=gain, cells=tree.cells, max_passes=max_passes, progress=progress
        )
    potentials = to_numpy(problem.potentials(found))
    if reference is not None:
        whole = to_numpy(base).copy()
        whole[: potentials.size] += potentials
        potentials = whole
    return MarkovRandomField(tree, cliques, potentials, total=n)


def maximum_entropy(
    problem: Problem,
    oracle: Oracle,
    start: Vector,
    *,
    until: float,
    max_passes: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> Vector:
    """Minimise the dual from `start`; the multipliers of the fitted model.

    A loss that turns out to be out of reach is given up for one half way to the level of noise, and so on.
    """
    search = _Search(problem, oracle, max_passes, progress)
    search.descend(start, until)
    while not search.arrived and search.passes < max_passes and until < 1.0:
        until = (until + 1.0) / 2 if until < HARDLY_BELOW else 1.0
        search.descend(search.best.multipliers, until)
    return search.best.multipliers


def balance_entropy(
    problem: Problem,
    oracle: Oracle,
    start: Vector,
    *,
    gain: float,
    cells: int,
    max_passes: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> Vector:
    """The multipliers of a model of least loss minus w times its entropy.

    From `HEAVIEST` on w is halved as long as that lowers the loss by at least the share `gain`. While a model still
    learns from the tables its loss falls fast; once it only follows their noise there is little left to fall. The last
    w is interpolated, so that it depends continuously on the falls: one that rounding puts on either side of `gain`,
    as another processor may, changes w as little as it changed itself, and not by a factor of two.
    """
    search = _Search(problem, oracle, max_passes, progress, ridge=HEAVIEST)
    search.best = search.evaluated(start, 0.0)
    search.balance(within=NEARLY_BALANCED)
    if gain < 1:
        search.weigh_entropy(search.ridge_of_falls(gain))
    fewest, most = (min(max_passes, search.passes + passes) for passes in POLISH)
    search.max_passes = most
    search.balance(within=NEARLY_BALANCED)
    search.max_passes = max(fewest, search.passes, min(most, search.passes + int(POLISH_CELLS / cells)))
    search.balance(within=BALANCED)
    return search.best.multipliers


def settle(
    problem: Problem,
    oracle: Oracle,
    start: Vector,
    *,
    ridge: float,
    max_passes: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> Vector:
    """The multipliers of the model of least loss minus `ridge` times its entropy.

    The way leads over heavier weights. At its own small weight a fit throws the potentials of rare cells far beyond
    their place in the first steps and takes most of its passes to bring them back, wherever it begins.
    """
    search = _Search(problem, oracle, max_passes, progress, ridge=ridge * HEAVIER[0])
    search.best = search.evaluated(start, 0.0)
    for multiple in HEAVIER:
        search.weigh_entropy(ridge * multiple)
        search.balance(within=NEARLY_BALANCED)
    return search.nearest.multipliers


def entropy_weight(domain: Domain, measurements: Sequence[Answered], model: MarkovRandomField) -> float:
    """The weight of the entropy at which a model was fitted to measurements.

    Where loss and entropy balance the residual is minus the weight times the multipliers, whichever of the two problems
    was solved; least squares reads the weight off a fit that stopped nearby.

    Args:
        domain: the attributes.
        measurements: what the model was fitted to.
        model: the model.

    Returns:
        The weight, at least `RIDGE`.
    """
    problem = Problem.of(domain, measurements, total=model.total)
    multipliers = problem.multipliers(model)
    marginals = np.concatenate([table.ravel() for table in model.marginals(problem.cliques)])
    residual = problem.residual(namespace(multipliers).asarray(marginals))
    size = _dot(multipliers, multipliers)
    return max(RIDGE, -_dot(residual, multipliers) / size) if size > 0 else RIDGE


class _Search:
    """Descents of the dual by limited-memory BFGS, and the point of least loss they have seen."""

    def __init__(
        self,
        problem: Problem,
        oracle: Oracle,
        max_passes: int,
        progress: Callable[[FitProgress], None] | None,
        *,
        ridge: float = RIDGE,
    ) -> None:
        self.problem, self.oracle, self.max_passes, self.ridge = problem, oracle, max_passes, ridge
        self.progress = progress or (lambda _: None)
        self.pairs = _Pairs(problem.answers)
        self.passes = 0
        self.arrived = False
        self.least = math.inf
        self.best: _Point
        self.nearest: _Point  # to the balance of loss and entropy

    def descend(self, start: Vector, until: float) -> None:
        """From `start` to a loss of `until` times what noise alone leaves, or as far as it goes."""
        target = until * float(self.problem.expected.sum())
        radius = math.sqrt(2 * SLACK * target)
        point = self.evaluated(start, radius)
        if math.isinf(self.least):
            self.best = point
        improved = self.passes
        self.pairs.clear()
        while True:
            loss, fitted = self.problem.fitted(point.residual, point.gradient, until)
            self.progress(FitProgress(self.passes, loss, target))
            converged = _norm(point.gradient) <= CONVERGED * _norm(point.residual)
            self.arrived = fitted or (converged and loss <= target)
            if loss < self.least or self.arrived:
                self.best, self.least, improved = point, loss, self.passes
            stuck = self.passes - improved > PATIENCE or not loss < DIVERGED * self.least
            if self.arrived or converged or stuck or self.passes >= self.max_passes:
                return
            following = self.advanced(point, radius)
            if following is None:
                return
            point = following

    def balance(self, *, within: float) -> None:
        """From the best point so far to where the loss and `ridge` times the entropy balance each other."""
        least = math.inf
        while True:
            self.least = _dot(self.best.residual, self.best.residual) / 2
            self.progress(FitProgress(self.passes, self.least, float(self.problem.expected.sum())))
            away = self.problem.imbalance(self.best.gradient)
            if away < least:
                self.nearest, least = self.best, away
            self.arrived = away <= within
            if self.arrived or self.passes >= self.max_passes:
                return
            following = self.advanced(self.best, 0.0)
            if following is None:
                return
            self.best = following

    def ridge_of_falls(self, gain: float) -> float:
        """Halve the weight of the entropy until the loss falls by less than `gain`.

        Each fall is attributed to the middle of its halving, and taken as linear in log w between two of them.

        Returns:
            One halving below the weight at which the fall is `gain`: at most half a halving from the last weight. A
            first fall below `gain` has none before it; its own middle counts, where a fall of `gain` would be put.
        """
        fall, past = math.inf, 0.5
        while self.passes < self.max_passes:
            before, last = self.least, fall
            self.weigh_entropy(self.ridge / 2)
            self.balance(within=NEARLY_BALANCED)
            fall = 1 - self.least / before if before > 0 else 0.0
            if fall < gain:
                past = 1.0 if math.isinf(last) else (last - gain) / (last - fall)
                break
        return self.ridge * 2 ** (0.5 - past)

    def weigh_entropy(self, ridge: float) -> None:
        """Change the weight of the entropy; its part of values and gradients is known, so no pass is needed."""
        less, self.ridge = self.ridge - ridge, ridge
        point = self.best
        self.best = replace(
            point,
            value=point.value - less * _dot(point.multipliers, point.multipliers) / 2,
            gradient=point.gradient - less * point.multipliers,
        )
        self.pairs.weigh_entropy(less)

    def advanced(self, point: _Point, radius: float) -> _Point | None:
        """The next point, along the plain direction where the remembered one leads nowhere; None at the end."""
        following = self.step(point, radius)
        if following is None and self.pairs and self.passes < self.max_passes:
            self.pairs.clear()
            following = self.step(point, radius)
        return following

    def step(self, point: _Point, radius: float) -> _Point | None:
        """The next point, and the pair it adds to the memory; None where no step along the direction helps."""
        # The inverse curvature starts from 1 / (mu / sigma^2 + tau), tau being the penalty's own curvature.
        tau = min(_norm(point.gradient - point.residual) / max(_norm(point.multipliers), 1e-300), 10.0)
        inverse = 1.0 / (self.problem.curvature(point.marginals) + max(tau, self.ridge))
        direction = self.pairs.direction(point.gradient, inverse)
        tries = self.max_passes - self.passes
        following = _line_search(point, direction, lambda x: self.evaluated(x, radius), tries)
        if following is not None:
            step = following.multipliers - point.multipliers
            change = following.gradient - point.gradient
            curvature = _dot(step, change)
            if curvature > 1e-12 * _norm(step) * _norm(change):
                self.pairs.append(step, change)
        return following

    def evaluated(self, multipliers: Vector, radius: float) -> _Point:
        """One pass of inference."""
        self.passes += 1
        problem, ridge = self.problem, self.ridge
        shares, log_mass = self.oracle(problem.potentials(multipliers))
        marginals = shares * problem.total
        residual = problem.residual(marginals)
        norm = _norm(multipliers)
        slope = max(radius, ridge * norm)
        knee = radius / ridge
        penalty = radius * norm if norm <= knee else radius * knee + ridge * (norm**2 - knee**2) / 2
        value = problem.total * log_mass - _dot(multipliers, problem.answers) + penalty
        gradient = residual + multipliers * (slope / norm) if norm > 0 else residual
        return _Point(multipliers, value, gradient, residual, marginals)


class _Pairs:
    """The last steps and the changes of the gradient along them, as the rows of two matrices of single precision.

    With R the upper triangle of S Yᵀ, D its diagonal and H the first guess of the inverse curvature, the direction of
    the two-loop recursion is -(r + Sᵀ c), where r = H (g - Yᵀ a), R a = S g and Rᵀ c = D a - Y r (the compact form of
    Byrd, Nocedal and Schnabel 1994). Columns are taken in blocks that fit into a cache, so that each matrix comes from
    memory once for each product with it or its transpose, Y once for both. Single precision halves that; the line
    search, which decides whether a direction is any good, has double.
    """

    def __init__(self, like: Vector) -> None:
        most = max(5, min(MEMORY, MEMORY_CELLS // (2 * like.size)))
        self._xp = xp = namespace(like)
        self._steps, self._changes = (xp.zeros((most, like.size), dtype=xp.float32) for _ in range(2))
        self._products = np.zeros((most, most))  # of steps and changes, by their places in the matrices
        self._places: list[int] = []  # of the pairs, oldest first
        self._blocks = [slice(at, min(at + BLOCK, like.size)) for at in range(0, like.size, BLOCK)]

    def __len__(self) -> int:
        return len(self._places)

    def clear(self) -> None:
        """Forget all of them."""
        self._places.clear()

    def append(self, step: Vector, change: Vector) -> None:
        """Remember one more pair, in the oldest one's place if there is no other."""
        place = self._places.pop(0) if len(self) == len(self._products) else len(self)
        self._places.append(place)
        self._steps[place, :], self._changes[place, :] = self._single(step), self._single(change)

    def weigh_entropy(self, less: float) -> None:
        """Take the part of `less` of the entropy's weight out of the changes, in which it is known."""
        steps, changes = self._steps[: len(self), :], self._changes[: len(self), :]
        changes -= less * steps
        self._products[: len(self), : len(self)] = to_numpy(steps @ changes.T)

    def direction(self, gradient: Vector, inverse: Vector) -> Vector:
        """The quasi-Newton direction; `inverse` is the diagonal from which the inverse curvature starts, unscaled."""
        if not self._places:
            return -0.25 * inverse * gradient
        steps, changes, newest = self._steps[: len(self), :], self._changes[: len(self), :], self._places[-1]
        change = self._changes[newest, :]
        single, along, ahead = self._single(gradient), 0.0, 0.0
        for block in self._blocks:
            along += steps[:, block] @ change[block]
            ahead += steps[:, block] @ single[block]
        self._products[: len(self), newest] = to_numpy(along)
        upper = np.triu(self._products[np.ix_(self._places, self._places)])
        factors = _solved(upper, to_numpy(ahead)[self._places])
        scaled = (float(upper[-1, -1]) / _dot(change, inverse * change)) * inverse
        weights, met = self._placed(factors), 0.0
        found = gradient * scaled
        for block in self._blocks:
            found[block] -= scaled[block] * (weights @ changes[:, block])
            met += changes[:, block] @ self._single(found[block])
        rest = np.diagonal(upper) * factors - to_numpy(met)[self._places]
        return -(found + self._placed(_solved(upper, rest, transposed=True)) @ steps)

    def _single(self, vector: Vector) -> Vector:
        return self._xp.asarray(vector, dtype=self._xp.float32)

    def _placed(self, values: Floats) -> Vector:
        """Values of the pairs by age, put where the pairs are."""
        placed = np.empty_like(values)
        placed[self._places] = values
        return self._single(placed)


def _solved(upper: Floats, right: Floats, *, transposed: bool = False) -> Floats:
    """The solution of a triangular system, by the routine behind scipy's `solve_triangular` without its checks."""
    return np.asarray(dtrtrs(upper, right, trans=transposed)[0])


def _line_search(point: _Point, direction: Vector, evaluated: Callable[[Vector], _Point], tries: int) -> _Point | None:
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
