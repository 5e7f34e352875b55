"""The handbook builds without a warning, fetches nothing from elsewhere, and shows pages that live beside the code."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".checks" / "bin" / "mkdocs"
PARTS = ("mkdocs.yml", "docs", "infra/handbook", "infra/RUNBOOK.md", "CHANGELOG.md", "SECURITY.md")
pytestmark = [
    pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is not installed; `make docs` or `make check` does it"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources of the site in a folder of their own."""
    folder = tmp_path_factory.mktemp("handbook")
    for name in (*PARTS, *(str(page.relative_to(ROOT)) for page in ROOT.glob("tests/benchmarks/*.md"))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(folder):
    return subprocess.run(
        [MKDOCS, "build", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_handbook_builds(copy):
    done = build(copy)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(copy / "site"): page.read_text("utf-8") for page in copy.glob("site/**/*.html")}
    for name, text in pages.items():
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?((?:https?:)?//[^"\s>]+)', text)
        assert not fetched, f"{name} fetches {fetched}"
    assert 'href="runbook.html"' in pages[Path("index.html")]
    assert 'href="howto/restore-a-ledger.html#there-is-no-newer-backup"' in pages[Path("runbook.html")]
    assert 'href="../runbook.html#install-on-kubernetes"' in pages[Path("howto/run-on-a-cluster.html")]
    assert "tests/benchmarks/utility.csv" in pages[Path("evaluation.html")]


def test_a_link_to_nowhere_is_an_error(copy):
    page = copy / "docs" / "tutorial.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](howto/gone.md)\n", encoding="utf-8")
    done = build(copy)
    assert done.returncode
    assert "howto/gone.md" in done.stderr
