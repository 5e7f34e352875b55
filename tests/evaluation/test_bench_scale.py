"""The scale benchmark resumes, fits exponents, refuses what it cannot do; the capacity page follows from its table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from typer.testing import CliRunner

from synth_core.bench import capacity, scale, scale_tasks
from synth_core.bench.scale import Result, exponent, growth, list_tasks, load, markdown
from synth_core.bench.scale_tasks import census_blocks, census_schema, write_source
from synth_core.cli import app
from synth_core.errors import SourceError, SpecError
from synth_core.schema.codec import encode

REPOSITORY = Path(__file__).resolve().parents[2]


def result(part, rows, columns, workers=1, **values):
    return Result(part=part, rows=rows, columns=columns, workers=workers, values=values)


def test_tables_are_the_same_again_and_fit_their_schema(tmp_path):
    schema = census_schema(17)
    assert len(set(schema.domain.attributes)) == 17
    codes = np.concatenate(list(census_blocks(1_000, 17)))
    write_source(tmp_path / "x.csv", 1_000, 17)
    found = encode(pa_csv.read_csv(tmp_path / "x.csv"), schema)
    assert np.array_equal(np.column_stack(list(found.values())), codes)
    assert np.corrcoef(codes[:, 0], codes[:, 1])[0, 1] > 0.5, "columns depend on each other"


def test_exponents_are_those_of_the_law():
    assert exponent([(n, 3 * n**1.5) for n in (10, 100, 1000)]) == pytest.approx(1.5)
    assert math.isnan(exponent([(10, 3.0), (10, 4.0)]))
    assert math.isnan(exponent([]))
    results = [result("counting", n, d, cpu_s=1e-9 * n * d**2) for n in (10, 100) for d in (4, 8)]
    assert [round(line[3], 6) for line in growth(results, "rows")] == [1, 1]
    assert [round(line[3], 6) for line in growth(results, "columns")] == [2, 2]
    text = markdown(results)
    assert "| counting | all | 4 columns | 1.00 |" in text
    assert "| counting | all | 100 rows | 2.00 |" in text


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    asked = []

    def run(task, folder):
        asked.append(task.rows)
        if task.rows == 300:
            raise KeyboardInterrupt
        return Result(*task, values={"cpu_s": 1.0})

    monkeypatch.setattr(scale, "_run", run)
    tasks = list_tasks(["counting"], rows=[300, 200, 100], columns=[2], workers=[1])
    with pytest.raises(KeyboardInterrupt):
        scale.benchmark(tasks, tmp_path, report=lambda line: None)
    monkeypatch.setattr(scale, "_run", lambda task, folder: Result(*task, values={"cpu_s": 2.0}))
    assert len(scale.benchmark(tasks, tmp_path, report=lambda line: None)) == 3
    assert asked == [100, 200, 300]
    assert [r.values["cpu_s"] for r in load(tmp_path / "scale.jsonl")] == [1.0, 1.0, 2.0]
    assert "300" in (tmp_path / "scale.md").read_text()


@pytest.mark.parametrize("part", ["counting", "ingest", "reading", "sampling"])
def test_every_part_is_measured(tmp_path, part):
    task = scale_tasks.Task(part=part, rows=2_000, columns=5)
    values = scale_tasks.PARTS[part](task, tmp_path)
    assert all(value > 0 for value in values.values())


@pytest.mark.slow
def test_the_command_measures_in_a_process_of_its_own(tmp_path):
    done = CliRunner().invoke(
        app,
        ["bench", "scale", "--out", str(tmp_path), "--rows", "2000", "--columns", "3", "--parts", "reading"],
    )
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "scale.jsonl")[0].values["peak_mb"] > 10


def test_workers_matter_to_counting_on_workers_alone():
    tasks = list_tasks(["ingest", "counting_on_workers"], rows=[5], columns=[2], workers=[1, 2])
    assert tasks == [("ingest", 5, 2, 1), ("counting_on_workers", 5, 2, 1), ("counting_on_workers", 5, 2, 2)]


def test_without_sizes_the_published_ones_are_measured():
    assert {task[:3] for task in list_tasks(scale.PARTS)} == {
        (part, *size) for part, sizes in scale.STANDARD.items() for size in sizes
    }
    assert ("counting_on_workers", 10_000_000, 15, 2) in list_tasks(["counting_on_workers"])


def test_a_part_is_measured_again_where_it_is_asked_for(tmp_path, monkeypatch):
    tasks = list_tasks(["ingest", "reading"], rows=[10], columns=[2])
    for second in (False, True):
        value = 1.0 + second
        monkeypatch.setattr(scale, "_run", lambda task, folder, v=value: Result(*task, values={"cpu_s": v}))
        scale.benchmark(tasks[: 2 - second], tmp_path, report=lambda line: None, again=second)
    assert [(r.part, r.values["cpu_s"]) for r in load(tmp_path / "scale.jsonl")] == [
        ("ingest", 2.0),
        ("reading", 1.0),
    ]


def test_the_memory_of_a_step_is_its_own():
    held = np.ones(60_000_000, dtype=np.uint8)
    before = scale_tasks._peak_mb()
    assert before > 60
    del held
    scale_tasks._forget_peak()
    if scale_tasks.Path("/proc/self/clear_refs").exists():
        assert scale_tasks._peak_mb() < before - 30


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(SpecError, match="--rows and --columns go together"):
        list_tasks(["ingest"], rows=[1], columns=[], workers=[1])
    with pytest.raises(SpecError, match="--parts guessing is not among"):
        list_tasks(["guessing"], rows=[1], columns=[1], workers=[1])
    (tmp_path / "scale.jsonl").write_text('{"part": 1}\n')
    with pytest.raises(SourceError, match="is not a table of this benchmark"):
        load(tmp_path / "scale.jsonl")
    monkeypatch.setattr(scale.sys, "executable", "/bin/false")
    with pytest.raises(SourceError, match="reading of 10 x 2 did not finish"):
        scale._run(scale.Task("reading", rows=10, columns=2), tmp_path)
    with pytest.raises(SpecError, match="the results have no ingest"):
        capacity.laws([])
    with pytest.raises(SpecError, match="the results have no counting on two workers"):
        capacity.efficiency([])
    done = CliRunner().invoke(app, ["bench", "scale", "--out", str(tmp_path), "--rows", "many"])
    assert isinstance(done.exception, SpecError)
    assert "--rows many is not a list" in str(done.exception)


def made_up():
    results = [result("ingest", n, 10, cpu_s=1e-7 * n * 10) for n in (10**5, 10**6)]
    results += [result("sampling", n, 10, cpu_s=4e-8 * n * 10) for n in (10**5, 10**6)]
    results += [result("counting", 10**6, d, cpu_s=1e-10 * 10**6 * d**2) for d in (10, 20)]
    results += [
        result(
            "release",
            n,
            d,
            select_cpu_s=0.01 * d**3,
            fit_cpu_s=0.1 * d**2,
            replicates_cpu_s=0.6 * d**2,
            evaluate_cpu_s=0.5 * d**2 + 1e-5 * n,
            publish_cpu_s=0.2 * d,
        )
        for n, d in ((10**5, 10), (10**6, 10), (10**5, 20), (10**6, 20))
    ]
    return [*results, result("counting_on_workers", 10**6, 10, 2, times_one_worker=1.8)]


def test_a_law_has_a_fixed_part_and_one_for_the_records():
    found = capacity.law(made_up(), "release", cost="evaluate_cpu_s")
    assert (found.longest, found.columns) == (10**6, 20)
    assert (found.fixed, found.each) == pytest.approx((200, 1e-5))
    assert found.each_power == pytest.approx(0, abs=1e-9)
    assert found.fixed_power == pytest.approx(math.log2(201 / 51)), "of the shortest tables' whole cost"
    alone = capacity.law([result("ingest", 10**6, 10, cpu_s=3.0)], "ingest")
    assert (alone.fixed, alone.each, alone.fixed_power, alone.each_power) == pytest.approx((0, 3e-6, 1, 1))
    cheaper_when_wide = [result("ingest", n, d, cpu_s=1 + n * s) for n in (10, 20) for d, s in ((5, 0.2), (10, 0.1))]
    assert capacity.law(cheaper_when_wide, "ingest").each_power == 0, "wider records are never cheaper"
    slower_when_short = [result("ingest", n, 10, cpu_s=s) for n, s in ((10**5, 4.0), (10**6, 3.0))]
    assert capacity.law(slower_when_short, "ingest").parts(10**8, 10) == pytest.approx((4.0, 0.0))


def test_capacity_follows_the_laws():
    found = capacity.laws(made_up())
    assert sum(found["counting"].parts(10**7, 40)) == pytest.approx(1e-10 * 10**7 * 1600)
    assert sum(found["fit"].parts(10**9, 40)) == pytest.approx(160, rel=1e-6), "no growth with the rows"
    slowly = [result("release", n, 10, fit_cpu_s=n**0.25) for n in (10**4, 10**8)]
    fit = capacity.law(slowly, "release", cost="fit_cpu_s", of_counts=True)
    assert fit.parts(10**12, 10) == pytest.approx((1000.0, 0.0)), "a power of the rows, and not a line"
    useful = capacity.efficiency(made_up())
    assert useful == pytest.approx(0.9)
    two, many = (capacity.hours(found, (10**7, 40), workers=w, gpus=0, useful=useful) for w in (2, 128))
    assert two["ingest"] / many["ingest"] == pytest.approx(64)
    assert two["fit"] == many["fit"], "one model is fitted in one place"
    assert many["replicates"] * 3600 == pytest.approx(0.6 * 40**2 / (12 * useful)), "each is a task of its own"
    assert two["replicates"] == pytest.approx(6 * many["replicates"])
    fixed, of_records = found["evaluate"].parts(10**7, 40)
    assert many["evaluate"] * 3600 == pytest.approx(fixed + of_records / (128 * useful))
    assert capacity.hours(found, (10**7, 40), workers=2, gpus=1, useful=useful)["fit"] == pytest.approx(
        two["fit"] / capacity.GPU_SPEED
    )
    assert capacity.markdown(made_up()).count("million rows x") == 2


def test_the_capacity_page_is_computed_from_the_committed_table():
    results = load(REPOSITORY / "tests" / "benchmarks" / "scale.jsonl")
    assert capacity.markdown(results) in (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    assert markdown(results) == (REPOSITORY / "tests" / "benchmarks" / "scale.md").read_text(encoding="utf-8")
