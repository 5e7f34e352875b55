"""Edit rules: what they mean on codes and on rows, that both agree, and every rule that is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import breaking_rows
from synth_core.errors import SchemaError
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.codec import decode

COLUMNS = [
    {"name": "age", "kind": "integer", "bins": [0, 1, 16, 65, 100]},
    {"name": "pay", "kind": "real", "bins": [0, 100, 1000], "nullable": True},
    {"name": "job", "kind": "categorical", "values": ["a", "b"], "nullable": True, "unseen": "other"},
    {"name": "grade", "kind": "categorical", "values": [1, 2], "unseen": "other"},
    {"name": "hours", "kind": "integer", "bins": [0, 35, 99], "not_in_universe": "N", "nullable": True},
    {"name": "rent", "kind": "real", "bins": [0, 500, 900], "not_in_universe": -1, "nullable": True},
]


def with_rule(when, never, name="r"):
    return Schema.model_validate({"columns": COLUMNS, "rules": [{"name": name, "when": when, "never": never}]})


@pytest.mark.parametrize(
    ("column", "condition", "codes"),
    [
        ("age", {"max": 15}, [0, 1]),
        ("age", {"min": 65}, [3]),
        ("age", [0, {"min": 65}], [0, 3]),
        ("pay", {"max": 100}, [0]),
        ("pay", {"min": 100, "max": 1000}, [1]),
        ("pay", [None], [2]),
        ("job", ["b", "OTHER"], [1, 2]),
        ("job", [None, "a"], [0, 3]),
        ("grade", 2, [1]),
        ("grade", [None], [2]),
        ("hours", "N", [2]),
        ("hours", [{"max": 98}, None], [0, 1, 3]),
        ("rent", -1, [2]),
        ("rent", [-1, {"min": 500}], [1, 2]),
        ("rent", {"max": 900}, [0, 1]),
    ],
)
def test_a_condition_is_a_set_of_codes(column, condition, codes):
    schema = with_rule({column: condition}, {"age": {"min": 0}})
    covered = schema.column(column).covered_codes(schema.rules[0].when[column])
    assert np.flatnonzero(covered).tolist() == codes


def test_a_row_breaks_a_rule_if_it_meets_when_and_never():
    schema = with_rule({"age": {"max": 15}}, {"pay": {"min": 0}})
    frame = pd.DataFrame({"age": [15, 15, 16], "pay": [50.0, np.nan, 50.0]})
    assert schema.violations(frame)["r"].tolist() == [True, False, False]


def test_no_range_contains_what_is_not_in_universe():
    frame = pd.DataFrame({"age": 5, "hours": ["N", "40", None], "rent": [-1.0, 100.0, np.nan]})
    for column, condition, broken in [
        ("hours", "N", [True, False, False]),
        ("hours", {"max": 98}, [False, True, False]),
        ("rent", -1, [True, False, False]),
        ("rent", {"max": 900}, [False, True, False]),
        ("rent", [None, -1], [True, False, True]),
    ]:
        schema = with_rule({"age": {"max": 15}}, {column: condition})
        assert schema.violations(frame)["r"].tolist() == broken


def test_the_last_edge_of_a_real_column_belongs_to_its_last_bin():
    schema = with_rule({"pay": {"min": 100, "max": 1000}}, {"age": [0]})
    frame = pd.DataFrame({"age": [0, 0, 0], "pay": [1000.0, 100.0, 99.0]})
    assert schema.violations(frame)["r"].tolist() == [True, True, False]


CONDITIONS = {
    "age": st.sampled_from([{"max": 15}, {"min": 16}, [0], {"min": 1, "max": 64}]),
    "pay": st.sampled_from([{"max": 100}, {"min": 100}, [None], [None, {"min": 0, "max": 100}]]),
    "job": st.sampled_from([["a"], ["OTHER", None], ["a", "b"], [None]]),
    "grade": st.sampled_from([[1], [1, 2], [None], [2, None]]),
    "hours": st.sampled_from([["N"], ["N", {"min": 35}], {"max": 34}, [None]]),
    "rent": st.sampled_from([[-1], [None, -1], {"max": 900}, [-1, {"max": 500}]]),
}


def some_conditions(names):
    return st.fixed_dictionaries({}, optional={name: CONDITIONS[name] for name in names}).filter(bool)


@settings(max_examples=60)
@given(
    some_conditions(["age", "job", "hours"]),
    some_conditions(["pay", "grade", "job", "rent"]),
    st.integers(0, 2**32),
)
def test_codes_and_decoded_rows_break_the_same_rules(when, never, seed):
    schema = with_rule(when, never)
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, size, 50) for size in schema.domain.sizes])
    on_rows = schema.violations(decode(codes, schema, rng))["r"]
    assert np.array_equal(on_rows, breaking_rows(codes, schema.domain))


@pytest.mark.parametrize(
    ("when", "never", "message"),
    [
        ({}, {"age": [0]}, "when: must not be empty"),
        ({"age": []}, {"age": [0]}, "when: age: must not be empty"),
        ({"age": {}}, {"job": ["a"]}, "needs min or max"),
        ({"age": {"min": 65, "max": 0}}, {"job": ["a"]}, "above its max"),
        ({"age": {"least": 3}}, {"job": ["a"]}, "least: unknown key"),
        ({"age": [True]}, {"job": ["a"]}, "in quotes"),
        ({"age": {"max": 17}}, {"job": ["a"]}, "column 'age': {max: 17} cuts through a bin"),
        ({"pay": {"min": 50}}, {"job": ["a"]}, "cuts through a bin"),
        ({"pay": [100.0]}, {"job": ["a"]}, "a single point"),
        ({"age": ["old"]}, {"job": ["a"]}, "'old' is not a number"),
        ({"age": [None]}, {"job": ["a"]}, "null never occurs"),
        ({"job": ["c"]}, {"age": [0]}, "'c' is not among the column's values"),
        ({"job": [{"min": 1}]}, {"age": [0]}, "{min: 1} is not among the column's values"),
        ({"grade": ["OTHER"]}, {"age": [0]}, "'OTHER' is not among"),
        ({"shoe": [1]}, {"age": [0]}, "column 'shoe' is not in the schema"),
    ],
)
def test_a_wrong_rule_is_refused_in_one_line_that_names_it(when, never, message):
    with pytest.raises(SchemaError) as refusal:
        with_rule(when, never)
    assert str(refusal.value).startswith("rule 'r': ")
    assert message in str(refusal.value)


def test_no_range_is_named_where_bins_are_bought():
    bins = {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": {"private_quantiles": 4}}
    columns = [{**bins, "unseen": "clip", "nullable": True, "not_in_universe": "N"}, COLUMNS[2]]
    rule = {"name": "r", "when": {"age": {"max": 15}}, "never": {"job": ["a"]}}
    for schema in (
        {"columns": columns},
        {"columns": [{**columns[0], "bins": {**bins["bins"], "bought": [0, 16, 100]}}, columns[1]]},
    ):
        with pytest.raises(SchemaError, match="may cut through a bin, since the bins are bought"):
            DeclaredSchema.model_validate(schema | {"rules": [rule]})
        assert DeclaredSchema.model_validate(schema | {"rules": [rule | {"when": {"age": ["N", None]}}]}).rules


def test_a_range_of_nan_is_refused():
    with pytest.raises(SchemaError, match="above its max"):
        with_rule({"age": {"min": float("nan")}}, {"job": ["a"]})


def test_two_rules_of_one_name_are_refused():
    rule = {"name": "r", "when": {"age": [0]}, "never": {"job": ["a"]}}
    with pytest.raises(SchemaError, match="rule 'r': declared twice"):
        Schema.model_validate({"columns": COLUMNS, "rules": [rule, rule]})


def test_a_table_without_a_rules_column_is_refused():
    schema = with_rule({"age": {"max": 15}}, {"pay": {"min": 0}})
    with pytest.raises(SchemaError, match="no column 'pay'"):
        schema.violations(pd.DataFrame({"age": [3]}))


def with_only(when, only):
    return Schema.model_validate({"columns": COLUMNS, "rules": [{"name": "r", "when": when, "only": only}]})


def test_only_says_what_columns_hold_when_the_conditions_are_met():
    schema = with_only({"age": {"max": 15}}, {"pay": [None], "job": ["a", None]})
    frame = pd.DataFrame(
        {"age": [15, 15, 15, 16], "pay": [50.0, np.nan, np.nan, 50.0], "job": ["a", "a", "OTHER", "OTHER"]}
    )
    assert schema.violations(frame)["r"].tolist() == [True, False, True, False]


DECIDED = {"a": [{"max": 15}], "b": [{"min": 16, "max": 64}], None: [{"min": 65}]}


def with_dependency(**changes):
    rule = {"name": "r", "column": "age", "decides": "job", "by": DECIDED, **changes}
    return Schema.model_validate({"columns": COLUMNS, "rules": [rule]})


def test_one_column_decides_another():
    frame = pd.DataFrame({"age": [3, 3, 30, 70, 70], "job": ["a", "b", "b", None, "OTHER"]})
    assert with_dependency().violations(frame)["r"].tolist() == [False, True, False, False, True]


@settings(max_examples=40)
@given(some_conditions(["age", "job"]), some_conditions(["pay", "grade", "job"]), st.integers(0, 2**32))
def test_codes_and_decoded_rows_agree_on_only_and_on_dependencies(when, only, seed):
    rng = np.random.default_rng(seed)
    for schema in (with_only(when, only), with_dependency()):
        codes = np.column_stack([rng.integers(0, size, 50) for size in schema.domain.sizes])
        on_rows = schema.violations(decode(codes, schema, rng))["r"]
        assert np.array_equal(on_rows, breaking_rows(codes, schema.domain))


@pytest.mark.parametrize(
    "schema", [with_only({"age": {"max": 15}}, {"pay": [None]}), with_dependency()], ids=["only", "decides"]
)
def test_rules_of_every_form_are_saved_and_read(schema, tmp_path):
    schema.save(tmp_path / "schema.yaml")
    read = Schema.load(tmp_path / "schema.yaml")
    assert read == schema
    assert read.digest() == schema.digest()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"when": {"age": [0]}}, "a rule needs either never or only"),
        ({"when": {"age": [0]}, "never": {"job": ["a"]}, "only": {"job": ["b"]}}, "either never or only"),
        ({"when": {"age": [0]}, "only": {}}, "only: must not be empty"),
        ({"when": {"age": [0]}, "only": {"job": ["c"]}}, "column 'job': 'c' is not among"),
        (
            {"column": "age", "decides": "job", "by": {"a": [{"max": 64}]}},
            "column 'age': 65–99 is listed nowhere",
        ),
        (
            {"column": "age", "decides": "job", "by": {"a": [{"min": 0}], "b": [{"min": 65}]}},
            "column 'age': 65–99 is listed twice",
        ),
        ({"column": "age", "decides": "job", "by": {"c": [{"min": 0}]}}, "column 'job': 'c' is not among"),
        ({"column": "age", "decides": "job", "by": {True: [{"min": 0}]}}, "in quotes"),
        (
            {"column": "age", "decides": "shoe", "by": {"a": [{"min": 0}]}},
            "column 'shoe' is not in the schema",
        ),
        ({"column": "age", "decides": "job", "by": {}}, "by: must not be empty"),
        ({"column": "age", "decides": "job"}, "by: is missing"),
    ],
)
def test_a_wrong_rule_of_any_form_is_refused_in_one_line_that_names_it(rule, message):
    with pytest.raises(SchemaError) as refusal:
        Schema.model_validate({"columns": COLUMNS, "rules": [{"name": "r", **rule}]})
    assert str(refusal.value).startswith("rule 'r': ")
    assert message in str(refusal.value)
