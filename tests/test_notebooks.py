"""At a notebook: objects that show themselves, frames, a progress bar, and a notebook that runs as it is shown."""

from __future__ import annotations

import doctest
import html.parser
import importlib
import json
import sys
import types

import numpy as np
import pandas as pd
import pytest

from infra.handbook.notebooks import NOTEBOOKS, run_notebook
from synth_core import Release, Schema, compare, synthesize
from synth_core.errors import SchemaError, SourceError
from synth_core.evaluation import Evaluation
from synth_core.markup import table_html
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import epsilon_of
from synth_core.progress import live_progress
from synth_core.schema.codec import encode

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


class Tags(html.parser.HTMLParser):
    """The words of a piece of HTML, its tags, and those that are left open."""

    def __init__(self, text):
        super().__init__()
        self.words, self.seen, self.open = "", set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def people(rows=800):
    rng = np.random.default_rng(7)
    return pd.DataFrame({"sex": rng.choice(["f", "m"], rows), "age": rng.integers(0, 100, rows), "note": "<b>"})


VALUES, BOUNDS = {"sex": {"f": "<female>", "m": "male"}}, {"age": (0, 99)}


@pytest.fixture(scope="module")
def schema():
    return Schema.from_frame_template(people(), values=VALUES, bounds=BOUNDS, leave_out=["note"])


@pytest.fixture(scope="module")
def release(schema) -> Release:
    return synthesize(people(), schema, epsilon=2.0, delta=1e-6, method="swift")


def test_a_release_says_what_it_cost(release):
    cost, spends = release.cost, release.spends
    assert list(spends.columns) == ["step", "purpose", "mechanism", "questions", "noise_sigma", "mu2"]
    assert cost.epsilon == 2.0
    assert cost.spent == pytest.approx(epsilon_of(spends.mu2.sum(), 1e-6))
    assert 1.9 < cost.spent <= 2.0
    assert len(release.records) > len(spends), "the raw records have every state, the frame what was paid"
    assert str(cost).startswith("epsilon 2 at delta 1e-06 per record, accounted for nowhere; spent: epsilon ")


def test_a_choice_has_no_noise_in_records(schema):
    release = synthesize(people(), schema, epsilon=2.0, delta=1e-6, method="mst")
    chosen = release.spends.mechanism == "exponential"
    assert chosen.any()
    assert release.spends.noise_sigma[chosen].isna().all()
    assert (release.spends.noise_sigma[~chosen] > 0).all()


def test_a_release_sums_itself_up(release):
    lines = release.summary().splitlines()
    assert lines[0].startswith(f"{len(release.table):,} synthetic records of 2 columns")
    assert f"{int(release.spends.questions.sum()):,} questions in {len(release.spends)} batches" in release.summary()
    assert repr(release).startswith("<Release: ")


def test_rules_are_part_of_the_summary(schema):
    rule = {"name": "no old men", "when": {"sex": ["m"]}, "never": {"age": {"min": 95}}}
    ruled = Schema.model_validate({"columns": schema.columns, "rules": [rule]})
    release = synthesize(people(), ruled, epsilon=2.0, delta=1e-6, method="independent")
    assert "rules      1 declared, 0 rows that break one" in release.summary()


def test_a_release_evaluates_itself(release, schema):
    found = release.evaluate(people())
    assert isinstance(found, Evaluation)
    assert found.one_way == compare(people(), release.table, schema).one_way


def test_everything_shows_itself_as_escaped_html(release, schema):
    account = Account(dataset="a<b", delta=1e-6, cap_epsilon=1.0, largest_n=1000, shares_rows_with=("c",))
    shown = {
        "release": (release._repr_html_(), "synthetic records"),
        "cost": (release.cost._repr_html_(), "epsilon 2"),
        "schema": (schema._repr_html_(), "<female>, male"),
        "evaluation": (release.evaluate(people())._repr_html_(), "confidential, not to be published"),
        "account": (account._repr_html_(), "Account a<b"),
    }
    for name, (text, words) in shown.items():
        page = Tags(text)
        assert words in page.words, name
        assert not page.open, f"{name}: a tag is left open"
        assert page.seen <= {"div", "strong", "table", "tr", "th", "td", "p", "small"}, name


def test_numbers_are_set_to_the_right_and_text_is_not():
    shown = table_html([("a", "12.5", "word")], title="t", head=("", "n", "w"))
    assert shown.count("text-align: right") == 1
    assert "12.5" in shown[shown.index("text-align: right") :][:40]


class OnlyTypes:
    """A frame of which nothing can be read but the types of its columns."""

    def __init__(self, frame):
        self.dtypes = frame.dtypes


def test_a_template_never_looks_at_values():
    """The same schema without a row, and from something that has no values at all."""
    said = {"values": VALUES, "bounds": BOUNDS, "leave_out": ["note"]}
    full = Schema.from_frame_template(people(), **said)
    assert Schema.from_frame_template(people().iloc[:0], **said) == full
    assert Schema.from_frame_template(OnlyTypes(people()), **said) == full
    assert encode(people(), full, source="t")["age"].max() == 19


def test_types_say_whether_numbers_are_whole():
    frame = pd.DataFrame({"i": [1], "f": [1.0], "n": pd.array([1], dtype="Int64"), "u": np.array([1], dtype="uint8")})
    schema = Schema.from_frame_template(frame, bounds=dict.fromkeys(frame, (0, 10)), bins={**dict.fromkeys(frame, 5)})
    assert [column.kind for column in schema.columns] == ["integer", "real", "integer", "integer"]


def test_bins_may_be_edges_and_columns_may_miss_values():
    schema = Schema.from_frame_template(
        people(), values=VALUES, bins={"age": [0, 18, 65, 99]}, nullable=["age"], leave_out=["note"]
    )
    assert schema.column("age").captions == ("0–17", "18–64", "65–98", "missing")


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({}, "columns without a declaration: 'sex', 'age', 'note'; give values="),
        ({"values": VALUES, "bounds": BOUNDS}, "columns without a declaration: 'note'"),
        ({"bounds": {"agee": (0, 9)}}, "the frame has no column 'agee'; did you mean 'age'"),
        (
            {"values": VALUES, "bounds": {"age": (0, 9), "note": (0, 9)}},
            "column 'note' has bounds or bins, and the frame's",
        ),
        (
            {"values": VALUES, "bounds": BOUNDS, "bins": {}, "leave_out": ["note"]},
            "column 'age' has bounds and no bins",
        ),
    ],
)
def test_what_a_template_misses_is_refused_by_name(said, refusal):
    with pytest.raises(SchemaError) as refused:
        Schema.from_frame_template(people(), **said)
    assert refusal in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["synth_core.api", "synth_core.schema.schema", "synth_core.evaluation.true_errors"])
def test_the_examples_of_docstrings_run(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted >= 4
    assert found.failed == 0


def test_the_path_of_a_table_or_a_schema_is_refused_with_how_to_read_it(schema):
    asked = {"epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(SourceError, match=r"the frame: a data frame is needed, not a str; .* pandas.read_csv\(path\)"):
        synthesize("people.csv", schema, **asked)
    with pytest.raises(SchemaError, match=r"schema: a Schema is needed, not a dict; .* Schema.load\(path\)"):
        synthesize(people(), {"columns": []}, **asked)
    with pytest.raises(SourceError, match="synthetic table: a data frame is needed, not a str"):
        compare(people(), "extract.csv", schema)


def test_a_release_is_asked_by_words_and_by_codes(schema):
    coded = Schema.model_validate({"columns": [{"name": "sex", "values": {1: "female", 2: "male"}}]})
    frame = pd.DataFrame({"sex": [1, 2] * 300})
    release = synthesize(frame, coded, epsilon=2.0, delta=1e-6, method="independent")
    by_word, by_code = (release.ask(where={"sex": value}).values for value in ("female", 1))
    assert by_word == by_code
    assert release.ask(where={"sex": [1, 2]}).values > by_word
    assert repr(release.ask("sex")) == str(release.ask("sex")), "what a terminal shows is the table"


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    """What is said last is on it; without a terminal nothing is written."""
    from io import StringIO

    class Terminal(StringIO):
        def isatty(self):
            return True

    for stream, drawn in ((Terminal(), True), (StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with live_progress("Fitting") as advance:
            advance("round 3", 0.5)
        assert ("Fitting" in stream.getvalue()) == drawn


def test_a_bar_is_updated_in_place_in_a_notebook(monkeypatch):
    shown = []
    display = types.ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda html, **how: shown.append((html, how))
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with live_progress("Fitting") as advance:
        advance("<round 3>", 0.5)
    (first, begun), (middle, updated), (last, ended) = shown
    assert 'value="0.000"' in first
    assert '&lt;round 3&gt; <progress max="1" value="0.500">' in middle
    assert 'done <progress max="1" value="1.000">' in last
    assert updated == ended == {**begun, "update": True}
    with live_progress("Fitting"):
        pass
    assert shown[-1][1]["display_id"] != begun["display_id"], "each call has a bar of its own"


def test_a_caller_who_listens_gets_lines_and_no_bar(schema, monkeypatch):
    heard = []
    monkeypatch.setattr("synth_core.progress._notebook_display", lambda: pytest.fail("a bar was drawn"))
    synthesize(people(), schema, epsilon=2.0, delta=1e-6, method="swift", progress=heard.append)
    assert heard


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_notebook_runs_and_its_stored_outputs_are_of_its_cells(path, tmp_path):
    """Cells run in their order in an empty folder; each that is shown with an output has one of the same kind."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    found = run_notebook(notebook, tmp_path)
    stored = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, kinds in zip(stored, found, strict=True):
        assert [sorted(one.get("data", {one["output_type"]: 0})) for one in cell["outputs"]] == [
            sorted(one.get("data", {one["output_type"]: 0})) for one in kinds
        ], "".join(cell["source"])


def test_there_is_a_first_notebook():
    assert [path.name for path in PATHS] == ["first.ipynb"]
