"""Who lives with whom: tables of pairs of people of one household, chosen round by round, and the model they make.

Any method models the tuple relation of one place: households, their sizes, and one person (`schema.linked`). What is
left is how the people of a household depend on one another beyond what the household says of each. It is asked of the
tuple relation of two places, in rounds as `privmrf` has them: households are drawn from what is known already, the
exponential mechanism picks the tables of pairs in which they differ most from the real ones, less the noise that a
measurement would put in, these are measured, and people are exchanged until the households have the measured tables
(`models.arrangement`).

Places are exchangeable: a table of the age of one and the sex of the other is asked once, and exchanges count each pair
of people both ways. Tables of a single place are never asked here, since the model of one person has them.

Where a rule says that each household has one reference person, tables of that person and another are asked for too: in
them a household of s people has s - 1 pairs instead of s (s - 1), so each weighs s times as much beside the same noise.
With roles and ages declared, the first of all questions is the table of the reference person's age by role and age of
the others, which has the ages of couples, and of parents and children.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from synth_core.domain import Clique, Domain
from synth_core.models.households import MIN_DRAWN, HouseholdModel, know_nothing
from synth_core.models.mixture import Model
from synth_core.models.tuples import UNITS, attribute_place, canonical_clique, count_tuples, is_anchored
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.schema.linked import REFERENCE, SIZE, LinkedSchema, place_name
from synth_core.synthesizers.base import Progress, noise_sigma, silent
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE


def check_together(schema: LinkedSchema) -> None:
    """Refuse rules across people that hardly any household keeps, before anything is spent or read.

    Args:
        schema: the declaration of the tables.

    Raises:
        FeasibilityError: no household of a model that knows nothing but the rules of single people keeps them all.
    """
    if schema.together:
        know_nothing(schema).sample(1, np.random.default_rng(0))


CHOICES = Fraction(1, 10)
"""Share of the budget for choosing tables of pairs."""

AGES = Fraction(1, 4)
"""Share of the budget for the ages of those who live together, where they are declared."""

ROUNDS = 4
"""Rounds of choosing, measuring and exchanging."""

PASSES = 12
"""Exchanges tried for each person between rounds: enough to see which tables are off."""

TABLES_PER_ATTRIBUTE = 2
"""Tables of pairs for each person attribute."""

THETA = 2.0
"""Least ratio of households to mean absolute noise in a cell of a table worth measuring."""

MAX_DRAWN = 50_000
"""Upper limit of the households that are drawn between rounds."""


def measure_companions(
    curator: Curator,
    schema: LinkedSchema,
    people: Model,
    mu2: Fraction,
    *,
    progress: Progress = silent,
    least: int = MIN_DRAWN,
) -> HouseholdModel:
    """Measure tables of pairs of people, in rounds.

    Args:
        curator: answers about the tuple relation of two places.
        schema: the declaration of the tables.
        people: the model of one person.
        mu2: what may be spent.
        progress: called with a line for each round.
        least: lower limit of the households that are drawn between rounds; an audit, which sees answers alone, may
            draw fewer.

    Returns:
        The model of households; without pairs if no table is worth its noise.
    """
    model, domain = HouseholdModel(schema, people, ()), curator.domain
    wanted = min(TABLES_PER_ATTRIBUTE * len(schema.person_attributes()), len(_pairs(schema)))
    sigma = noise_sigma(mu2 * (1 - CHOICES), count=wanted)
    largest = max(1.0, people.total) / (THETA * MEAN_ABSOLUTE * sigma)
    left = [clique for clique in candidate_tables(schema, domain) if domain.cells(clique) <= largest]
    ages = ages_table(schema)
    if ages and left:
        measured = curator.measure([ages], mu2 * AGES, purpose="ages of those who live together")
        model, mu2 = HouseholdModel(schema, people, tuple(measured)), mu2 * (1 - AGES)
        left = [clique for clique in left if not _covers(ages, clique)]
    wanted = min(wanted, len(left))
    sizes = [len(part) for part in np.array_split(np.arange(wanted), min(ROUNDS, max(1, wanted)))][::-1]
    drawn = round(min(max(people.total, least), MAX_DRAWN))
    for number, size in enumerate(sizes if wanted else ()):
        rng = np.random.default_rng(number)  # public: a retry asks the same again
        known = model.arrange(drawn, rng, passes=PASSES if model.pairs else 0)
        present = count_tuples(known, domain, left, places=2, scale=UNITS, anchor=schema.anchor)
        share = people.total / max(1, len(known.sizes)) / UNITS
        queries = [
            Misfit(clique, np.asarray(table * share, dtype=np.float64), PENALTY * MEAN_ABSOLUTE * sigma * table.size)
            for clique, table in zip(left, present, strict=True)
        ]
        chosen = _choose(curator, queries, mu2 * CHOICES * size / wanted, size, number)
        left = [clique for clique in left if not any(_covers(one, clique) for one in chosen)]
        weights = [domain.cells(clique) ** BY_SIZE for clique in chosen]
        measured = curator.measure(
            chosen, mu2 * (1 - CHOICES) * size / wanted, purpose=f"pairs: round {number}", weights=weights
        )
        model = HouseholdModel(schema, people, (*model.pairs, *measured))
        progress(f"pairs of people: round {number + 1} of {len(sizes)}")
        if not left:
            break
    return model


def ages_table(schema: LinkedSchema) -> Clique:
    """Name the table that has the ages of couples, and of parents and children.

    Args:
        schema: the declaration of the tables.

    Returns:
        The reference person's age by role and age of another; empty where roles, ages or the rule that a household has
        one reference person are not declared.
    """
    roles = schema.roles
    if roles is None or roles.age is None or schema.anchor is None:
        return ()
    age = f"person.{roles.age}"
    return schema.domain(2).clique((f"{age}@{REFERENCE}", place_name(schema.anchor[0], 2), place_name(age, 2)))


def candidate_tables(schema: LinkedSchema, domain: Domain) -> list[Clique]:
    """List the tables of pairs that may be asked for, each in the form in which its places are lowest.

    Args:
        schema: the declaration of the tables.
        domain: attributes of the tuple relation of two places.

    Returns:
        Each attribute of one person with each of another; the same by size, by each household attribute, and with a
        second attribute of one of the two; where there is one reference person, each attribute of that person with each
        of another, by the other's role.
    """
    pairs = _pairs(schema)
    shared = (SIZE, *schema.household_attributes)
    found = [*pairs, *((*pair, name) for pair in pairs for name in shared)]
    seconds = schema.person_attributes(2)
    for one, other in combinations(schema.person_attributes(), 2):
        found += [(one, other, second) for second in seconds]
    if schema.anchor:
        role = place_name(schema.anchor[0], 2)
        for one, other in product(schema.reference_attributes(), seconds):
            found.append((one, other) if other == role else (one, role, other))
    canonical = (canonical_clique(domain, domain.clique(clique))[0] for clique in found)
    return list(dict.fromkeys(canonical))


def _pairs(schema: LinkedSchema) -> list[Clique]:
    first, second = schema.person_attributes(), schema.person_attributes(2)
    return [(first[i], second[j]) for i in range(len(first)) for j in range(i, len(second))]


PENALTY = 0.4
"""Multiple of a table's expected noise taken off its misfit."""


def _choose(curator: Curator, queries: Sequence[Misfit], mu2: Fraction, count: int, number: int) -> list[Clique]:
    """Tables in which the drawn households differ most, one after the other; what one covers is not chosen again."""
    chosen: list[Clique] = []
    left = list(queries)
    for turn in range(count):
        if not left:
            break
        (best,) = curator.choose(left, mu2 / count, purpose=f"pairs: round {number}, choice {turn}")
        chosen.append(best.clique)
        left = [query for query in left if not _covers(best.clique, query.clique)]
    return chosen


def _covers(one: Clique, other: Clique) -> bool:
    """Whether a table says of two people all that another one says."""
    if set(other) <= set(one):
        return True
    people = {a for a in other if attribute_place(a)}
    return is_anchored(one) == is_anchored(other) and people == {a for a in one if attribute_place(a)}
