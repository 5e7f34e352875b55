"""A Markov random field over the whole domain: answers any marginal, draws rows, and is stored without pickle."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.models.calibration import Calibration, Table, calibrate, inside_cliques, split
from synth_core.models.elimination import conditionals, eliminate_variables
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.representative import MOST_ROWS, representative_rows
from synth_core.models.sampling import Codes, sample_rows
from synth_core.models.stored import read_model, write_model

Counts = NDArray[np.float64]

FORMAT = "synth-core/markov-random-field/1"


class MarkovRandomField:
    """The distribution p(x) ∝ exp(sum of potentials of the measured cliques), scaled to a total of records.

    Nothing changes after construction; clique beliefs are calibrated when first needed and kept.
    """

    __slots__ = ("_calibration", "cliques", "potentials", "total", "tree")

    def __init__(
        self, tree: JunctionTree, cliques: Sequence[Clique], potentials: NDArray[np.float64], *, total: float
    ) -> None:
        cells = sum(tree.domain.cells(clique) for clique in cliques)
        if potentials.shape != (cells,):
            raise ValueError(f"potentials need {cells} cells, one for each cell of the cliques")
        self.tree = tree
        self.cliques = tuple(cliques)
        self.potentials = potentials
        self.potentials.setflags(write=False)
        self.total = float(total)
        self._calibration: Calibration | None = None

    @property
    def domain(self) -> Domain:
        """The attributes the model is about."""
        return self.tree.domain

    def potential(self, clique: Clique) -> NDArray[np.float64]:
        """The log potential of one measured clique."""
        for table in split(self.domain, self.cliques, self.potentials):
            if table.clique == clique:
                return np.asarray(table.values)
        raise KeyError(clique)

    @property
    def beliefs(self) -> tuple[Table, ...]:
        """The marginal of every clique of the tree, each summing to 1."""
        return self._calibrated.beliefs

    @property
    def log_partition(self) -> float:
        """Logarithm of the sum of exp(potentials) over the whole domain."""
        return self._calibrated.log_mass

    @property
    def entropy(self) -> float:
        """Shannon entropy in nats: log-partition minus the expected potential."""
        marginals = inside_cliques(self.tree, self.beliefs, self.cliques)
        tables = split(self.domain, self.cliques, self.potentials)
        return self.log_partition - sum(float(np.vdot(marginals[t.clique], t.values)) for t in tables)

    def marginal(self, clique: Iterable[str]) -> Counts:
        """Expected counts of the clique's cells, one axis for each attribute in the order given."""
        return self.marginals([tuple(clique)])[0]

    def marginals(self, cliques: Iterable[Iterable[str]]) -> list[Counts]:
        """Expected counts of many cliques; those inside tree cliques share partial sums."""
        asked = [tuple(clique) for clique in cliques]
        canonical = [self.domain.clique(clique) for clique in asked]
        inside = {clique for clique in canonical if self.tree.host(clique) is not None}
        found = inside_cliques(self.tree, self.beliefs, inside)
        for clique in set(canonical) - inside:
            found[clique] = self._across(clique)
        return [_ordered(found[c], c, a) * self.total for c, a in zip(canonical, asked, strict=True)]

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Rows of codes in the domain's order whose counts follow the model closely.

        A small table is chosen among many rows (see `representative`); a large one is as drawn (see `sampling`).
        """

        def draw(number: int) -> Codes:
            return sample_rows(self.domain, self.beliefs, number, rng=rng)

        return representative_rows(self.domain, draw, rows, rng=rng) if rows <= MOST_ROWS else draw(rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model (see `stored` for the format); beliefs are not stored."""
        write_model(path, FORMAT, self.domain, self.cliques, self.potentials, total=self.total)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MarkovRandomField:
        """Read a model written by `save`."""
        domain, cliques, potentials, total = read_model(path, FORMAT)
        return cls(junction_tree(domain, cliques), cliques, potentials, total=total)

    @property
    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            tables = split(self.domain, self.cliques, np.asarray(self.potentials))
            self._calibration = calibrate(self.tree, tables)
        return self._calibration

    def _across(self, clique: Clique) -> NDArray[np.float64]:
        """A marginal over attributes of several tree cliques, from conditional tables by variable elimination."""
        sizes = dict(zip(self.domain.attributes, self.domain.sizes, strict=True))
        tables = conditionals(self.tree, self.beliefs, keep=set(clique))
        return np.asarray(eliminate_variables(tables, clique, sizes).values)


def _ordered(values: Counts, clique: Clique, asked: Clique) -> Counts:
    """The table with its axes in the order asked for."""
    return np.transpose(values, [clique.index(a) for a in asked])
