"""Replicate tables: each drawn from its own replicate of the model, listed, signed and checked like the extract."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.small_release import run_all, write_release

from synth_core.errors import SpecError
from synth_core.inference.replicates import Replicates
from synth_core.ledger.sql import open_ledger
from synth_core.models.mixture import load_model
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.release.verify import check_release, verify_release
from synth_core.steps import PIPELINE, cost, prepare, run_step

TABLES, SHARDS = 3, 2
TOTALS = (500.0, 601.4, 702.6)


def sampled(folder, **changes):
    """A release up to its sampling, with replicates whose numbers of records and shares of men are known."""
    spec = write_release(folder, method="independent", replicates=TABLES, shards=SHARDS, evaluate="none", **changes)
    address = prepare(spec, workspace=folder / "workspace")
    for step in ("ingest", "score", "select", "fit"):
        run_step(step, address)
    paths = ReleasePaths.of_address(address)
    model = load_model(paths.model)
    own = Replicates.of(model, [model] * TABLES)
    changed = np.array(own.changes)
    at = np.cumsum([0, *(model.domain.cells(clique) for clique in model.cliques)])[model.cliques.index(("sex",))]
    changed[:, at + 1] = [-9, 0, 9]
    replace(own, changes=changed, totals=np.array(TOTALS)[:, None]).save(paths.replicates)
    return address, paths


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    address, paths = sampled(tmp_path_factory.mktemp("replicates"))
    for step in ("sample", "evaluate", "publish"):
        run_step(step, address)
    return address, paths


def test_each_table_follows_its_own_replicate(release):
    _, paths = release
    for table, (total, men) in enumerate(zip(TOTALS, (0.0, None, 1.0), strict=True), start=1):
        rows = pd.read_parquet(paths.replicate_table(table))
        assert len(rows) == round(total)
        assert list(rows.columns) == ["sex", "age", "job"]
        share = (rows["sex"] == "m").mean()
        assert (0.3 < share < 0.7) if men is None else abs(share - men) < 0.01


def test_the_extract_is_what_it_is_without_them(release):
    _, paths = release
    alone = pd.read_parquet(paths.extract)
    assert len(alone) == round(load_model(paths.model).total)
    assert len(list(paths.extract.iterdir())) == SHARDS


def test_they_are_listed_and_checked(release):
    _, paths = release
    listed = json.loads(paths.manifest.read_text())["artifacts"]
    names = {f"replicates/table-{t:03d}/part-{s:05d}.parquet" for t in (1, 2, 3) for s in (0, 1)}
    assert {name for name in listed if name.startswith("replicates/")} == names
    assert verify_release(paths.public) == []
    added = paths.replicate_table(1) / "part-00002.parquet"
    added.write_bytes(b"")
    assert verify_release(paths.public) == ["replicates/table-001/part-00002.parquet: is not listed in the manifest"]
    added.unlink()


def test_a_runner_may_write_each_file_alone(tmp_path):
    address, paths = sampled(tmp_path)
    parts = next(step.parts for step in PIPELINE if step.name == "sample")
    numbers = parts.listed(paths, ReleaseSpec.load(paths.spec))
    assert numbers == list(range(SHARDS * (1 + TABLES)))
    run_step("sample", address)
    whole = {path: path.read_bytes() for path in paths.home.rglob("part-*.parquet")}
    assert len(whole) == len(numbers)
    for path in whole:
        path.unlink()
    for number in reversed(numbers):
        run_step("sample", address, part=number)
    assert {path: path.read_bytes() for path in whole} == whole


def test_a_public_number_of_rows_is_that_of_every_table(tmp_path):
    address, paths = sampled(tmp_path, rows=99)
    run_step("sample", address)
    assert [len(pd.read_parquet(paths.replicate_table(table))) for table in (1, 2, 3)] == [99] * 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uncertainty": 2}, "3 tables need as many replicates of the model, and uncertainty makes 2; raise"),
        ({"method": "privbayes", "preset": "paper"}, "a model of method 'privbayes' has none with these settings"),
        ({"method": "dualquery"}, "a model of method 'dualquery' has none with these settings; choose another"),
        ({"method": "privmn"}, "a model of method 'privmn' has none with these settings; choose another"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_spent(tmp_path, changes, words):
    spec = write_release(tmp_path, **{"method": "independent", "replicates": TABLES} | changes)
    for refused in (prepare, cost):
        with pytest.raises(SpecError, match=words):
            refused(spec, workspace=tmp_path / "workspace")


def test_more_tables_than_replicates_are_refused(tmp_path):
    address, paths = sampled(tmp_path)
    model = load_model(paths.model)
    Replicates.of(model, [model] * 2).save(paths.replicates)
    with pytest.raises(SpecError, match="has 2 replicates of its model, too few for a replicate table 3; lower"):
        run_step("sample", address)


def test_a_release_whose_model_has_no_replicates_goes_on_without_their_tables(tmp_path, monkeypatch):
    """Before, it had no end: everything was paid, its tables could not be drawn, and its settings not be changed."""
    spec = write_release(tmp_path, method="independent", uncertainty=2, replicates=2)
    monkeypatch.setattr("synth_core.synthesizers.replicates.Redrawing.where_known", lambda *_, **__: None)
    with pytest.raises(SpecError, match=r"too few for a replicate table [12]; lower replicates"):
        run_all(spec, tmp_path / "workspace")
    charged = open_ledger(tmp_path / "workspace").balance("people").charged_mu2
    run_all(spec | {"replicates": 0}, tmp_path / "workspace")
    assert open_ledger(tmp_path / "workspace").balance("people").charged_mu2 == charged
    paths = ReleasePaths(tmp_path / "workspace", "r1")
    assert check_release(paths.public).sound
    with pytest.raises(SpecError, match="was begun with other settings"):
        run_all(spec | {"replicates": 1}, tmp_path / "workspace")
