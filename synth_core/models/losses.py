"""Convex losses of marginals, each with its (sub)gradient: squared, absolute, and the likelihood of DualQuery."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import namespace
from synth_core.domain import Clique
from synth_core.models.linear import Queries, Vector
from synth_core.models.problem import Problem


class Loss(Protocol):
    """A convex function of the cliques' marginals in counts, laid one after the other in one vector."""

    @property
    def smooth(self) -> bool:
        """Whether its gradient is continuous, so that a line search works."""
        ...

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques whose marginals it reads."""
        ...

    def __call__(self, marginals: Vector) -> tuple[float, Vector]:
        """The loss and a (sub)gradient."""
        ...


@dataclass(frozen=True, slots=True)
class SquaredLoss:
    """1/2 ||(Q mu - y) / sigma||^2: the likelihood of Gaussian noise."""

    problem: Problem

    @property
    def smooth(self) -> bool:
        """Its gradient is continuous."""
        return True

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The measured cliques."""
        return self.problem.cliques

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
        residual = self.problem.predicted(marginals) - self.problem.answers
        return float(residual @ residual) / 2, self.problem.potentials(residual)


@dataclass(frozen=True, slots=True)
class AbsoluteLoss:
    """sum |Q mu - y| / sigma: the likelihood of Laplace noise, up to the scale of sigma."""

    problem: Problem

    @property
    def smooth(self) -> bool:
        """It has kinks."""
        return False

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The measured cliques."""
        return self.problem.cliques

    def __call__(self, marginals: Vector) -> tuple[float, Vector]:
        """The loss and a subgradient."""
        residual = self.problem.predicted(marginals) - self.problem.answers
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

    @property
    def smooth(self) -> bool:
        """Its gradient is continuous."""
        return True

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
        peaks = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - peaks)
        masses = weights.sum(axis=1, keepdims=True)
        logs = scores - peaks - np.log(masses)
        loss = -np.take_along_axis(logs, self.sampled, axis=1).sum()
        drawn = np.zeros_like(answers)
        np.add.at(drawn, self.sampled, self.eta * rounds[:, None])
        slope = drawn - (self.eta * rounds * self.sampled.shape[1]) @ (weights / masses)
        return float(loss), np.asarray(self.workload.transposed(slope)) / self.total
