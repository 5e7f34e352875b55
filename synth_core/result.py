"""What a call of `synthesize` gives back: the synthetic table, what it cost, and ways to look at it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any

from synth_core.errors import needing
from synth_core.inference.published import Askable, Asking
from synth_core.inference.replicates import Replicates
from synth_core.inference.uncertain import Uncertain
from synth_core.ledger.book import counted_records, pure_loss
from synth_core.markup import table_html
from synth_core.models.mixture import Model
from synth_core.privacy.accounts import Record
from synth_core.privacy.budget import epsilon_of, mu2_of, mu_of
from synth_core.privacy.wording import exact_text, loss_text
from synth_core.schema import Schema
from synth_core.synthesizers.moments import Moments
from synth_core.synthesizers.replicates import Redrawing

if TYPE_CHECKING:
    import pandas as pd

    from synth_core.evaluation import Evaluation

SHOWN_ROWS = 5
"""Rows of the synthetic table that a notebook shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a release costs: the larger of what it asked for and what it was charged, at its delta.

    Attributes:
        epsilon: the privacy loss that is promised, rounded up where it is written.
        delta: the other half of the guarantee.
        mu: the same promise as a parameter of Gaussian differential privacy.
        spent: the epsilon that its charges are worth.
        unit: whom the promise protects, and "accounted for nowhere" where no ledger was given.
        pure: the epsilon that bounds the answers without a delta; None where a question had noise that needs one.
    """

    epsilon: float
    delta: float
    mu: float
    spent: float
    unit: str
    pure: float | None = None

    def __str__(self) -> str:
        return (
            f"epsilon {loss_text(self.epsilon)} at delta {exact_text(self.delta)} per {self.unit}; "
            f"spent: epsilon {loss_text(self.spent)}"
            + (f", without a delta {loss_text(self.pure)}" if self.pure is not None else "")
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


@dataclass(frozen=True, slots=True, repr=False)
class Release(Askable):
    """A synthetic table, the model it was drawn from, and the ledger records of what it cost.

    Attributes:
        table: the synthetic rows.
        records: the release's records in the ledger, oldest first, as they are.
        model: the model from which the rows were drawn.
        unit: whom the promise protects, and "accounted for nowhere" where no ledger was given.
        schema: the public declaration of the columns.
        asked: the epsilon that was asked for, and the delta.
        reused: which answers of earlier releases the model knows, by release, and whether they were used.
        moments: bought sums of numbers, by column.
        redrawing: how replicates of the model are made; None for a model that has none.
        prior: which public table the model builds on, who says that it is public, and whether the noisy answers bore it
            out; None without one.
    """

    table: pd.DataFrame
    records: list[Record]
    model: Model
    unit: str
    schema: Schema
    asked: tuple[float, float]
    reused: tuple[dict[str, Any], ...] = ()
    moments: Mapping[str, Moments] = field(default_factory=dict)
    redrawing: Redrawing | None = None
    prior: dict[str, Any] | None = None
    _replicates: list[Replicates] = field(default_factory=list)

    @property
    def cost(self) -> Cost:
        """What the release costs."""
        return cost_of(self.records, self.asked, self.unit)

    @property
    def spends(self) -> pd.DataFrame:
        """One row for each batch of questions that was paid for.

        The columns are step, purpose, mechanism, questions, noise_sigma (standard deviation in records, of the question
        with the most noise; none for a choice) and mu2, which add up to what the release was charged.
        """
        return list_spends(self.records)

    def summary(self) -> str:
        """Says what the release is and what it cost, in a few lines.

        Returns:
            The text; it is public, like the table.
        """
        spends = self.spends
        batches = "1 batch" if len(spends) == 1 else f"{len(spends):,} batches"
        asked = f"{int(spends.questions.sum()):,} questions in {batches}"
        lines = [
            f"{len(self.table):,} synthetic records of {len(self.table.columns)} columns, "
            f"from about {self.model.total:,.0f} (noisy)",
            f"cost       {self.cost}",
            f"asked      {asked}",
        ]
        lines += [
            f"reused     {one['tables']:,} noisy tables of release {one['release']}"
            for one in self.reused
            if one["used"]
        ]
        if self.prior:
            files = ", ".join(f"{file['name']} ({file['sha256'][:12]}…)" for file in self.prior["files"])
            aside = "" if self.prior["used"] else "; not borne out by the noisy answers, and set aside"
            lines.append(f"public     {files}, {self.prior['rows']:,} records{aside}")
        if self.schema.rules:
            broken = sum(int(rows.sum()) for rows in self.schema.violations(self.table).values())
            lines.append(f"rules      {len(self.schema.rules)} declared, {broken:,} rows that break one")
        return "\n".join(lines)

    def uncertain(self, *, replicates: int = 12) -> Uncertain:
        """The model with its replicates, which are made when they are first asked for.

        Args:
            replicates: how often the model is fitted again to redrawn noise, the first time.

        Returns:
            What any table is by the model, and how far it may be off.
        """
        if not self._replicates:
            again = self.redrawing
            made = (
                [Replicates.of(self.model, [again.replicate(number)]) for number in range(replicates)] if again else []
            )
            self._replicates.append(Replicates.joined([Replicates.of(self.model, []), *made]))
        return Uncertain(self.model, self._replicates[0])

    def _asking(self) -> Asking:
        return Asking(self.uncertain(), self.schema, self.moments)

    def evaluate(self, real: pd.DataFrame) -> Evaluation:
        """Compare the synthetic table with the real one.

        Args:
            real: the confidential table that was synthesized, or another of the same columns.

        Returns:
            Every true error. It is computed from confidential rows without noise: keep it inside.

        Raises:
            SourceError: the table does not fit the schema; names the column, never a value.
            MissingExtra: the extra `evaluation` is not installed.
        """
        with needing("evaluation"):
            from synth_core.evaluation import compare

        return compare(real, self.table, self.schema)

    def __repr__(self) -> str:
        return f"<Release: {len(self.table):,} synthetic records of {len(self.table.columns)} columns, {self.cost}>"

    def _repr_html_(self) -> str:
        first, *lines = self.summary().splitlines()
        facts = table_html([line.split(maxsplit=1) for line in lines], title=first)
        head = self.table.head(SHOWN_ROWS)
        rows = table_html(head.astype(str).to_numpy().tolist(), title="First rows", head=[str(c) for c in head.columns])
        return f"{facts}{rows}"


def cost_of(records: Sequence[Record], asked: tuple[float, float], unit: str) -> Cost:
    """Add up what a release costs.

    Args:
        records: its records in the ledger.
        asked: the epsilon that was asked for, and the delta.
        unit: whom the promise protects.

    Returns:
        The larger of what was asked and what was charged.
    """
    epsilon, delta = asked
    charged = sum((record.mu2 for record in counted_records(records)), Fraction(0))
    spent = epsilon_of(charged, delta)
    promised = max(charged, mu2_of(epsilon, delta))
    whole, pure = max(epsilon, spent), pure_loss(records)
    return Cost(epsilon=whole, delta=delta, mu=mu_of(promised), spent=spent, unit=unit, pure=pure)


def list_spends(records: Sequence[Record]) -> pd.DataFrame:
    """List what was paid for, one row for each batch of questions.

    Args:
        records: a release's records in the ledger.

    Returns:
        The columns step, purpose, mechanism, questions, noise_sigma and mu2.
    """
    import pandas as pd

    rows = [
        (
            record.step,
            record.purpose,
            record.mechanism.name,
            record.mechanism.count,
            _sigma(record),
            float(record.mu2),
        )
        for record in counted_records(records)
    ]
    return pd.DataFrame(rows, columns=["step", "purpose", "mechanism", "questions", "noise_sigma", "mu2"])


def _sigma(record: Record) -> float:
    """The noise on the question with the most of it, in records; NaN for a choice, which has none."""
    if record.mechanism.name not in ("discrete_gaussian", "discrete_laplace"):
        return math.nan
    return math.sqrt(max(record.mechanism.variances()))
