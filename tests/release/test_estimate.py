"""What a plan says of time, memory and disk of releases that it was not learnt from, and how far it is off."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.small_release import write_release

from synth_core.domain import Domain
from synth_core.errors import SpecError
from synth_core.release import estimate
from synth_core.release.estimate import (
    TIME_FACTOR,
    USUAL_FACTOR,
    Shape,
    describe,
    estimate_release,
    in_words,
    measure_speed,
    megabytes,
    remembered_speed,
)
from synth_core.release.expected_tree import TREE_CELLS, expected_tree
from synth_core.release.spec import ReleaseSpec
from synth_core.steps import cost
from tests.benchmarks import plans

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
CENSUS = Shape(method="absyn", records=10**6, rows=10**6, columns=15)


def test_judged_releases_took_what_was_planned_within_a_factor_of_2_and_time_of_3():
    known = [json.loads(line) for line in plans.RESULTS.read_text().splitlines()]
    judged = plans.known_of(known, plans.FRESH)
    assert len(judged) == len(plans.FRESH) >= 6
    assert not set(plans.FRESH) & set(plans.LEARNT)
    for one in judged:
        for what, planned, taken in plans.compared(one):
            most = TIME_FACTOR if what == "seconds" else USUAL_FACTOR
            assert 1 / most <= planned / taken <= most, (one["method"], one["records"], what)


def test_the_committed_table_is_that_of_the_committed_costs(tmp_path, monkeypatch):
    before = (BENCHMARKS / "plans.md").read_text()
    monkeypatch.setattr(plans, "HERE", tmp_path)
    plans.write_table([json.loads(line) for line in plans.RESULTS.read_text().splitlines()])
    assert (tmp_path / "plans.md").read_text() == before


LARGER = ({"records": 10**8}, {"rows": 10**8}, {"columns": 60}, {"models": 40}, {"refits": 200}, {"tables": 50})


@pytest.mark.parametrize("larger", LARGER)
def test_more_of_anything_takes_longer(larger):
    some, more = estimate_release(CENSUS), estimate_release(replace(CENSUS, **larger))
    assert sum(more.seconds.values()) > 1.1 * sum(some.seconds.values())


def test_a_tree_is_expected_to_grow_with_the_records_as_far_as_methods_allow():
    domain = Domain.of({f"c{number}": 2 + number for number in range(15)})
    few, some, many = (expected_tree(domain, records=records, mu2=0.04) for records in (100, 2_000, 10_000_000))
    assert few == pytest.approx(sum(domain.sizes)), "no pair is worth its noise"
    assert 2 * few < some < many / 1000
    assert many <= TREE_CELLS
    assert expected_tree(domain, records=2_000, mu2=0.16) > 10 * some, "less noise"


def test_a_huge_release_is_not_planned_as_a_few_seconds():
    huge = Shape(method="absyn", records=10**9, rows=10**9, columns=300, models=1000)
    found = estimate_release(huge)
    assert sum(found.seconds.values()) > 86_400
    lines = dict(describe(huge, found))
    assert "days" in lines["time"]
    assert lines["note"].startswith("larger than any release that was measured")
    assert lines["for"] == "1,000,000,000 records, 300 columns, 1,000 models"


def test_a_faster_machine_takes_less_and_a_method_that_was_not_measured_says_so(monkeypatch):
    assert estimate_release(CENSUS, speed=2.0).seconds["fit"] == estimate_release(CENSUS, speed=1.0).seconds["fit"] / 2
    monkeypatch.setenv("SYNTH_SPEED", "4")
    assert estimate_release(CENSUS).seconds["fit"] == estimate_release(CENSUS, speed=4.0).seconds["fit"]
    lines = describe(other := replace(CENSUS, method="mwem"), estimate_release(other))
    assert ("note", "mwem was not measured; absyn stands for it") in lines
    less = estimate_release(replace(CENSUS, evaluate="none")).seconds["evaluate"]
    assert less < estimate_release(CENSUS).seconds["evaluate"] / 2


def test_more_tables_and_csv_files_take_more_room():
    """Before, a hundred replicate tables were planned as none."""
    one = estimate_release(CENSUS).public_mb
    assert estimate_release(replace(CENSUS, tables=101)).public_mb > 20 * one
    assert estimate_release(replace(CENSUS, csv=True)).public_mb > 1.5 * one


@pytest.mark.parametrize("said", ["fast", "0", "-1", "nan", "inf"])
def test_a_speed_that_is_none_is_refused(monkeypatch, said):
    monkeypatch.setenv("SYNTH_SPEED", said)
    with pytest.raises(SpecError, match="SYNTH_SPEED is not a positive number; leave it out, or write 1"):
        estimate_release(CENSUS)


NO_SPEEDS = ({"machine": "another"}, *({"seconds": one} for one in (0, -1, math.inf, math.nan, 10**400, "fast")))


def test_a_machine_that_was_busy_once_is_not_slow_for_ever(tmp_path, monkeypatch):
    """Other work only slows a measurement down, so that the least of all is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [remembered_speed(lambda took=took: took) for took in (1.5, 0.5, 2.5)] == [1.5, 0.5, 0.5]
    (kept,) = tmp_path.rglob("speed.json")
    sound = json.loads(kept.read_text())
    damages = ("{", "[]", "[" * 100_000, *(json.dumps(sound | one) for one in NO_SPEEDS))
    for damage in damages:
        kept.write_text(damage)
        assert remembered_speed(lambda: 0.5) == 0.5
        assert json.loads(kept.read_text()) == sound
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert remembered_speed(lambda: 0.5) == 0.5


def test_the_yardstick_is_applied_where_no_speed_is_set(tmp_path, monkeypatch):
    monkeypatch.delenv("SYNTH_SPEED")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "measure_speed", lambda: estimate._costs()["yardstick"] / 3)
    assert estimate.machine_speed() == pytest.approx(3)
    assert measure_speed() > 0


def test_a_plan_says_what_the_release_takes(tmp_path, synth):
    ReleaseSpec.parse(write_release(tmp_path, method="absyn")).save(tmp_path / "release.yaml")
    _, out, _ = synth("plan", tmp_path / "release.yaml")
    assert "What it takes" in out
    assert "100,000 records, 3 columns" in out, "as many as the account may have"
    _, few, _ = synth("plan", tmp_path / "release.yaml", "--records", "5000")
    assert "5,000 records, 3 columns" in few
    assert few != out


def test_a_plan_counts_strata_and_asks_for_a_number_where_none_is_known(tmp_path):
    spec = write_release(tmp_path, method="independent", strata="sex")
    sections = dict(cost(spec, workspace=tmp_path / "workspace", records=5000))
    assert dict(sections["What it takes"])["for"] == "5,000 records, 3 columns, 2 models"
    undeclared = dict(cost(spec | {"dataset": "another"}, workspace=tmp_path / "workspace"))
    assert undeclared["What it takes"] == [
        ("not known", "say how many records are expected, as a public number: --records")
    ]


def test_amounts_have_two_figures():
    assert [in_words(value) for value in (3.14159, 119.0, 121.0, 10_000, 1e6)] == [
        "3.1 s", "120 s", "2 min", "2.8 h", "12 days",
    ]  # fmt: skip
    assert [megabytes(value) for value in (0.123, 999, 2345, 7.77e6)] == ["0.12 MB", "1,000 MB", "2.3 GB", "7.8 TB"]
