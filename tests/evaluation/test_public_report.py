"""Public quality and its report: noisy answers only, the right numbers, one page that escapes what it is given."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from test_internal_report import Page

from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.evaluation import CodedTable
from synth_core.evaluation.public import BoughtError, PublicQuality, bought_error, public_quality
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.report.changes import Previous, changes_exhibit, changes_table
from synth_core.report.page import SpendLine, percent
from synth_core.report.public import (
    groups_table,
    measured_pairs,
    pairs_table,
    public_report,
    ties_exhibit,
    tree_exhibit,
)
from synth_core.schema import Categorical, Schema

HOSTILE = '<script>alert("x")</script>'
SCHEMA = Schema(
    columns=(
        Categorical(name="sex", values=("f", "m")),
        Categorical(name=HOSTILE, values=("a", "</svg>", "c")),
        Categorical(name="job", values=("farm", "shop")),
    )
)
DOMAIN = SCHEMA.domain
ROWS = np.array([[0, 0, 0]] * 30 + [[1, 1, 1]] * 50 + [[1, 2, 0]] * 20)
ANSWERS = (
    Measurement(("sex",), np.array([31.0, 68.0]), 2.0),
    Measurement(("sex", "job"), np.array([[29.0, 1.0], [20.0, 52.0]]), 4.0),
    Measurement((HOSTILE,), np.array([30.0, -2.0, 72.0]), 3.0),
)


@pytest.fixture(scope="module")
def quality() -> PublicQuality:
    return public_quality(CodedTable.of(ROWS, DOMAIN), measurements=ANSWERS, total=100.0, violations={"no <b>": 2})


def test_distances_from_answers_by_hand(quality):
    one, two, _ = quality.measured
    assert one.distance == pytest.approx((1 + 2) / 2 / 100)
    assert one.noise == pytest.approx(2 * 2.0 * math.sqrt(2 / math.pi) / 2 / 100)
    assert two.distance == pytest.approx((1 + 1 + 0 + 2) / 2 / 100)
    assert two.cells == 4


def test_a_columns_answers_are_combined_by_inverse_variance(quality):
    """Alone: variance 4. Summed over the other column: two cells of variance 16 each. Weights 1/4 and 1/32."""
    answer = quality.columns["sex"]
    weights = np.array([1 / 4, 1 / 32])
    expected = np.average([[31, 68], [30, 72]], axis=0, weights=weights) / 100
    np.testing.assert_allclose(answer.shares, expected)
    assert answer.sigma == pytest.approx(1 / math.sqrt(weights.sum()) / 100)


def test_the_combined_noise_is_what_it_says():
    """A share is a linear function of the noise in eight answers, so its variance follows from what each alone does."""
    domain, rows = Domain.of({"a": 2, "b": 3}), np.array([[0, 0], [1, 2]])
    scales = np.repeat([2.0, 1.5], [2, 6])

    def share(noise):
        answers = [Measurement(("a",), noise[:2], 2.0), Measurement(("a", "b"), noise[2:].reshape(2, 3), 1.5)]
        column = public_quality(CodedTable.of(rows, domain), measurements=answers, total=10.0).columns["a"]
        return column.shares[0], column.sigma

    none, sigma = share(np.zeros(8))
    effects = np.array([share(noise)[0] - none for noise in np.diag(scales)])
    noise = np.random.default_rng(1).normal(scale=scales)
    assert share(noise)[0] == pytest.approx(none + effects @ (noise / scales)), "it is linear"
    assert sigma == pytest.approx(np.linalg.norm(effects))


def test_columns_without_an_answer_are_left_out():
    found = public_quality(CodedTable.of(ROWS, DOMAIN), measurements=ANSWERS[:1], total=100.0)
    assert set(found.columns) == {"sex"}


def test_ties_are_distances_from_independence(quality):
    """sex and job: shares 0.3, 0 / 0.2, 0.5 against 0.15, 0.15 / 0.35, 0.35."""
    assert quality.ties[0][2] == quality.ties[2][0] == pytest.approx(0.3)
    assert quality.ties[1][1] == 0


def test_a_bought_error_is_half_the_mean_misfit_and_never_negative():
    error = bought_error(2, [10.0, 30.0], sigma=5.0, total=200.0)
    assert error.mean == pytest.approx(20 / 400)
    assert error.margin == pytest.approx(1.959964 * 5 / math.sqrt(2) / 400)
    assert bought_error(1, [-3.0], sigma=5.0, total=200.0).mean == 0


def test_stored_and_read_back(quality):
    assert PublicQuality.from_json(quality.to_json()) == quality


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"columns": 3}'])
def test_a_damaged_store_is_refused(text):
    with pytest.raises(SourceError, match="run the evaluate step again"):
        PublicQuality.from_json(text)


def manifest_of(release: str, **more) -> dict:
    return {
        "release": release,
        "dataset": "people",
        "schema_digest": "b" * 64,
        "method": {"name": "privmrf", "preset": "default"},
        "domain": {column.name: {"codes": column.size} for column in SCHEMA.columns},
        "guarantee": {
            "unit": "person",
            "neighbours": "add or remove one record",
            "epsilon": 0.8,
            "delta": 1e-5,
            "mu": 0.2187,
            "epsilon_spent": 0.79,
            "account": {"epsilon": 0.95000001, "epsilon_spent": 0.9, "epsilon_cap": 3.0},
        },
        "quality": {"noisy_total": 100.4, "measured_marginals": 3, "bought": []},
        **more,
    }


SPEND = SpendLine(
    step="fit",
    purpose="marginals",
    mechanism="discrete_gaussian",
    queries=3,
    scale=4.0,
    mu2=0.04,
    state="measured",
)


def report(quality: PublicQuality, **more) -> str:
    given = {
        "schema": SCHEMA,
        "tree": junction_tree(DOMAIN, [("sex", "job"), (HOSTILE,)]),
        "spends": [SPEND],
        "previous": None,
    }
    return public_report(manifest_of("r2"), quality, **given | more)


@pytest.mark.slow
def test_the_page_is_safe_complete_and_always_the_same(quality):
    html = report(quality)
    page = Page(html)
    assert html == report(quality)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.elements}
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == len(page.all("details")) - 1 == 4 + len(SCHEMA.columns)  # one lists pairs
    assert all(len(picture["aria-label"]) > 40 for picture in pictures)
    assert "INTERNAL" not in page.text
    assert "came to ε = 0.9501 (spent by then: ε = 0.9). The cap was ε = 3;" in page.text
    assert "Spent: ε = 0.79" in page.text
    assert "No true error was measured" in page.text
    assert "What changed" not in page.text


def test_bought_errors_replace_the_disclaimer(quality):
    bought = BoughtError(alpha=3, marginals=300, mean=0.0421, margin=0.0005)
    raw = {**{name: getattr(quality, name) for name in PublicQuality.__slots__}, "bought": (bought,)}
    text = Page(report(PublicQuality(**raw))).text
    assert "No true error" not in text
    assert "4.21%" in text
    assert "±0.05 points" in text


def test_a_table_without_answers_can_be_shown():
    bare = public_quality(CodedTable.of(ROWS, DOMAIN), measurements=(), total=100.0)
    assert "Column by column" in Page(report(bare)).text


def test_what_changed_is_told_fact_by_fact():
    before = manifest_of("r1", source_digest="c" * 64)  # as an older format had it
    before["domain"] = {"sex": {"codes": 3}, "old": {"codes": 2}}
    before["quality"] = {"noisy_total": 90.0, "measured_marginals": 2, "bought": [{"alpha": 3, "mean": 0.05}]}
    table = changes_table(manifest_of("r2"), before)
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.head == ("", "r1", "r2")
    assert rows["records, noisy"] == ("90", "100")
    assert rows["measured marginals"] == ("2", "3")
    assert not any("cccc" in cell for row in table.rows for cell in row)
    assert rows["columns removed"] == ("old", "")
    assert rows["columns declared otherwise"] == ("", "sex")
    assert HOSTILE in rows["columns added"][1]
    assert changes_table(manifest_of("r1"), None) is None


def test_small_groups_are_the_least_certain(quality):
    rows = groups_table(SCHEMA, quality).rows
    assert rows[0][0] == f"{HOSTILE} = c"
    assert rows[-1][0] == "sex = m"


def test_the_tree_shows_every_clique_given_what_it_shares():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 2})
    exhibit = tree_exhibit(junction_tree(domain, [("a", "b"), ("b", "c"), ("d",)]))
    assert len(exhibit.table.rows) == 3
    assert "given b" in exhibit.svg
    assert {row[2] for row in exhibit.table.rows} == {"–", "b"}


def test_the_first_paragraph_says_how_good_it_is_and_what_was_measured(quality):
    near = replace(quality, measured=tuple(replace(m, distance=m.noise) for m in quality.measured))
    text = Page(report(near)).text
    assert "The table has 100 synthetic records of 3 columns." in text
    assert "as closely as their noise allows" in text
    assert "Of 3 pairs of columns 1 were measured together" in text
    assert "The least certain group is" in text


def test_a_table_that_is_far_from_its_answers_is_said_to_be(quality):
    far = replace(quality, measured=tuple(replace(m, distance=10 * m.noise) for m in quality.measured))
    assert "less closely than it could" in Page(report(far)).text


def test_the_pairs_that_were_only_modelled_are_listed_for_each_column(quality):
    table = pairs_table(DOMAIN.attributes, asked=measured_pairs(quality), protected=[("sex", "job")])
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.head == ("column", "protected with", "also measured with", "modelled only with")
    assert rows["sex"] == ("job", "–", HOSTILE)
    assert rows[HOSTILE] == ("–", "–", "sex, job")
    assert pairs_table(DOMAIN.attributes, asked=measured_pairs(quality), protected=()).rows[0] == (
        "sex",
        "–",
        "job",
        HOSTILE,
    )


def test_a_heatmap_marks_the_pairs_that_were_measured(quality):
    asked = measured_pairs(quality)
    assert ties_exhibit(DOMAIN.attributes, quality.ties, asked=asked).svg.count("<polygon") == 1
    assert ties_exhibit(DOMAIN.attributes, quality.ties, asked=()).svg.count("<polygon") == 0


def test_columns_that_moved_are_drawn_beside_what_noise_alone_moves(quality):
    """sex moved by 0.2; job is declared otherwise now, and the release before has no answer about the third."""
    before = replace(
        quality,
        synthetic={**quality.synthetic, "sex": (0.5, 0.5)},
        columns={name: quality.columns[name] for name in ("sex", "job")},
    )
    schema = Schema(columns=(*SCHEMA.columns[:2], Categorical(name="job", values=("farm", "office"))))
    previous = Previous(manifest=manifest_of("r1"), quality=before, schema=schema)
    exhibit = changes_exhibit(SCHEMA, quality, previous)
    sigma = quality.columns["sex"].sigma
    alone = math.sqrt(2 / math.pi) * math.sqrt(2) * sigma
    assert exhibit.table.rows == (("sex", percent(0.2), percent(alone)),)
    assert "How far columns have moved" in report(quality, previous=previous)
    unreadable = Previous(manifest=manifest_of("r1"))
    assert changes_exhibit(SCHEMA, quality, unreadable) is None
    assert "What changed since the last release" in report(quality, previous=unreadable)
