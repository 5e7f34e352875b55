"""A release's answers with their errors: the model's own answer, and how it spreads over the replicates.

The spread is the root mean square distance of the replicates' answers from the model's. The model is the replicates'
truth, so it holds both what noise moves and what the fit flattens, which a standard deviation about their mean leaves
out. The rows of the extract take no part: what is said here has no sampling error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from scipy.special import stdtrit

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.errors import FeasibilityError
from synth_core.inference.expected import SAMPLE_ROWS, Where, expected_counts, sampled_counts
from synth_core.inference.replicates import Replicates
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture, Model, load_model
from synth_core.models.refined import Refined

LEVEL = 0.9
"""Share of the true values that an interval is to cover, unless it is asked for another."""
COVERAGE = {"one column": 0.86, "measured together": 0.88, "modelled, not measured": 0.99}
"""Share of true counts of 50 records and more that intervals of `LEVEL` held for privmrf on public tables, by what a
table rests on, in whole percent, rounded down; tests/benchmarks/intervals.md has them by table."""
ROUNDING = 1 / 12
"""Variance of a whole number about the expected one: true counts are whole."""


@dataclass(frozen=True, eq=False)
class UncertainTable:
    """Expected counts with the standard deviation of each.

    Attributes:
        attributes: the columns, one for each axis.
        values: expected counts.
        draws: the same by each replicate, on a first axis of their own; no rows without replicates.
        extra: variance of each cell that no replicate shows.
        measured: whether noisy answers about all these columns together are behind the table.
        sampled: whether the counts are those of a large sample of the model.
    """

    attributes: Clique
    values: Floats
    draws: Floats
    extra: Floats
    measured: bool
    sampled: bool = False

    @cached_property
    def sigma(self) -> Floats:
        """Standard deviation of each cell's count; NaN without replicates."""
        return self._sigma_of(self.values, self.draws, self.extra)

    def interval(self, level: float = LEVEL) -> tuple[Floats, Floats]:
        """Lower and upper ends of each cell's count.

        Args:
            level: share of the true counts that are to lie between them.

        Returns:
            Two tables; no end is below 0.
        """
        width = self.quantile(level) * np.sqrt(self.sigma**2 + ROUNDING)
        return np.maximum(self.values - width, 0.0), self.values + width

    def quantile(self, level: float) -> float:
        """Standard deviations on either side of a value: Student's, with one degree of freedom for each replicate."""
        return quantile(len(self.draws), level)

    def _sigma_of(self, value: Floats, draws: Floats, extra: Floats) -> Floats:
        if not len(draws):
            return np.full_like(value, np.nan)
        return np.asarray(np.sqrt(np.mean((draws - value) ** 2, axis=0) + extra))


def quantile(replicates: int, level: float) -> float:
    """Half the width of an interval in standard deviations: Student's, with a degree of freedom for each replicate.

    Args:
        replicates: how many replicates the standard deviation is made of.
        level: share of the true values that are to lie in the interval.

    Returns:
        The factor of the standard deviation.
    """
    return float(stdtrit(max(replicates, 1), (1 + level) / 2))


def interval_statement(replicates: int) -> dict[str, object]:
    """What a certificate says of intervals: the level that they are meant for, and what they held where it was tried.

    Args:
        replicates: how many replicates of its model a release has.

    Returns:
        The statement as plain data.
    """
    return {"level": LEVEL, "replicates": replicates, "held_in_tests_of_privmrf": COVERAGE}


PASS_CELLS = 2e7
"""Cells of junction trees that the replicates of one question may visit together; at least two answer it."""


@dataclass(frozen=True, eq=False)
class Uncertain:
    """A model with its replicates; without them it gives values and no errors."""

    model: Model
    replicates: Replicates | None = None

    def __post_init__(self) -> None:
        if self.replicates is not None:
            self.replicates.check(self.model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the model of a published folder, and its replicates if it has them.

        Args:
            folder: public folder of a release, or a copy of it.

        Returns:
            The model with its replicates.

        Raises:
            SourceError: a file cannot be read, or they are of different releases.
        """
        path = Path(folder) / REPLICATES
        return cls(load_model(Path(folder) / "model.npz"), Replicates.load(path) if path.exists() else None)

    @property
    def domain(self) -> Domain:
        """The columns and how many codes each has."""
        return self.model.domain

    def table(self, attributes: Iterable[str], *, where: Where | None = None) -> UncertainTable:
        """Expected counts of a table, with their errors.

        A table inside a measured one is read off what is stored of that; another one is summed out of the model, and of
        as many replicates as there is time for.

        Args:
            attributes: columns, in the order of the axes; none for the number of records.
            where: codes that records may have, by column.

        Returns:
            The table; where the model cannot sum it out, counted in a large sample, with that error.

        Raises:
            SchemaError: a column is not in the domain.
        """
        names, known = tuple(attributes), dict(where or {})
        if (stored := self.stored(names, where=known)) is not None:
            return stored
        sampled = False
        try:
            values = expected_counts(self.model, names, known)
            draws = [expected_counts(one, names, known) for one in self._few]
        except FeasibilityError:
            sampled = True
            values = sampled_counts(self.model, names, known)
            draws = [sampled_counts(one, names, known) for one in self._few[:2]]
        measured = self.measured((*names, *known))
        extra = np.maximum(values, 0.0) * self.modelled_variance(measured=measured)  # a count may round below 0
        if sampled:
            extra = extra + values * (self.model.total / SAMPLE_ROWS)
        found = np.array(draws, dtype=np.float64).reshape(len(draws), *values.shape)
        return UncertainTable(names, values, found, extra, measured, sampled)

    def measured(self, attributes: Iterable[str]) -> bool:
        """Whether noisy answers about all these columns together were behind the model.

        Args:
            attributes: some columns.

        Returns:
            False if the table is modelled from smaller ones; of a divided table, if it is so in some part.
        """
        return _measured(self.model, set(attributes))

    def modelled_variance(self, *, measured: bool) -> float:
        """Variance of a count, for each record in it, that no replicate shows.

        Args:
            measured: whether the table was measured.

        Returns:
            0 for a measured table; else what `weakest_dependence` found.
        """
        return 0.0 if measured or self.replicates is None else self.replicates.dependence

    def stored(self, names: Clique, *, where: Where | None = None) -> UncertainTable | None:
        """A table inside a measured one, without any inference.

        Args:
            names: columns, in the order of the axes.
            where: codes that records may have, by column.

        Returns:
            The table; None where no measured table has all columns that are named.
        """
        if self.replicates is None:
            return None
        known = where or {}
        around = tuple(dict.fromkeys((*names, *known)))
        found = self.replicates.table(self.domain, around)
        if found is None:
            return None
        values, draws = (_select(table, around, names, known) for table in found)
        return UncertainTable(names, values, draws, np.zeros_like(values), measured=True)

    @property
    def affordable(self) -> int:
        """How many replicates a question about a table that was not measured is put to."""
        if self.replicates is None:
            return 0
        cells = sum(part.tree.cells for part in _fields(self.model))
        return min(len(self.replicates), max(2, int(PASS_CELLS / max(cells, 1))))

    @cached_property
    def _few(self) -> tuple[Model, ...]:
        """As many replicates as a question may wait for."""
        return self.replicates.first(self.affordable).models(self.model) if self.replicates else ()


REPLICATES = "replicates.npz"
"""Name of the file with the replicates, beside the model's."""


def _fields(model: Model) -> list[MarkovRandomField]:
    """The fields inside a model, on which inference takes its time."""
    if isinstance(model, Mixture):
        return [field for part in model.components for field in _fields(part.model)]
    inner = model.field if isinstance(model, Refined) else model
    return [inner] if isinstance(inner, MarkovRandomField) else []


def _select(table: Floats, around: Clique, names: Clique, where: Where) -> Floats:
    """The counts of the records that meet a condition, its own columns summed; the first axes may be of replicates."""
    first = table.ndim - len(around)
    for name, codes in where.items():
        axis = first + around.index(name)
        kept = np.isin(np.arange(table.shape[axis]), list(codes))
        table = table * kept.reshape([-1 if k == axis else 1 for k in range(table.ndim)])
    gone = tuple(first + k for k, name in enumerate(around) if name not in names)
    return np.asarray(table.sum(axis=gone))


def _measured(model: Model, attributes: set[str]) -> bool:
    if isinstance(model, Mixture):
        return all(_measured(part.model, attributes - set(part.constants)) for part in model.components)
    return len(attributes) == 0 or any(attributes.issubset(clique) for clique in model.cliques)
