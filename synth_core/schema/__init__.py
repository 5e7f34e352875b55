"""What a cell may be: the public declaration of a table's columns and rules, and the way from cells to codes."""

from synth_core.schema.columns import Categorical, Column, Integer, Real
from synth_core.schema.linked import LinkedSchema
from synth_core.schema.rules import Dependency, Rule
from synth_core.schema.schema import DeclaredSchema, Schema

__all__ = ["Categorical", "Column", "DeclaredSchema", "Dependency", "Integer", "LinkedSchema", "Real", "Rule", "Schema"]
