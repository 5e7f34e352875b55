"""`synth combine`: estimates of several tables from a file, with honest errors."""

import csv
import io
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from synth_core.cli import app
from synth_core.errors import SynthError
from synth_core.inference import combine

TERMS = ("intercept", "age, in years")
VALUES = {"extract": (1.0, 2.0), "table-001": (1.5, 2.5), "table-002": (0.5, 2.0), "table-003": (1.0, 1.0)}


def write(path, *, errors=True, tables=VALUES, change=str):
    lines = ["table,name,estimate" + (",error" * errors)]
    for table, values in tables.items():
        for name, value in zip(TERMS, values, strict=True):
            lines.append(f'{table},"{name}",{value}' + (",0.1" * errors))
    path.write_text(change("\n".join(lines)) + "\n")
    return str(path)


def run(*arguments):
    done = CliRunner().invoke(app, ["combine", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def numbers(*arguments):
    head, *lines = csv.reader(io.StringIO(run(*arguments, "--format", "csv")))
    assert head == ["name", "estimate", "error", "low", "high", "own error"]
    assert [line[0] for line in lines] == list(TERMS)
    return np.array([[float(cell or "nan") for cell in line[1:]] for line in lines])


@pytest.mark.parametrize("about", ["table", "population"])
@pytest.mark.parametrize("level", [90, 95])
def test_it_is_what_the_function_gives(tmp_path, about, level):
    got = numbers(write(tmp_path / "estimates.csv"), "--about", about, "--level", str(level))
    others = [values for table, values in VALUES.items() if table != "extract"]
    expected = combine(others, np.full((3, 2), 0.01), published=VALUES["extract"], about=about)
    low, high = expected.interval(level / 100)
    np.testing.assert_allclose(got.T, [expected.estimate, expected.error, low, high, [0.1, 0.1]], rtol=1e-5)


def test_without_the_extract_the_mean_is_the_estimate(tmp_path):
    tables = {table: values for table, values in VALUES.items() if table != "extract"}
    got = numbers(write(tmp_path / "estimates.csv", tables=tables, errors=False))
    np.testing.assert_allclose(got[:, 0], [1.0, 11 / 6], rtol=1e-5)
    assert np.isnan(got[:, 4]).all()


def test_it_is_a_table_for_people(tmp_path):
    head, *lines = run(write(tmp_path / "estimates.csv")).splitlines()
    assert head.split() == ["name", "estimate", "error", "low", "high", "own", "error"]
    assert len({len(line) for line in (head, *lines)}) == 1


@pytest.mark.parametrize(
    ("arguments", "change", "words"),
    [
        ((), lambda text: text.replace("estimate", "value"), "'estimate' is missing"),
        ((), lambda text: text.splitlines()[0], "has no estimates"),
        ((), lambda text: text.replace('table-003,"intercept",1.0,0.1\n', ""), "'table-003' has other names"),
        ((), lambda text: text.replace('table-003,"intercept"', 'table-002,"intercept"'), "twice"),
        ((), lambda text: text.replace("0.5,0.1", "0.5,"), "'table-002' lacks errors"),
        ((), lambda text: text.replace("0.5,0.1", "a half,0.1"), "line 6: not a number"),
        ((), lambda text: text.replace("0.5,0.1", "0.5,1e200"), "line 6: a number that is missing, infinite or above"),
        ((), lambda text: text.replace("0.5,0.1", "nan,0.1"), "line 6: a number that is missing"),
        ((), lambda text: text.replace('"intercept"', '""'), "line 2: a table or a name is empty"),
        ((), lambda text: text.replace("intercept", "a\x1b[2J"), "line 2: a table or a name is empty or has control"),
        ((), lambda text: text.replace('"intercept",1.5,0.1', ""), "line 4: a table or a name is empty"),
        (("--about", "tables"), str, "--about must be table or population"),
        (("--format", "json"), str, "--format must be table or csv"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, arguments, change, words):
    with pytest.raises(SynthError, match=words) as refusal:
        run(write(tmp_path / "estimates.csv", change=change), *arguments)
    assert "\n" not in str(refusal.value)


def test_no_file(tmp_path):
    with pytest.raises(SynthError, match="cannot be read"):
        run(str(tmp_path / "nothing.csv"))


@pytest.mark.parametrize("file", ["/dev/zero", "pipe", "."])
def test_a_file_that_never_ends_is_not_read(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(SynthError, match="cannot be read: it is a device or a pipe"):
        run(file)


def test_names_that_a_spreadsheet_would_run_are_escaped_in_csv(tmp_path):
    found = run(
        write(tmp_path / "estimates.csv", change=lambda text: text.replace("intercept", "=cmd|x")), "--format", "csv"
    )
    assert found.splitlines()[1].startswith("'=cmd|x,1,")
