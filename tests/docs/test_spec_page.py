"""The page about the two files says what the code accepts."""

import re
from pathlib import Path

import yaml

from synth_core import Schema
from synth_core.release.spec import ReleaseSpec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spec.md"


def blocks():
    return re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_spec_shown_is_valid_and_complete():
    shown = yaml.safe_load(blocks()[0])
    spec = ReleaseSpec.parse(shown)
    linked = {"pairs_share"}  # a key that a release of one table has not
    assert set(shown) == set(spec.dump()) | linked


def test_the_schema_shown_is_valid(tmp_path):
    (tmp_path / "schema.yaml").write_text(blocks()[1])
    schema = Schema.load(tmp_path / "schema.yaml")
    assert schema.domain.attributes == ("sex", "age", "hours", "income", "occupation", "work", "load")
    assert schema.domain.sizes == (2, 24, 5, 7, 5, 4, 4)
