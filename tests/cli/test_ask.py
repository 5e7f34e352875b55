"""`synth ask` on a copy of a public folder: the answers, their words, and every refusal."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from support.small_release import run_all, write_release
from typer.testing import CliRunner

from synth_core import load_release
from synth_core.cli import app
from synth_core.errors import SourceError, SpecError
from synth_core.models.mixture import load_model
from synth_core.release.paths import ReleasePaths


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of a published folder; nothing else of the release is left."""
    folder = tmp_path_factory.mktemp("asked")
    spec = write_release(folder, evaluate="none", protect=[["sex", "job"]])
    paths = ReleasePaths.of_address(run_all(spec, folder / "workspace"))
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(paths.public, copy)
    shutil.rmtree(folder)
    return copy


def run(*arguments):
    done = CliRunner().invoke(app, ["ask", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def rows(*arguments):
    return list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv"))))


def test_counts_are_the_models_own_between_their_ends(copied):
    found = rows(copied, "--by", "sex,job")
    table = load_model(copied / "model.npz").marginal(("sex", "job"))
    np.testing.assert_allclose([float(row["count"]) for row in found], table.ravel())
    assert [(row["sex"], row["job"]) for row in found[:2]] == [("f", "farm"), ("f", "shop")]
    for row in found:
        assert 0 <= float(row["low"]) < float(row["count"]) < float(row["high"])
        assert row["measured"] == "True"


def test_a_condition_keeps_its_records(copied):
    every, some = rows(copied, "--by", "sex,job"), rows(copied, "--by", "job", "--where", "sex=f")
    for one, row in zip(every, some, strict=False):
        assert float(one["count"]) == pytest.approx(float(row["count"]))
    both = rows(copied, "--by", "job", "--where", "sex=f", "--where", "sex=m")
    alone = rows(copied, "--by", "job")
    assert [float(r["count"]) for r in both] == pytest.approx([float(r["count"]) for r in alone])
    assert [row["sex"] for row in rows(copied, "--by", "sex", "--where", "sex=m")] == ["m"]


def test_shares_add_up_and_a_wider_level_is_wider(copied):
    shares = rows(copied, "--by", "sex", "--share")
    assert sum(float(row["share"]) for row in shares) == pytest.approx(1)
    narrow, wide = (rows(copied, "--by", "sex", "--level", level)[0] for level in (50, 99))
    assert float(wide["low"]) < float(narrow["low"]) < float(narrow["high"]) < float(wide["high"])


def test_means_are_of_the_numbers_that_rows_have(copied):
    (row,) = rows(copied, "--mean", "age")
    assert 30 < float(row["mean"]) < 70
    assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    table = json.loads(run(copied, "--by", "sex", "--mean", "age", "--format", "json"))
    assert [one["sex"] for one in table["rows"]] == ["f", "m"]


def test_a_table_says_whether_it_was_measured(copied):
    assert "modelled, not measured" not in run(copied, "--by", "sex,job")
    assert "modelled, not measured" in run(copied, "--by", "sex,job,age")
    assert json.loads(run(copied, "--by", "sex,job,age", "--format", "json"))["measured"] is False


def test_python_says_the_same(copied):
    release = load_release(copied)
    frame = release.ask(["sex"], where={"job": "shop"}).to_frame()
    told = rows(copied, "--by", "sex", "--where", "job=shop")
    np.testing.assert_allclose(frame["count"], [float(row["count"]) for row in told])
    assert "<table" in release.ask("sex")._repr_html_()
    assert load_release(copied / "manifest.json").ask().values.shape == (1,)


def test_without_replicates_values_have_no_ends(copied, tmp_path):
    shutil.copytree(copied, tmp_path / "old")
    (tmp_path / "old" / "replicates.npz").unlink()
    assert "errors are unknown" in run(tmp_path / "old", "--by", "sex")
    assert rows(tmp_path / "old", "--by", "sex")[0]["low"] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "sexx"], "column 'sexx' is not in the release; did you mean 'sex'"),
        (["--by", "sex,sex"], "named twice"),
        (["--by", "sex", "--where", "job=shopp"], "no value 'shopp'; did you mean 'shop'"),
        (["--by", "sex", "--where", "job"], "write COLUMN=VALUE"),
        (["--mean", "job"], "column 'job' has no numbers"),
        (["--by", "age", "--mean", "age"], "leave it out"),
        (["--share", "--count"], "exclude each other"),
        (["--by", "sex", "--format", "csvv"], "did you mean 'csv'"),
    ],
)
def test_refusals_name_what_is_wrong(copied, arguments, message):
    with pytest.raises(SpecError, match=message):
        run(copied, *arguments)


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(SourceError, match="is no published release"):
        run(tmp_path, "--by", "sex")


def test_a_table_that_nobody_reads_is_refused(copied, monkeypatch):
    monkeypatch.setattr("synth_core.inference.ask.MAX_CELLS", 3)
    with pytest.raises(SpecError, match="ask for fewer columns"):
        run(copied, "--by", "sex,job")


def test_words_that_a_spreadsheet_would_run_are_escaped_in_csv():
    """Words come from the schema of whoever made the release."""
    from synth_core.inference.ask import AskedTable

    some = np.array([1.0, 2.0])
    table = AskedTable(("=a", "b"), "count", 0.9, (("=cmd|x", "-1"), ("north", "@y")), some, some, some, True, False)
    assert [line.split(",")[:2] for line in table.to_csv().splitlines()] == [
        ["'=a", "b"],
        ["'=cmd|x", "'-1"],
        ["north", "'@y"],
    ]
