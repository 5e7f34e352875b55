"""The reference pages say what the code says, and the words that only a person can write are all there."""

import re

import pytest
from pydantic import BaseModel

from infra.handbook import keys, python_names, reference
from infra.handbook.meanings import FIELDS, STATES
from synth_core.ledger.tables import ANSWERS, RECORDS
from synth_core.privacy.accounts import State

PAGES = reference.PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_generated_part_is_what_the_code_says(page):
    text = page.read_text(encoding="utf-8")
    assert reference.filled(text) == text, "run `make docs` and commit docs"


def test_every_part_is_on_a_page():
    shown = [name for page in PAGES for _, name, _ in reference.PART.findall(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(reference.PARTS)


def test_a_part_that_is_out_of_date_is_written_anew():
    stale = "before\n<!-- generated: ledger-answers -->\nold\n<!-- end -->\nafter\n"
    fresh = reference.filled(stale)
    assert "old" not in fresh
    assert fresh.startswith("before\n<!-- generated: ledger-answers -->\n\n| column | type | meaning |")
    assert fresh.endswith("\n\n<!-- end -->\nafter\n")
    assert reference.filled(fresh) == fresh


def test_all_is_explained_and_nothing_else():
    assert set(STATES) == {state.value for state in State}
    columns = {column.name for table in (RECORDS, ANSWERS) for column in table.columns}
    assert {name.rpartition(".")[2] for name in FIELDS} == columns


def test_a_key_without_a_meaning_is_refused():
    class Part(BaseModel):
        riddle: int = 0

    with pytest.raises(SystemExit, match="say what 'riddle' of Part means"):
        keys.key_tables(Part)


def test_types_and_limits_in_words():
    assert (
        keys.takes({"type": "integer", "minimum": 1, "maximum": 10_000}) == "whole number, at least 1, at most 10,000"
    )
    assert keys.takes({"anyOf": [{"const": "noisy"}, {"type": "null"}, {"type": "number"}]}) == "`noisy` or number"
    assert keys.takes({"type": "array", "items": {"type": "string"}}) == "list of text"


def mounted():
    from synth_core.cli import app

    functions = (command.name or command.callback.__name__ for command in app.registered_commands)
    commands = {name.replace("_", "-") for name in functions}
    return commands | {group.name for group in app.registered_groups}


def test_all_commands_are_there():
    assert set(re.findall(r"^## `synth ([a-z-]+)", reference.commands(), re.MULTILINE)) == mounted()


def test_the_readme_lists_every_command():
    listed = re.findall(r"^\| `synth ([a-z-]+)", (reference.ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(listed) == mounted()


def test_a_docstring_is_read_by_its_headings():
    def both(first, *, second=print):
        """Take two.

        Args:
            first: The first,
                of course.
            second: The other.

        Returns:
            Nothing.
        """

    said = python_names.Docstring.of(both)
    assert said.text == "Take two."
    assert said.entries("Args") == {"first": "The first, of course.", "second": "The other."}
    assert said.sections["Returns"].strip() == "Nothing."
    assert python_names.signature("both", both) == "both(first, *, second = print)"
