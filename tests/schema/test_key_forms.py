"""What people write in a schema before they have read how: taken where it leaves no doubt, else refused."""

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema
from synth_core.errors import SchemaError
from synth_core.schema.codec import decode, encode


def load(tmp_path, columns):
    path = tmp_path / "schema.yaml"
    path.write_text("columns:\n" + "".join(f"  - {column}\n" for column in columns))
    return Schema.load(path)


def test_values_with_their_labels(tmp_path):
    schema = load(tmp_path, ["{name: SEX, kind: categorical, values: {1: Male, 2: Female}}"])
    (column,) = schema.columns
    assert column.values == (1, 2)
    assert column.captions == ("Male", "Female")


def test_labels_are_given_once(tmp_path):
    with pytest.raises(SchemaError, match="column 'SEX': values: they have labels already; remove the key labels"):
        load(tmp_path, ["{name: SEX, kind: categorical, values: {1: Male, 2: Female}, labels: {1: M}}"])


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("values: [a, b]", "categorical"),
        ("values: {1: Male, 2: Female}", "categorical"),
        ("bins: [0, 0.5, 1]", "real"),
        ("kind: int, bounds: [0, 9], bins: 2", "integer"),
        ("kind: category, values: [a]", "categorical"),
        ("kind: float, bins: [0, 5, 10]", "real"),
    ],
)
def test_a_kind_that_follows_may_be_left_out_and_has_other_names(tmp_path, written, kind):
    assert load(tmp_path, [f"{{name: x, {written}}}"]).columns[0].kind == kind


def test_whole_edges_leave_it_open_which_kind_of_number_it_is(tmp_path):
    with pytest.raises(SchemaError, match=r"line 2: column 'x': kind is missing; say categorical, integer or real$"):
        load(tmp_path, ["{name: x, bounds: [0, 9], bins: 2}"])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("date", "declare a date as text (kind: categorical, each value listed), or its year as kind: integer"),
        ("boolean", "declare it as kind: categorical with the two values as the source has them"),
        ("categorial", "did you mean 'categorical'"),
    ],
)
def test_a_kind_that_there_is_not_is_refused_with_the_form(tmp_path, kind, said):
    with pytest.raises(SchemaError) as refused:
        load(tmp_path, [f"{{name: x, kind: {kind}}}"])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "written",
    [
        ["yes", "no"],
        ["true", "false"],
        ["True", "False"],
        ["on", "off"],
        ["NO", "SE"],
        ["2020-01-31", "2020-02-29"],
        ["01", "010"],
        ["12:30", "1_000"],
        ["0x1F", "1e"],
    ],
    ids=" ".join,
)
def test_codes_are_text_as_they_are_written(tmp_path, written):
    """YAML would read a truth value, a date, eight, 750 and 1000."""
    schema = load(tmp_path, [f"{{name: x, kind: categorical, values: [{', '.join(written)}]}}"])
    assert schema.columns[0].values == tuple(written)
    frame = pd.DataFrame({"x": [written[1], written[0]]})
    codes = encode(frame, schema, source="t")
    assert codes["x"].tolist() == [1, 0]
    matrix = np.column_stack([codes["x"]])
    assert decode(matrix, schema, np.random.default_rng(1))["x"].tolist() == frame["x"].tolist()
    schema.save(tmp_path / "again.yaml")
    assert Schema.load(tmp_path / "again.yaml") == schema


def test_numbers_stay_numbers(tmp_path):
    schema = load(
        tmp_path,
        [
            "{name: x, kind: categorical, values: [0, -1, 2.0, +3]}",
            "{name: y, kind: real, bins: [-1.5, .5, 1e3, 2.5e+4]}",
        ],
    )
    assert schema.columns[0].values == (0, -1, 2, 3)
    assert schema.columns[1].edges == (-1.5, 0.5, 1000.0, 25000.0)


@pytest.mark.parametrize(("word", "truth"), [("yes", True), ("true", True), ("off", False), ("No", False)])
def test_whether_a_column_is_nullable_may_be_any_word_for_it(tmp_path, word, truth):
    (column,) = load(tmp_path, [f"{{name: x, values: [a], nullable: {word}}}"]).columns
    assert column.nullable is truth


def test_another_word_is_no_truth_value(tmp_path):
    with pytest.raises(SchemaError, match="nullable: true or false is needed"):
        load(tmp_path, ["{name: x, kind: categorical, values: [a], nullable: maybe}"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("[0, 1, N]", "text and whole numbers are mixed; put all of them in quotes"),
        ("[1.5, 2.5]", "a value is text or a whole number; put anything else in quotes"),
        ("[a, null]", "declare nullable: true"),
    ],
)
def test_what_leaves_a_doubt_is_refused_with_the_form(tmp_path, values, said):
    with pytest.raises(SchemaError, match=f"line 2: column 'x': .*{said}"):
        load(tmp_path, [f"{{name: x, kind: categorical, values: {values}}}"])


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("values: 'A, B'", r"values: write a list in brackets, such as \[a, b\]$"),
        ("values: 1-9", r"values: write a list in brackets, such as \[a, b\]$"),
        ("categories: [a, b]", r"kind is missing; .*; unknown key 'categories'; did you mean 'values'\?$"),
        (
            "kind: category, levels: [a]",
            r"values: is missing; list them.* levels: unknown key; did you mean 'values'\?",
        ),
        (
            "kind: integer, edges: [0, 5]",
            r"bins: is missing; list their edges.* edges: unknown key; did you mean 'bins'",
        ),
        ("kind: integer, min: 0, bins: [0, 5]", r"min: unknown key; write bounds: \[smallest, largest\]$"),
        ("kind: integer, bins: [0, 5], na: 99", r"na: unknown key; .*, of numbers, the not_in_universe$"),
        ("values: [1, 2, 9], missing: [9]", r"missing: unknown key; an empty cell needs nullable: true"),
        ("type: integer, bins: [0, 5]", r"kind is missing; .*; unknown key 'type'; did you mean 'kind'\?$"),
        ("kind: real, bins: [0%, 50%]", r"bins: 0: write a number, with a decimal point and no other sign"),
        ("kind: string", r"unknown kind; .*; use categorical with each value listed; free text cannot be synthesized$"),
        ("kind: numeric, bins: [0, 1]", r"unknown kind; .*; use real, or integer for whole numbers$"),
    ],
)
def test_what_people_try_is_refused_with_column_line_and_remedy(tmp_path, written, said):
    with pytest.raises(SchemaError, match=f"line 2: column 'x': .*{said}"):
        load(tmp_path, [f"{{name: x, {written}}}"])


def test_a_tab_is_named_as_what_it_is(tmp_path):
    (tmp_path / "schema.yaml").write_text("columns:\n\t- {name: x, values: [a]}\n")
    with pytest.raises(SchemaError, match=r"near line 2: .*; indent with spaces, not with tabs"):
        Schema.load(tmp_path / "schema.yaml")


def test_a_rule_about_a_misspelt_column_says_which_is_meant(tmp_path):
    columns = ["{name: income, kind: integer, bins: [0, 5, 10]}", "{name: wages, kind: integer, bins: [0, 5, 10]}"]
    path = tmp_path / "schema.yaml"
    for rule in ("compare: wages <= incme", "when: {incme: {max: 4}}, never: {wages: {min: 5}}"):
        lines = "\n".join(f"  - {column}" for column in columns)
        path.write_text(f"columns:\n{lines}\nrules:\n  - {{name: r, {rule}}}\n")
        with pytest.raises(SchemaError, match="rule 'r': column 'incme' is not in the schema; did you mean 'income'"):
            Schema.load(path)


def test_rules_speak_of_codes_as_they_are_written(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_text(
        "columns:\n"
        "  - {name: works, values: [yes, no]}\n"
        "  - {name: paid, values: [on, off]}\n"
        "rules:\n"
        "  - {name: nobody is paid for nothing, when: {works: no}, never: {paid: on}}\n"
    )
    schema = Schema.load(path)
    assert schema.domain.impossible[0].codes == (("works", (1,)), ("paid", (0,)))
