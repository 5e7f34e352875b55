"""Models fitted again to redrawn noise, as they are stored: their numbers, in the order of the published model.

A replicate has the structure of the release's own model and other numbers. `replicates.npz` holds for each the
difference of these numbers, which half precision tells to one part in two thousand: more than two dozen replicates know
of a standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.errors import SourceError
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.calibration import split_tables
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture, Model
from synth_core.models.refined import Refined
from synth_core.models.stored import StoredModel

FLOAT16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False)
class Replicates(StoredModel):
    """What differs between a release's model and its replicates.

    Attributes:
        changes: one row for each replicate, one number for each of the model's parameters (see `parameters`).
        totals: one row for each replicate: expected records of the model and of each of its parts.
        dependence: how far a table that was not measured may be off, as a multiple of the square root of its expected
            counts (see `modelled`); 0 where nothing is known of it.
    """

    FORMAT: ClassVar[str] = "synth-core/replicates/1"

    changes: NDArray[np.float16]
    totals: Floats
    dependence: float = 0.0

    def __len__(self) -> int:
        return len(self.changes)

    @classmethod
    def of(cls, model: Model, models: Sequence[Model], *, dependence: float = 0.0) -> Self:
        """Keep what differs from a model.

        Args:
            model: the release's model.
            models: replicates of the same structure.
            dependence: see the attribute.

        Returns:
            The replicates.
        """
        own = parameters(model)
        changes = np.empty((len(models), len(own)), dtype=np.float16)
        for row, other in zip(changes, models, strict=True):
            row[:] = np.clip(parameters(other) - own, -FLOAT16_MAX, FLOAT16_MAX)
        totals = np.array([totals_of(other) for other in models]).reshape(len(models), len(totals_of(model)))
        return cls(changes, totals, dependence)

    def single(self, number: int) -> Self:
        """One of the replicates by itself.

        Args:
            number: which of them, from 0.

        Returns:
            Replicates of length 1.
        """
        return replace(self, changes=self.changes[number : number + 1], totals=self.totals[number : number + 1])

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
        if self.changes.shape[1:] != own.shape or self.totals.shape[1:] != (len(totals_of(model)),):
            raise SourceError("replicates.npz is not about model.npz; copy both files of the same release")
        return tuple(
            _rebuilt(model, own + change, totals) for change, totals in zip(self.changes, self.totals, strict=True)
        )

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"dependence": self.dependence}, {"changes": self.changes, "totals": self.totals}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        changes, totals = stored["changes"], stored["totals"]
        if changes.ndim != 2 or totals.ndim != 2 or len(changes) != len(totals):
            raise ValueError(changes.shape)
        return cls(changes, totals, float(header["dependence"]))


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
    raise SourceError(f"a model of the kind {type(model).__name__} has no replicates")


def totals_of(model: Model) -> list[float]:
    """Expected records of a model; of a mixture, those of each part, and what each part's own model says of them."""
    if isinstance(model, Mixture):
        return [float(n) for c in model.components for n in (c.rows, *totals_of(c.model))]
    return [model.total]


def _rebuilt(model: Model, numbers: Floats, totals: Floats) -> Model:
    """A model of the same structure with other numbers."""
    if isinstance(model, MarkovRandomField):
        return MarkovRandomField(model.tree, model.cliques, numbers, total=float(totals[0]))
    if isinstance(model, Refined):
        field, *shares = np.split(numbers, np.cumsum([model.field.potentials.size, *map(len, model.shares)])[:-1])
        return replace(model, field=_rebuilt(model.field, field, totals), shares=tuple(shares))
    if isinstance(model, BayesianNetwork):
        tables = split_tables(model.versions, [table.clique for table in model.tables], np.maximum(numbers, 0.0))
        return replace(model, tables=tuple(tables), total=float(totals[0]))
    if not isinstance(model, Mixture):
        raise SourceError(f"a model of the kind {type(model).__name__} has no replicates")
    components, at, turn = [], 0, 0
    for component in model.components:
        size, further = len(parameters(component.model)), 1 + len(totals_of(component.model))
        own = _rebuilt(component.model, numbers[at : at + size], totals[turn + 1 : turn + further])
        components.append(replace(component, model=own, rows=float(totals[turn])))
        at, turn = at + size, turn + further
    return replace(model, components=tuple(components))
