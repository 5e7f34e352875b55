"""Two linked tables as households with their people, and exact counts of their tuple relation.

**Record-wise reading.** The unit is the household: all rows of both tables with one name in the linking column. What
becomes of it depends on these rows alone (and on a key), so adding or removing a household changes no other:
- a name that the table of households has twice leaves the household out, and so does one that it has not (people
  without a household) or that no person bears (a household without people);
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
from typing import TYPE_CHECKING, Literal, cast

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
    kind = cast("Literal['text', 'integer']", schema.tables.link_kind)
    bound = ContributionBound(schema.link, schema.largest, key, kind)
    codes, names = {}, {}
    for table in TABLES:
        frame, source = frames[table], f"the frame {table!r}"
        check_unit_column(list(frame.columns), schema.link, source=source)
        cells = frame_cells(frame[schema.link], numbers=kind == "integer", source=source)
        names[table] = unit_hashes(cells, bound, source=source)
        codes[table] = encode(frame, getattr(schema, table), source=source)
    (kept,) = kept_rows([codes["person"] | names["person"]], bound)
    household, person = _groups(names["household"], {name: half[kept] for name, half in names["person"].items()})
    rows, people = np.bincount(household), np.bincount(person)
    length = max(len(rows), len(people))
    rows, people = np.pad(rows, (0, length - len(rows))), np.pad(people, (0, length - len(people)))
    whole = (rows == 1) & (people > 0)
    chosen = np.flatnonzero(whole[household])
    chosen = chosen[np.argsort(household[chosen], kind="stable")]
    living = np.flatnonzero(whole[person])
    living = living[np.argsort(person[living], kind="stable")]
    return Households(
        {f"household.{name}": column[chosen] for name, column in codes["household"].items()},
        {f"person.{name}": column[kept][living] for name, column in codes["person"].items()},
        people[whole].astype(np.int64),
    )


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
