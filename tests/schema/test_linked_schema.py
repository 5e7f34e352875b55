"""Two linked tables: what a schema declares, its flattened domain, rules across people, and every refusal."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from support.linked_tables import SCHEMA, linked_frames

from synth_core.errors import SchemaError
from synth_core.schema import Schema
from synth_core.schema.linked import LinkedSchema

PLAIN = {
    "tables": {
        "link": "hid",
        "largest": 4,
        "household": {"columns": [{"name": "tenure", "kind": "categorical", "values": ["owned", "rented"]}]},
        "person": {
            "columns": [
                {"name": "relation", "kind": "categorical", "values": ["reference", "child"]},
                {"name": "age", "kind": "integer", "bins": [0, 10, 20, 60]},
            ]
        },
    }
}


def changed(**more):
    raw = copy.deepcopy(PLAIN)
    raw["tables"] |= more
    return raw


def test_the_domain_has_the_household_its_size_and_every_place():
    domain = SCHEMA.domain(2)
    assert dict(zip(domain.attributes, domain.sizes, strict=True)) == {
        "household.tenure": 2,
        "household.area": 3,
        "size": 3,
        "person.relation": 3,
        "person.age": 9,
        "person.relation@2": 3,
        "person.age@2": 9,
    }
    assert SCHEMA.domain(1).size("size") == 4
    rules = {excluded.attributes for excluded in domain.impossible}
    assert rules == {("person.relation", "person.age"), ("person.relation@2", "person.age@2")}


def test_a_saved_schema_is_read_back(tmp_path):
    SCHEMA.save(tmp_path / "linked.yaml")
    assert LinkedSchema.load(tmp_path / "linked.yaml") == SCHEMA


def test_real_households_keep_the_rules():
    broken = SCHEMA.violations(linked_frames(200))
    assert list(broken) == ["one reference", "one partner", "children are younger"]
    assert not any(rule.any() for rule in broken.values())


@pytest.mark.parametrize(
    ("people", "broken"),
    [
        ([("reference", 40)], []),
        ([("reference", 40), ("reference", 41)], ["one reference"]),
        ([("partner", 40)], ["one reference"]),
        ([("reference", 40), ("partner", 30), ("partner", 31)], ["one partner"]),
        ([("reference", 40), ("child", 28)], []),
        ([("reference", 40), ("child", 29)], ["children are younger"]),
        ([("reference", 40), ("child", 5), ("child", 60)], ["children are younger"]),
    ],
)
def test_a_household_breaks_the_rules_that_its_people_break(people, broken):
    frames = {
        "household": pd.DataFrame({"hid": [7, 9], "tenure": "owned", "area": "east"}),
        "person": pd.DataFrame([(9, *one) for one in people], columns=["hid", "relation", "age"]),
    }
    frames["person"].loc[len(people)] = (7, "reference", 50)
    found = SCHEMA.violations(frames)
    assert [name for name, rows in found.items() if rows[1]] == broken
    assert not any(rows[0] for rows in found.values())


def test_couples_in_twos():
    schema = LinkedSchema.model_validate(
        changed(together=[{"name": "twos", "people": {"relation": "child"}, "even": True}])
    )
    people = pd.DataFrame({"relation": ["child", "reference", "child", "child"], "age": 5})
    assert schema.broken_rules(people, np.array([2, 2]))["twos"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"largest": 11}, "largest: Input should be less than or equal to 10"),
        ({"link": ""}, "link: must not be empty"),
        ({"link": "age"}, "link 'age' is also a column of person"),
        ({"people": {}}, "people: unknown key"),
        ({"household": {"columns": []}}, "household: columns: must not be empty"),
        ({"household": {"columns": [{"name": "x", "kind": "colour"}]}}, "household: column 'x': unknown kind"),
        (
            {"household": {"columns": [{"name": "x", "kind": "categorical", "values": [1]}], "unit_column": "u"}},
            "household: unit_column: link names the household",
        ),
        ({"person": {"columns": [{"name": "x@2", "kind": "categorical", "values": [1]}]}}, "'x@2': @ tells the people"),
        (
            {"person": {"columns": [{"name": "a", "kind": "integer", "bins": [0, 9], "moments": True}]}},
            "column 'a': moments are not bought for linked tables",
        ),
        ({"together": [{"name": "r", "people": {"relation": "child"}}]}, "needs exactly, at_least, at_most or even"),
        (
            {"together": [{"name": "r", "people": {"relation": "child"}, "exactly": 1, "at_most": 2}]},
            "exactly stands alone",
        ),
        (
            {"together": [{"name": "r", "people": {"relation": "child"}, "at_least": 3, "at_most": 2}]},
            "at_least is above at_most",
        ),
        ({"together": [{"name": "r", "people": {"relation": "aunt"}, "at_most": 1}]}, "rule 'r': column 'relation'"),
        ({"together": [{"name": "r", "people": {"sex": 1}, "at_most": 1}]}, "column 'sex' is not one of person's"),
        ({"roles": {"column": "sex", "reference": "reference"}}, "roles: column 'sex' is not one of person's"),
        ({"roles": {"column": "relation", "reference": "head"}}, "roles: column 'relation'"),
        (
            {"roles": {"column": "relation", "reference": "reference", "age": "relation"}},
            "roles: column 'relation' holds no numbers in bins",
        ),
        (
            {"together": [{"name": "r", "people": {"relation": "child"}, "at_least": 2}]},
            "households of one person have not 2 such people",
        ),
        (
            {
                "together": [
                    {"name": "r", "people": {"relation": "child"}, "at_most": 1},
                    {"name": "r", "people": {"relation": "child"}, "at_most": 2},
                ]
            },
            "rule 'r': declared twice",
        ),
        (
            {
                "together": [
                    {"name": "r", "column": "relation", "lower": {"relation": "child"}, "upper": {"age": 10}, "by": 1}
                ]
            },
            "rule 'r': column",
        ),
        (
            {
                "together": [
                    {
                        "name": "r",
                        "column": "relation",
                        "lower": {"relation": "child"},
                        "upper": {"relation": "reference"},
                        "by": 1,
                    }
                ]
            },
            "column 'relation' holds no numbers in bins",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(more, said):
    with pytest.raises(SchemaError, match=r"^[^\n]+$") as refusal:
        LinkedSchema.model_validate(changed(**more))
    assert said in str(refusal.value)


def test_a_file_says_where_it_is_wrong(tmp_path):
    path = tmp_path / "linked.yaml"
    path.write_text("tables: {link: hid, largest: 4}", encoding="utf-8")
    with pytest.raises(SchemaError, match=r"linked.yaml: tables: household: is missing"):
        LinkedSchema.load(path)
    path.write_text("- 1", encoding="utf-8")
    with pytest.raises(SchemaError, match="mapping with the key tables"):
        LinkedSchema.load(path)


def test_a_schema_of_one_table_refuses_linked_ones_in_a_clear_line(tmp_path):
    SCHEMA.save(tmp_path / "linked.yaml")
    with pytest.raises(SchemaError, match=r"tables: two linked tables are declared.*LinkedSchema"):
        Schema.load(tmp_path / "linked.yaml")


ROLED = {"column": "relation", "reference": "reference", "age": "age"}
ONE = {"name": "one", "people": {"relation": "reference"}, "exactly": 1}


def test_a_reference_person_has_attributes_where_a_rule_says_there_is_exactly_one():
    schema = LinkedSchema.model_validate(changed(roles=ROLED, together=[ONE]))
    name, codes = schema.anchor
    assert (name, codes.tolist()) == ("person.relation", [True, False])
    assert schema.reference_attributes() == ("person.age@reference",)
    assert schema.domain(2).size("person.age@reference") == schema.domain(2).size("person.age")
    assert "person.age@reference" not in schema.domain(1)
    sizes, ages = schema.captions(("size", "person.age@reference"))
    assert sizes == ("2", "3", "4"), "pairs are of households of two and more"
    assert ages == schema.captions(("person.age",))[0]


@pytest.mark.parametrize(
    "more",
    [
        {"together": [ONE]},
        {"roles": ROLED},
        {"roles": ROLED, "together": [ONE | {"people": {"relation": "child"}}]},
        {"roles": ROLED, "together": [ONE], "largest": 1},
    ],
)
def test_otherwise_it_has_none(more):
    schema = LinkedSchema.model_validate(changed(**more))
    assert schema.anchor is None
    assert schema.reference_attributes() == ()


def test_codes_of_every_place_have_words():
    ages = SCHEMA.person.column("age").captions
    assert SCHEMA.captions(("size", "person.age")) == [("1", "2", "3", "4"), ages]
    assert SCHEMA.captions(("size", "person.age@2")) == [("2", "3", "4"), ages]
    assert SCHEMA.captions(("size", "person.age@reference")) == [("2", "3", "4"), ages]
    assert SCHEMA.captions(("household.tenure",)) == [("owned", "rented")]
    domain = SCHEMA.domain(2)
    for name in domain.attributes:
        assert len(SCHEMA.captions((name, "person.age@2"))[0]) == domain.size(name), name
