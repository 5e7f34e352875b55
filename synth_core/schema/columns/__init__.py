"""What one column of a table may hold, and which code stands for what: a module for each kind of column.

Codes of a column run 0 … size-1: first the declared values or bins in their declared order, then (numbers) NOT IN
UNIVERSE where it is declared, then OTHER (where `unseen: other`), then NULL (where `nullable: true`). All of it is
declared in public, never read from the data.

A new kind is a subclass of `ColumnBase` in a file of its own here, and a name in `AnyColumn`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from synth_core.schema.columns.categorical import Categorical
from synth_core.schema.columns.numbers import Integer, Real

__all__ = ["KINDS", "AnyColumn", "Categorical", "Column", "Integer", "Real"]

AnyColumn: TypeAlias = Categorical | Integer | Real
Column: TypeAlias = Annotated[AnyColumn, Field(discriminator="kind")]

KINDS: tuple[str, ...] = tuple(kind.model_fields["kind"].default for kind in get_args(AnyColumn))
"""What `kind` may be."""
