"""The scale benchmark resumes, fits exponents, refuses what it cannot do; the capacity page follows from its table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from synth_core.bench import capacity, scale, scale_tasks
from synth_core.bench.scale import Result, exponent, growth, load, markdown, wanted
from synth_core.bench.scale_data import census_blocks, census_schema, write_source
from synth_core.cli import app
from synth_core.codec import encode
from synth_core.errors import SourceError, SpecError

REPOSITORY = Path(__file__).resolve().parents[2]


def result(part, rows, columns, workers=1, **values):
    return Result(part=part, rows=rows, columns=columns, workers=workers, values=values)


def test_tables_are_the_same_again_and_fit_their_schema(tmp_path):
    schema = census_schema(17)
    assert len(set(schema.domain.attributes)) == 17
    codes = np.concatenate(list(census_blocks(1_000, 17)))
    for ending, read in (("csv", pa_csv.read_csv), ("parquet", pq.read_table)):
        write_source(tmp_path / f"x.{ending}", 1_000, 17)
        found = encode(read(tmp_path / f"x.{ending}"), schema)
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
        asked.append(task["rows"])
        if task["rows"] == 300:
            raise KeyboardInterrupt
        return Result(**task, values={"cpu_s": 1.0})

    monkeypatch.setattr(scale, "_run", run)
    tasks = wanted(["counting"], rows=[300, 200, 100], columns=[2], workers=[1])
    with pytest.raises(KeyboardInterrupt):
        scale.benchmark(tasks, tmp_path, tell=lambda line: None)
    monkeypatch.setattr(scale, "_run", lambda task, folder: Result(**task, values={"cpu_s": 2.0}))
    assert len(scale.benchmark(tasks, tmp_path, tell=lambda line: None)) == 3
    assert asked == [100, 200, 300]
    assert [r.values["cpu_s"] for r in load(tmp_path / "scale.jsonl")] == [1.0, 1.0, 2.0]
    assert "300" in (tmp_path / "scale.md").read_text()


@pytest.mark.parametrize("part", ["counting", "ingest", "reading", "sampling"])
def test_every_part_is_measured(tmp_path, part):
    task = scale_tasks.Task(part=part, rows=2_000, columns=5)
    values = scale_tasks.PARTS[part](task, tmp_path)
    assert all(value > 0 for value in values.values())


def test_the_command_measures_in_a_process_of_its_own(tmp_path):
    done = CliRunner().invoke(
        app,
        ["bench", "scale", "--out", str(tmp_path), "--rows", "2000", "--columns", "3", "--parts", "reading"],
    )
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "scale.jsonl")[0].values["peak_mb"] > 10


def test_workers_matter_to_counting_on_workers_alone():
    tasks = wanted(["ingest", "counting_on_workers"], rows=[5], columns=[2], workers=[1, 2])
    assert tasks == [("ingest", 5, 2, 1), ("counting_on_workers", 5, 2, 1), ("counting_on_workers", 5, 2, 2)]


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(SpecError, match="--parts guessing is not among"):
        wanted(["guessing"], rows=[1], columns=[1], workers=[1])
    (tmp_path / "scale.jsonl").write_text('{"part": 1}\n')
    with pytest.raises(SourceError, match="is not a table of this benchmark"):
        load(tmp_path / "scale.jsonl")
    monkeypatch.setattr(scale.sys, "executable", "/bin/false")
    with pytest.raises(SourceError, match="reading of 10 x 2 did not finish"):
        scale._run({"part": "reading", "rows": 10, "columns": 2, "workers": 1}, tmp_path)
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
        result("release", n, d, fit_cpu_s=0.1 * d**2, evaluate_cpu_s=1e-6 * n * d)
        for n, d in ((10**5, 10), (10**6, 10), (10**5, 20))
    ]
    return [*results, result("counting_on_workers", 10**6, 10, 2, times_one_worker_cpu=1.8)]


def test_capacity_follows_the_laws():
    found = capacity.laws(made_up())
    assert found["counting"].at(10**7, 40) == pytest.approx(1e-10 * 10**7 * 1600)
    slow_start = [result("ingest", n, 10, cpu_s=1 + 1e-7 * n) for n in (10**5, 10**6)]
    assert capacity.law(slow_start, "ingest").over_rows == 1
    assert found["fit"].at(10**9, 40) == pytest.approx(160, rel=1e-6), "a fit does not grow with the rows"
    useful = capacity.efficiency(made_up())
    assert useful == pytest.approx(0.9)
    two, many = (capacity.hours(found, (10**7, 40), workers=w, gpus=0, useful=useful) for w in (2, 128))
    assert two["ingest"] / many["ingest"] == pytest.approx(64)
    assert two["evaluate"] == many["evaluate"], "one process evaluates"
    assert capacity.hours(found, (10**7, 40), workers=2, gpus=1, useful=useful)["fit"] == pytest.approx(
        two["fit"] / capacity.GPU_SPEED
    )
    assert capacity.markdown(made_up()).count("million rows x") == 2


def test_the_capacity_page_is_computed_from_the_committed_table():
    results = load(REPOSITORY / "tests" / "benchmarks" / "scale.jsonl")
    assert capacity.markdown(results) in (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    assert markdown(results) == (REPOSITORY / "tests" / "benchmarks" / "scale.md").read_text(encoding="utf-8")
