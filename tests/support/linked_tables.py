"""Small linked tables for tests: a schema with rules across people, and households that keep them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from synth_core.schema.linked import LinkedSchema

TABLES = {
    "link": "hid",
    "largest": 4,
    "household": {
        "columns": [
            {"name": "tenure", "kind": "categorical", "values": ["owned", "rented"]},
            {"name": "area", "kind": "categorical", "values": ["north", "east", "west"]},
        ]
    },
    "person": {
        "columns": [
            {"name": "relation", "kind": "categorical", "values": ["reference", "partner", "child"]},
            {"name": "age", "kind": "integer", "bounds": [0, 89], "bins": 9},
        ],
        "rules": [{"name": "partners are grown up", "when": {"relation": "partner"}, "never": {"age": {"max": 9}}}],
    },
    "together": [
        {"name": "one reference", "people": {"relation": "reference"}, "exactly": 1},
        {"name": "one partner", "people": {"relation": "partner"}, "at_most": 1},
        {
            "name": "children are younger",
            "column": "age",
            "lower": {"relation": "child"},
            "upper": {"relation": "reference"},
            "by": 12,
        },
    ],
}
"""What the schema file says under the key `tables`."""


def linked_schema(**changed: object) -> LinkedSchema:
    """The schema with some keys of `tables` replaced."""
    return LinkedSchema.model_validate({"tables": TABLES | changed})


SCHEMA = linked_schema()
"""Households of up to four people."""

ROLES = linked_schema(
    roles={"column": "relation", "reference": "reference", "partner": "partner", "child": "child", "age": "age"}
)
"""The same with roles, so that couples and children are spoken of."""


def linked_frames(households: int, *, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Households in which partners are of an age and children younger; the owners are older."""
    rng = np.random.default_rng(seed)
    tables: dict[str, list[tuple[object, ...]]] = {"household": [], "person": []}
    for number in range(households):
        size = int(rng.choice([1, 2, 3, 4], p=[0.3, 0.35, 0.2, 0.15]))
        owned = bool(rng.random() < 0.5)
        tables["household"].append((number, "owned" if owned else "rented", rng.choice(["north", "east", "west"])))
        age = int(rng.integers(45, 80)) if owned else int(rng.integers(25, 55))
        people = [("reference", age)]
        if size > 1 and rng.random() < 0.85:
            people.append(("partner", int(np.clip(age + rng.integers(-4, 5), 20, 89))))
        while len(people) < size:
            people.append(("child", int(max(0, age - rng.integers(22, 40)))))
        tables["person"] += [(number, *one) for one in people]
    return {
        "household": pd.DataFrame(tables["household"], columns=["hid", "tenure", "area"]),
        "person": pd.DataFrame(tables["person"], columns=["hid", "relation", "age"]),
    }
