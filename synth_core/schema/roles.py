"""What people are to one another in their household, declared so that reports and errors can speak of it.

roles: {column: relation, reference: reference, partner: partner, child: child, parent: parent, age: age}
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from synth_core.schema.columns.base import Declaration
from synth_core.schema.rules import Condition


class Roles(Declaration):
    """Which values of a column of people name their role, and which column holds their ages."""

    column: str = Field(description="column of the people that says what each is in the household")
    reference: Condition = Field(description="its value, or list of values, for the reference person")
    partner: Condition | None = Field(default=None, description="the same for the partner of the reference person")
    child: Condition | None = Field(default=None, description="the same for their children")
    parent: Condition | None = Field(default=None, description="the same for their parents")
    age: str | None = Field(default=None, description="column of numbers whose differences are compared and shown")

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The declared roles with their values."""
        named = {name: getattr(self, name) for name in ROLES}
        return {name: items for name, items in named.items() if items is not None}


ROLES = ("reference", "partner", "child", "parent")
"""The roles that may be declared, the reference person's first."""
