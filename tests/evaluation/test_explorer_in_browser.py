"""The page of a release in a browser: what a reader picks is answered with the numbers that the model gives."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from synth_core.inference.published import Askable, Asking
from synth_core.inference.replicates import Replicates
from synth_core.inference.uncertain import Uncertain
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.report.explore import Explored, explore_page
from synth_core.schema import Schema

pytestmark = pytest.mark.browser

SCHEMA = """
columns:
  - {name: sex, kind: categorical, values: [F, M], labels: {F: female, M: male}}
  - {name: age, kind: integer, bounds: [0, 99], bins: 5}
  - {name: job, kind: categorical, values: [farm, "=shop", "office, large"], nullable: true}
  - {name: region, kind: categorical, values: [north, "<b>south</b>", east, west]}
"""
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.yaml"
    path.write_text(SCHEMA)
    return Schema.load(path)


@pytest.fixture(scope="module")
def uncertain(schema):
    rng = np.random.default_rng(4)
    cliques = [("sex", "age"), ("age", "job"), ("region",)]
    tree = junction_tree(schema.domain, cliques)
    potentials = rng.normal(size=10 + 20 + 4)
    own = MarkovRandomField(tree, cliques, potentials, total=100_000.0)
    others = [
        MarkovRandomField(tree, cliques, potentials + 0.02 * rng.normal(size=34), total=100_000 + 30 * rng.normal())
        for _ in range(24)
    ]
    return Uncertain(own, Replicates.of(own, others))


@dataclass(frozen=True)
class Asked(Askable):
    """A model that answers, without a release around it."""

    model: Asking

    def _asking(self):
        return self.model


@pytest.fixture(scope="module")
def asking(uncertain, schema):
    return Asked(Asking(uncertain, schema, {}))


@pytest.fixture(scope="module")
def page(asking, schema, uncertain, tmp_path_factory):
    about = Explored(release="first release", dataset="people", unit="person", epsilon="1", delta="1e-6")
    means = {"age": asking.model.code_means(schema.column("age"))}
    html = explore_page(about, schema, uncertain, means=means)
    assert html == explore_page(about, schema, uncertain, means=means)
    path = tmp_path_factory.mktemp("page") / "explore.html"
    path.write_text(html, encoding="utf-8")
    return path


def show(window, page, width=1280, scheme="light", question=""):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    window.get("about:blank")  # an address that differs in its end alone would not load the page again
    window.get(page.as_uri() + question)


def pick(window, **choices):
    """Choose in the page's lists by their texts, as a reader does."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    for name, text in choices.items():
        Select(window.find_element(By.ID, name)).select_by_visible_text(text)


def shown(window):
    """The table on the page: its head, and its lines by their first cell."""
    script = "return [...document.querySelectorAll('#table tr')].map(row => [...row.cells].map(one => one.textContent))"
    head, *lines = window.execute_script(script)
    return head, {line[0]: line[1:] for line in lines}


def number(text):
    value, _, margin = re.sub(r"[,%\u00a0]", "", text).partition("±")
    return float(value), float(margin or "nan")


def status(window):
    return window.execute_script("return document.getElementById('status').textContent")


def downloaded(window):
    """What the button hands to the browser, as rows of texts, and under which name."""
    window.execute_script(
        "window.saved = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = blob => { blob.text().then(text => saved.push(text)); return make(blob) };"
        "HTMLAnchorElement.prototype.click = function () { saved.push(this.download) };"
        "document.getElementById('download').click()"
    )
    name, text = window.execute_async_script(
        "const done = arguments[0]; const wait = () => saved.length == 2 ? done(saved) : setTimeout(wait, 10); wait()"
    )
    return name, list(csv.reader(io.StringIO(text)))


def same_numbers(window, asked, *, unit=1.0, grain):
    """The table on the page has the numbers of `synth ask`, its margins rounded up by a few percent at most."""
    _, lines = shown(window)
    cells = [text for line in lines.values() for text in line]
    assert len(cells) == len(asked.values)
    for text, value, low, high in zip(cells, asked.values, asked.low, asked.high, strict=True):
        got, margin = number(text)
        expected = max(high - value, value - low)
        assert got == pytest.approx(unit * value, abs=0.51 * grain)
        assert unit * expected - 0.51 * grain <= margin <= 1.04 * unit * expected + 0.51 * grain


def test_two_columns_and_a_condition_have_the_numbers_of_synth_ask(window, page, asking):
    show(window, page)
    pick(window, rows="age", columns="job", where="sex")
    pick(window, **{"is": "male"})
    asked = asking.ask(["age", "job"], where={"sex": "male"})
    same_numbers(window, asked, grain=1)
    assert status(window).startswith("Modelled, not measured")
    assert not asked.measured
    name, rows = downloaded(window)
    assert name == "first-release-Count-by-age-and-job-where-sex-male.csv"
    assert rows[0] == ["age", "job", "count", "low", "high", "level", "measured", "where"]
    frame = asked.to_frame()
    assert [row[0] for row in rows[1:]] == list(frame["age"])
    assert [row[1] for row in rows[1:]] == [job.replace("=shop", "'=shop") for job in frame["job"]]  # no formula
    assert [float(row[2]) for row in rows[1:]] == pytest.approx(list(frame["count"]), abs=0.001)
    assert [float(row[4]) for row in rows[1:]] == pytest.approx(list(frame["high"]), rel=0.04)
    assert {tuple(row[5:]) for row in rows[1:]} == {("90", "no", "sex = male")}
    assert window.get_log("browser") == []


def test_shares_means_and_levels_are_those_of_synth_ask(window, page, asking):
    show(window, page)
    pick(window, rows="sex", columns="age", measure="share of all records")
    assert status(window).startswith("Measured")
    same_numbers(window, asking.ask(["sex", "age"], share=True), unit=100, grain=0.01)
    pick(window, where="region")
    pick(window, **{"is": "east"})
    same_numbers(window, asking.ask(["sex", "age"], where={"region": "east"}, share=True), unit=100, grain=0.1)
    pick(window, where="all records", level="99 %", columns="region", measure="mean of age")
    same_numbers(window, asking.ask(["sex", "region"], mean="age", level=0.99), grain=1)
    pick(window, columns="none")
    _, lines = shown(window)
    by_sex = asking.ask(["sex"], mean="age", level=0.99)
    for line, value, low in zip(lines.values(), by_sex.values, by_sex.low, strict=True):
        assert number(line[0])[0] == pytest.approx(value, abs=0.1)
        assert number(line[2])[0] == pytest.approx(low, abs=0.1)


def test_shares_of_rows_add_up_in_each_row(window, page, asking):
    show(window, page)
    pick(window, rows="sex", columns="age", measure="share of each row")
    _, lines = shown(window)
    values = asking.model.uncertain.table(("sex", "age")).values
    for line, own in zip(lines.values(), values, strict=True):
        assert [number(text)[0] for text in line] == pytest.approx(list(100 * own / own.sum()), abs=0.06)
    pick(window, columns="none")
    _, lines = shown(window)  # all of a row is in its one number: it becomes the share of all records
    assert sum(number(line[0])[0] for line in lines.values()) == pytest.approx(100, abs=0.2)


def test_a_share_is_as_certain_as_the_replicates_say(page, uncertain):
    """Shares among records that are equal in a column have margins of their own: checked in the page's data."""
    from test_page_tables import unpack

    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])
    held = next(one for one in data["tables"] if one["of"] == [0, 1] and one["mean"] is None)
    table = uncertain.table(("sex", "age"))
    _, sigmas = unpack(held, (2, 5))
    assert [layer["given"] for layer in held["layers"]] == [None, [], [0], [1]]
    for sigma, axes in zip(sigmas[1:], [(0, 1), (1,), (0,)], strict=True):
        shares = table.values / table.values.sum(axis=axes, keepdims=True)
        draws = table.draws / table.draws.sum(axis=tuple(a + 1 for a in axes), keepdims=True)
        np.testing.assert_allclose(sigma, np.sqrt(np.mean((draws - shares) ** 2, axis=0)), rtol=0.04)
    assert {tuple(one["of"]) for one in data["tables"]} >= set(combinations(range(4), 3))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("question", ["", "#rows=age&columns=job&where=sex&is=male&picture=heat"])
def test_it_opens_cleanly(window, page, width, scheme, question):
    show(window, page, width, scheme, question)
    assert window.get_log("browser") == []
    assert window.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert window.execute_script("return document.documentElement.scrollWidth") <= width
    assert window.execute_script("return document.querySelector('#picture svg').getBoundingClientRect().width") > 250
    paper = window.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_view_can_be_passed_on(window, page):
    show(window, page)
    pick(window, rows="age", columns="region", where="sex", measure="share of these records", level="95 %")
    asked = window.execute_script("return location.hash")
    lines = shown(window)
    show(window, page, question=asked)
    assert shown(window) == lines
    assert window.execute_script("return document.getElementById('heading').textContent").startswith("Share by age")


def test_wrong_addresses_show_what_they_can(window, page):
    show(window, page, question="#rows=nothing&columns=age&where=age&is=never&measure=mean&level=12&mean=region")
    assert window.get_log("browser") == []
    assert "Count by sex and age" in window.execute_script("return document.getElementById('heading').textContent")


def test_words_of_a_schema_are_text(window, page):
    show(window, page, question="#rows=region")
    assert "<b>south</b>" in shown(window)[1]
    assert window.execute_script("return document.querySelectorAll('#app b').length") == 0


def test_a_table_that_is_not_there_is_said_to_be_missing(window, page):
    show(window, page, question="#rows=sex&columns=job&where=region&is=east&mean=age")
    assert status(window) == "This table is not in the page."
    command = window.execute_script("return document.getElementById('command').textContent")
    assert command == "synth ask 'first release' --by sex,job --where region=east --mean age --level 90"
    assert window.execute_script("return document.getElementById('missing').checkVisibility()")


def test_it_can_be_used_by_keyboard_and_read_aloud(window, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    show(window, page, question="#rows=age&columns=job")
    reached = []
    for _ in range(14):
        window.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(window.execute_script("return document.activeElement.id || document.activeElement.name"))
    assert {"rows", "columns", "where", "measure", "level", "picture", "table", "download"} <= set(reached)
    tree = window.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if "role" in node}
    assert ("combobox", "Rows") in names
    assert ("status", "") in names or any(role == "status" for role, _ in names)
    assert any(
        role == "image" and name and name.startswith("Bars with error bars: Count by age") for role, name in names
    )
    assert any(role == "table" and name and name.startswith("Count by age and job") for role, name in names)
    assert any(role == "columnheader" and name == "farm" for role, name in names)
    assert window.find_element(By.ID, "table").get_attribute("tabindex") == "0"


def test_it_prints_the_answer_alone(window, page):
    show(window, page, question="#rows=age&columns=job")
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not window.execute_script("return document.getElementById('controls').checkVisibility()")
    assert window.execute_script("return document.querySelector('#table table').checkVisibility()")
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
