"""What a column may declare, which codes it has, and every declaration that is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import synth_core
from synth_core.errors import SchemaError
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.columns import Categorical, Integer, Real


def one(**column):
    return Schema.model_validate({"columns": [{"name": "x", **column}]}).columns[0]


def test_codes_are_values_then_other_then_null():
    column = one(kind="categorical", values=["a", "b"], unseen="other", nullable=True)
    assert (column.declared, column.other_code, column.null_code, column.size) == (2, 2, 3, 4)
    assert one(kind="categorical", values=["a"], nullable=True).null_code == 1
    assert one(kind="categorical", values=["a"]).null_code is None


def test_what_is_not_in_universe_has_the_first_code_after_the_bins():
    column = one(kind="integer", bins=[0, 10, 20], not_in_universe="N", unseen="other", nullable=True)
    assert (column.declared, column.outside_code, column.other_code, column.null_code) == (2, 2, 3, 4)
    assert column.captions == ("0–9", "10–19", "not in universe", "other", "missing")
    assert one(kind="real", bins=[0, 1]).outside_code is None


def test_bins_and_hierarchy_do_not_know_what_is_not_in_universe():
    column = one(**WHOLE, hierarchy=[0, 20, 30], not_in_universe=-1, nullable=True)
    assert (column.edges, column.groups) == ((0, 10, 20, 30), (0, 0, 1, 2, 3))


def test_a_number_beyond_the_bins_can_be_what_is_not_in_universe():
    assert one(**WHOLE, not_in_universe=30).not_in_universe == 30  # the last edge of whole numbers is in no bin
    assert one(kind="real", bins=[0, 1], not_in_universe=-0.5).not_in_universe == -0.5


def test_captions_name_every_code():
    text = one(kind="categorical", values=["a", "b"], labels={"a": "first"}, unseen="other", nullable=True)
    assert text.captions == ("first", "b", "other", "missing")
    assert one(kind="integer", bins=[0, 1, 18, 100]).captions == ("0", "1–17", "18–99")
    assert one(kind="real", bins=[0, 0.5, 2]).captions == ("[0, 0.5)", "[0.5, 2]")
    with_atom = one(kind="real", bins=[0, 80_000, 1_000_000], atoms=[0])
    assert with_atom.captions == ("0", "(0, 80000)", "[80000, 1000000]")


@pytest.mark.parametrize(("size", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (70_000, np.uint32)])
def test_dtype_is_the_smallest_that_holds_every_code(size, dtype):
    assert one(kind="integer", bounds=[1, size], bins=size).dtype == dtype


def test_integer_bounds_are_the_least_and_greatest_value():
    assert one(kind="integer", bounds=[0, 99], bins=4).edges == (0, 25, 50, 75, 100)


@given(st.integers(-1000, 1000), st.integers(1, 500), st.integers(1, 50))
def test_equal_integer_bins_cover_the_bounds_and_differ_by_at_most_one(low, span, bins):
    bins = min(bins, span)
    edges = Integer(name="x", bounds=(low, low + span - 1), bins=bins).edges
    widths = np.diff(edges)
    assert (edges[0], edges[-1], len(widths)) == (low, low + span, bins)
    assert widths.min() >= 1
    assert np.ptp(widths) <= 1


def test_equal_real_bins_end_exactly_at_the_bounds():
    edges = Real(name="x", bounds=(0.1, 0.7), bins=3).edges
    assert (edges[0], edges[-1]) == (0.1, 0.7)
    assert np.allclose(np.diff(edges), 0.2)


def test_a_decoded_column_may_hold_nulls_only_where_declared():
    assert not Categorical(name="x", values=("a",), unseen="other").has_missing
    assert Categorical(name="x", values=(1,), unseen="other").has_missing
    assert Real(name="x", bins=(0.0, 1.0), unseen="other").has_missing
    assert not Real(name="x", bins=(0.0, 1.0), unseen="clip").has_missing


VALUES = {"kind": "categorical", "values": ["a", "b"]}
WHOLE = {"kind": "integer", "bins": [0, 10, 20, 30]}
QUANTILES = {"kind": "integer", "bounds": [0, 99], "bins": {"private_quantiles": 4}, "unseen": "clip"}

REFUSED = [
    ({}, "kind is missing"),
    ({"kind": "date"}, "unknown kind"),
    ({"kind": "categorical"}, "values: is missing"),
    ({"kind": "categorical", "values": []}, "values: must not be empty"),
    ({"kind": "categorical", "values": [True, False]}, "in quotes"),
    ({"kind": "categorical", "values": ["a", None]}, "nullable: true"),
    ({"kind": "categorical", "values": ["a", ""]}, "empty text"),
    ({"kind": "categorical", "values": ["a\nb"]}, "line breaks"),
    ({"kind": "categorical", "values": [1.5]}, "text or a whole number"),
    ({"kind": "categorical", "values": ["a", 1]}, "mixed"),
    ({"kind": "categorical", "values": ["a", "b", "a"]}, "values: 'a' is declared twice"),
    ({"kind": "categorical", "values": ["a", "OTHER"], "unseen": "other"}, "'OTHER' is the code"),
    ({**VALUES, "unseen": "clip"}, "unseen: "),
    ({**VALUES, "labels": {"c": "third"}}, "labels: 'c'"),
    ({**VALUES, "hierarchy": {"g": ["a", "b", "c"]}}, "hierarchy: 'c' is not among"),
    ({**VALUES, "hierarchy": {"g": ["a", "b"], "h": ["b"]}}, "hierarchy: 'b' is in two groups"),
    ({**VALUES, "hierarchy": {"g": ["a"]}}, "hierarchy: 'b' is in no group"),
    ({**VALUES, "colour": "red"}, "colour: unknown key"),
    ({**VALUES, "nullable": "maybe"}, "nullable: "),
    ({"kind": "integer", "bins": 5}, "needs bounds"),
    ({"kind": "integer", "bins": 0, "bounds": [0, 9]}, "bins: "),
    ({"kind": "integer", "bins": True, "bounds": [0, 9]}, "bins: "),
    ({"kind": "integer", "bins": [0, 9], "bounds": [0, 9]}, "already lists the edges"),
    ({"kind": "integer", "bins": [1]}, "two edges"),
    ({"kind": "integer", "bins": [0, 5, 5]}, "edges must increase"),
    ({"kind": "integer", "bins": [0, 1.5]}, "bins: 1: "),
    ({"kind": "integer", "bins": [0, 2**60]}, "bins: 1: "),
    ({"kind": "integer", "bins": 11, "bounds": [0, 9]}, "no room"),
    ({"kind": "real", "bins": [0, float("inf")]}, "finite"),
    ({"kind": "real", "bins": 3, "bounds": [1, 1]}, "no room"),
    ({**QUANTILES, "bounds": None}, "needs bounds"),
    ({**QUANTILES, "bounds": [0, 2]}, "bins: the grid has fewer than 4 cells"),
    ({**QUANTILES, "bounds": [5, 4]}, "bins: the grid has fewer than 4 cells"),
    ({**QUANTILES, "bins": {"private_quantiles": 4, "grid": 3}}, "bins: the grid has fewer than 4 cells"),
    ({**QUANTILES, "bins": {"private_quantiles": 4, "grid": 200}}, "bounds: there is no room"),
    ({**QUANTILES, "bins": {"private_quantiles": 1}}, "bins: private_quantiles: "),
    ({**QUANTILES, "bins": {"quantiles": 4}}, "bins: private_quantiles: is missing"),
    ({**QUANTILES, "hierarchy": [0, 50, 100]}, "hierarchy: the edges of bought bins are not known"),
    ({**QUANTILES, "bins": {**QUANTILES["bins"], "bought": [50]}}, "bins: bought edges are two or more"),
    ({**QUANTILES, "bins": {**QUANTILES["bins"], "bought": [0, 0.5, 100]}}, "bins: bought edges are"),
    ({**QUANTILES, "bins": {**QUANTILES["bins"], "bought": [0, 50, 20, 100]}}, "bins: bought edges are"),
    ({**QUANTILES, "bins": {**QUANTILES["bins"], "tails": 0.5}}, "bins: tails: "),
    ({**QUANTILES, "unseen": "refuse"}, "declare unseen: clip"),
    ({**WHOLE, "not_in_universe": 29}, "not_in_universe: 29 lies in the bins"),
    ({"kind": "real", "bins": [0, 1], "not_in_universe": 1}, "not_in_universe: 1 lies in the bins"),
    ({**WHOLE, "not_in_universe": -1.5}, "not_in_universe: a whole number is needed"),
    ({**WHOLE, "not_in_universe": 2**60}, "not_in_universe: a whole number is needed"),
    ({**WHOLE, "not_in_universe": True}, "not_in_universe: text or a number is needed"),
    ({**WHOLE, "not_in_universe": "-1"}, "not_in_universe: '-1' in quotes reads as a number"),
    ({**WHOLE, "not_in_universe": ""}, "not_in_universe: empty text cannot be distinguished from a missing value"),
    ({**WHOLE, "not_in_universe": "a\nb"}, "not_in_universe: line breaks"),
    ({"kind": "real", "bins": [0, 1], "not_in_universe": 1e301}, "not_in_universe: the number is too large"),
    ({**VALUES, "not_in_universe": "c"}, "not_in_universe: unknown key"),
    ({**WHOLE, "hierarchy": [0, 20, 10, 30]}, "hierarchy: edges must increase"),
    ({**WHOLE, "hierarchy": [0, 15, 30]}, "hierarchy: every coarser edge"),
    ({**WHOLE, "hierarchy": [0, 20]}, "hierarchy: the coarser edges must begin and end"),
]


@pytest.mark.parametrize(("column", "message"), REFUSED)
def test_a_wrong_column_is_refused_in_one_line_that_names_it(column, message):
    with pytest.raises(SchemaError) as refusal:
        one(**column)
    text = str(refusal.value)
    assert text.startswith("column 'x': ")
    assert message in text
    assert "\n" not in text


def declared(*columns):
    return DeclaredSchema.model_validate({"columns": [{"name": "x", **QUANTILES}, *columns]})


def test_bins_that_are_to_be_bought_are_no_bins():
    schema = declared({"name": "y", **VALUES})
    column = schema.columns[0]
    with pytest.raises(SchemaError, match="column 'x' has bins that are to be bought; use `synth run`, or list"):
        schema.resolve()
    for missing in ("edges", "size", "captions", "dtype", "levels"):
        with pytest.raises(SchemaError, match="column 'x' has bins that are to be bought"):
            getattr(column, missing)
    assert not hasattr(schema, "domain")
    resolved = schema.resolve({"x": (18, 65, 80)})
    assert resolved.column("x").edges == (18, 65, 80)
    assert resolved.private_bin_columns == ("x",)
    assert resolved.declaration == schema


def test_a_schema_with_bins_to_buy_is_refused_where_codes_are_needed(tmp_path):
    declared().save(tmp_path / "schema.yaml")
    with pytest.raises(SchemaError, match=r"schema.yaml: column 'x' has bins that are to be bought; use `synth run`"):
        Schema.load(tmp_path / "schema.yaml")
    assert DeclaredSchema.load(tmp_path / "schema.yaml") == declared()


MIXED_UP = """
from synth_core.schema import DeclaredSchema, Schema

declared = DeclaredSchema.load("schema.yaml")


def needs_codes(schema: Schema) -> int:
    return len(schema.domain)


needs_codes(declared)
print(declared.domain)
needs_codes(declared.resolve())
"""


@pytest.mark.slow
def test_the_type_checker_tells_declared_and_resolved_schemas_apart(tmp_path):
    program, root = tmp_path / "program.py", Path(synth_core.__file__).parent.parent
    program.write_text(MIXED_UP)
    command = [sys.executable, "-m", "mypy", "--config-file", root / "pyproject.toml", program]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    found = done.stdout.splitlines()
    assert 'program.py:11: error: Argument 1 to "needs_codes" has incompatible type "DeclaredSchema"' in found[0]
    assert 'program.py:12: error: "DeclaredSchema" has no attribute "domain"' in found[1]
    assert len(found) == 3, done.stdout


def test_the_grid_has_a_cell_for_each_whole_number_if_there_are_few():
    real = DeclaredSchema.model_validate({"columns": [{"name": "x", **QUANTILES, "kind": "real", "nullable": True}]})
    assert (declared().on_grid.domain.sizes, real.on_grid.domain.sizes) == ((100,), (257,))


def test_as_many_bins_are_planned_as_are_to_be_bought():
    schema = declared({"name": "y", **VALUES})
    assert (schema.on_grid.domain.sizes, schema.planned.domain.sizes) == ((100, 2), (4, 2))
    assert schema.planned.column("x").edges == (0, 25, 50, 75, 100)
    assert (schema.planned.declaration, schema.planned.declaration.digest()) == (schema, schema.digest())
    assert schema.planned.digest() != schema.digest()


def test_a_schema_without_bins_to_buy_is_resolved():
    schema = Schema.model_validate({"columns": [{"name": "y", **VALUES}]})
    assert schema.planned is schema.on_grid is schema.resolve() is schema
    assert DeclaredSchema.model_validate({"columns": [{"name": "y", **VALUES}]}).resolve() == schema


def test_bought_bins_survive_saving(tmp_path):
    column = {"name": "x", "kind": "real", "bounds": [0.1, 0.7], "bins": {"private_quantiles": 3, "grid": 7}}
    bought = DeclaredSchema.model_validate({"columns": [{**column, "unseen": "clip"}]}).planned
    bought.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == bought


def test_good_hierarchies_are_kept():
    assert one(**VALUES, hierarchy={"g": ["b"], "h": ["a"]}).hierarchy == {"g": ("b",), "h": ("a",)}
    assert one(**WHOLE, hierarchy=[0, 20, 30]).hierarchy == (0, 20, 30)
