"""The noisy measurement file: every stored answer, cell by cell, and nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
from support.small_release import run_all, write_release

from synth_core.inference import answers
from synth_core.inference.uncertain import COVERAGE
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import State
from synth_core.privacy.noise import GRID
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.schema import Schema

STEPS = ("ingest", "score", "select", "fit", "sample", "evaluate", "publish")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    spec = write_release(folder, evaluate="none", uncertainty=2, options={"rare": 6.0})
    paths = ReleasePaths.of_address(run_all(spec, folder / "workspace", steps=STEPS))
    return paths, open_ledger(folder / "workspace")


def test_every_stored_number_is_a_row(released):
    paths, ledger = released
    stored = [r for r in ledger.records(release="r1") if r.state is State.MEASURED]
    file = pd.read_parquet(paths.answers)
    assert len(file) == sum(record.form.size for record in stored)
    first = stored[0]
    own = file[file.purpose == first.purpose]
    np.testing.assert_array_equal(own.answer, ledger.reserve(first.request).answer / GRID)
    variances = np.repeat([float(v) for v in first.mechanism.variances()], [b.size for b in first.form.blocks])
    np.testing.assert_allclose(own.standard_deviation, np.sqrt(variances))


def test_the_certificate_says_how_often_intervals_hold(released):
    paths, _ = released
    stated = json.loads(paths.certificate.read_text())["intervals"]
    assert (stated["level"], stated["replicates"]) == (0.9, 2)
    assert stated["held_in_tests_of_privmrf"] == COVERAGE


def test_cells_are_said_in_words_and_codes(released):
    paths, _ = released
    file = pd.read_parquet(paths.answers)
    sexes = file[(file.purpose == "one-way marginals") & (file.attributes.map(list).map(tuple) == ("sex",))]
    assert sexes.cell.map(list).tolist() == [["f"], ["m"]]
    assert [[list(codes) for codes in cell] for cell in sexes.codes] == [[[0]], [[1]]]
    choices = file[file.kind == "choices"]
    assert choices.standard_deviation.isna().all()


def test_it_is_listed_in_the_manifest_and_checked(released, tmp_path):
    paths, _ = released
    assert verify_release(paths.public) == []
    content = paths.answers.read_bytes()
    try:
        paths.answers.write_bytes(content[:-1] + b"x")
        assert any("answers.parquet" in problem for problem in verify_release(paths.public))
    finally:
        paths.answers.write_bytes(content)


def test_batches_make_the_same_file_of_rows(released, tmp_path, monkeypatch):
    paths, ledger = released
    monkeypatch.setattr(answers, "BATCH_CELLS", 3)
    schema = Schema.load(paths.schema)
    count = answers.write_answers(tmp_path / "a.parquet", ledger, schema, dataset="people", release="r1")
    whole, small = pd.read_parquet(paths.answers), pd.read_parquet(tmp_path / "a.parquet")
    assert count == len(whole)
    pd.testing.assert_frame_equal(small, whole)


def test_the_same_answers_make_the_same_bytes(released, tmp_path):
    paths, ledger = released
    schema = Schema.load(paths.schema)
    answers.write_answers(tmp_path / "a.parquet", ledger, schema, dataset="people", release="r1")
    assert (tmp_path / "a.parquet").read_bytes() == paths.answers.read_bytes()


def test_a_merged_cell_names_its_codes():
    captions = ("one", "two", "three", "four")
    assert answers._members(2, (0, 1, 1, 1)) == [[0], [1, 2, 3]]
    assert answers._in_words([1, 2, 3], captions) == "two or three or four"
    assert answers._in_words([0, 1, 2, 3], captions) == "one or 3 others"
    assert answers._in_words([7], captions) == "7"


def test_a_spec_may_keep_it_back(tmp_path):
    spec = write_release(tmp_path, evaluate="none", uncertainty=0, publish_answers=False, method="independent")
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace", steps=STEPS))
    assert not paths.answers.exists()
    assert not paths.replicates.exists()
    assert verify_release(paths.public) == []
