"""YAML files are refused by size, depth and kind before anything is built of them."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from synth_core import documents
from synth_core.documents import MAX_DEPTH, Unreadable, parse_document, read_document
from synth_core.errors import SchemaError, SpecError
from synth_core.release.spec import ReleaseSpec, read_releases
from synth_core.schema import DeclaredSchema, Schema

SOUND = "{release: sound, dataset: d, source: a.csv, schema: s.yaml, epsilon: 1, delta: 1.0e-6}"

HOSTILE = {
    "a list 50,000 levels deep": "[" * 50_000,
    "and closed again": "[" * 50_000 + "]" * 50_000,
    "blocks 5,000 levels deep": "- " * 5_000 + "x",
    "mappings 50,000 levels deep": "{a: " * 50_000,
    "a list that holds itself": "a: &a [*a]",
    "an alias of nothing": "a: *b",
    "a date that cannot be": "a: 2020-99-99",
    "a number of 5,000 digits": "1" * 5_000,
    "a tag without its value": "!!timestamp x",
    "another": "!!bool x",
    "an object": "!!python/object/apply:os.system [ls]",
    "a key that is a list": "? [a]\n: b",
    "a key given twice": "a: 1\na: 2",
    "two documents": "--- a\n--- b",
    "a NUL": "a: \0",
    "a thousand million values": "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"{name}: &{name} [{', '.join([f'*{of}'] * 10)}]\n" for of, name in pairwise("abcdefghi")),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, text):
    """Before, a deep list ended the process and the scan of the folder with it; others were tracebacks."""
    (tmp_path / "bad.yaml").write_text(text)
    (tmp_path / "good.yaml").write_text(SOUND)
    for load, kind in ((ReleaseSpec.load, SpecError), (Schema.load, SchemaError)):
        with pytest.raises(kind, match=r"bad\.yaml") as refusal:
            load(tmp_path / "bad.yaml")
        assert "\n" not in str(refusal.value)
    found = read_releases(tmp_path)
    assert [series.spec.release for series in found.series] == ["sound"]
    assert len(found.broken) == 1


def test_the_deepest_that_may_be_is_read():
    assert parse_document("[" * MAX_DEPTH + "]" * MAX_DEPTH) != []
    with pytest.raises(Unreadable, match=f"more than {MAX_DEPTH} levels deep"):
        parse_document("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_aliases_count_as_what_they_stand_for():
    with pytest.raises(Unreadable, match="it has more than 4,000,000 values"):
        parse_document(HOSTILE["a thousand million values"])


def test_anchors_may_be_used():
    assert parse_document("a: &yes [y, n]\nb: *yes\nc: {<<: {d: 1}}") == {
        "a": ["y", "n"],
        "b": ["y", "n"],
        "c": {"d": 1},
    }


def test_a_file_that_never_ends_is_not_read(monkeypatch, tmp_path):
    with pytest.raises(Unreadable, match="it is not a file"):
        read_document("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="it is not a file"):
        read_document(tmp_path / "pipe")
    monkeypatch.setattr(documents, "MAX_BYTES", 2**20)
    (tmp_path / "large.yaml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(Unreadable, match="it is larger than 1 MB"):
        read_document(tmp_path / "large.yaml")


def test_links_that_go_round_are_named(tmp_path):
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    with pytest.raises(SchemaError, match=r"a\.yaml: it cannot be read: its symbolic links go round in a circle"):
        Schema.load(tmp_path / "a.yaml")
    spec = SOUND.replace("s.yaml", "a.yaml").replace("a.csv", "loop/a.csv")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "r.yaml").write_text(spec)
    assert ReleaseSpec.load(tmp_path / "r.yaml").schema_.startswith(str(tmp_path))


def test_nothing_else_reads_yaml():
    """One place has the limits: a second loader would not have them."""
    code = Path(documents.__file__).parent
    loading = ("yaml.load(", "yaml.safe_load(", "yaml.full_load(", "yaml.unsafe_load(")
    found = {str(path.relative_to(code)) for path in code.rglob("*.py") if any(w in path.read_text() for w in loading)}
    assert found == {"documents.py"}


def test_all_that_is_wrong_is_said_at_once_with_lines_and_what_was_meant(tmp_path):
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        "columns:\n  - {name: sex, kind: categorial, values: [f]}\n"
        "  - {name: age, kind: integer, bounds: [0, 9], bins: 2, nulable: true}\n"
    )
    with pytest.raises(SchemaError) as refusal:
        DeclaredSchema.load(schema)
    assert str(refusal.value).removeprefix(f"{schema}: ").split("; line ") == [
        "line 2: column 'sex': unknown kind; say categorical, integer or real; did you mean 'categorical'?",
        "3: column 'age': nulable: unknown key; did you mean 'nullable'?",
    ]
    spec = tmp_path / "release.yaml"
    spec.write_text("release: r1\nshards: 0\nsourse: x.csv\nqwerty: 1\n")
    with pytest.raises(SpecError) as refusal:
        ReleaseSpec.load(spec)
    for said in (
        "line 2: shards: ",
        "line 3: unknown key 'sourse'; did you mean 'source'?",
        "line 4: unknown key 'qwerty' (",
    ):
        assert said in str(refusal.value)
