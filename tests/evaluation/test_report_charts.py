"""The pictures of a report: lengths follow the numbers, axes have round numbers, texts are text."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from synth_core.report import charts
from synth_core.report.charts import REFERENCE, SYNTHETIC


def elements(svg, kind):
    return [one for one in ElementTree.fromstring(svg) if one.tag == kind]


def lengths(svg, colour):
    boxes = elements(svg, "rect")
    return [float(box.get("width")) for box in boxes if box.get("style") == f"fill: var(--{colour})"]


def test_bars_are_as_long_as_their_shares():
    svg = charts.paired_bars(["a", "b", "c"], reference=[0.1, 0.2, 0.7], synthetic=[0.3, 0.3, 0.4])
    reference, synthetic = lengths(svg, REFERENCE), lengths(svg, SYNTHETIC)
    scale = reference[2] / 0.7
    assert reference == pytest.approx([0.1 * scale, 0.2 * scale, 0.7 * scale], abs=0.02)
    assert synthetic == pytest.approx([0.3 * scale, 0.3 * scale, 0.4 * scale], abs=0.02)
    assert reference[2] > 100


def test_a_share_of_nothing_is_a_hair_and_no_picture_is_empty():
    svg = charts.paired_bars(["a"], reference=[0.0], synthetic=[0.0])
    assert lengths(svg, REFERENCE) == lengths(svg, SYNTHETIC) == [0.3]


@pytest.mark.parametrize(
    ("largest", "most", "ticks"),
    [
        (1.0, 4, [0, 0.25, 0.5, 0.75, 1]),
        (0.43, 4, [0, 0.2, 0.4]),
        (0.0008, 4, [0, 0.0002, 0.0004, 0.0006, 0.0008]),
        (7.0, 5, [0, 2, 4, 6]),
    ],
)
def test_axes_have_round_numbers(largest, most, ticks):
    assert charts._ticks(largest, most) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("largest", "written"),
    [
        (0.09, ["0%", "2.5%", "5%", "7.5%"]),
        (0.009, ["0%", "0.25%", "0.5%", "0.75%"]),
        (0.7, ["0%", "20%", "40%", "60%"]),
    ],
)
def test_an_axis_says_what_its_lines_are(largest, written):
    svg = charts.paired_bars(["a"], reference=[largest], synthetic=[0.0])
    assert [one.text for one in elements(svg, "text")] == ["a", *written]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 100_782, [0, 50_000, 100_000]), (1, 6, [2, 4, 6]), (-3, 9, [0, 5]), (7, 7, [7])],
)
def test_axes_that_begin_anywhere_have_round_numbers(low, high, ticks):
    assert charts.round_numbers(low, high, 4) == ticks


@pytest.mark.parametrize("most", [1, 2, 17, 1000])
def test_numbers_of_things_are_whole(most):
    ticks = charts._ticks(most, 3, whole=True)
    assert all(tick == int(tick) for tick in ticks)
    assert ticks[-1] <= most
    assert len(ticks) <= 4


def test_a_heatmap_has_one_place_for_each_pair_and_writes_numbers_where_there_is_room():
    small = charts.heatmap(["a", "b", "c"], [[0.1, 0.2, 0.3], [0.2, 0.4, 0.5], [0.3, 0.5, 0.6]])
    assert len(elements(small, "rect")) == 2 * 6
    assert {"10.0", "20.0", "60.0"} <= {one.text for one in elements(small, "text")}
    names = [f"column{number}" for number in range(charts.MAX_NUMBERS + 1)]
    large = charts.heatmap(names, [[0.5] * len(names)] * len(names))
    assert {one.text for one in elements(large, "text")} == set(names)


def test_a_tree_names_every_node_once_below_its_parent():
    svg = charts.indented_tree(["root", "left", "right", "below left"], [-1, 0, 0, 1])
    found = {one.text: (float(one.get("x")), float(one.get("y"))) for one in elements(svg, "text")}
    assert sorted(found, key=lambda name: found[name][1]) == ["root", "left", "below left", "right"]
    assert found["root"][0] < found["left"][0] == found["right"][0] < found["below left"][0]


def test_a_histogram_counts_every_distance_and_marks_mean_and_floor():
    svg = charts.histograms([("pairs", [0.1, 0.1, 0.1, 0.3], 0.15, 0.05)])
    heights = sorted(float(box.get("height")) for box in elements(svg, "rect"))
    assert heights[1] == pytest.approx(3 * heights[0], abs=0.05)
    assert len([one for one in elements(svg, "polyline") if "ink" in one.get("style")]) == 1
    assert len([one for one in elements(svg, "polyline") if one.get("stroke-dasharray")]) == 1


def test_names_are_text_and_nothing_else():
    svg = charts.share_bars(["</svg><script>", "a & b"], [0.75, 0.0])
    assert [one.text for one in elements(svg, "text")] == ["</svg><script>", "a & b", "75.0%", "free"]
    assert not re.search(r"<script", svg)
