"""The estimation problem as vectors, and convex losses of marginals with their (sub)gradients.

A `Problem` holds noisy answers in units of their noise and the queries that were answered. Answers about records that
the domain's rules exclude are known to be 0 without asking, so their noise takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from synth_core.arrays import Arrays, default_backend, namespace, to_numpy
from synth_core.domain import Clique, Domain
from synth_core.errors import SchemaError
from synth_core.measurement import Measurement
from synth_core.models.calibration import split_tables
from synth_core.models.inference import Oracle
from synth_core.models.linear import Answered, LinearMeasurement, Queries, Vector
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.reference import Reference


class Loss(Protocol):
    """A convex function of the cliques' marginals in counts, laid one after the other in one vector."""

    @property
    def smooth(self) -> bool:
        """Whether its gradient is continuous, so that a line search works."""

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques whose marginals it reads."""

    def __call__(self, marginals: Vector) -> tuple[float, Vector]:
        """The loss and a (sub)gradient."""


@dataclass(frozen=True, slots=True)
class _MeasuredLoss:
    """A loss of what marginals predict for noisy answers."""

    problem: Problem

    @classmethod
    def of(cls, domain: Domain, measurements: Sequence[Answered], *, total: float) -> Self:
        """Build the loss of noisy answers.

        Args:
            domain: The attributes they are about.
            measurements: Noisy marginals and answers to factored queries.
            total: Number of records.

        Returns:
            The loss.
        """
        return cls(Problem.of(domain, measurements, total=total))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The measured cliques."""
        return self.problem.cliques


class SquaredLoss(_MeasuredLoss):
    """1/2 ||(Q mu - y) / sigma||^2: the likelihood of Gaussian noise."""

    __slots__ = ()
    smooth = True

    @property
    def smoothness(self) -> float:
        """A Lipschitz constant of the gradient over distributions p, in the dual of the L1 norm.

        Each block contributes total^2 ||Q||^2 / sigma^2, because the L2 distance of two marginals is at most the
        L1 distance of their distributions.
        """
        constant = 0.0
        sigmas = self.problem.sigmas
        for (_, matrices), begin in zip(self.problem.queries.blocks, self.problem.starts, strict=False):
            norms = [float(np.linalg.norm(np.asarray(m), 2)) for m in matrices or ()]
            constant += (self.problem.total * math.prod(norms) / float(sigmas[int(begin)])) ** 2
        return constant

    def __call__(self, marginals: Vector) -> tuple[float, Vector]:
        """The loss and its gradient."""
        residual = self.problem.residual(marginals)
        return float(residual @ residual) / 2, self.problem.potentials(residual)


class AbsoluteLoss(_MeasuredLoss):
    """sum |Q mu - y| / sigma: the likelihood of Laplace noise, up to the scale of sigma."""

    __slots__ = ()
    smooth = False

    def __call__(self, marginals: Vector) -> tuple[float, Vector]:
        """The loss and a subgradient."""
        residual = self.problem.residual(marginals)
        xp = namespace(residual)
        return float(xp.sum(xp.abs(residual))), self.problem.potentials(xp.sign(residual))


@dataclass(frozen=True, slots=True, eq=False)
class DualQueryLoss:
    """Negative log-likelihood of what DualQuery published (Private-PGM, Algorithm 5).

    In round t DualQuery drew the queries `sampled[t]` from Q_t, where Q_1 is uniform and
    Q_{t+1} ∝ Q_t exp(-eta (y - a_t)), y the workload's answers on the data and a_t = `records[t]` those on the
    record it chose. So log Q_t = -eta (t y - a_1 - … - a_t) up to normalisation: linear in y minus a
    log-sum-exp, hence a convex loss. Answers are shares of records.
    """

    workload: Queries
    sampled: NDArray[np.int64]
    records: NDArray[np.float64]
    eta: float
    total: float
    smooth: ClassVar[bool] = True

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The workload's cliques."""
        return self.workload.cliques

    def __call__(self, marginals: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The loss and its gradient."""
        answers = self.workload.answers(marginals) / self.total
        rounds = np.arange(len(self.sampled))
        before = np.vstack([np.zeros_like(answers), np.cumsum(self.records, axis=0)[:-1]])
        scores = -self.eta * (rounds[:, None] * answers - before)
        loss = -np.take_along_axis(log_softmax(scores, axis=1), self.sampled, axis=1).sum()
        drawn = np.zeros_like(answers)
        np.add.at(drawn, self.sampled, self.eta * rounds[:, None])
        slope = drawn - (self.eta * rounds * self.sampled.shape[1]) @ softmax(scores, axis=1)
        return float(loss), np.asarray(self.workload.transposed(slope)) / self.total


LEFT_OUT = 1.0
"""A measurement whose share of the gradient is larger than this many times noise would make it is not fitted yet."""


def merge_measurements(domain: Domain, measurements: Sequence[Answered]) -> list[Answered]:
    """All measurements in the domain's axis order; repeated marginals of a clique combined by inverse variance."""
    merged: list[Answered] = []
    tables: dict[Clique, list[Measurement]] = {}
    for measurement in measurements:
        ordered = _ordered(domain, measurement)
        if isinstance(ordered, Measurement):
            tables.setdefault(ordered.clique, []).append(ordered)
        else:
            merged.append(ordered)
    return [*map(_combined, tables.values()), *merged]


def _ordered(domain: Domain, m: Answered) -> Answered:
    clique = domain.clique(m.clique)
    codes = m.noisy.shape if isinstance(m, Measurement) else tuple(matrix.shape[1] for matrix in m.matrices)
    if codes != domain.shape(m.clique):
        raise SchemaError(f"the measurement of {', '.join(m.clique)} does not have the shape of its columns")
    order = [m.clique.index(a) for a in clique]
    noisy = np.transpose(m.noisy, order)
    if isinstance(m, Measurement):
        return Measurement(clique, noisy, m.sigma)
    return LinearMeasurement(clique, tuple(m.matrices[k] for k in order), noisy, m.sigma)


def _combined(parts: list[Measurement]) -> Measurement:
    if len(parts) == 1:
        return parts[0]
    precision = sum(m.sigma**-2 for m in parts)
    mean = np.sum([m.noisy * m.sigma**-2 for m in parts], axis=0) / precision
    return Measurement(parts[0].clique, mean, precision**-0.5)


@dataclass(frozen=True, slots=True)
class Problem:
    """Answers y / sigma of all measurements one after the other, and how they follow from marginals."""

    queries: Queries
    plain: bool  # every measurement is its clique's own table, in the order of the cliques
    starts: NDArray[np.int64]  # where each measurement begins, and the end
    answers: Vector
    sigmas: Vector
    total: float
    open: Vector  # 1 for an answer that is to be estimated, 0 for one that is known to be 0
    expected: NDArray[np.float64]  # the loss that noise alone leaves at the truth, for each measurement

    @classmethod
    def of(
        cls, domain: Domain, measurements: Sequence[Answered], *, total: float, arrays: Arrays | None = None
    ) -> Problem:
        """Lay the measurements out one after the other.

        Args:
            domain: The attributes they are about.
            measurements: Noisy answers; several marginals of one clique are combined by inverse variance.
            total: Number of records.
            arrays: Array library; None takes the one that SYNTH_ARRAYS names.
        """
        arrays = arrays or default_backend()
        merged = merge_measurements(domain, measurements)
        as_array = arrays.xp.asarray
        cliques = tuple(dict.fromkeys(m.clique for m in merged))
        blocks: list[tuple[int, tuple[Any, ...] | None]] = [
            (
                cliques.index(m.clique),
                tuple(map(as_array, m.matrices)) if isinstance(m, LinearMeasurement) else None,
            )
            for m in merged
        ]
        lengths = [m.noisy.size for m in merged]
        sigmas = np.repeat([m.sigma for m in merged], lengths)
        answers = as_array(np.concatenate([m.noisy.ravel() for m in merged]) / sigmas)
        return cls(
            queries=Queries(domain, cliques, tuple(blocks)),
            plain=all(isinstance(m, Measurement) for m in merged),
            starts=np.concatenate(([0], np.cumsum(lengths))),
            answers=answers,
            sigmas=as_array(sigmas),
            total=total,
            open=arrays.xp.ones_like(answers),
            expected=np.array(lengths) / 2,
        )

    def within_rules(self, oracle: Oracle) -> Problem:
        """The problem without the answers that the rules decide: those to which no possible record contributes.

        One pass over the uniform distribution of possible records finds them. What is left of such an answer is 0, as
        are its residual, its gradient and its multiplier.
        """
        if not self.queries.domain.impossible:
            return self
        xp = namespace(self.answers)
        uniform, _ = oracle(self.potentials(xp.zeros_like(self.answers)))
        reached = xp.where(self.curvature(uniform) > 0, self.open, xp.zeros_like(self.open))
        expected = np.add.reduceat(to_numpy(reached), self.starts[:-1]) / 2
        return replace(self, answers=self.answers * reached, open=reached, expected=expected)

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques that carry potentials."""
        return self.queries.cliques

    def potentials(self, multipliers: Vector) -> Vector:
        """Log potentials Qᵀ(lambda / sigma) of the cliques."""
        scaled = multipliers / self.sigmas
        return scaled if self.plain else self.queries.transposed(scaled)

    def residual(self, marginals: Vector) -> Vector:
        """(Q mu - y) / sigma, what the marginals miss of the answers in units of their noise."""
        return (marginals if self.plain else self.queries.answers(marginals)) / self.sigmas - self.answers

    def curvature(self, marginals: Vector) -> Vector:
        """The diagonal of Q diag(mu) Qᵀ / sigma^2: variances of the answers if counts were Poisson."""
        return (marginals if self.plain else self.queries.squared().answers(marginals)) / self.sigmas**2

    @property
    def cells(self) -> int:
        """Cells of all measured cliques together."""
        return sum(map(self.queries.domain.cells, self.cliques))

    def multipliers(self, warm: MarkovRandomField | None, reference: Reference | None = None) -> Vector:
        """Multipliers of a model's potentials where it has potentials on measured tables, 0 elsewhere.

        What the reference has put there is taken off.
        """
        values = np.zeros(int(self.starts[-1]))
        known = {} if warm is None else dict(split_tables(warm.domain, warm.cliques, warm.potentials))
        for clique, table in reference.tables if reference else ():
            if clique in known:
                known[clique] = known[clique] - table
        for (table, matrices), begin, end in zip(self.queries.blocks, self.starts, self.starts[1:], strict=False):
            if matrices is None and self.cliques[table] in known:
                values[begin:end] = known[self.cliques[table]].ravel()
        return namespace(self.answers).asarray(values) * self.sigmas * self.open

    def fitted(self, residual: Vector, gradient: Vector, until: float) -> tuple[float, bool]:
        """The loss, and whether it is at the level of noise with no measurement left out.

        Where entropy is greatest a residual is proportional to its multipliers and the gradient, their difference, is
        0. A measurement that was not used yet, as after a warm start, has its whole residual as gradient; so each
        measurement's share of the gradient must be at the level of noise too. Half a chi-square variable with k
        degrees of freedom has mean k/2 and variance k/2.
        """
        loss = float(self._shares(residual).sum())
        most = LEFT_OUT * self.expected + 3 * np.sqrt(self.expected)
        close = bool((self._shares(gradient) <= most).all())
        return loss, close and loss <= until * float(self.expected.sum())

    def imbalance(self, gradient: Vector) -> float:
        """The largest root mean square of a measurement's gradient over its answers, in units of their noise.

        A mean over all of them together would be that of large tables, which have most answers, while small ones
        with little noise, which say most about a table, are still far off.
        """
        shares = self._shares(gradient)[self.expected > 0] / self.expected[self.expected > 0]
        return math.sqrt(float(shares.max(initial=0.0)))

    def _shares(self, vector: Vector) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(to_numpy(vector) ** 2, self.starts[:-1]) / 2)
