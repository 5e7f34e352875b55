"""Rows of two linked tables from a model of households: drawn, decoded, and named anew so that they can be joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from synth_core.domain import Codes
from synth_core.models.arrangement import find_donors
from synth_core.models.households import HouseholdModel
from synth_core.models.tuples import Households, member_rows
from synth_core.schema.codec import decode_table, guess_densities, to_frame
from synth_core.schema.densities import Densities
from synth_core.schema.linked import SIZE, CountRule, GapRule, LinkedSchema

LEAST_DECODED = 500
"""Households that are decoded at least where numbers may break a rule, for a few of them may all break it."""

REDRAWS = 20
"""Times that numbers inside bins are drawn anew where they break a rule across people."""


def draw_tables(
    model: HouseholdModel, households: int, rng: np.random.Generator, *, first: int = 1
) -> Iterator[dict[str, pa.Table]]:
    """Draw households from a model and decode them, some at a time.

    Args:
        model: the model.
        households: how many.
        rng: source of randomness; equal states give equal tables.
        first: synthetic name of the first household; the others have the numbers that follow.

    Yields:
        The two tables of some households, with their names in the linking column; none of them breaks a rule.

    Raises:
        FeasibilityError: hardly any household of some size keeps the rules.
    """
    schema, densities = model.schema, _guess_densities(model)
    least = LEAST_DECODED if any(isinstance(rule, GapRule) for rule in schema.together) else 0
    for held in model.portions(max(households, least), rng):
        codes = _matrix(held.attributes, len(held.sizes))
        table = decode_table(codes, schema.household, rng, densities["household"])
        people, sizes = _decode_people(schema, held, rng, densities["person"])
        sizes = sizes[:households]  # of the first portion, and the only one, there may be more
        table, people = table.slice(0, len(sizes)), people.slice(0, int(sizes.sum()))
        names = np.arange(first, first + len(sizes))
        first += len(sizes)
        yield {
            "household": table.add_column(0, _link(schema), pa.array(names)),
            "person": people.add_column(0, _link(schema), pa.array(np.repeat(names, sizes))),
        }


def _link(schema: LinkedSchema) -> pa.Field:
    return pa.field(schema.link, pa.int64(), nullable=False)


def _guess_densities(model: HouseholdModel) -> dict[str, dict[str, Densities]]:
    """Where inside their bins the numbers of each table lie; a household of s people counts s times among people."""
    schema = model.schema

    def of_household(name: tuple[str]) -> Any:
        return model.people.marginal((f"household.{name[0]}",))

    def of_person(name: tuple[str]) -> Any:
        table = model.people.marginal((SIZE, f"person.{name[0]}"))
        return (table * np.arange(1, schema.largest + 1)[:, None]).sum(axis=0)

    return {
        "household": guess_densities(schema.household, of_household),
        "person": guess_densities(schema.person, of_person),
    }


def _matrix(columns: Mapping[str, Codes], rows: int) -> Codes:
    return np.column_stack(list(columns.values())) if columns else np.zeros((rows, 0), np.uint8)


def _decode_people(
    schema: LinkedSchema, held: Households, rng: np.random.Generator, densities: Mapping[str, Densities]
) -> tuple[pa.Table, Any]:
    """Decode people; where numbers inside bins break a rule across people they are drawn anew. Also returns sizes."""
    sizes, codes = held.sizes, _matrix(held.people, int(held.sizes.sum()))
    drawn = [decode_table(codes, schema.person, rng, densities)]
    if not any(isinstance(rule, GapRule) for rule in schema.together):
        return drawn[0], sizes
    place, end = np.arange(len(codes)), len(codes)  # where each person stands in all that was drawn
    broken = np.flatnonzero(_breaks(schema, drawn[0], sizes))
    for _ in range(REDRAWS):
        if not len(broken):
            break
        rows = member_rows(sizes, broken)
        drawn.append(decode_table(codes[rows], schema.person, rng, densities))
        still = _breaks(schema, drawn[-1], sizes[broken])
        sound = ~np.repeat(still, sizes[broken])
        place[rows[sound]] = end + np.flatnonzero(sound)
        end += len(rows)
        broken = broken[still]
    source = find_donors(sizes, np.isin(np.arange(len(sizes)), broken), schema, rng)
    kept = place[member_rows(sizes, source)]
    people = drawn[0] if len(drawn) == 1 else pa.concat_tables(drawn).take(kept).combine_chunks()
    return people, sizes[source]


def _breaks(schema: LinkedSchema, people: pa.Table, sizes: Any) -> Any:
    """Whether each household breaks a rule, by the columns of which rules speak."""
    names: set[str] = set()
    for rule in schema.together:
        names |= set(rule.people) if isinstance(rule, CountRule) else {rule.column, *rule.lower, *rule.upper}
    frame = to_frame(people.select(sorted(names)))
    return np.any(list(schema.broken_rules(frame, sizes).values()), axis=0)
