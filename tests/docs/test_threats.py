"""The threat model names tests that exist, and says of every threat how it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threats.md").read_text(encoding="utf-8")
POLICY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "least"), [(PAGE, 45), (POLICY, 12)], ids=["threats", "policy"])
def test_every_test_that_the_page_names_exists(page, least):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert missing == []
    assert len(named) >= least


def test_every_threat_has_a_test_or_says_that_it_is_not_stopped():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "|---" not in line]
    threats = [row for row in rows if not row.startswith(("| what they try", "| what happens"))]
    assert [row for row in threats if "`tests/" not in row and "**not s" not in row] == []


def test_every_kind_of_privacy_bug_has_a_test_that_would_turn_red():
    rows = [line for line in POLICY.splitlines() if line.startswith("| ") and "|---" not in line]
    assert len(rows) == 7
    assert [row for row in rows[1:] if "`tests/" not in row] == []


def test_the_page_is_linked():
    assert "docs/explanation/threats.md" in POLICY
    assert "explanation/threats.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
