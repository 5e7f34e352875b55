"""What a cell may be: the public declaration of a table's columns and rules, and the way from cells to codes."""

from synth_core.schema.declared import Categorical, Column, Dependency, Integer, Real, Rule, Schema

__all__ = ["Categorical", "Column", "Dependency", "Integer", "Real", "Rule", "Schema"]
