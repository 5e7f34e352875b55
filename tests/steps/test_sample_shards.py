"""Shards: blocks bound the memory, CSV holds the same rows, and nothing depends on who writes them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from synth_core.cluster import Cluster, connect
from synth_core.domain import Domain
from synth_core.errors import PublishError, SpecError
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import MAX_TASKS, ReleaseSpec
from synth_core.schema import Schema
from synth_core.steps import find_step, sample
from synth_core.steps.preparation import check_replicates
from synth_core.steps.publish import _artifacts
from synth_core.steps.sample import Recipe, files_of_task, write_shard

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "sex", "kind": "categorical", "values": ["f", 'm, or "x"'], "nullable": True},
            {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 5},
        ]
    }
)


SPEC = {"release": "r1", "dataset": "people", "source": "a.csv", "schema": "s.yaml", "epsilon": 1, "delta": 1e-6}


def test_many_files_are_shared_by_few_tasks():
    """Before, each file was a task: a list of more than 1,024 was refused by Airflow when all was paid."""
    for shards, replicates in ((1, 0), (4, 10), (100, 100), (10_000, 1)):
        spec = ReleaseSpec.parse(SPEC | {"shards": shards, "replicates": replicates, "uncertainty": replicates})
        tasks = find_step("sample").parts.listed(None, spec)
        files = [file for task in tasks for file in files_of_task(spec, task)]
        assert sorted(files) == list(range(shards * (1 + replicates)))
        assert tasks == list(range(len(tasks)))
        assert len(tasks) <= MAX_TASKS < 1024


def test_more_files_than_can_be_listed_are_refused():
    with pytest.raises(SpecError, match="1,010,000 files in all tables together, at most 20,000; lower shards"):
        check_replicates(ReleaseSpec.parse(SPEC | {"shards": 10_000, "replicates": 100, "uncertainty": 100}), SCHEMA)


@pytest.fixture
def recipe(tmp_path):
    domain: Domain = SCHEMA.domain
    cliques = (("sex", "age"),)
    potentials = np.log(np.arange(1.0, 1 + domain.cells(cliques[0])))
    MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=1000).save(tmp_path / "m.npz")
    SCHEMA.save(tmp_path / "schema.yaml")
    return Recipe(tmp_path / "m.npz", tmp_path / "schema.yaml", "2026-q1", 10_000, 3, 5, tmp_path / "csv")


def test_csv_holds_the_same_rows(recipe, tmp_path):
    path = write_shard((1, tmp_path / "part.parquet"), recipe=recipe)
    text = pa_csv.read_csv(
        tmp_path / "csv" / "part.csv",
        convert_options=pa_csv.ConvertOptions(
            column_types={"sex": pa.string()}, null_values=[""], strings_can_be_null=True
        ),
    )
    assert text.to_pydict() == pq.read_table(path).to_pydict()
    assert text.column_names == ["sex", "age"]


def test_without_csv_there_is_none(recipe, tmp_path):
    plain = Recipe(recipe.model, recipe.schema, "2026-q1", 100, 3, 5)
    write_shard((1, tmp_path / "part.parquet"), recipe=plain)
    assert not (tmp_path / "csv").exists()


def test_a_large_shard_is_written_in_blocks_that_follow_the_model(recipe, tmp_path, monkeypatch):
    whole = pq.read_table(write_shard((0, tmp_path / "whole.parquet"), recipe=recipe))
    monkeypatch.setattr(sample, "BLOCK_ROWS", 500)
    path = write_shard((0, tmp_path / "part.parquet"), recipe=recipe)
    assert pq.read_metadata(path).num_row_groups == 7
    assert pq.read_metadata(path).metadata[b"synthetic.release"] == b"2026-q1"
    table = pq.read_table(path)
    assert table.num_rows == whole.num_rows == 3334
    # Each block deals floor or ceil of a cell's expectation, so seven of them stray by less than seven.
    for value in ("f", 'm, or "x"', None):
        counts = [t.column("sex").to_pylist().count(value) for t in (whole, table)]
        assert abs(counts[0] - counts[1]) <= 7 * 5


def test_shards_do_not_depend_on_who_writes_them(recipe, tmp_path):
    def written(cluster, folder):
        folder.mkdir()
        jobs = [(number, folder / f"{number}.parquet") for number in range(3)]
        cluster.map(write_shard, jobs, recipe=recipe)
        return [path.read_bytes() for path in sorted([*folder.iterdir(), *recipe.csv_folder.iterdir()])]

    with connect("local") as workers:
        apart = written(workers, tmp_path / "a")
    assert apart == written(Cluster(), tmp_path / "b")
    assert len(apart) == 6


def test_a_release_without_its_csv_is_not_published(tmp_path):
    paths = ReleasePaths(tmp_path, "r1")
    spec = ReleaseSpec.parse(SPEC | {"shards": 2, "csv": True})
    paths.extract.mkdir(parents=True)
    paths.csv_extract.mkdir()
    for step, files in paths.artifacts(spec).items():
        for path in files if step != "publish" else []:
            path.touch()
    (paths.csv_extract / "part-00001.csv").unlink()
    with pytest.raises(PublishError, match=r"part-00001.csv is missing; run the step `sample` again"):
        _artifacts(SimpleNamespace(spec=spec, paths=paths))
    (paths.csv_extract / "part-00001.csv").touch()
    assert set(paths.shards(2, csv=True)) <= set(_artifacts(SimpleNamespace(spec=spec, paths=paths)))
