"""The audit of linked tables: neighbours differ by a household of the largest size, all of whose people are alike.

One canary has eight identical people, who move a table of one or of two places as far as any household can; the other
a reference person and seven identical others, who do so in the reference person's relation. All else are couples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from synth_core.audit.adversary import HOT_MU2, Experiment, Worlds
from synth_core.audit.cases import PlantedFault, verb_experiments
from synth_core.domain import Clique
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.models.tuples import Households
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Counts
from synth_core.schema.linked import LinkedSchema
from synth_core.storage.households import TupleCounts
from synth_core.synthesizers.base import Tools, run_phases
from synth_core.synthesizers.companions import measure_companions
from synth_core.synthesizers.households_first import households_first
from synth_core.synthesizers.methods import synthesizer

LARGEST = 8
"""People of the canary's household."""

COUPLES = 40
"""Households that are in both worlds."""

SCHEMA = LinkedSchema.model_validate(
    {
        "tables": {
            "link": "household",
            "largest": LARGEST,
            "household": {"columns": [{"name": "area", "kind": "categorical", "values": [0, 1, 2]}]},
            "person": {
                "columns": [
                    {"name": "relation", "kind": "categorical", "values": ["reference", "other", "canary"]},
                    {"name": "age", "kind": "integer", "bins": [0, 20, 40, 60]},
                ]
            },
            "roles": {"column": "relation", "reference": "reference", "age": "age"},
            "together": [{"name": "one reference person", "people": {"relation": "reference"}, "exactly": 1}],
        }
    }
)
"""The audited tables: the last code of every column is the canary's alone."""

CANARIES = {"eight people alike": 2, "a reference person and seven alike": 0}
"""The code of the first person's relation in each canary; all others have the last code of every column."""


class UnevenCounts(TupleCounts):
    """A planted fault: each pair of people counts as much as that of a couple, however many a household has."""

    def _count(self, cliques: Any) -> list[Counts]:
        pairs = math.perm(LARGEST, 2) // math.perm(2, 2)
        tables = super()._count(cliques)
        return [table * (1 if table.sum() <= COUPLES * self.scale else pairs) for table in tables]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One audit: its title, what is asked in which worlds, and who answers."""

    title: str
    experiment: Experiment
    worlds: Worlds
    curator: Callable[..., Curator] = Curator


def household_worlds(canary: str, *, places: int, kind: type[TupleCounts] = TupleCounts) -> Worlds:
    """Count couples, and the same couples with one household more.

    Args:
        canary: which of `CANARIES` it is.
        places: people of a tuple.
        kind: what counts.

    Returns:
        Both count sources.
    """
    ages = np.arange(2 * COUPLES) // 2 % 2
    couples = {"person.relation": np.array([0, 1] * COUPLES), "person.age": ages}
    eight = {"person.relation": np.array([CANARIES[canary]] + [2] * (LARGEST - 1)), "person.age": np.full(LARGEST, 2)}
    areas, sizes = np.arange(COUPLES) % 2, np.full(COUPLES, 2)
    without = Households({"household.area": areas}, couples, sizes)
    more = Households(
        {"household.area": np.append(areas, 2)},
        {name: np.concatenate([couples[name], eight[name]]) for name in couples},
        np.append(sizes, LARGEST),
    )
    domain = SCHEMA.domain(places)
    one, other = (kind(held, domain, places=places, largest=LARGEST, anchor=SCHEMA.anchor) for held in (without, more))
    return one, other


def household_cases(*, faults: bool) -> Iterator[Case]:
    """List the audits of linked tables.

    Args:
        faults: also list the planted faults, each of which must be caught.

    Yields:
        The verbs about one and two places with both canaries, the questions about pairs of people, and the faults.
    """
    for places in (1, 2):
        for canary in CANARIES:
            worlds = household_worlds(canary, places=places)
            for verb, experiment in _verbs(places).items():
                title = f"households, {places} {'place' if places == 1 else 'places'}, {canary}: {verb}"
                yield Case(title=title, experiment=experiment, worlds=worlds)
    worlds = household_worlds("eight people alike", places=1)
    yield Case(
        title="households, eight people alike: households first, then people", experiment=_release, worlds=worlds
    )
    for canary in CANARIES:
        worlds = household_worlds(canary, places=2)
        yield Case(title=f"households, {canary}: pairs of people", experiment=_pairs, worlds=worlds)
    if faults:
        measure = _verbs(2)["measure"]
        uneven = household_worlds("eight people alike", places=2, kind=UnevenCounts)
        yield Case(
            title="planted fault: weights of a household that are not normalised", experiment=measure, worlds=uneven
        )
        worlds = household_worlds("eight people alike", places=2)
        for title, curator in HOUSEHOLD_FAULTS.items():
            yield Case(title=f"planted fault: {title}", experiment=measure, worlds=worlds, curator=curator)


HOUSEHOLD_FAULTS: Mapping[str, Callable[..., Curator]] = {
    "one copy of a table measured twice": partial(PlantedFault, lambda noise, _: noise / math.sqrt(2)),
}
"""The mean of a table and of its copy with places exchanged, for the price of one, has half the variance."""


def _verbs(places: int) -> dict[str, Experiment]:
    every = verb_experiments(SCHEMA.domain(places), rows=COUPLES)
    return {name: every[name] for name in ("measure", "score", "choose")}


def _release(curator: Curator) -> None:
    method = households_first(synthesizer("privmrf"), SCHEMA)
    run_phases(method, method.plan(curator.domain, HOT_MU2), lambda _: curator, Tools(partial(estimate, max_passes=1)))


def _pairs(curator: Curator) -> None:
    people = MarkovRandomField(junction_tree(SCHEMA.domain(1), _SINGLE), (), np.zeros(0), total=float(COUPLES))
    measure_companions(curator, SCHEMA, people, HOT_MU2, least=COUPLES)


_SINGLE: tuple[Clique, ...] = ()
"""The cliques of a model that knows nothing."""
