"""Models fitted again to redrawn noise, as they are stored: their numbers, in the order of the published model.

A replicate has the structure of the release's own model and other numbers. `replicates.npz` holds for each the
difference of these numbers, which half precision tells to one part in two thousand: more than a dozen replicates know
of a standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Domain
from synth_core.errors import SourceError
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.calibration import Factor, split_tables
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture, Model
from synth_core.models.refined import Refined
from synth_core.models.stored import StoredModel

FLOAT16_MAX = float(np.finfo(np.float16).max)


OTHERS = "replicates.npz is not about model.npz; copy both files of the same release"


@dataclass(frozen=True, eq=False)
class Replicates(StoredModel):
    """What differs between a release's model and its replicates.

    Attributes:
        changes: one row for each replicate, one number for each of the model's parameters (see `parameters`).
        totals: one row for each replicate: expected records of the model and of each of its parts.
        cliques: the tables that were measured, without those inside another one.
        counts: the model's expected counts of their cells, one table after the other.
        spread: what each replicate says instead, as a difference, one row for each.
        dependence: variance of a count that was not measured, for each expected record: how far a table may be off of
            which only parts were measured (see `weakest_dependence`).
    """

    FORMAT: ClassVar[str] = "synth-core/replicates/1"

    changes: NDArray[np.float16]
    totals: Floats
    cliques: tuple[Clique, ...]
    counts: Floats
    spread: NDArray[np.float32]
    dependence: float = 0.0

    def __len__(self) -> int:
        return len(self.changes)

    @classmethod
    def of(cls, model: Model, models: Sequence[Model]) -> Self:
        """Keep what differs from a model.

        Args:
            model: the release's model.
            models: replicates of the same structure.

        Returns:
            The replicates.
        """
        own, cliques = parameters(model), measured_cliques(model)
        counts = _all_counts(model, cliques)
        changes = np.empty((len(models), len(own)), dtype=np.float16)
        spread = np.empty((len(models), len(counts)), dtype=np.float32)
        for row, cells, other in zip(changes, spread, models, strict=True):
            row[:] = np.clip(parameters(other) - own, -FLOAT16_MAX, FLOAT16_MAX)
            cells[:] = _all_counts(other, cliques) - counts
        totals = np.array([totals_of(other) for other in models]).reshape(len(models), len(totals_of(model)))
        tables = split_tables(model.domain, cliques, counts)
        return cls(changes, totals, cliques, counts, spread, weakest_dependence(tables))

    @classmethod
    def joined(cls, some: Sequence[Self]) -> Self:
        """Replicates of one model that were made apart, in the order given; there is at least one."""
        return replace(
            some[0],
            changes=np.concatenate([one.changes for one in some]),
            totals=np.concatenate([one.totals for one in some]),
            spread=np.concatenate([one.spread for one in some]),
        )

    def first(self, count: int) -> Self:
        """The first of the replicates, as many as these.

        Args:
            count: how many, at most.

        Returns:
            Those by themselves.
        """
        return self._some(slice(0, count))

    def single(self, number: int) -> Self:
        """One of the replicates by itself.

        Args:
            number: which of them, from 0.

        Returns:
            Replicates of length 1.
        """
        return self._some(slice(number, number + 1))

    def _some(self, rows: slice) -> Self:
        return replace(self, changes=self.changes[rows], totals=self.totals[rows], spread=self.spread[rows])

    def models(self, model: Model) -> tuple[Model, ...]:
        """The replicates as models.

        Args:
            model: the release's model, from which they were taken.

        Returns:
            One model each.

        Raises:
            SourceError: they are replicates of another model.
        """
        own = parameters(model)
        if (self.changes.shape[1], self.totals.shape[1]) != (len(own), len(totals_of(model))):
            raise SourceError(OTHERS)
        return tuple(
            _rebuilt(model, own + change, totals) for change, totals in zip(self.changes, self.totals, strict=True)
        )

    def check(self, model: Model) -> None:
        """Refuse a model of which they are no replicates, with a SourceError."""
        cliques = measured_cliques(model)
        sizes = len(parameters(model)), len(totals_of(model)), cliques, sum(map(model.domain.cells, cliques))
        if (self.changes.shape[1], self.totals.shape[1], self.cliques, len(self.counts)) != sizes:
            raise SourceError(OTHERS)

    def table(self, domain: Domain, attributes: Clique) -> tuple[Floats, Floats] | None:
        """Expected counts of a table inside a measured one, by the model and by each replicate.

        Args:
            domain: the model's domain.
            attributes: columns, in the order of the axes.

        Returns:
            Both; None where no measured table has all of these columns.
        """
        around = [clique for clique in self.cliques if set(attributes) <= set(clique)]
        if not around:
            return None
        clique = min(around, key=domain.cells)
        start = sum(domain.cells(one) for one in self.cliques[: self.cliques.index(clique)])
        cells = slice(start, start + domain.cells(clique))
        values = _onto(self.counts[cells].reshape(domain.shape(clique)), clique, attributes)
        shape = (len(self), *domain.shape(clique))
        changes = self.spread[:, cells].astype(np.float64).reshape(shape)
        return values, values + np.array([_onto(one, clique, attributes) for one in changes]).reshape(-1, *values.shape)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {
            "changes": self.changes,
            "totals": self.totals,
            "counts": self.counts,
            "spread": self.spread,
        }
        return {"dependence": self.dependence, "cliques": self.cliques}, arrays

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        found = {name: stored[name] for name in ("changes", "totals", "counts", "spread")}
        rows = {len(found[name]) for name in ("changes", "totals", "spread")}
        if len(rows) != 1 or found["spread"].shape != (*rows, len(found["counts"])):
            raise ValueError(rows)
        shapes = {name: array.ndim for name, array in found.items()}
        if shapes != {"changes": 2, "totals": 2, "counts": 1, "spread": 2}:
            raise ValueError(shapes)
        cliques, dependence = tuple(map(tuple, header["cliques"])), float(header["dependence"])
        if not all(map(_are_records, (*found.values(), np.array(dependence)))) or dependence < 0:
            raise ValueError("a number is missing or too large")
        return cls(found["changes"], found["totals"], cliques, found["counts"], found["spread"], dependence)


MAX_RECORDS = 1e15
"""Upper limit of the size of a number: no table has as many records."""


def _are_records(numbers: NDArray[Any]) -> bool:
    return numbers.dtype.kind == "f" and float(np.abs(numbers).max(initial=0)) <= MAX_RECORDS


MAX_CELLS = 400_000
"""Cells of measured tables of which each replicate's counts are stored; the smaller tables come first."""


def measured_cliques(model: Model) -> tuple[Clique, ...]:
    """The measured tables of a model that lie inside no other one, the small ones first, as far as they are stored."""
    sets = list(map(set, model.cliques))
    outer = [c for c, own in zip(model.cliques, sets, strict=True) if not any(own < other for other in sets)]
    ordered = sorted(dict.fromkeys(outer), key=model.domain.cells)
    ends = np.cumsum([model.domain.cells(clique) for clique in ordered])
    return tuple(clique for clique, end in zip(ordered, ends, strict=True) if end <= MAX_CELLS)


def _all_counts(model: Model, cliques: Sequence[Clique]) -> Floats:
    return np.concatenate([np.zeros(0), *map(np.ravel, model.marginals(cliques))])


def _onto(table: Floats, clique: Clique, attributes: Clique) -> Floats:
    """The sums of a table over the columns that are not named, its axes in the order of those that are."""
    summed = table.sum(axis=tuple(k for k, name in enumerate(clique) if name not in attributes))
    kept = [name for name in clique if name in attributes]
    return np.transpose(summed, [kept.index(name) for name in attributes])


WEAKEST = 0.5
"""Share of the measured pairs whose dependence is weaker than what is supposed of one that was not measured."""
LEAST_EXPECTED = 1.0
"""Records that independence expects at least in a cell that takes part."""


def weakest_dependence(tables: Sequence[Factor]) -> float:
    """How far the cells of a pair may be off if they were not measured: what measuring changed in pairs like it.

    Methods measure the pairs first that lie farthest from what is known already, so a pair that was left out has less
    to tell than most that were not. The misfit of a measured pair is its mean of (count - e)^2 / e, e being what the
    columns alone would make expect; the middle one of these is the variance that is supposed for each record of a cell.

    Args:
        tables: the measured tables, as expected counts.

    Returns:
        Variance of a count for each expected record; 0 if no pair was measured.
    """
    misfits: dict[Clique, float] = {}
    for clique, values in tables:
        for pair in combinations(clique, 2):
            if pair not in misfits:
                misfits[pair] = _misfit(_onto(values, clique, pair))
    return float(np.quantile(list(misfits.values()), WEAKEST)) if misfits else 0.0


def _misfit(table: Floats) -> float:
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(table.sum(), 1.0)
    counted = expected >= LEAST_EXPECTED
    return float(((table - expected)[counted] ** 2 / expected[counted]).mean()) if counted.any() else 0.0


def parameters(model: Model) -> Floats:
    """All numbers of a model but its totals, in one vector.

    Args:
        model: any stored model.

    Returns:
        Potentials, shares and tables in the order in which the model has them; a mixture's part by part.
    """
    if isinstance(model, MarkovRandomField):
        return np.asarray(model.potentials)
    if isinstance(model, Refined):
        return np.concatenate([model.field.potentials, *model.shares])
    if isinstance(model, BayesianNetwork):
        return np.concatenate([table.values.ravel() for table in model.tables])
    if isinstance(model, Mixture):
        return np.concatenate([parameters(component.model) for component in model.components])
    return np.zeros(0)  # rows are not fitted again: such a model has no replicates, and of none nothing differs


def totals_of(model: Model) -> list[float]:
    """Expected records of a model; of a mixture, those of each part, and what each part's own model says of them."""
    if isinstance(model, Mixture):
        return [float(n) for c in model.components for n in (c.rows, *totals_of(c.model))]
    return [model.total]


def _lawful(share: Floats, group: NDArray[np.int64], otherwise: Floats) -> Floats:
    """Shares that add up to 1 in each group: half precision leaves some of 0 a little below it."""
    kept = np.maximum(share, 0.0)
    sums = np.bincount(group, weights=kept)[group]
    return np.where(sums > 0, kept / np.where(sums > 0, sums, 1.0), otherwise)


def _rebuilt(model: Model, numbers: Floats, totals: Floats) -> Model:
    """A model of the same structure with other numbers."""
    if isinstance(model, MarkovRandomField):
        return MarkovRandomField(model.tree, model.cliques, numbers, total=float(totals[0]))
    if isinstance(model, Refined):
        potentials, *shares = np.split(numbers, np.cumsum([model.field.potentials.size, *map(len, model.shares)])[:-1])
        field = MarkovRandomField(model.field.tree, model.field.cliques, potentials, total=float(totals[0]))
        return replace(model, field=field, shares=tuple(map(_lawful, shares, model.groups, model.shares)))
    if isinstance(model, BayesianNetwork):
        tables = split_tables(model.versions, [table.clique for table in model.tables], np.maximum(numbers, 0.0))
        return replace(model, tables=tuple(tables), total=float(totals[0]))
    if not isinstance(model, Mixture):
        raise SourceError(f"a model of the kind {type(model).__name__} has no replicates")
    components, at, turn = [], 0, 0
    for component in model.components:
        size, further = len(parameters(component.model)), 1 + len(totals_of(component.model))
        inner = _rebuilt(component.model, numbers[at : at + size], totals[turn + 1 : turn + further])
        components.append(replace(component, model=inner, rows=float(totals[turn])))
        at, turn = at + size, turn + further
    return replace(model, components=tuple(components))
