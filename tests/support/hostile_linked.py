"""Readers of two linked tables: their declaration, and the tables themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd

TABLES = """
tables:
  link: hid
  link_kind: integer
  largest: 4
  roles: {column: relation, reference: reference, partner: partner, child: child, age: age}
  household:
    columns:
      - {name: tenure, kind: categorical, values: [owned, rented]}
      - {name: rooms, kind: integer, bins: [1, 2, 4, 9], unseen: other}
    rules:
      - {name: owners have rooms, when: {tenure: owned}, never: {rooms: {max: 1}}}
  person:
    columns:
      - {name: relation, kind: categorical, values: [reference, partner, child], unseen: other}
      - {name: age, kind: integer, bounds: [0, 89], bins: 9}
    rules:
      - {name: partners are grown up, when: {relation: partner}, never: {age: {max: 9}}}
  together:
    - {name: one reference, people: {relation: reference}, exactly: 1}
    - {name: one partner, people: {relation: partner}, at_most: 1}
    - {name: children are younger, column: age, lower: {relation: child}, upper: {relation: reference}, by: 12}
"""
"""A declaration of two linked tables with every key."""

HOUSEHOLDS = """hid,tenure,rooms
1,owned,4
2,rented,1
3,rented,9
"""

PEOPLE = """hid,relation,age
1,reference,44
1,partner,41
1,child,12
2,reference,30
3,Zyxwvut,71
"""
"""People, one of whom has a value that no refusal may quote."""


class LinkedReaders:
    """One method for each reader."""

    folder: Path
    written: Callable[[str, bytes], Path]

    def tables(self, content: bytes) -> None:
        """The declaration; that some household keeps its rules is tried as before a release."""
        from synth_core.models.feasibility import check_rules
        from synth_core.schema.linked import LinkedSchema
        from synth_core.synthesizers.companions import check_together

        found = LinkedSchema.load(self.written("fuzzed.yaml", content))
        for table in (found.household, found.person):
            check_rules(table)
        check_together(found)
        found.save(self.folder / "again.yaml")
        assert LinkedSchema.load(self.folder / "again.yaml") == found, "it reads back as another"

    def people(self, content: bytes) -> None:
        """A frame of people, whose households have another."""
        from synth_core.linked import count_households
        from synth_core.privacy.wall import wall
        from synth_core.schema.linked import LinkedSchema

        schema = LinkedSchema.load(self.written("tables.yaml", TABLES.encode()))
        try:
            person = pd.read_csv(io.BytesIO(content), dtype=object)
        except (ValueError, UnicodeError):  # that is pandas' business
            return
        with wall():
            count_households({"household": pd.read_csv(io.StringIO(HOUSEHOLDS)), "person": person}, schema)


LINKED_TEXTS = {"tables": TABLES.encode(), "people": PEOPLE.encode()}
"""Sound inputs of these readers."""
