"""A spec is one YAML file; whatever is wrong with it is named in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth_core.errors import SpecError
from synth_core.names import NAME
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec

GOOD = {
    "release": "2026-q1",
    "dataset": "census",
    "source": "data/*.csv",
    "schema": "schema.yaml",
    "epsilon": 0.8,
    "delta": 1e-5,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon: Input should be greater than or equal to 0.000001"),
        ({"epsilon": 1e-300}, "epsilon: Input should be greater than or equal to 0.000001"),
        ({"epsilon": "much"}, r"epsilon: write a number such as 1\.0, with a decimal point$"),
        ({"epsilon": "1,0"}, r"epsilon: write a number such as 1\.0, with a decimal point$"),
        ({"shards": 1.5}, "shards: write a whole number such as 4$"),
        ({"csv": "perhaps"}, "csv: write true or false$"),
        ({"delta": 1}, "delta: Input should be less than 1"),
        ({"delta": 1.5}, "delta: Input should be less than 1"),
        ({"delta": 0}, "delta: Input should be greater than 0"),
        ({"epsilonn": 1}, "unknown key 'epsilonn'; did you mean 'epsilon'"),
        ({"release": "../escape"}, "release: use 1 to 100 of"),
        ({"release": "Upper"}, "release: use 1 to 100 of"),
        ({"rows": 0}, "rows: "),
        ({"rows": "many"}, "rows: "),
        ({"shards": 0}, "shards: Input should be greater"),
        ({"dataset": None}, "dataset: "),
    ],
)
def test_bad_values_are_named(change, message):
    with pytest.raises(SpecError, match=message) as refusal:
        ReleaseSpec.parse({**GOOD, **change})
    assert "\n" not in str(refusal.value)


def test_missing_keys_are_named():
    with pytest.raises(SpecError, match="key 'epsilon' is missing"):
        ReleaseSpec.parse({key: value for key, value in GOOD.items() if key != "epsilon"})


def test_not_a_mapping():
    with pytest.raises(SpecError, match="expected keys and values"):
        ReleaseSpec.parse([])  # type: ignore[arg-type]


def test_files(tmp_path):
    path = tmp_path / "release.yaml"
    with pytest.raises(SpecError, match="cannot be read"):
        ReleaseSpec.load(path)
    path.write_text("a: [")
    with pytest.raises(SpecError, match="not valid YAML"):
        ReleaseSpec.load(path)
    ReleaseSpec.parse(GOOD).save(path)
    loaded = ReleaseSpec.load(path)
    assert loaded.source == str(tmp_path / "data" / "*.csv"), "addresses are relative to the spec"
    loaded.save(path)
    assert ReleaseSpec.load(path) == loaded


@given(st.text(max_size=120))
def test_names_are_safe_as_folder_names(text):
    if NAME.fullmatch(text):
        assert "/" not in text
        assert not text.startswith(".")


def test_zones_are_apart_and_closed(tmp_path):
    paths = ReleasePaths(tmp_path / "w", "r")
    paths.create()
    assert paths.confidential.stat().st_mode & 0o777 == 0o700
    assert paths.confidential.parent.stat().st_mode & 0o777 == 0o700
    assert ReleasePaths.of_address(str(paths.spec)) == paths
    with pytest.raises(SpecError, match="not the address of a prepared release"):
        ReleasePaths.of_address(str(paths.manifest))


def test_a_workspace_that_cannot_be_made(tmp_path):
    (tmp_path / "w").write_text("a file, not a folder")
    with pytest.raises(SpecError, match="not writable"):
        ReleasePaths(tmp_path / "w", "r").create()
