"""What the page on the house says is true: files and names of its tables exist, and few are touched for a change."""

import re
from pathlib import Path

import pytest

import synth_core

ROOT = Path(synth_core.__file__).parents[1]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
CONTRIBUTING = (ROOT / "docs" / "contributing.md").read_text()
PLACES = ("", "synth_core/", "plugins/")


def table(page, heading):
    """The rows of the first table under a heading, each as its cells."""
    lines = page.partition(f"## {heading}")[2].partition("\n## ")[0].splitlines()
    return [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("|")][2:]


def found(path):
    return next((ROOT / place / path for place in PLACES if (ROOT / place / path).exists()), None)


CONCEPTS = dict(table(PAGE, "One concept, one place"))


def test_there_is_a_row_for_each_concept():
    assert len(CONCEPTS) > 40


@pytest.mark.parametrize("concept", CONCEPTS)
def test_the_place_of_a_concept_exists(concept):
    for path, names in re.findall(r"`([\w/]+(?:\.py|\.yaml|/))`(?: \(([^)]*)\))?", CONCEPTS[concept]):
        assert found(path), path
        for name in re.findall(r"`(\w+)[\w.]*`", names):
            text = found(path).read_text()
            assert re.search(rf"\b(def|class) {name}\b|^ *{name}\b", text, re.MULTILINE), f"{path}: {name}"


@pytest.mark.parametrize(("page", "heading"), [(PAGE, "Where do I put …"), (CONTRIBUTING, "How to add …")])
def test_what_is_touched_exists_and_is_little(page, heading):
    rows = table(page, heading)
    assert len(rows) >= 5
    for wanted, *files in rows:
        named = dict.fromkeys(re.findall(r"`([\w/]+(?:\.py|/))`", " ".join(files)))
        assert 1 <= len(named) <= 3, wanted
        assert all(map(found, named)), wanted
