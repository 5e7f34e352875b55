"""A model of a divided table, one model for each part, and any stored model read back by its format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats
from synth_core.domain import Clique, Codes, Domain
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.refined import Refined
from synth_core.models.rows import RowModel
from synth_core.models.sampling import code_type
from synth_core.models.stored import FittedModel, domain_header, open_model, read_domain


class Model(Protocol):
    """A fitted distribution; everything about it is public."""

    @property
    def domain(self) -> Domain:
        """The attributes and their sizes."""

    @property
    def cliques(self) -> Sequence[Clique]:
        """The marginals it was fitted to."""

    @property
    def total(self) -> float:
        """Estimated number of records."""

    def marginal(self, clique: Clique) -> Floats:
        """Expected counts of the clique's cells."""

    def marginals(self, cliques: Sequence[Clique]) -> list[Floats]:
        """Expected counts of many marginals."""

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Rows of codes, in the domain's order."""

    def save(self, path: Path) -> None:
        """Write the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """One part: its model, how many records it has, and what its records are known by.

    `constants` have one code in all its records. `codes` lists, for an attribute of which the model knows some codes
    only, which of the table's codes they are.
    """

    model: Model
    rows: float
    constants: dict[str, int]
    codes: dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Mixture(FittedModel):
    """Records that follow each part's own model, in the proportion of the parts' rows."""

    FORMAT: ClassVar[str] = "synth-core/mixture/1"

    domain: Domain
    components: tuple[Component, ...]

    @property
    def total(self) -> float:
        """Estimated number of records."""
        return float(sum(component.rows for component in self.components))

    def _tables(self, cliques: Sequence[Clique]) -> list[Floats]:
        return list(map(self._table, cliques))

    def _table(self, asked: Clique) -> Floats:
        table = np.zeros(self.domain.shape(asked))
        for component in self.components:
            inside = tuple(name for name in asked if name not in component.constants)
            share = component.model.marginal(inside) / component.model.total
            place = np.ix_(*(self._own_codes(component, name) for name in asked))
            table[place] += (component.rows * share).reshape(
                [1 if name in component.constants else component.model.domain.size(name) for name in asked]
            )
        return table

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Draw rows of codes, part after part.

        Args:
            rows: number of rows, of which each part gets its share.
            rng: source of randomness; equal states give equal rows.

        Returns:
            One row for each record, one column for each attribute in the order of the whole domain.
        """
        return self.sample_shard(rows, rng, shards=1, number=0)

    def sample_shard(self, total: int, rng: np.random.Generator, *, shards: int, number: int) -> Codes:
        """Draw one shard of a table.

        Row i of the whole table, parts one after the other, goes to shard i mod `shards`.

        Args:
            total: number of rows of all shards together.
            rng: source of randomness; equal states give equal rows.
            shards: number of shards.
            number: which of them, from 0.

        Returns:
            The shard's rows; all shards together have each part's share of rows.
        """
        borders = np.cumsum([0, *apportion([c.rows for c in self.components], total)])
        dealt = -((number - borders) // shards)  # rows of this shard before each border
        pieces = [
            self._widened(component, component.model.sample(int(size), rng))
            for component, size in zip(self.components, np.diff(dealt), strict=True)
            if size
        ]
        if not pieces:
            return np.zeros((0, len(self.domain)), dtype=code_type(self.domain))
        return np.asfortranarray(np.concatenate(pieces))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The marginals that some part was fitted to, each with the columns that tell the parts apart."""
        apart = {name for c in self.components for name in (*c.constants, *c.codes)}
        fitted = {self.domain.clique((*clique, *apart)) for c in self.components for clique in c.model.cliques}
        return tuple(sorted(fitted, key=lambda clique: [self.domain.position(name) for name in clique]))

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of all parts' marginals: what depends on what in some part, for people."""
        return junction_tree(self.domain, self.cliques)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        components = [{"rows": c.rows, "constants": c.constants, "codes": c.codes} for c in self.components]
        parts = {}
        with TemporaryDirectory() as folder:
            for number, component in enumerate(self.components):
                one = Path(folder) / f"{number}.npz"
                component.model.save(one)
                parts[f"part{number}"] = np.frombuffer(one.read_bytes(), dtype=np.uint8)
        return domain_header(self.domain) | {"components": components}, parts

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        components = []
        with TemporaryDirectory() as folder:
            for number, raw in enumerate(header["components"]):
                one = Path(folder) / f"{number}.npz"
                one.write_bytes(stored[f"part{number}"].tobytes())
                codes = {name: tuple(known) for name, known in raw["codes"].items()}
                components.append(Component(load_model(one), float(raw["rows"]), dict(raw["constants"]), codes))
        return cls(read_domain(header), tuple(components))

    def _widened(self, component: Component, codes: Codes) -> Codes:
        """A part's rows with all columns of the table, in the table's codes."""
        rows = np.empty((len(codes), len(self.domain)), dtype=code_type(self.domain), order="F")
        for place, name in enumerate(self.domain):
            column = 0 if name in component.constants else codes[:, component.model.domain.position(name)]
            rows[:, place] = self._own_codes(component, name).astype(rows.dtype)[column]
        return rows

    def _own_codes(self, component: Component, name: str) -> NDArray[np.int64]:
        """The table's codes that a part's codes of a column stand for; one of a constant."""
        if name in component.constants:
            return np.array([component.constants[name]], dtype=np.int64)
        return np.array(component.codes.get(name, range(self.domain.size(name))), dtype=np.int64)


AnyModel = MarkovRandomField | BayesianNetwork | Refined | RowModel | Mixture
KINDS: tuple[type[AnyModel], ...] = (MarkovRandomField, BayesianNetwork, Refined, RowModel, Mixture)
"""Kinds of model that a file may hold."""


def load_model(path: str | os.PathLike[str]) -> AnyModel:
    """Read a stored model of any kind; its file names its format.

    Args:
        path: a file that a model's `save` wrote.

    Returns:
        The model: a Markov random field, a Bayesian network, rows or a mixture of them.

    Raises:
        SourceError: the file is no stored model of a known format.
    """
    kinds = {kind.FORMAT: kind for kind in KINDS}
    with open_model(path, kinds) as (header, _):
        kind = kinds[header["format"]]
    return kind.load(path)


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers that add up to `total`, each the floor or the ceiling of its share; alike where nothing weighs."""
    positive = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    if positive.sum() <= 0:
        positive = np.ones(len(weights))
    exact = positive / positive.max()  # no weight is so small or so large that a sum or a quotient overflows
    exact *= total / exact.sum()
    floors = np.floor(exact).astype(np.int64)
    largest = np.argsort(floors - exact, kind="stable")[: total - int(floors.sum())]
    floors[largest] += 1
    return [int(number) for number in floors]
