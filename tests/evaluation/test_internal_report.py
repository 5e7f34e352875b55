"""The internal report is one self-contained, deterministic, accessible page that escapes what it is given."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import norm
from support.tabulation import tabulate

from synth_core.domain import Domain
from synth_core.evaluation import Evaluation, compare_codes
from synth_core.evaluation.marginals import Subgroup
from synth_core.privacy.wording import scientific
from synth_core.report import charts
from synth_core.report.exhibits import MAX_BARS, MAX_HEATMAP_COLUMNS, budget_exhibit, column_exhibits, pairs_exhibit
from synth_core.report.internal import internal_report
from synth_core.report.page import Guarantee, SpendLine, percent, points, subgroups_table
from synth_core.schema import Categorical, Schema

HOSTILE = '<script>alert("x")</script> & "quoted" $x_{2$'
VOID = {"meta", "br", "link", "img", "input", "hr"}
SCHEMA = Schema(
    columns=(
        Categorical(name="sex", values=("F", "M"), labels={"F": "women", "M": "men"}),
        Categorical(name=HOSTILE, values=("</svg><img src=x onerror=alert(1)>", "日本", "c" * 60)),
        Categorical(name="tenure", values=("own", "rent"), nullable=True, description="who owns <the> home"),
    )
)
GUARANTEE = Guarantee(
    unit="person", neighbours="add or remove one record", epsilon=0.8, delta=1e-5, mu=0.218686, spent=0.79
)
SPENDS = (
    SpendLine(step="ingest", purpose="", mechanism="none", queries=0, scale=None, mu2=0.0, state="noted"),
    SpendLine(
        step="fit",
        purpose="marginals",
        mechanism="discrete Gaussian",
        queries=12,
        scale=26.7,
        mu2=0.03,
        state="measured",
    ),
)


class Page(HTMLParser):
    """The elements, attributes and text a browser would see; refuses tags that do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def one_way(codes: np.ndarray, domain: Domain) -> dict[str, np.ndarray]:
    return {name: tabulate(codes, domain, (name,)) for name in domain}


def tables() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return tuple(np.column_stack([rng.integers(s, size=400) for s in (2, 3, 3)]) for _ in range(2))


def build(evaluation: Evaluation, **changes) -> str:
    real, synthetic = tables()
    given = {
        "schema": SCHEMA,
        "title": "People <2026>",
        "guarantee": GUARANTEE,
        "spends": SPENDS,
        "real_one_way": one_way(real, SCHEMA.domain),
        "synthetic_one_way": one_way(synthetic, SCHEMA.domain),
        "facts": {"Method": "privmrf & friends"},
    }
    return internal_report(evaluation, **given | changes)


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return compare_codes(*tables(), SCHEMA.domain, violations={"no <married> children": 7})


@pytest.fixture(scope="module")
def html(evaluation) -> str:
    return build(evaluation)


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


@pytest.mark.slow
def test_nothing_is_fetched_and_nothing_runs(html, page):
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href", "action", "data"}:
                assert value.startswith("#")
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in page.elements}
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


def test_the_banner_is_first_and_says_what_it_must(page):
    banner = "INTERNAL — contains true errors computed from confidential rows; do not publish"
    assert banner in page.text
    assert page.text.index(banner) < page.text.index("The privacy guarantee")


def test_hostile_names_are_text_and_nothing_else(page):
    assert page.text.count('<script>alert("x")</script>') >= 3  # heading, cell list, pictures
    assert "</svg><img src=x onerror=alert(1)>" in page.text
    assert "no <married> children" in page.text
    assert "who owns <the> home" in page.text
    assert "日本" in page.text


def test_the_same_arguments_give_the_same_bytes(evaluation, html):
    assert build(evaluation) == html
    assert build(Evaluation.from_json(evaluation.to_json())) == html


def test_no_picture_borrows_from_another(page, html):
    assert {tag for tag, attributes in page.elements if "id" in attributes} == {"h2"}
    assert "url(" not in html


def test_every_picture_has_a_description_and_a_table(page):
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == len(page.all("svg")) == len(page.all("details")) == 4 + len(SCHEMA.columns)
    assert all(len(picture["aria-label"]) > 40 for picture in pictures)
    assert all(svg["aria-hidden"] == "true" for svg in page.all("svg"))
    assert len(page.all("table")) == len(pictures) + 6  # and cells, marginals, rules, groups, scores, closeness


def test_the_numbers_of_the_evaluation_are_in_the_tables(page, evaluation):
    for errors in evaluation.marginals:
        for value in (errors.tvd.mean, errors.tvd.worst, errors.floor, errors.independent):
            assert percent(value) in page.text
    for error in evaluation.targets:
        assert f"{error.synthetic:.1%}" in page.text
    assert "women" in page.text
    assert "missing" in page.text
    assert "discrete Gaussian" in page.text
    assert "62.7% of it was used" in page.text
    assert "free" in page.text


def test_the_promise_is_stated_in_plain_numbers(page):
    assert "ε = 0.8" in page.text
    assert "δ = 1 × 10⁻⁵" in page.text
    assert f"at most {math.exp(0.8):.2f} times as likely" in page.text
    assert f"at most {norm.cdf(0.218686 / 2):.1%} instead of 50%" in page.text
    assert "add or remove one record" in page.text


@pytest.mark.slow
def test_a_table_of_unknown_origin_has_no_promise(evaluation):
    text = Page(build(evaluation, guarantee=None, spends=(), facts=None)).text
    assert "guarantee" not in text
    assert "INTERNAL" in text


@pytest.mark.slow
def test_a_release_that_cost_nothing_can_be_shown(evaluation):
    free = Guarantee(unit="person", neighbours="add or remove one record", epsilon=0.0, delta=1e-5, mu=0.0, spent=0.0)
    assert "0.00% of it was used" in Page(build(evaluation, guarantee=free, spends=SPENDS[:1])).text


def test_one_column_makes_a_report_without_marginals_and_predictions():
    schema = Schema.from_sizes({"x": 2})
    codes = np.array([[0], [1], [1]])
    counts = one_way(codes, schema.domain)
    report = build(
        compare_codes(codes, codes, schema.domain),
        schema=schema,
        real_one_way=counts,
        synthetic_one_way=counts,
    )
    assert "What a classifier learns" not in Page(report).text


def test_rare_values_are_drawn_as_one_and_listed_all():
    schema = Schema.from_sizes({"x": 41})
    shares = np.arange(41) / 820
    (exhibit,) = column_exhibits(schema.columns, {"x": shares}, {"x": shares}, reference_name="real", tvd={"x": 0.0})
    assert len(exhibit.table.rows) == 41
    assert f"{41 - MAX_BARS + 1} rarer values" in exhibit.svg
    assert ">40<" in exhibit.svg
    assert ">3<" not in exhibit.svg


def drawn_bars(monkeypatch, column, noisy, synthetic):
    """Labels and reference shares of the bars that are drawn."""
    drawn = []
    monkeypatch.setattr(
        charts, "paired_bars", lambda labels, *, reference, synthetic: drawn.append((labels, reference)) or ""
    )
    shares = {column.name: noisy}, {column.name: synthetic}
    (exhibit,) = column_exhibits([column], *shares, reference_name="noisy answer", tvd={column.name: 0.0})
    assert len(exhibit.table.rows) == column.size
    return dict(zip(*drawn[0], strict=True))


def test_a_noisy_share_below_zero_is_written_as_it_is_and_drawn_as_nothing(monkeypatch):
    (column,) = Schema.from_sizes({"x": 2}).columns
    shares = {"x": [-0.05, 1.05]}, {"x": [0.5, 0.5]}
    (exhibit,) = column_exhibits([column], *shares, reference_name="measured", tvd={"x": 0.5})
    assert exhibit.table.rows == (("0", "−5.00%", "50.0%", "+55.00"), ("1", "105.0%", "50.0%", "−55.00"))
    assert exhibit.table.head[1] == "measured"
    assert drawn_bars(monkeypatch, column, [-0.05, 1.05], [0.5, 0.5]) == {"0": 0.0, "1": 1.05}


def test_a_share_among_many_noisy_ones_is_drawn_as_large_as_it_is(monkeypatch):
    """With 271 codes, cutting noise below zero off and dividing by the sum once made 33 % of 40.2 %."""
    (column,) = Schema.from_sizes({"x": 271}).columns
    noise = np.resize([0.004, -0.004], 270)
    drawn = drawn_bars(monkeypatch, column, [0.402, *(0.598 / 270 + noise)], np.full(271, 1 / 271))
    assert drawn["0"] == 0.402
    assert sum(drawn.values()) == pytest.approx(1.0)
    assert f"{271 - MAX_BARS + 1} rarer values" in drawn


def test_neighbouring_bins_share_a_bar_and_none_is_left_out(monkeypatch):
    schema = Schema.model_validate(
        {"columns": [{"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 50, "nullable": True}]}
    )
    shares = np.full(51, 1 / 51)
    drawn = drawn_bars(monkeypatch, schema.columns[0], shares, shares)
    assert len(drawn) <= MAX_BARS
    assert list(drawn)[:2] == ["0–1 to 4–5", "6–7 to 10–11"]
    assert sum(drawn.values()) == pytest.approx(1.0)
    assert list(drawn.values())[-1] == pytest.approx(1 / 51)


@pytest.mark.slow
def test_a_heatmap_of_many_columns_keeps_those_with_the_largest_distances():
    size = MAX_HEATMAP_COLUMNS + 5
    names = [f"column{i:02}" for i in range(size)]
    matrix = np.add.outer(np.arange(size), np.arange(size)) / 200
    exhibit = pairs_exhibit(names, matrix.tolist())
    assert "column04" not in exhibit.svg
    assert "column05" in exhibit.svg
    assert exhibit.table.rows[0] == (f"{names[-2]} × {names[-1]}", "43.5%")


def test_small_numbers_are_written_as_people_write_them():
    assert scientific(1e-5) == "1\u00a0×\u00a010⁻⁵"
    assert scientific(2.5e-10) == "2.5\u00a0×\u00a010⁻¹⁰"


def test_what_is_written_as_zero_has_no_sign():
    assert [points(x) for x in (-0.00001, 0.0, 0.00006, -0.0123)] == ["0.00", "0.00", "+0.01", "−1.23"]


def test_purposes_share_a_bar_and_each_round_has_a_line():
    line = {
        "step": "fit",
        "mechanism": "exponential",
        "queries": 1,
        "scale": 1.0,
        "mu2": 0.01,
        "state": "measured",
    }
    purposes = ["round 0: choice 0", "round 0: choice 1", "round 12: choice 0", "error of 1-way marginals"]
    exhibit = budget_exhibit([SpendLine(purpose=purpose, **line) for purpose in purposes], mu=0.2)
    assert [row[:4] for row in exhibit.table.rows] == [
        ("fit", "round 0", "exponential", "2"),
        ("fit", "round 12", "exponential", "1"),
        ("fit", "error of 1-way marginals", "exponential", "1"),
    ]
    assert [row[5] for row in exhibit.table.rows] == ["0.02", "0.01", "0.01"]
    assert "75.0%" in exhibit.svg
    assert "error of 1-way marginals" in exhibit.svg
    assert "round" not in exhibit.svg


def test_fingerprints_of_strategies_are_not_shown():
    """They tell records apart; of them, no bar would be another's and every label a riddle."""
    line = {
        "step": "fit",
        "mechanism": "discrete_gaussian",
        "queries": 1,
        "scale": 4.0,
        "mu2": 0.01,
        "state": "measured",
    }
    purposes = [
        "round 0: marginals (strategy d99124a2)",
        "round 1: marginals (strategy 9cbca1e3)",
        "pool (strategy ab12)",
    ]
    exhibit = budget_exhibit([SpendLine(purpose=purpose, **line) for purpose in purposes], mu=0.2)
    assert "strategy" not in exhibit.svg
    assert exhibit.svg.count("fit: marginals") == 1
    assert "50.0%" in exhibit.svg, "both rounds are in one bar"
    assert [row[1] for row in exhibit.table.rows] == ["round 0", "round 1", "pool"]


def test_the_page_begins_with_its_sections_and_with_words(page, evaluation):
    """Each section is in the list of contents, and the first paragraph names the worst pair and the worst group."""
    links = [link["href"] for link in page.all("a")]
    assert links == [f"#{heading['id']}" for heading in page.all("h2")]
    assert len(links) == 8
    pairs = evaluation.marginal(2)
    worst = pairs.cliques[int(np.argmax(pairs.values))]
    assert f"The worst pair is {' × '.join(worst)}, {percent(max(pairs.values))}." in page.text
    assert "7 of its rows break a declared rule." in page.text


def test_a_list_of_the_worst_is_not_all_about_one_column():
    """Twelve groups of one column are worse than all others; three of them are listed, and the others fill up."""
    schema = Schema.from_sizes({"many": 12, "few": 3, "one": 1})
    facts = {"real": 0.1, "synthetic": 0.1, "floor": 0.01}
    groups = [Subgroup(attribute="many", code=code, error=0.9, **facts) for code in range(12)]
    groups += [Subgroup(attribute="few", code=code, error=0.5, **facts) for code in range(3)]
    groups += [Subgroup(attribute="one", code=0, error=0.1, **facts)]
    names = [row[0].split(" = ")[0] for row in subgroups_table(schema, groups).rows]
    assert names == ["many"] * 6 + ["few"] * 3 + ["one"]


def test_the_noise_of_a_budget_line_is_in_records_and_choices_have_none():
    line = {"step": "fit", "queries": 1, "scale": 2.5, "mu2": 0.01, "state": "measured"}
    spends = [SpendLine(purpose="choice", mechanism="exponential", **line)]
    spends += [SpendLine(purpose="marginals", mechanism="discrete_gaussian", **line)]
    table = budget_exhibit(spends, mu=0.2).table
    assert table.head[4] == "noise, records"
    assert [row[4] for row in table.rows] == ["–", "2.5"]
