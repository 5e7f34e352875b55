"""Links between the documents lead somewhere: to files, to sections of them, and to pictures."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page for folder in ("", "infra", "plugins", "tests/benchmarks") for page in (ROOT / folder).glob("*.md")
) + sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(text):
    """What the page links to, without addresses of other sites."""
    return [target for target in LINK.findall(FENCE.sub("", text)) if "://" not in target]


def anchors(text):
    """The sections of a page, by the names that links use for them."""
    heads = (re.sub(r"[`*]|\]\([^)]*\)", "", head).strip().lower() for head in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w -]", "", head).replace(" ", "-") for head in heads}


def broken(page):
    text = page.read_text(encoding="utf-8")
    for target in links(text):
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in anchors(other.read_text(encoding="utf-8")):
            yield f"{target}: there is no such section"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert not list(broken(page))


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "b.md").write_text("# B\n\n## One `two`: three\n\n```bash\n# not a section\n```\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# A\n[x](b.md#one-two-three) [x](#a) ![y](c.png) [x](b.md#not-a-section) [x](d.md) [x](https://e.example)\n"
        "```bash\necho [x](gone.md)\n```\n"
    )
    assert list(broken(page)) == [
        "c.png: there is no such file",
        "b.md#not-a-section: there is no such section",
        "d.md: there is no such file",
    ]
