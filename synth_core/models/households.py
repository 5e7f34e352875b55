"""The model of two linked tables: a model of one person of each household, and noisy tables of pairs of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement
from synth_core.models.arrangement import arrange, draw_households, rank_attributes, settle
from synth_core.models.junction_tree import JunctionTree, junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Model, load_model
from synth_core.models.stored import StoredModel
from synth_core.models.tuples import Households, first_households, join_households, shuffle
from synth_core.schema.linked import LinkedSchema

MIN_DRAWN = 2_000
"""Lower limit of the households drawn at once where there are rules: of a few of one size, none may keep them."""

CHUNK = 50_000
"""Households drawn and arranged at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class HouseholdModel(StoredModel):
    """Households and their people: a model of one person, and noisy tables of pairs of people.

    Attributes:
        schema: the declaration of the tables.
        people: the model of the tuple relation of one place.
        pairs: the measured tables of the tuple relation of two places.
    """

    FORMAT: ClassVar[str] = "synth-core/households/1"

    schema: LinkedSchema
    people: Model
    pairs: tuple[Measurement, ...]

    @property
    def total(self) -> float:
        """Estimated number of households."""
        return self.people.total

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The tables it was fitted to: those of one person, and those of two."""
        return (*self.people.cliques, *(one.clique for one in self.pairs))

    @property
    def tree(self) -> JunctionTree:
        """What the model ties together of a household and one person, for people."""
        return junction_tree(self.people.domain, self.people.cliques)

    def sample(self, households: int, rng: np.random.Generator, *, passes: int | None = None) -> Households:
        """Draw households in which the pairs of people are as measured, as far as exchanges can make them.

        Where there are rules, a few are drawn among many, so that enough of every size keep them. Where none keeps
        them, people are those of households of which nothing is known but the rules: the answers are paid by then.

        Args:
            households: how many.
            rng: source of randomness; equal states give equal households.
            passes: exchanges tried for each person; None takes what suffices.

        Returns:
            The households; rules across people hold in their codes.

        Raises:
            FeasibilityError: hardly any household keeps the rules.
        """
        return join_households(list(self.portions(households, rng, passes=passes)))

    def portions(self, households: int, rng: np.random.Generator, *, passes: int | None = None) -> Iterator[Households]:
        """Draw households as `sample` does, some at a time; together they are what that gives.

        Args:
            households: how many.
            rng: source of randomness.
            passes: exchanges tried for each person; None takes what suffices.

        Yields:
            At most `CHUNK` households.
        """
        wanted = max(households, MIN_DRAWN if self.schema.together else 1)
        for start in range(0, wanted, CHUNK):
            held = self.arrange(min(CHUNK, wanted - start), rng, passes=passes)
            yield first_households(shuffle(self._settled(held, rng), rng), households - start)

    def _settled(self, held: Households, rng: np.random.Generator) -> Households:
        try:
            return settle(held, self.schema, rng)
        except FeasibilityError:
            if not self.people.cliques:  # nothing is known
                raise
        others = know_nothing(self.schema).sample(MIN_DRAWN, rng)
        return first_households(settle(join_households([held, others]), self.schema, rng), len(held.sizes))

    def arrange(self, households: int, rng: np.random.Generator, *, passes: int | None = None) -> Households:
        """Draw households as `sample` does, without replacing those that break a rule.

        Args:
            households: how many.
            rng: source of randomness.
            passes: exchanges tried for each person; None takes what suffices.

        Returns:
            The households.
        """
        drawn = draw_households(self.people, self.schema, households, rng)
        more = {} if passes is None else {"passes": passes}
        ranked = rank_attributes(self.people, self.schema)
        return arrange(drawn, self.schema, self.pairs, rng, total=self.total, ranked=ranked, **more)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        with TemporaryDirectory() as folder:
            one = Path(folder) / "people.npz"
            self.people.save(one)
            people = np.frombuffer(one.read_bytes(), dtype=np.uint8)
        pairs = [{"clique": one.clique, "sigma": one.sigma} for one in self.pairs]
        tables = {f"pair{number}": one.noisy for number, one in enumerate(self.pairs)}
        return {"schema": self.schema.text(), "pairs": pairs}, {"people": people, **tables}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Self:
        schema = LinkedSchema.of_text(header["schema"])
        with TemporaryDirectory() as folder:
            one = Path(folder) / "people.npz"
            one.write_bytes(stored["people"].tobytes())
            people = load_model(one)
        domain, pairs = schema.domain(min(2, schema.largest)), []
        for number, said in enumerate(header["pairs"]):
            clique, noisy = tuple(said["clique"]), stored[f"pair{number}"]
            if noisy.shape != domain.shape(clique) or not np.isfinite(noisy).all():
                raise ValueError(clique)
            pairs.append(Measurement(clique, noisy, float(said["sigma"])))
        if people.domain != schema.domain(1):
            raise ValueError("another domain")
        return cls(schema, people, tuple(pairs))


def know_nothing(schema: LinkedSchema) -> HouseholdModel:
    """Returns a model of households of which nothing is known but the rules of single people."""
    domain = schema.domain(1)
    people = MarkovRandomField(junction_tree(domain, ()), (), np.zeros(0), total=float(MIN_DRAWN))
    return HouseholdModel(schema, people, ())
