"""Linear support vector machines over rows of codes, one for each value of a target column.

A row of categories has one active cell in each column, so a machine's score of a row is a sum of look-ups, and no
matrix of indicators is ever built. The machines are those of scikit-learn's LinearSVC with its default C = 1: each
minimises 1/2 ||w||² + Σ max(0, 1 ∓ score)² over its weights, the intercept among them, and the largest score wins. All
machines of a target learn in the same passes over the rows, equal rows once.

While every row is on the wrong side of its margin, as at the start, the curvature of all machines is I + 2 XᵀX, and XᵀX
holds no more than how often two cells meet, which all targets share. It is never less than the true curvature; in
coordinates in which it is the identity, a limited-memory quasi-Newton method needs few passes. Where columns have so
many cells that the matrix would be too large, its diagonal times the cells of a row takes its place: of k numbers the
square of the sum is at most k times the sum of the squares, so that is never less than the true curvature either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from synth_core.arrays import Floats
from synth_core.compiled import compiled, part_of_kernel
from synth_core.domain import Codes, Domain

TOLERANCE = 1e-4
"""Learning ends where a step lowers the objective by less than this share of it: errors on four census tables are then
within 0.002 of LinearSVC's, less than the chance with which rows are held out (tests/benchmarks/speed.md)."""
MAX_PASSES = 200
"""Upper limit of the passes over the rows for one target."""
MAX_MET_CELLS = 2000
"""Upper limit of the cells of all columns for which it is counted how often two meet: 32 MB, and a second to factor."""

Singles: TypeAlias = NDArray[np.float32]
"""Weights and slopes in the passes over the rows: half as long, so that twice as many are taken at a time, and far more
exact than `TOLERANCE` asks for."""

TOGETHER = 8
"""Weights that a vector unit takes at once."""

CellNumbers: TypeAlias = NDArray[np.int32]
"""A row for each record, a column for each attribute: the numbers of its cells among those of all attributes."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lessons:
    """Rows to learn from, each different row once, and how often it occurs; it does not show them.

    The last cell, the intercept's, is in every row. `meetings` says for two cells in how many rows both are; of more
    than MAX_MET_CELLS cells it has a bound for each cell alone.
    """

    domain: Domain
    rows: Codes
    times: Floats
    meetings: Floats

    @classmethod
    def of(cls, codes: Codes, domain: Domain) -> Lessons:
        """Gather rows.

        Args:
            codes: a row for each record, a column for each attribute.
            domain: the attributes and their sizes.

        Returns:
            The rows as lessons, for all targets.
        """
        rows, times = np.unique(codes, axis=0, return_counts=True)
        weights, cells, count = times.astype(np.float64), cells_of(rows, domain), sum(domain.sizes) + 1
        if count <= MAX_MET_CELLS:
            return cls(domain, rows, weights, count_meetings(cells, weights, count))
        occurrences = np.bincount(cells.ravel(), np.repeat(weights, cells.shape[1]), count)
        return cls(domain, rows, weights, cells.shape[1] * occurrences)

    def commonest(self, target: str) -> int:
        """The commonest code of an attribute.

        Args:
            target: the attribute.

        Returns:
            The code that most rows have, the first of several.
        """
        return int(np.bincount(self.rows[:, self.domain.position(target)], weights=self.times).argmax())

    def predict(self, target: str, unseen: Codes) -> NDArray[np.int64]:
        """Learn the target from all other attributes, and predict it.

        Args:
            target: the attribute to predict.
            unseen: rows of the same domain.

        Returns:
            For each unseen row, the code of the target.
        """
        at = self.domain.position(target)
        known, labels = np.unique(self.rows[:, at], return_inverse=True)
        if len(known) == 1:
            return np.full(len(unseen), known[0], dtype=np.int64)
        cells, asked = (np.delete(cells_of(codes, self.domain), at, axis=1) for codes in (self.rows, unseen))
        begin = sum(self.domain.sizes[:at])
        curvature = 2 * self.meetings
        curvature[begin : begin + self.domain.sizes[at]] = 0.0
        curvature.T[begin : begin + self.domain.sizes[at]] = 0.0
        curvature += 1.0 if curvature.ndim == 1 else np.eye(len(curvature))
        # Of two values one machine decides: the other would be its mirror image.
        two = len(known) == 2
        machines = learn(cells, labels - two, self.times, curvature, machines=1 if two else len(known))
        if two:
            machines = np.column_stack([np.zeros(len(machines)), machines])
        return np.asarray(known[find_largest(asked, machines.astype(np.float32))], dtype=np.int64)


def cells_of(codes: Codes, domain: Domain) -> CellNumbers:
    """The cells of rows of codes, and the intercept's as the last."""
    begins = np.cumsum([0, *domain.sizes])
    cells = np.empty((len(codes), len(begins)), dtype=np.int32)
    np.add(codes, begins[:-1], out=cells[:, :-1], casting="unsafe")
    cells[:, -1] = begins[-1]
    return cells


def learn(cells: CellNumbers, labels: NDArray[np.int64], times: Floats, curvature: Floats, *, machines: int) -> Floats:
    """The weights of some machines, a row for each cell; machine k says yes to the rows with label k.

    `curvature`, a matrix or its diagonal, is the largest that the objective has. With its Cholesky factor L the
    variables are V = Lᵀ W; all machines are one problem, whose parts do not touch each other.
    """
    diagonal = curvature.ndim == 1
    factor = np.sqrt(curvature)[:, None] if diagonal else cholesky(curvature, lower=True, check_finite=False)

    def solve(values: Floats, side: str) -> Floats:
        if diagonal:
            return np.asarray(values / factor)
        return np.asarray(solve_triangular(factor, values, lower=True, trans=side, check_finite=False))

    def weights_of(variables: Floats) -> Floats:
        return np.ascontiguousarray(solve(variables.reshape(-1, machines), "T"))

    # Idle machines fill the last vector unit: their intercept says no to every row, so that no row is a miss.
    width = machines if machines == 1 else -(-machines // TOGETHER) * TOGETHER
    often, passed = times.astype(np.float32), np.zeros((len(curvature), width), dtype=np.float32)
    passed[-1, machines:] = -2

    def objective(variables: Floats) -> tuple[float, Floats]:
        weights = weights_of(variables)
        passed[:, :machines] = weights
        gradient = np.zeros_like(passed)
        loss = add_gradient(cells, labels, often, passed, gradient)
        return float((weights**2).sum() / 2 + loss), solve(weights + gradient[:, :machines], "N").ravel()

    # From 0, where all rows are on the wrong side, a full step leads to the weights of least squares.
    start = -objective(np.zeros(len(curvature) * machines))[1]
    limits = {"ftol": TOLERANCE, "gtol": 0.0, "maxfun": MAX_PASSES}
    return weights_of(minimize(objective, start, jac=True, method="L-BFGS-B", options=limits).x)


@compiled
def count_meetings(cells: CellNumbers, times: Floats, count: int) -> Floats:
    """In how many rows two cells are, for all pairs of cells."""
    found = np.zeros((count, count))
    for r in range(cells.shape[0]):
        for p in range(cells.shape[1]):
            for q in range(cells.shape[1]):
                found[cells[r, p], cells[r, q]] += times[r]
    return found


@part_of_kernel
def _score(cells: CellNumbers, weights: Singles, scores: Singles) -> None:
    """Put the scores of one row, by all machines, into `scores`."""
    scores[:] = 0
    for cell in cells:
        own = weights[cell]
        for k in range(scores.size):
            scores[k] += own[k]


@compiled
def add_gradient(
    cells: CellNumbers, labels: NDArray[np.int64], times: Singles, weights: Singles, gradient: Singles
) -> float:
    """The squared hinge loss of all machines over all rows, whose gradient is added to `gradient`."""
    loss = 0.0
    none, one, two = np.float32(0), np.float32(1), np.float32(2)
    scores = np.empty(weights.shape[1], np.float32)
    for r in range(cells.shape[0]):
        _score(cells[r], weights, scores)
        wrong, often = none, two * times[r]
        for k in range(scores.size):
            side = one if labels[r] == k else -one
            miss = max(none, one - side * scores[k])
            wrong += miss * miss
            scores[k] = -often * side * miss
        if wrong > none:
            loss += times[r] * wrong
            for p in range(cells.shape[1]):
                slope = gradient[cells[r, p]]
                for k in range(scores.size):
                    slope[k] += scores[k]
    return loss


@compiled
def find_largest(cells: CellNumbers, weights: Singles) -> NDArray[np.int64]:
    """For each row the machine with the largest score, the first of equal ones."""
    found = np.empty(cells.shape[0], np.int64)
    scores = np.empty(weights.shape[1], np.float32)
    for r in range(cells.shape[0]):
        _score(cells[r], weights, scores)
        found[r] = scores.argmax()
    return found
