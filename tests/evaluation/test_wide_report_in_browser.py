"""The reports of a table of 24 columns, one of 271 codes, on a phone, on a desk and on paper."""

from __future__ import annotations

import base64
import re

import pytest
from support.wide_table import write_wide_release

from synth_core.release.paths import ReleasePaths
from synth_core.steps import STEPS, prepare, run_step

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PHONE, DESK = 390, 1280
LEAST_LETTER = 9.0
"""Pixels of a letter's height, line spacing included, below which nobody reads it on a phone."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Both reports of the second of two releases, so that there is something to compare with."""
    folder = tmp_path_factory.mktemp("wide")
    spec = write_wide_release(folder, method="independent", protect=[["SEX", "DVET"]])
    for release in ("first", "second"):
        address = prepare(spec | {"release": release}, workspace=folder / "workspace")
        for step in STEPS:
            run_step(step, address)
    paths = ReleasePaths.of_address(address)
    return {"public": paths.public_report, "internal": paths.internal_report}


def show(window, report, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    window.get(report.as_uri())


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["public", "internal"])
def test_nothing_is_wider_than_the_page_and_what_is_wider_scrolls(window, reports, name, width):
    show(window, reports[name], width)
    window.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert window.get_log("browser") == []
    assert window.execute_script("return document.documentElement.scrollWidth") <= width
    tall = "return [...document.querySelectorAll('.scroll')].map(one => one.getBoundingClientRect().height)"
    assert max(window.execute_script(tall)) < 600  # 271 rows are scrolled, the column's heading stays
    free = (
        "return [...document.querySelectorAll('table')].filter(one => !one.closest('.scroll')).length"
        " + [...document.querySelectorAll('svg')].filter(one => !one.closest('.picture')).length"
    )
    assert window.execute_script(free) == 0


@pytest.mark.parametrize("name", ["public", "internal"])
def test_no_word_of_a_picture_is_cut_off(window, reports, name):
    show(window, reports[name], DESK)
    script = (
        "return [...document.querySelectorAll('svg')].flatMap(svg => { const room = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].filter(one => { const own = one.getBoundingClientRect();"
        " return own.left < room.left - 0.5 || own.right > room.right + 0.5 }) }).map(one => one.textContent)"
    )
    assert window.execute_script(script) == []


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["public", "internal"])
def test_the_heatmap_can_be_read(window, reports, name, width):
    show(window, reports[name], width)
    letters = (
        "const wide = document.querySelector('.wide svg');"
        "return [...wide.querySelectorAll('text')].filter(one => one.textContent == 'DVET')"
        ".map(one => { const box = one.getBoundingClientRect(); return Math.min(box.width, box.height) })"
    )
    found = window.execute_script(letters)
    assert len(found) == 2  # a row and a column
    assert min(found) >= LEAST_LETTER


@pytest.mark.parametrize("name", ["public", "internal"])
def test_the_contents_lead_to_every_section(window, reports, name):
    show(window, reports[name], PHONE)
    script = (
        "return [...document.querySelectorAll('.contents a')].map(one => [one.textContent,"
        " document.querySelector(one.getAttribute('href')).textContent])"
    )
    links = window.execute_script(script)
    assert len(links) >= 5
    assert all(text == heading for text, heading in links)


@pytest.mark.parametrize("name", ["public", "internal"])
def test_it_prints_on_one_page(window, reports, name):
    """What a person signs or files: the promise and the headline figures, not forty pictures."""
    window.get(reports[name].as_uri())
    printed = window.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    pdf = base64.b64decode(printed["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


def test_the_public_report_says_which_pairs_are_protected_and_what_moved(reports):
    html = reports["public"].read_text(encoding="utf-8")
    assert "How far columns have moved" in html
    assert re.search(r"<th scope=\"row\">SEX</th><td class=\"words\">DVET</td>", html)
