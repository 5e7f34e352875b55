"""The schema file: reading, writing, its digest, its domain, and every file that is refused."""

from __future__ import annotations

import pickle

import pandas as pd
import pytest
import yaml
from declarations import schemas
from hypothesis import given, settings

from synth_core.errors import SchemaError
from synth_core.schema import Schema

TEXT = """
columns:
  - {name: sex, kind: categorical, values: [F, M], labels: {F: female}}
  - {name: grade, kind: categorical, values: [1, 2], labels: {1: best}, hierarchy: {all: [1, 2]}}
  - {name: age, kind: integer, bounds: [0, 99], bins: 20, hierarchy: [0, 20, 65, 100]}
  - {name: pay, kind: real, bins: [0, 500, 1000.5], nullable: true, unseen: clip}
rules:
  - {name: no pay for children, when: {age: {max: 14}}, never: {pay: {min: 0}, sex: [F, M]}}
"""


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "schema.yaml").write_text(TEXT, encoding="utf-8")
    return Schema.load(tmp_path / "schema.yaml")


def test_the_domain_counts_every_code(schema):
    assert schema.domain.attributes == ("sex", "grade", "age", "pay")
    assert schema.domain.sizes == (2, 2, 20, 3)


def test_a_saved_schema_is_read_back(schema, tmp_path):
    schema.save(tmp_path / "again.yaml")
    again = Schema.load(tmp_path / "again.yaml")
    assert again == schema
    assert again.digest() == schema.digest()


@pytest.mark.slow
@settings(max_examples=50)
@given(schemas)
def test_any_saved_schema_is_read_back(tmp_path_factory, schema):
    path = tmp_path_factory.mktemp("schema") / "schema.yaml"
    schema.save(path)
    assert Schema.load(path) == schema
    assert Schema.load(path).digest() == schema.digest()
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_the_digest_ignores_layout_and_sees_meaning(schema):
    raw = yaml.safe_load(TEXT)
    raw["columns"][0] = dict(reversed(raw["columns"][0].items()))
    raw["columns"][0]["nullable"] = False
    assert Schema.model_validate(raw).digest() == schema.digest()
    raw["columns"][0]["nullable"] = True
    assert Schema.model_validate(raw).digest() != schema.digest()


def test_from_sizes_declares_integer_codes():
    schema = Schema.from_sizes({"a": 2, "b": 3})
    assert schema.domain.sizes == (2, 3)
    assert schema.column("b").values == (0, 1, 2)


def test_an_unknown_column_is_refused(schema):
    with pytest.raises(SchemaError, match="column 'shoe' is not in the schema"):
        schema.column("shoe")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "columns: is missing"),
        ({"columns": []}, "columns: must not be empty"),
        ({"columns": [{"kind": "integer", "bins": [0, 1]}]}, "column 1: name: is missing"),
        (
            {"columns": [{"name": "", "kind": "integer", "bins": [0, 1]}]},
            "column '': name: must not be empty",
        ),
        ({"columns": [{"name": "a\tb", "kind": "integer", "bins": [0, 1]}]}, "name: line breaks"),
        ({"columns": ["sex"]}, "column 1: "),
        ({"columns": [{"name": "a", "kind": "integer", "bins": [0, 1]}] * 2}, "duplicate column names: a"),
        ({"columns": [{"name": "a", "kind": "integer", "bins": [0, 1]}], "colour": 1}, "colour: unknown key"),
    ],
)
def test_a_wrong_declaration_is_one_readable_line(raw, message):
    with pytest.raises(SchemaError) as refusal:
        Schema.model_validate(raw)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_size_below_one_is_refused():
    with pytest.raises(SchemaError, match="column 'a': values: must not be empty"):
        Schema.from_sizes({"a": 0})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"columns: [", "not valid YAML near line 2"),
        (b"a: \x00", "not valid YAML"),
        (b"\xff\xfe\xfa", "not UTF-8"),
        (b"- just a list", "a mapping with the key columns"),
        (b"columns:\n- {name: a, kind: integer, bins: [1, 2], bins: [1, 3]}", "key 'bins' is given twice"),
        (b"columns:\n- {name: a, kind: integer, bins: [2, 1]}", "column 'a': bins: edges must increase"),
    ],
)
def test_a_refused_file_is_named(tmp_path, content, message):
    path = tmp_path / "schema.yaml"
    path.write_bytes(content)
    with pytest.raises(SchemaError) as refusal:
        Schema.load(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="cannot be read: it is not there"):
        Schema.load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        (
            [
                {"name": "a", "kind": "categorical", "values": ["x", "y"], "role": "area"},
                {"name": "b", "kind": "categorical", "values": ["x", "y"], "role": "area"},
            ],
            "column 'b': another column has the role area",
        ),
        (
            [{"name": "a", "kind": "categorical", "values": ["x", "y"], "role": "income"}],
            "column 'a': an income is a number",
        ),
        (
            [{"name": "a", "kind": "categorical", "values": ["x", "y", "z"], "role": "group"}],
            "column 'a': a group column has two values",
        ),
    ],
)
def test_roles_that_no_score_could_use_are_refused(columns, refusal):
    with pytest.raises(SchemaError, match=refusal):
        Schema.model_validate({"columns": columns})


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"bins": None}, "bins= is NoneType; give a number of bins"),
        ({"bounds": [0, 99]}, "bounds= is list; give the bounds of columns by their names"),
        ({"bounds": {"age": 99}}, "column 'age': bounds are the least and the largest number"),
        ({"bins": {"age": "many"}}, "column 'age': bins are a number of bins or a list of their edges"),
        ({"nullable": "sex"}, "nullable= is str; give a list of names"),
    ],
)
def test_what_a_notebook_declares_wrongly_is_said(said, problem):
    frame = pd.DataFrame({"sex": ["f"], "age": [34]})
    right = {"values": {"sex": ["f", "m"]}, "bounds": {"age": (0, 99)}, "nullable": pd.Index(["sex"])}
    assert len(Schema.from_frame_template(frame, **right).columns) == 2
    with pytest.raises(SchemaError) as refusal:
        Schema.from_frame_template(frame, **right | said)
    assert problem in str(refusal.value)
