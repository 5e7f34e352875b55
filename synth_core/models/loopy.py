"""Loopy belief propagation on a Bethe cluster graph: approximate inference where a junction tree is too large.

Every clique is a cluster, joined by single attributes to all other clusters that contain them. Messages pass until they
stand still; on a graph without loops the result is exact, otherwise clusters agree on single attributes only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import NUMPY
from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError, SchemaError
from synth_core.models.calibration import Table, projections, split
from synth_core.models.linear import Answered, total_of
from synth_core.models.maximum_entropy import Progress, maximum_entropy
from synth_core.models.problem import Problem, merge
from synth_core.models.sampling import Codes, sample_rows
from synth_core.models.stored import read_model, write_model

Logs = NDArray[np.float64]

FORMAT = "synth-core/cluster-graph/1"
DAMPING = 0.3
"""Share of the old message kept at each update; it calms oscillation around loops."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Beliefs of clusters and single attributes (each summing to 1), the Bethe log-partition, and how it ended."""

    clusters: tuple[Table, ...]
    singles: tuple[Table, ...]
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
        tables = split(self.domain, self.cliques, potentials)
        heard = {a: np.zeros(self.domain.size(a)) for a in self.domain}
        for messages in self._messages:
            for a, message in messages.items():
                heard[a] = heard[a] + message
        change, passes = np.inf, 0
        while passes < self.max_passes and change > self.tolerance:
            change = max((self._update(k, table, heard) for k, table in enumerate(tables)), default=0.0)
            passes += 1
        clusters = tuple(self._belief(k, table, heard) for k, table in enumerate(tables))
        singles = tuple(Table((a,), _normalised(heard[a])) for a in self.domain)
        log_mass = _bethe(tables, clusters, singles)
        return Agreement(clusters, singles, log_mass, passes, converged=bool(change <= self.tolerance))

    def _incoming(self, k: int, table: Table, heard: dict[str, Logs]) -> Logs:
        """The cluster's potential with what all other clusters say about its attributes."""
        logs = np.array(table.values)
        for axis, a in enumerate(table.clique):
            others = heard[a] - self._messages[k][a]
            logs += others.reshape([-1 if j == axis else 1 for j in range(logs.ndim)])
        return logs

    def _update(self, k: int, table: Table, heard: dict[str, Logs]) -> float:
        """Send the cluster's messages to its attributes; the largest change of one."""
        logs = self._incoming(k, table, heard)
        values = np.exp(logs - logs.max())
        sums = projections(Table(table.clique, values), [(a,) for a in table.clique])
        change = 0.0
        for a in table.clique:
            old = self._messages[k][a]
            with np.errstate(divide="ignore"):
                fresh = np.maximum(np.log(sums[(a,)]), -1e4) - (heard[a] - old)
            fresh = DAMPING * old + (1 - DAMPING) * (fresh - fresh.max())
            change = max(change, float(np.abs(fresh - old).max()))
            heard[a] = heard[a] - old + fresh
            self._messages[k][a] = fresh
        return change

    def _belief(self, k: int, table: Table, heard: dict[str, Logs]) -> Table:
        return Table(table.clique, _normalised(self._incoming(k, table, heard)))


def _normalised(logs: Logs) -> Logs:
    values = np.exp(logs - logs.max())
    return np.asarray(values / values.sum())


def _bethe(tables: Sequence[Table], clusters: Sequence[Table], singles: Sequence[Table]) -> float:
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


class ClusterGraphField:
    """An approximate Markov random field: potentials on cliques, calibrated by loopy propagation."""

    __slots__ = ("_agreement", "cliques", "domain", "potentials", "total")

    def __init__(self, domain: Domain, cliques: Sequence[Clique], potentials: Logs, *, total: float) -> None:
        if domain.impossible:
            raise FeasibilityError(
                f"rule {domain.impossible[0].rule!r} is not kept by loopy propagation; estimate on a junction tree"
            )
        self.domain = domain
        self.cliques = tuple(cliques)
        self.potentials = potentials
        self.potentials.setflags(write=False)
        self.total = float(total)
        self._agreement: Agreement | None = None

    @property
    def agreement(self) -> Agreement:
        """The calibrated clusters."""
        if self._agreement is None:
            oracle = LoopyOracle(self.domain, self.cliques, max_passes=1000)
            self._agreement = oracle.agree(np.array(self.potentials))
        return self._agreement

    def marginal(self, clique: Iterable[str]) -> NDArray[np.float64]:
        """Expected counts of a clique inside one cluster, axes in the order given."""
        asked = tuple(clique)
        wanted = self.domain.clique(asked)
        for table in (*self.agreement.singles, *self.agreement.clusters):
            if set(wanted) <= set(table.clique):
                values = projections(table, [wanted])[wanted] * self.total
                return np.transpose(values, [wanted.index(a) for a in asked])
        raise SchemaError(
            f"no cluster holds {', '.join(asked)} together; loopy propagation answers within clusters"
        )

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Rows drawn cluster by cluster, each given the attributes it shares with clusters before it."""
        tables = (*self.agreement.clusters, *self.agreement.singles)
        return sample_rows(self.domain, tables, rows, rng=rng)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model (format as of `MarkovRandomField.save`)."""
        write_model(path, FORMAT, self.domain, self.cliques, self.potentials, total=self.total)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClusterGraphField:
        """Read a model written by `save`."""
        domain, cliques, potentials, total = read_model(path, FORMAT)
        return cls(domain, cliques, potentials, total=total)


def estimate_loopy(
    domain: Domain,
    measurements: Sequence[Answered],
    *,
    total: float | None = None,
    until: float = 1.0,
    max_passes: int = 300,
    progress: Callable[[Progress], None] | None = None,
) -> ClusterGraphField:
    """Fit like `estimators.estimate`, with loopy propagation for the marginals: any tree-width, approximate."""
    if not measurements:
        raise ValueError("a model cannot be estimated without measurements")
    n = max(total_of(measurements) if total is None else total, 1.0)
    problem = Problem.of(domain, merge(domain, measurements), total=n, arrays=NUMPY)
    oracle = LoopyOracle(domain, problem.cliques)
    start = problem.multipliers(None)
    found = maximum_entropy(problem, oracle, start, until=until, max_passes=max_passes, progress=progress)
    return ClusterGraphField(domain, problem.cliques, np.asarray(problem.potentials(found)), total=n)
