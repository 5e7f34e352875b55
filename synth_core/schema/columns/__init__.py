"""What one column of a table may hold, and which code stands for what: a module for each kind of column.

Codes of a column run 0 … size-1: first the declared values or bins in their declared order, then (numbers) NOT IN
UNIVERSE where it is declared, then OTHER (where `unseen: other`), then NULL (where `nullable: true`). All of it is
declared in public, never read from the data.

A new kind is a subclass of `ColumnBase` in a file of its own here, and a name in `AnyColumn`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import BeforeValidator, Field

from synth_core.schema.columns.categorical import Categorical
from synth_core.schema.columns.numbers import Integer, Real

__all__ = ["INSTEAD", "KINDS", "AnyColumn", "Categorical", "Column", "Integer", "Real"]

AnyColumn: TypeAlias = Categorical | Integer | Real

KINDS: tuple[str, ...] = tuple(kind.model_fields["kind"].default for kind in get_args(AnyColumn))
"""What `kind` may be."""

ALSO = {"category": "categorical", "int": "integer", "float": "real"}
"""Other words for kinds, which leave no doubt."""

_DATES = "; declare a date as text (kind: categorical, each value listed), or its year as kind: integer"
_TRUTHS = "; declare it as kind: categorical with the two values as the source has them, such as [true, false]"
_TEXTS = "; use categorical with each value listed; free text cannot be synthesized"
_NUMBERS = "; use real, or integer for whole numbers"
INSTEAD = {
    **dict.fromkeys(("date", "datetime", "time"), _DATES),
    **dict.fromkeys(("bool", "boolean"), _TRUTHS),
    **dict.fromkeys(("text", "string", "str", "object", "factor", "nominal", "ordinal"), _TEXTS),
    **dict.fromkeys(("number", "numeric", "numerical", "continuous", "double"), _NUMBERS),
}
"""How to declare what there is no kind for, by the word that people try."""


def _with_kind(raw: object) -> object:
    """The declaration of a column with its kind, where it is left out and follows from the other keys."""
    if not isinstance(raw, dict):
        return raw
    kind = raw.get("kind")
    if isinstance(kind, str):
        return {**raw, "kind": ALSO.get(kind, kind)}
    if kind is not None:
        return raw
    if "values" in raw or "compare" in raw:
        return {"kind": "categorical", **raw}
    numbers = [one for key in ("bounds", "bins") if isinstance(raw.get(key), list | tuple) for one in raw[key]]
    # Whole numbers as edges may belong to either kind of number.
    return {"kind": "real", **raw} if any(isinstance(one, float) for one in numbers) else raw


Column: TypeAlias = Annotated[Annotated[AnyColumn, Field(discriminator="kind")], BeforeValidator(_with_kind)]
