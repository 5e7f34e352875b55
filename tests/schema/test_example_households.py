"""The example of two linked tables: it keeps its rules, has the structure of real households, and is as declared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from synth_core import LinkedSchema
from synth_core.errors import SpecError
from synth_core.evaluation.household_shares import describe_households
from synth_core.example.households import generate_households, households_schema, write_linked_example
from synth_core.storage.households import encode_households

SCHEMA = households_schema()
HOUSEHOLDS = 12_000


@pytest.fixture(scope="module")
def tables():
    return generate_households(HOUSEHOLDS, 3)


def dependence(table):
    joint = table / table.sum()
    return 0.5 * np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum()


def test_the_tables_are_as_declared(tables):
    household, person = tables["household"], tables["person"]
    assert list(household) == ["household_id", *SCHEMA.household.domain]
    assert list(person) == ["household_id", *SCHEMA.person.domain]
    assert household.household_id.tolist() == list(range(1, HOUSEHOLDS + 1))
    sizes = person.groupby("household_id").size()
    assert len(sizes) == HOUSEHOLDS
    assert sizes.max() == SCHEMA.largest
    assert encode_households(tables, SCHEMA, b"key").sizes.sum() == len(person)


def test_every_rule_holds_and_says_something(tables):
    person = tables["person"]
    assert len(SCHEMA.together) == 6
    assert not any(rows.any() for rows in SCHEMA.violations(tables).values())
    assert not any(rows.any() for rows in SCHEMA.person.violations(person).values())
    rng = np.random.default_rng(0)
    mixed = tables | {"person": person.assign(household_id=rng.permutation(person.household_id))}
    assert all(rows.any() for rows in SCHEMA.violations(mixed).values())
    shuffled = pd.DataFrame({name: person[name].array[rng.permutation(len(person))] for name in person})
    assert all(rows.any() for rows in SCHEMA.person.violations(shuffled).values())


def test_people_of_a_household_belong_together(tables):
    """Couples are of an age, children a generation younger, and what people share depends on them."""
    found = describe_households(encode_households(tables, SCHEMA, b"key"), SCHEMA)
    near = sum(share for years, share in found.gaps["couples"].items() if abs(years) <= 10)
    born = sum(share for years, share in found.gaps["parents and children"].items() if 20 <= years <= 45)
    assert near > 0.95
    assert born > 0.9
    assert all(0.005 < share < 0.5 for share in found.compositions.values())
    household = tables["household"]
    for one, other, least in (("tenure", "dwelling", 0.2), ("dwelling", "rooms", 0.3), ("district", "dwelling", 0.1)):
        assert dependence(pd.crosstab(household[one], household[other]).to_numpy()) > least
        mixed = pd.crosstab(household[one], household[other].sample(frac=1, random_state=1).to_numpy())
        assert dependence(mixed.to_numpy()) < 0.05


def test_a_seed_decides_all():
    one, again, other = (generate_households(200, seed)["person"] for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)


def test_the_files_are_the_tables(tmp_path):
    write_linked_example(tmp_path, households=50, seed=4)
    assert LinkedSchema.load(tmp_path / "linked.yaml") == SCHEMA
    for name, table in generate_households(50, 4).items():
        pd.testing.assert_frame_equal(
            pd.read_csv(tmp_path / "data" / f"{name}.csv", keep_default_na=False), table, check_dtype=False
        )


def test_a_household_at_least_is_asked_for():
    with pytest.raises(SpecError, match="at least 1"):
        generate_households(0, 1)
