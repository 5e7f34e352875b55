"""A Markov random field over the whole domain: answers marginals and factored queries, takes evidence, draws rows.

A factored query set is the Kronecker product of one matrix for each attribute (see `linear`); attributes it does not
name are summed out. Each matrix joins the model as one more table between an attribute and its answers, and variable
elimination sums the attributes out (Private-PGM, Algorithm 3): the marginal that would support the queries is never
formed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes
from synth_core.errors import SchemaError
from synth_core.models.calibration import (
    Calibration,
    Factor,
    calibrate,
    conditionals,
    eliminate_variables,
    inside_cliques,
    split_tables,
)
from synth_core.models.junction_tree import JunctionTree
from synth_core.models.linear import Matrix, evidence
from synth_core.models.sampling import MAX_REPRESENTATIVE_ROWS, representative_rows, sample_rows
from synth_core.models.stored import PotentialModel, read_potentials, read_tree


class MarkovRandomField(PotentialModel):
    """The distribution p(x) ∝ exp(sum of potentials of the measured cliques), scaled to a total of records.

    Nothing changes after construction; clique beliefs are calibrated when first needed and kept.

    Attributes:
        domain: the attributes the model is about.
        cliques: the marginals it was fitted to.
        potentials: the log potentials of their cells, one table after the other.
        total: estimated number of records.
        tree: the junction tree that holds every clique.
    """

    __slots__ = ("_calibration", "tree")
    FORMAT = "synth-core/markov-random-field/1"

    def __init__(
        self, tree: JunctionTree, cliques: Sequence[Clique], potentials: NDArray[np.float64], *, total: float
    ) -> None:
        super().__init__(tree.domain, cliques, potentials, total=total)
        self.tree = tree
        self._calibration: Calibration | None = None

    def potential(self, clique: Clique) -> NDArray[np.float64]:
        """The log potential of one measured clique.

        Args:
            clique: one of `cliques`.

        Returns:
            Its table of log potentials.

        Raises:
            KeyError: the model has no potential on it.
        """
        return np.asarray(dict(split_tables(self.domain, self.cliques, self.potentials))[clique])

    @property
    def beliefs(self) -> tuple[Factor, ...]:
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
        tables = split_tables(self.domain, self.cliques, self.potentials)
        return self.log_partition - sum(float(np.vdot(marginals[t.clique], t.values)) for t in tables)

    def _tables(self, asked: Sequence[Clique]) -> list[Floats]:
        """Those inside cliques of the tree share partial sums."""
        canonical = [self.domain.clique(clique) for clique in asked]
        inside = {clique for clique in canonical if self.tree.host(clique) is not None}
        found = inside_cliques(self.tree, self.beliefs, inside)
        for clique in set(canonical) - inside:
            found[clique] = self._across(clique)
        return [_ordered(found[c], c, a) * self.total for c, a in zip(canonical, asked, strict=True)]

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes whose counts follow the model closely.

        A small table is chosen among many rows (`representative_rows`); a large one is as drawn.

        Args:
            rows: number of rows.
            rng: source of randomness; equal states give equal rows.

        Returns:
            One row for each record, one column for each attribute in the domain's order.
        """

        def draw(number: int) -> Codes:
            return sample_rows(self.domain, self.beliefs, number, rng=rng)

        return representative_rows(self.domain, draw, rows, rng=rng) if rows <= MAX_REPRESENTATIVE_ROWS else draw(rows)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        domain, cliques, potentials = read_potentials(header, stored)
        return cls(read_tree(domain, cliques), cliques, potentials, total=header["total"])

    @property
    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            tables = split_tables(self.domain, self.cliques, np.asarray(self.potentials))
            self._calibration = calibrate(self.tree, tables)
        return self._calibration

    def _across(self, clique: Clique) -> NDArray[np.float64]:
        """A marginal over attributes of several tree cliques, from conditional tables by variable elimination."""
        tables = conditionals(self.tree, self.beliefs, keep=set(clique))
        return np.asarray(eliminate_variables(tables, clique))


def _ordered(values: Floats, clique: Clique, asked: Clique) -> Floats:
    """The table with its axes in the order asked for."""
    return np.transpose(values, [clique.index(a) for a in asked])


EXCLUDED = -1e4
"""Potential of a cell that evidence excludes: its exponential is exactly 0."""


def answer_queries(model: MarkovRandomField, factors: Mapping[str, Matrix]) -> NDArray[np.float64]:
    """Answer a Kronecker product of queries from a model.

    Args:
        model: a fitted model.
        factors: a query matrix for each attribute that is asked about, one column for each of its codes; other
            attributes are summed out.

    Returns:
        Expected answers in counts, one axis for each matrix, as long as the matrix has rows.

    Raises:
        SchemaError: a matrix does not have one column for each code.
    """
    tables = conditionals(model.tree, model.beliefs, keep=set(factors))
    for attribute, matrix in factors.items():
        if matrix.ndim != 2 or matrix.shape[1] != model.domain.size(attribute):
            raise SchemaError(f"queries of {attribute!r} need one column for each of its codes")
        tables.append(Factor((_answers_of(attribute), attribute), matrix))
    keep = tuple(map(_answers_of, factors))
    return np.asarray(eliminate_variables(tables, keep)) * model.total


def _answers_of(attribute: str) -> str:
    return f"answers of {attribute}"


def condition_on(model: MarkovRandomField, known: Mapping[str, int | Collection[int]]) -> MarkovRandomField:
    """The model of the records whose attributes have these codes.

    Args:
        model: a fitted model.
        known: the code, or the possible codes, of some attributes.

    Returns:
        The model of those records; its total is their expected number.

    Raises:
        SchemaError: the model has no such records.
    """
    matrices = {a: evidence(model.domain.size(a), codes) for a, codes in known.items()}
    matching = float(answer_queries(model, matrices).sum())
    if not matching > 0:
        raise SchemaError(f"the model has no records with this evidence on {', '.join(matrices)}")
    excluded = {attribute: np.where(matrix[0] > 0, 0.0, EXCLUDED) for attribute, matrix in matrices.items()}
    return _multiplied(model, excluded, total=matching)


LEAST = 1e-12
"""Least share of a code, so that its logarithm exists."""


def rake(
    model: MarkovRandomField,
    targets: Mapping[str, NDArray[np.float64]],
    *,
    rounds: int = 50,
    close: float = 1e-7,
) -> MarkovRandomField:
    """Change a model as little as possible so that single attributes follow given marginals.

    Attributes take turns: each multiplies the distribution by wanted / present share of its codes, which is the
    projection onto the distributions that have this marginal; turns converge to the projection onto all of them
    (Csiszar 1975).

    Args:
        model: a fitted model.
        targets: wanted counts of the codes of some attributes; only their shares matter.
        rounds: upper limit of the turns of each attribute.
        close: total variation distance from its target at which an attribute has arrived.

    Returns:
        The model nearest in relative entropy whose attributes follow the targets.
    """
    wanted = {name: np.maximum(table / table.sum(), 0.0) for name, table in targets.items() if table.sum() > 0}
    for _ in range(rounds):
        furthest = 0.0
        for name, shares in wanted.items():
            present = model.marginal((name,)) / model.total
            distance = float(np.abs(present - shares).sum() / 2)
            furthest = max(furthest, distance)
            if distance > close:
                change = np.log(np.maximum(shares, LEAST)) - np.log(np.maximum(present, LEAST))
                model = _multiplied(model, {name: change}, total=model.total)
        if furthest <= close:
            break
    return model


def _multiplied(model: MarkovRandomField, changes: Mapping[str, Floats], *, total: float) -> MarkovRandomField:
    """The model with potentials added to single attributes, and another total."""
    tables: dict[Clique, Any] = dict(split_tables(model.domain, model.cliques, model.potentials))
    for name, change in changes.items():
        tables[name,] = tables.get((name,), 0.0) + change
    vector = np.concatenate([table.ravel() for table in tables.values()])
    return MarkovRandomField(model.tree, list(tables), vector, total=total)
