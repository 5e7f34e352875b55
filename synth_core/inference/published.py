"""A published release as its folder says it, for any reader of a copy: no ledger and no confidential zone is needed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from synth_core.arrays import Floats
from synth_core.errors import SourceError
from synth_core.inference.ask import AskedTable, ask
from synth_core.inference.uncertain import LEVEL, Uncertain
from synth_core.schema import Schema
from synth_core.schema.columns.numbers import NumberBase
from synth_core.schema.densities import Densities
from synth_core.synthesizers.moments import Moments, read_moments
from synth_core.synthesizers.pooled_numbers import pool_numbers


class Askable(ABC):
    """What answers questions about a table by its model."""

    __slots__ = ()

    @abstractmethod
    def _asking(self) -> Asking:
        """The model that is asked."""

    def ask(
        self,
        by: str | Sequence[str] = (),
        *,
        where: Mapping[str, str | int | Collection[str | int]] | None = None,
        share: bool = False,
        mean: str | None = None,
        level: float = LEVEL,
    ) -> AskedTable:
        """Ask for a table, with an interval for each number; costs no privacy.

        The first question about a table in memory makes the replicates of its model, which takes about as long as some
        more fits.

        Args:
            by: columns of the table; one name may stand alone, none asks for one number.
            where: values that records have in some columns, in the schema's words, such as `{"sex": "female"}`.
            share: shares of the records that meet the condition instead of counts.
            mean: the column of numbers whose mean is asked for instead.
            level: share of the true values that the intervals are to hold.

        Returns:
            The answer: the model's own, without sampling error; print it or take `to_frame()`.

        Raises:
            SpecError: a column or a value is unknown, or the question makes no sense.
        """
        asking = self._asking()
        return ask(
            asking.uncertain,
            asking.schema,
            [by] if isinstance(by, str) else list(by),
            where=where,
            measure="mean" if mean else "share" if share else "count",
            mean_of=mean,
            level=level,
            code_means=asking.code_means,
        )


@dataclass(frozen=True, eq=False)
class Asking:
    """A model with its schema, ready for questions."""

    uncertain: Uncertain
    schema: Schema
    moments: Mapping[str, Moments]

    @cached_property
    def _densities(self) -> Mapping[str, Densities]:
        numbers = pool_numbers(self.schema, lambda clique: self.uncertain.table(clique).values, self.moments)
        return numbers.densities

    def code_means(self, column: NumberBase) -> Floats:
        """The mean number of each code, by the densities from which the rows are drawn.

        Args:
            column: a column of numbers.

        Returns:
            One number for each code; NaN for codes beyond the bins, which are no numbers.
        """
        means = column.mean_numbers(self._densities[column.name])
        return np.concatenate([means, np.full(column.size - len(means), np.nan)])


@dataclass(frozen=True)
class PublishedRelease(Askable):
    """A published folder, or a copy of it; its files are read when they are needed."""

    folder: Path

    @cached_property
    def schema(self) -> Schema:
        """The schema as it was run."""
        return Schema.load(self.folder / "schema.yaml")

    @cached_property
    def uncertain(self) -> Uncertain:
        """The model with its replicates."""
        return Uncertain.load(self.folder)

    def _asking(self) -> Asking:
        schema, moments = self.schema, self.folder / "moments.json"  # the schema first: there may be two tables
        return Asking(self.uncertain, schema, read_moments(moments) if moments.exists() else {})


def load_release(folder: str | os.PathLike[str]) -> PublishedRelease:
    """Open a published release, or a copy of its public folder.

    Args:
        folder: the folder with `manifest.json`, or the manifest itself.

    Returns:
        The release, which answers questions.

    Raises:
        SourceError: there is no published release.
    """
    path = Path(folder)
    path = path.parent if path.name == "manifest.json" else path
    if not (path / "schema.yaml").is_file() or not (path / "model.npz").is_file():
        raise SourceError(
            f"{path} is no published release: it has no schema.yaml and model.npz; name its public folder"
        )
    return PublishedRelease(path)
