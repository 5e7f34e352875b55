"""Draws the two pictures of the README from fictional people: `python -m infra.handbook.pictures`.

`first-extract.svg` compares the confidential with the synthetic table of the README's example; `report.png` is the
top of the public report of a release, as Chromium shows it. Noise has no seed, so the numbers differ each time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from synth_core import Schema, synthesize
from synth_core.report import charts

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
ROWS = 20_000
WINDOW = "1150,720"
MARGIN = 12.0

DEGREES = ("bachelor", "postgraduate")
AT_WORK = ("employed", "self_employed")
AGES = (16, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75)
PANELS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (
        "in work, by age",
        lambda table: table.activity.isin(AT_WORK).groupby(pd.cut(table.age, AGES, right=False)).mean(),
    ),
    (
        "with a degree, by occupation",
        lambda table: table.education.isin(DEGREES).groupby(table.occupation).mean(),
    ),
)


def comparison(confidential: pd.DataFrame, synthetic: pd.DataFrame) -> str:
    """A standalone SVG: shares in both tables, one panel beside the other, in the colours of a report."""
    parts, width, height = [], MARGIN, 0.0
    for title, shares in PANELS:
        left, right = shares(confidential), shares(synthetic)
        picture = charts.paired_bars(
            [_caption(label) for label in left.index], reference=list(left), synthetic=list(right)
        )
        wide, high = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture)[0])
        placed = picture.replace("<svg ", f'<svg x="{width:g}" y="44" width="{wide:g}" height="{high:g}" ', 1)
        parts.append(f'<text x="{width:g}" y="36" class="words" style="font-weight: bold">{title}</text>{placed}')
        width, height = width + wide + MARGIN, max(height, high + 44)
    key = "".join(
        f'<rect class="{colour}" x="{x}" y="5" width="9" height="9"/>'
        f'<text class="words" x="{x + 13}" y="13">{words}</text>'
        for x, colour, words in (
            (12, "reference", "confidential (fictional) table"),
            (170, "synthetic", "synthetic table"),
        )
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{1.5 * width:g}">'
        f"<style>{_colours()} .words {{fill: var(--ink); font: 9px var(--font)}} "
        ".paper {fill: var(--paper)} .reference {fill: var(--reference)} .synthetic {fill: var(--synthetic)}</style>"
        f'<rect class="paper" width="100%" height="100%"/>{key}{"".join(parts)}</svg>\n'
    )


def _caption(label: Any) -> str:
    return f"{label.left}–{label.right - 1}" if isinstance(label, pd.Interval) else str(label)


def _colours() -> str:
    """The variables of a report's style sheet, light and dark, for a picture outside of a page."""
    style = files("synth_core.report").joinpath("templates", "style.css.j2").read_text(encoding="utf-8")
    light, dark = re.findall(r":root\s*\{([^}]*)\}", style)[:2]
    return f"svg {{{light.strip()}}} @media (prefers-color-scheme: dark) {{svg {{{dark.strip()}}}}}"


def main() -> int:
    """Make the example, release it, and write both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        synth = str(Path(sys.executable).with_name("synth"))
        subprocess.run([synth, "init", "census", "--rows", str(ROWS)], cwd=home, check=True)
        people = pd.read_csv(home / "census" / "data" / "people.csv")
        made = synthesize(people, Schema.load(home / "census" / "schema.yaml"), epsilon=1.0, delta=1e-6)
        (IMAGES / "first-extract.svg").write_text(comparison(people, made.table), encoding="utf-8")
        subprocess.run([synth, "run", "census/release.yaml"], cwd=home, check=True)
        report = home / "census" / "workspace" / "public" / "example" / "report.html"
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--window-size={WINDOW}",
                f"--screenshot={IMAGES / 'report.png'}",
                report.as_uri(),
            ],
            check=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
