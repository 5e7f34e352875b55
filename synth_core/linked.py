"""Two linked tables, synthesized: what a call of `synthesize` does with them, and what it gives back.

The unit is the household: the promise is about adding or removing one with all its people.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from synth_core.errors import SourceError, SpecError, needing
from synth_core.markup import table_html
from synth_core.models.households import HouseholdModel
from synth_core.privacy.accounts import Account, Record
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.privacy.wording import exact_text, loss_text
from synth_core.release.manifest import person_statement
from synth_core.result import Cost, cost_of, list_spends
from synth_core.schema.codec import to_frame
from synth_core.schema.linked import TABLES, LinkedSchema
from synth_core.storage.households import TupleCounts, encode_households
from synth_core.synthesizers.base import Progress, Synthesizer, Tools, run_phases
from synth_core.synthesizers.companions import measure_companions
from synth_core.synthesizers.household_rows import draw_tables

if TYPE_CHECKING:
    import pandas as pd

    from synth_core.evaluation.linked import LinkedErrors

UNIT = "household"
"""What the accounts of linked tables protect."""


@dataclass(frozen=True, slots=True, repr=False)
class LinkedRelease:
    """Two linked synthetic tables, the model they were drawn from, and the ledger records of what they cost.

    Attributes:
        tables: the synthetic tables `household` and `person`; both have the linking column, with synthetic names.
        records: the release's records in the ledger, oldest first, as they are.
        model: the model from which the households were drawn.
        unit: whom the promise protects, and "accounted for nowhere" where no ledger was given.
        schema: the public declaration of the tables.
        asked: the epsilon that was asked for, and the delta.
    """

    tables: dict[str, pd.DataFrame]
    records: list[Record]
    model: HouseholdModel
    unit: str
    schema: LinkedSchema
    asked: tuple[float, float]

    @property
    def cost(self) -> Cost:
        """What the release costs, for one household."""
        return cost_of(self.records, self.asked, self.unit)

    @property
    def person_epsilon(self) -> float:
        """What the release costs for one person who is added, removed or answers differently, at the same delta.

        That replaces one household by another: one is removed and one added, so twice mu. (Somebody who moves from one
        household of the data to another changes both: four times mu.)
        """
        said = person_statement({"epsilon": self.cost.epsilon, "delta": self.cost.delta})
        return float(said["epsilon"])

    @property
    def spends(self) -> pd.DataFrame:
        """One row for each batch of questions that was paid for; the columns are those of `Release.spends`."""
        return list_spends(self.records)

    def summary(self) -> str:
        """Says what the release is and what it cost, in a few lines.

        Returns:
            The text; it is public, like the tables.
        """
        household, person = (self.tables[name] for name in TABLES)
        spends = self.spends
        broken = sum(int(rows.sum()) for rows in self.schema.violations(self.tables).values())
        lines = [
            "Synthetic households and their people",
            f"households {len(household):,} of {len(household.columns)} columns",
            f"people     {len(person):,} of {len(person.columns)} columns",
            f"cost       {self.cost}",
            f"one person epsilon {loss_text(self.person_epsilon)} at delta {exact_text(self.cost.delta)}: somebody "
            "added, removed or answering differently replaces one household (twice mu)",
            f"asked      {int(spends.questions.sum()):,} questions in {len(spends):,} batches",
        ]
        if self.schema.together:
            lines.append(f"rules      {len(self.schema.together)} across people, {broken:,} households that break one")
        return "\n".join(lines)

    def evaluate(self, real: Mapping[str, pd.DataFrame]) -> LinkedErrors:
        """Compare the synthetic tables with the real ones.

        Args:
            real: the confidential tables that were synthesized, or others of the same columns.

        Returns:
            Every true error. It is computed from confidential rows without noise: keep it inside.

        Raises:
            SourceError: a table does not fit the schema, or has no household; names the column, never a value.
        """
        with needing("evaluation"):
            from synth_core.evaluation.linked import compare_households

        check_tables(real)
        key = secrets.token_bytes(32)
        left = encode_households(real, self.schema, key)
        right = encode_households(self.tables, self.schema.as_decoded, key)
        if not len(left.sizes):
            raise SourceError("the real tables have no household with people; there is nothing to compare")
        broken = np.any(
            [np.zeros(len(self.tables["household"]), bool), *self.schema.violations(self.tables).values()], 0
        )
        return compare_households(left, right, self.schema, broken=int(broken.sum()))

    def __repr__(self) -> str:
        household, person = (self.tables[name] for name in TABLES)
        return f"<LinkedRelease: {len(household):,} synthetic households with {len(person):,} people, {self.cost}>"

    def _repr_html_(self) -> str:
        first, *lines = self.summary().splitlines()
        return table_html([line.split(maxsplit=1) for line in lines], title=first)


def check_tables(frames: Mapping[str, Any]) -> None:
    """Raises SpecError unless the frames are the two tables."""
    if set(frames) != set(TABLES):
        raise SpecError('two linked tables are given as {"household": …, "person": …}, and no others')


def check_household_account(account: Account) -> None:
    """Raises SpecError unless an account protects one household, of whatever size."""
    if account.unit != UNIT or account.rows_per_unit != 1:
        raise SpecError(
            f"dataset {account.dataset!r} protects one {account.unit} of {account.rows_per_unit} rows; linked tables "
            f"need an account whose unit is the {UNIT}, with 1 row per unit"
        )


def count_households(
    frames: Mapping[str, pd.DataFrame], schema: LinkedSchema
) -> tuple[TupleCounts, TupleCounts | None]:
    """Encode two frames and wrap their counts.

    Args:
        frames: the confidential tables.
        schema: their declaration.

    Returns:
        Counts of the tuple relation of one place, and of two where households have several people.

    Raises:
        SourceError: a table does not fit the schema.
    """
    held = encode_households(frames, schema, secrets.token_bytes(32))
    one = TupleCounts(held, schema.domain(1), places=1, largest=schema.largest)
    if schema.largest == 1:
        return one, None
    return one, TupleCounts(held, schema.domain(2), places=2, largest=schema.largest, anchor=schema.anchor)


def converse(
    method: Synthesizer,
    plan: BudgetPlan,
    pairs: Fraction,
    schema: LinkedSchema,
    counts: tuple[TupleCounts, TupleCounts | None],
    curator: Callable[[str, TupleCounts], Curator],
    *,
    progress: Progress,
) -> HouseholdModel:
    """Let the method ask about one person of each household, and then ask about pairs of people.

    Args:
        method: any method.
        plan: what it planned for the domain of one place.
        pairs: what questions about pairs of people may spend; 0 asks none.
        schema: the declaration of the tables.
        counts: those of one place, and of two.
        curator: gives the curator of a step over some counts.
        progress: called with one line for each thing worth reporting.

    Returns:
        The model of households.
    """
    one, two = counts
    talk = run_phases(method, plan, lambda step: curator(step, one), Tools(progress=progress))
    if two is None or not pairs:
        return HouseholdModel(schema, talk.model, ())
    return measure_companions(curator("fit", two), schema, talk.model, pairs, progress=progress)


def write_tables(model: HouseholdModel, households: int, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Draw households from a model and decode them.

    Args:
        model: the model.
        households: how many.
        rng: source of randomness.

    Returns:
        The two tables, with synthetic names in the linking column; no household breaks a rule.

    Raises:
        FeasibilityError: hardly any household of some size keeps the rules.
    """
    portions = list(draw_tables(model, households, rng))
    return {name: to_frame(pa.concat_tables([portion[name] for portion in portions])) for name in TABLES}
