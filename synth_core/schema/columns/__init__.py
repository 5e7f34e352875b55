"""What one column of a table may hold, and which code stands for what: a module for each kind of column.

Codes of a column run 0 … size-1: first the declared values or bins in their declared order, then (numbers) NOT IN
UNIVERSE where it is declared, then OTHER (where `unseen: other`), then NULL (where `nullable: true`). All of it is
declared in public, never read from the data.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from synth_core.schema.columns.base import OTHER, ColumnBase, Declaration
from synth_core.schema.columns.categorical import Categorical, Comparison
from synth_core.schema.columns.numbers import Integer, NumberBase, PrivateQuantiles, Real

__all__ = [
    "OTHER",
    "AnyColumn",
    "Categorical",
    "Column",
    "ColumnBase",
    "Comparison",
    "Declaration",
    "Integer",
    "NumberBase",
    "PrivateQuantiles",
    "Real",
]

AnyColumn: TypeAlias = Categorical | Integer | Real
Column: TypeAlias = Annotated[AnyColumn, Field(discriminator="kind")]
