"""Two linked tables as households with their people, and exact counts of their tuple relation.

**Record-wise reading.** The unit is the household: all rows of both tables with one name in the linking column. What
becomes of it depends on these rows alone (and on a key), so adding or removing a household changes no other:
- a name that the table of households has twice leaves the household out, and so does one that it has not (people
  without a household) or that no person bears (a household without people);
- where people's rows repeat the columns of their household, the different rows of these columns are its table of
  households, so that one whose people disagree is there twice and left out;
- of more people than the largest household has, that many are kept, by the keyed rule of `storage.contribution`.
Names are told apart by keyed hashes as there, and each cell becomes a code by itself (`schema.codec`).

**The tuple relation** for t places: a household of s >= t people stands for its s! / (s - t)! ordered t-tuples of
different people, each with the weight (s - t)! / s!; a smaller household stands for nothing.

**Sensitivity 1.** Add or remove a household. Its tuples' weights are positive and sum to 1 (or there are none), so the
table of any marginal over household attributes, size and person attributes of any places changes by a vector v >= 0
with |v|_1 <= 1, and |v|_2 <= |v|_1. That holds whatever the size, and it is attained by a household all of whose people
are alike. A linear query changes by at most its largest column, by convexity; of other queries see `privacy.queries`.

**The reference person's relation** gives a household with exactly one reference person and s - 1 others s - 1 pairs of
the weight 1 / (s - 1), and any other household none. Weights are positive and sum to 1 or to 0, so the same holds.

**Exchangeable places.** A permutation of the places maps the tuples of a household onto one another and keeps their
weights, so the table of a marginal over place 2 is the one of the same attributes of place 1, and that over age of
place 1 and sex of place 2 is the transposed one of sex of place 1 and age of place 2. Every question therefore has a
form in which places are as low as can be (`canonical_clique`); asked once, it is known for all places. Those of the
reference person's relation cannot be exchanged, and its tables are questions of their own.

Counts are exact integers in units of 1/`scale`: a multiple of every s! / (s - t)! up to the largest household.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.models.tuples import Anchor, Households, count_tuples
from synth_core.privacy.noise import GRID
from synth_core.privacy.queries import Counts
from synth_core.schema.cells import frame_cells
from synth_core.schema.codec import encode
from synth_core.schema.linked import TABLES, LinkedSchema
from synth_core.storage.contribution import UNIT_COLUMNS, ContributionBound, check_unit_column, kept_rows, unit_hashes
from synth_core.storage.counting import CachedCounts

if TYPE_CHECKING:
    import pandas as pd


def encode_households(frames: Mapping[str, pd.DataFrame], schema: LinkedSchema, key: bytes) -> Households:
    """Encode two linked frames.

    Args:
        frames: the tables `household` and `person`.
        schema: their declaration.
        key: the secret that decides which people of too large a household are kept.

    Returns:
        The households that have one row and people, in an order that depends on the key.

    Raises:
        SourceError: if a table does not fit its schema, or a row has no name in the linking column.
    """
    bound = household_bound(schema, key)
    encoded: dict[str, dict[str, NDArray[Any]]] = {}
    for table in TABLES:
        frame, source = frames[table], f"the frame {table!r}"
        check_unit_column(list(frame.columns), schema.link, source=source)
        cells = frame_cells(frame[schema.link], numbers=bound.kind == "integer", source=source)
        names = unit_hashes(cells, bound, source=source)
        encoded[table] = {**encode(frame, schema.table(table), source=source), **names}
    return join_tables(encoded, schema, bound)


def household_bound(schema: LinkedSchema, key: bytes) -> ContributionBound:
    """How households are told apart, and how many people of each are kept.

    Args:
        schema: the declaration of the tables.
        key: the secret that decides which people of too large a household are kept.

    Returns:
        The bound on the rows of a household in the table of people.
    """
    kind = cast("Literal['text', 'integer']", schema.tables.link_kind)
    return ContributionBound(schema.link, schema.largest, key, kind)


def join_tables(
    encoded: Mapping[str, Mapping[str, NDArray[Any]]], schema: LinkedSchema, bound: ContributionBound
) -> Households:
    """Join encoded rows of both tables to households.

    Args:
        encoded: codes by column and hashes of the households' names, of both tables; or of people alone, whose rows
            repeat the columns of their household.
        schema: the declaration of the tables.
        bound: how many people of a household are kept.

    Returns:
        The households that have one row and people, in the order of their names' hashes.
    """
    rows = encoded["person"]
    homes = encoded["household"] if "household" in encoded else _repeated_rows(rows, schema.household.domain.attributes)
    people = {name: rows[name] for name in (*schema.person.domain.attributes, *UNIT_COLUMNS)}
    household, person = _groups(homes, people)
    number, living = np.bincount(household), np.bincount(person)
    length = max(len(number), len(living))
    number, living = np.pad(number, (0, length - len(number))), np.pad(living, (0, length - len(living)))
    kept = np.flatnonzero(_kept_people(people, living[person] > bound.most, bound))
    living = np.minimum(living, bound.most)
    whole = (number == 1) & (living > 0)
    homes_at, people_at = (_sorted_where(whole, groups) for groups in (household, person[kept]))
    own = kept[people_at]
    return Households(
        {f"household.{name}": homes[name][homes_at] for name in schema.household.domain.attributes},
        {f"person.{name}": people[name][own] for name in schema.person.domain.attributes},
        living[whole].astype(np.int64),
    )


def _kept_people(
    people: Mapping[str, NDArray[Any]], crowded: NDArray[np.bool_], bound: ContributionBound
) -> NDArray[np.bool_]:
    """Who is kept: everybody but some of those of too large a household, about whom the keyed rule is asked."""
    kept = np.ones(len(crowded), dtype=np.bool_)
    if crowded.any():
        (kept[crowded],) = kept_rows([{name: own[crowded] for name, own in people.items()}], bound)
    return kept


def _repeated_rows(rows: Mapping[str, NDArray[Any]], columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The different rows that each household has in columns of its own: one, where all its people say the same."""
    names = (*UNIT_COLUMNS, *columns)
    order = np.lexsort([rows[name] for name in reversed(names)])
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = np.any([rows[name][order][1:] != rows[name][order][:-1] for name in names], axis=0)
    return {name: rows[name][order[new]] for name in names}


def _sorted_where(whole: NDArray[np.bool_], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows whose group is whole, group by group, in their order otherwise."""
    found = np.flatnonzero(whole[groups])
    return found[np.argsort(groups[found], kind="stable")]


def _groups(*names: Mapping[str, NDArray[np.uint64]]) -> list[NDArray[np.int64]]:
    """The number of each row's unit, in the order of the units' hashes."""
    high, low = (np.concatenate([own[half] for own in names]) for half in UNIT_COLUMNS)
    order = np.lexsort((low, high))
    new = np.ones(len(order), dtype=np.int64)
    new[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.cumsum(new) - 1
    return np.split(groups, np.cumsum([len(own[UNIT_COLUMNS[0]]) for own in names])[:-1])


class TupleCounts(CachedCounts):
    """Counts of the tuple relation of households in memory."""

    def __init__(
        self, households: Households, domain: Domain, *, places: int, largest: int, anchor: Anchor | None = None
    ) -> None:
        """Count tuples of `places` people over the `domain` that the schema gives for them, as it does the `anchor`."""
        super().__init__(domain)
        self.scale = count_scale(places, largest)
        self._places = places
        self._households = households
        self._anchor = anchor

    def _count(self, cliques: Sequence[Clique]) -> list[Counts]:
        return count_tuples(
            self._households, self._domain, cliques, places=self._places, scale=self.scale, anchor=self._anchor
        )


def count_scale(places: int, largest: int) -> int:
    """How many units a household's weight is divided into: the least common multiple, or the first over the grid.

    Args:
        places: people of a tuple.
        largest: people of the largest household.

    Returns:
        A multiple of the number of tuples of every household.
    """
    least = math.lcm(*(math.perm(size, places) for size in range(places, largest + 1)))
    return least * -(-GRID // least)
