"""Loopy belief propagation on a Bethe cluster graph: approximate inference where a junction tree is too large.

Every clique is a cluster, joined by single attributes to all other clusters that contain them. Messages pass until they
stand still; on a graph without loops the result is exact, otherwise clusters agree on single attributes only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from synth_core.arrays import NUMPY, Floats
from synth_core.domain import Clique, Codes, Domain
from synth_core.errors import FeasibilityError, SchemaError
from synth_core.models.calibration import Factor, projections, split_tables
from synth_core.models.linear import Answered, estimate_total
from synth_core.models.losses import Problem
from synth_core.models.maximum_entropy import FitProgress, maximum_entropy
from synth_core.models.sampling import sample_rows
from synth_core.models.stored import PotentialModel, read_potentials

Logs = NDArray[np.float64]

DAMPING = 0.3
"""Share of the old message kept at each update; it calms oscillation around loops."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Beliefs of clusters and single attributes (each summing to 1), the Bethe log-partition, and how it ended."""

    clusters: tuple[Factor, ...]
    singles: tuple[Factor, ...]
    log_mass: float
    passes: int
    converged: bool


class LoopyOracle:
    """Approximate marginals of cliques from their potentials; keeps its messages, so a near repeat is quick."""

    def __init__(
        self, domain: Domain, cliques: Sequence[Clique], *, max_passes: int = 200, tolerance: float = 1e-9
    ) -> None:
        self.domain = domain
        self.cliques = tuple(cliques)
        self.max_passes = max_passes
        self.tolerance = tolerance
        self._messages = [{a: np.zeros(domain.size(a)) for a in clique} for clique in self.cliques]

    def __call__(self, potentials: Logs) -> tuple[Logs, float]:
        """Marginals one after the other, and the Bethe approximation of the log-partition function."""
        agreement = self.agree(potentials)
        return np.concatenate([table.values.ravel() for table in agreement.clusters]), agreement.log_mass

    def agree(self, potentials: Logs) -> Agreement:
        """Pass messages until they stand still."""
        tables = split_tables(self.domain, self.cliques, potentials)
        incoming = {a: np.zeros(self.domain.size(a)) for a in self.domain}
        for messages in self._messages:
            for a, message in messages.items():
                incoming[a] = incoming[a] + message
        change, passes = np.inf, 0
        while passes < self.max_passes and change > self.tolerance:
            change = max((self._update(k, table, incoming) for k, table in enumerate(tables)), default=0.0)
            passes += 1
        clusters = tuple(Factor(t.clique, softmax(self._incoming(k, t, incoming))) for k, t in enumerate(tables))
        singles = tuple(Factor((a,), softmax(incoming[a])) for a in self.domain)
        log_mass = _bethe(tables, clusters, singles)
        return Agreement(clusters, singles, log_mass, passes, converged=bool(change <= self.tolerance))

    def _incoming(self, k: int, table: Factor, incoming: dict[str, Logs]) -> Logs:
        """The cluster's potential with what all other clusters say about its attributes."""
        logs = np.array(table.values)
        for axis, a in enumerate(table.clique):
            others = incoming[a] - self._messages[k][a]
            logs += others.reshape([-1 if j == axis else 1 for j in range(logs.ndim)])
        return logs

    def _update(self, k: int, table: Factor, incoming: dict[str, Logs]) -> float:
        """Send the cluster's messages to its attributes; the largest change of one."""
        logs = self._incoming(k, table, incoming)
        values = np.exp(logs - logs.max())
        sums = projections(Factor(table.clique, values), [(a,) for a in table.clique])
        change = 0.0
        for a in table.clique:
            old = self._messages[k][a]
            with np.errstate(divide="ignore"):
                fresh = np.maximum(np.log(sums[(a,)]), -1e4) - (incoming[a] - old)
            fresh = DAMPING * old + (1 - DAMPING) * (fresh - fresh.max())
            change = max(change, float(np.abs(fresh - old).max()))
            incoming[a] = incoming[a] - old + fresh
            self._messages[k][a] = fresh
        return change


def _bethe(tables: Sequence[Factor], clusters: Sequence[Factor], singles: Sequence[Factor]) -> float:
    """Expected potentials plus the Bethe entropy: clusters, less each attribute once for every cluster but one."""
    energy = sum(float(np.vdot(t.values, b.values)) for t, b in zip(tables, clusters, strict=True))
    entropy = sum(_entropy(b.values) for b in clusters)
    for single in singles:
        holding = sum(single.clique[0] in b.clique for b in clusters)
        entropy -= (holding - 1) * _entropy(single.values)
    return energy + entropy


def _entropy(values: Logs) -> float:
    positive = values[values > 0]
    return -float(positive @ np.log(positive))


class ClusterGraphField(PotentialModel):
    """An approximate Markov random field: potentials on cliques, calibrated by loopy propagation."""

    __slots__ = ("_agreement",)
    FORMAT = "synth-core/cluster-graph/1"

    def __init__(self, domain: Domain, cliques: Sequence[Clique], potentials: Logs, *, total: float) -> None:
        if domain.impossible:
            raise FeasibilityError(
                f"rule {domain.impossible[0].rule!r} is not kept by loopy propagation; estimate on a junction tree"
            )
        super().__init__(domain, cliques, potentials, total=total)
        self._agreement: Agreement | None = None

    @property
    def agreement(self) -> Agreement:
        """The calibrated clusters."""
        if self._agreement is None:
            oracle = LoopyOracle(self.domain, self.cliques, max_passes=1000)
            self._agreement = oracle.agree(np.array(self.potentials))
        return self._agreement

    def _tables(self, cliques: Sequence[Clique]) -> list[Floats]:
        return list(map(self._table, cliques))

    def _table(self, asked: Clique) -> Floats:
        """Counts of a clique inside one cluster."""
        wanted = self.domain.clique(asked)
        for table in (*self.agreement.singles, *self.agreement.clusters):
            if set(wanted) <= set(table.clique):
                values = projections(table, [wanted])[wanted] * self.total
                return np.transpose(values, [wanted.index(a) for a in asked])
        raise SchemaError(f"no cluster holds {', '.join(asked)} together; loopy propagation answers within clusters")

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes cluster by cluster, each given the attributes it shares with clusters before it."""
        tables = (*self.agreement.clusters, *self.agreement.singles)
        return sample_rows(self.domain, tables, rows, rng=rng)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        domain, cliques, potentials = read_potentials(header, stored)
        return cls(domain, cliques, potentials, total=header["total"])


def estimate_loopy(
    domain: Domain,
    measurements: Sequence[Answered],
    *,
    total: float | None = None,
    until: float = 1.0,
    max_passes: int = 300,
    progress: Callable[[FitProgress], None] | None = None,
) -> ClusterGraphField:
    """Fit like `maximum_entropy.estimate`, with loopy propagation for the marginals.

    Args:
        domain: the attributes and their sizes.
        measurements: noisy marginals, or noisy answers to linear queries.
        total: number of records; estimated from the measurements if it is None.
        until: stop when the loss is at most `until` times its expectation under noise alone.
        max_passes: upper limit of the passes of loopy propagation.
        progress: called with where the fit stands, before each step.

    Returns:
        An approximate model; its cluster graph may have any tree-width.

    Raises:
        ValueError: there are no measurements.
    """
    if not measurements:
        raise ValueError("a model cannot be estimated without measurements")
    n = max(estimate_total(measurements) if total is None else total, 1.0)
    problem = Problem.of(domain, measurements, total=n, arrays=NUMPY)
    oracle = LoopyOracle(domain, problem.cliques)
    start = problem.multipliers(None)
    found = maximum_entropy(problem, oracle, start, until=until, max_passes=max_passes, progress=progress)
    return ClusterGraphField(domain, problem.cliques, np.asarray(problem.potentials(found)), total=n)
