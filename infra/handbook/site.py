"""Lets the site show pages that live beside the code they speak of, and keeps links right in both places.

mkdocs calls these functions (see `hooks` in mkdocs.yml). In the repository a page links to files; on the site a link
to a page that the site also shows leads there, and one to any other file becomes the file's name.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ELSEWHERE = {"infra/RUNBOOK.md": "runbook.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Pages outside docs/, by their path in the repository, and where the site shows them."""

MEASURED = "tests/benchmarks"
"""Every page of this folder is shown too, below measured/."""

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let the navigation end with what was measured; the pages bring their titles."""
    root = Path(config.config_file_path).parent
    config.nav.append({"Measured": [shown for place, shown in _shown(root).items() if place not in ELSEWHERE]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere."""
    root = Path(config.config_file_path).parent
    for place, shown in _shown(root).items():
        content = (root / place).read_text(encoding="utf-8")
        files.append(File.generated(config, shown, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    root = Path(config.config_file_path).parent
    parts = FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else linked(part, page=page.file.src_uri, shown=_shown(root)) for part in parts
    )


def linked(text: str, *, page: str, shown: dict[str, str]) -> str:
    """The text with its links as the site needs them; `page` is the site's address of the page."""
    home = {address: place for place, address in shown.items()}.get(page, f"docs/{page}")

    def replaced(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        address = place.removeprefix("docs/") if place.startswith("docs/") else shown.get(place)
        if address is None:
            return words if place in words else f"{words} (`{place}`)"
        return f"[{words}]({posixpath.relpath(address, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(replaced, text)


def _shown(root: Path) -> dict[str, str]:
    measured = sorted((root / MEASURED).glob("*.md"))
    return ELSEWHERE | {f"{MEASURED}/{path.name}": f"measured/{path.name}" for path in measured}
