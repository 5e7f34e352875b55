"""The utility benchmark: what it enters, how it judges, that it resumes, and that peers cannot hold it up."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from utility import main, markdown

from contest import execution
from contest.environments import python_of
from contest.execution import Outcome, execute
from contest.figures import draw
from contest.jobs import FOLDS, OURS, PEERS, REAL_ROWS, Contestant, DataSet, Job, Peer, contestants, jobs, load
from contest.results import Results, judge
from contest.with_mbi import spanning_tree, zcdp
from synth_core.domain import Domain
from synth_core.errors import SourceError, SpecError
from synth_core.privacy.budget import mu2_of

INDEPENDENT = Contestant(OURS, "independent")


def write_data(folder, name="tiny", rows=400):
    rng = np.random.default_rng(1)
    codes = rng.integers((2, 3, 4), size=(rows, 3))
    codes[:, 1] = np.where(rng.random(rows) < 0.7, codes[:, 0], codes[:, 1])
    pd.DataFrame(codes, columns=list("abc")).to_csv(folder / f"{name}.csv", index=False)
    (folder / f"{name}-domain.json").write_text(json.dumps({"a": 2, "b": 3, "c": 4}))
    return load(name, folder)


@pytest.fixture
def tiny(tmp_path) -> DataSet:
    return write_data(tmp_path)


def test_contestants_are_named_as_they_are_asked_for():
    entered = contestants(["privmrf", "privmrf:paper", "privmrf"], ["mbi", "dpmm/aim"])
    assert [c.name for c in entered] == ["privmrf", "privmrf:paper", "mbi/mst", "dpmm/aim"]
    assert {f"{c.library}/{c.method}" for c in contestants([], ["dpmm"])} == {
        f"dpmm/{method}" for method in PEERS["dpmm"].methods
    }


@pytest.mark.parametrize(("methods", "peers"), [(["magic"], []), (["privmrf:magic"], []), ([], ["x"]), ([], ["mbi/x"])])
def test_unknown_contestants_are_refused(methods, peers):
    with pytest.raises(SpecError, match="unknown"):
        contestants(methods, peers)


def test_data_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(SourceError, match=r"needs nothing\.csv"):
        load("nothing", tmp_path)
    write_data(tmp_path)
    (tmp_path / "tiny-domain.json").write_text(json.dumps({"a": 2, "b": 3, "c": 3}))
    with pytest.raises(SourceError, match="does not fit"):
        load("tiny", tmp_path)


def test_folds_part_the_rows_and_no_held_out_row_is_seen():
    codes = np.arange(103).reshape(-1, 1)
    data = DataSet("rows", Domain.of({"a": 103}), codes)
    held_out = [data.held_out(fold)[:, 0] for fold in range(FOLDS)]
    assert sorted(np.concatenate(held_out)) == list(range(103))
    for fold in range(FOLDS):
        assert not set(data.training(fold)[:, 0]) & set(held_out[fold])
    assert len(data.training(None)) == 103


def test_first_runs_come_before_second_ones():
    wanted = list(jobs(["x"], [INDEPENDENT], epsilons=[1.0], runs=2, measures=["marginals", "svm"]))
    assert [job.run for job in wanted[:12]] == [0] * 6 + [1] * 6
    assert [job.contestant for job in wanted[12:]] == [REAL_ROWS] * FOLDS
    assert len(list(jobs(["x"], [INDEPENDENT], epsilons=[1, 2], runs=3, measures=["marginals"]))) == 6


@pytest.mark.slow
def test_a_table_is_made_in_a_process_of_its_own(tiny, tmp_path):
    job = Job("tiny", INDEPENDENT, 5.0, 0)
    outcome = execute(job, tiny, delta=1e-3, limit=60, cache=tmp_path)
    assert outcome.table.shape[1] == 3
    assert (outcome.table < tiny.domain.sizes).all()
    assert outcome.cpu_seconds > 0.1
    assert outcome.peak_mb > 10
    values = judge(job, tiny, outcome)
    assert 0 < values["tvd2"] < values["tvd3"] < 1
    assert "tvd4" not in values, "there are three columns"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "limit", "note"),
    [
        ("raise SystemExit(3)", 300, "exit code 3"),
        ("raise SystemExit('a workload must be declared')", 300, "exit code 1: a workload must be declared"),
        ("while True: pass", 1, "ended after 1 CPU s"),
        ("import time; time.sleep(600)", 0.1, "ended after 0.1 CPU s"),
        ("pass", 300, "exit code 0"),
    ],
    ids=["code", "reason", "at work", "asleep", "no table"],
)
def test_a_contestant_that_fails_or_dallies_is_given_up(tiny, tmp_path, monkeypatch, script, limit, note):
    (tmp_path / "bad.py").write_text(script)
    monkeypatch.setattr(execution, "_command", lambda job, cache: [sys.executable, str(tmp_path / "bad.py")])
    job = Job("tiny", INDEPENDENT, 1.0, 0)
    outcome = execute(job, tiny, delta=1e-3, limit=limit, cache=tmp_path)
    assert outcome.table is None
    assert note in outcome.note
    assert judge(job, tiny, outcome)["unfinished"] == 1


def test_the_real_rows_have_no_marginal_error_and_an_svm_error(tiny, tmp_path):
    for fold in range(2):
        job = Job("tiny", REAL_ROWS, 0.0, 0, fold)
        outcome = execute(job, tiny, delta=1e-3, limit=60, cache=tmp_path)
        assert 0.2 < judge(job, tiny, outcome)["svm_error"] < 0.6
        assert len(outcome.table) == len(tiny.training(fold))


def test_results_know_what_was_done(tmp_path):
    job = Job("tiny", INDEPENDENT, 0.8, 0)
    results = Results.open(tmp_path / "utility.csv")
    assert not results.has(job, delta=1e-5)
    results.with_job(job, delta=1e-5, values={"tvd3": 0.25, "cpu_seconds": 2.0})
    again = Results.open(tmp_path / "utility.csv")
    assert again.has(job, delta=1e-5)
    for other in (
        Job("tiny", INDEPENDENT, 0.8, 1),
        Job("tiny", INDEPENDENT, 0.8, 0, 2),
        Job("x", INDEPENDENT, 0.8, 0),
    ):
        assert not again.has(other, delta=1e-5)
    assert not again.has(job, delta=1e-6)
    more = again.with_job(Job("tiny", INDEPENDENT, 0.8, 1), delta=1e-5, values={"tvd3": 0.35})
    more = more.with_job(Job("tiny", INDEPENDENT, 0.8, 0, 2), delta=1e-5, values={"svm_error": 0.5, "cpu_seconds": 1.0})
    row = more.means().iloc[0]
    assert (row.tvd3, row.runs, row.svm_runs) == (pytest.approx(0.3), 2, 1), "runs of the SVM are others"
    assert "| runs | SVM runs |" in markdown(more.means())


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "utility.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match="another --out"):
        Results.open(tmp_path / "utility.csv")
    (tmp_path / "utility.csv").write_bytes(b"")
    with pytest.raises(SourceError, match="another --out"):
        Results.open(tmp_path / "utility.csv")


def test_the_best_is_bold_and_the_unfinished_is_said():
    means = pd.DataFrame(
        {
            "dataset": "x",
            "contestant": ["a", "b", "c"],
            "epsilon": 0.8,
            "tvd3": [0.2, 0.1, np.nan],
            "cpu_seconds": [1.0, 2.0, 3.0],
            "peak_mb": [4.0, 5.0, 6.0],
            "unfinished": [np.nan, np.nan, 1.0],
            "runs": 1,
        }
    )
    text = markdown(means)
    assert "| 0.8 | b | **0.1000** | 2 | 5 | 1 |" in text
    assert "| 0.8 | a | 0.2000 | 1 | 4 | 1 |" in text
    assert "c (not finished) | – |" in text


def test_pictures_are_drawn_from_what_there_is(tmp_path):
    means = pd.DataFrame(
        {
            "dataset": ["x", "x", "x"],
            "contestant": ["a", "a", "real"],
            "epsilon": [0.1, 0.8, 0.0],
            "tvd3": [0.2, 0.1, np.nan],
            "svm_error": [0.4, 0.3, 0.25],
        }
    )
    written = draw(means, tmp_path)
    assert [path.name for path in written] == ["utility-tvd.svg", "utility-svm.svg"]
    assert all(path.stat().st_size > 1000 for path in written)
    assert draw(means.drop(columns=["tvd3", "svm_error"]), tmp_path) == []


@pytest.mark.slow
def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    write_data(tmp_path)
    calls = []

    def counted(job, dataset, **_):
        calls.append(job)
        return Outcome(table=dataset.training(job.fold), cpu_seconds=1, wall_seconds=1, peak_mb=1)

    monkeypatch.setattr("utility.execute", counted)
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--datasets", "tiny"]
    arguments += ["--methods", "independent", "--epsilons", "0.5,1", "--measures", "marginals,svm"]
    main(arguments)
    assert "out/utility.csv: 70 numbers" in capsys.readouterr().out
    assert len(calls) == 2 * (1 + FOLDS) + FOLDS
    main([*arguments, "--runs", "2"])
    assert len(calls) == 2 * 2 * (1 + FOLDS) + FOLDS
    assert (tmp_path / "out" / "utility.md").read_text().startswith("## tiny")


@pytest.mark.parametrize(
    ("option", "words"),
    [(["--measures", "x"], "--measures x"), (["--epsilons", "0.1,no"], "'no' is not a positive")],
)
def test_wrong_options_are_refused(tmp_path, option, words):
    with pytest.raises(SpecError, match=words):
        main(["--data", str(tmp_path), "--out", str(tmp_path), *option])


def test_an_environment_that_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(SpecError, match="could not be made"):
        python_of(Peer("nobody", ("no-such-package-at-all==0.0.0.dev0",), ("x",)), tmp_path)


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    made = []

    def pretend(*arguments, peer):
        made.append(arguments[0])
        (tmp_path / peer.name).mkdir(exist_ok=True)

    monkeypatch.setattr("contest.environments._run", pretend)
    peer = Peer("lib", ("lib==1",), ("x",), leave_out=("torch",))
    assert python_of(peer, tmp_path) == python_of(peer, tmp_path)
    assert made == ["venv", "pip"]
    assert "torch" in (tmp_path / "lib-left-out.txt").read_text()
    python_of(Peer("lib", ("lib==2",), ("x",)), tmp_path)
    assert made == ["venv", "pip"] * 2


def test_the_peers_tree_spans_and_prefers_strong_pairs():
    names = list("abcd")
    scores = dict.fromkeys([("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")], 1.0)
    scores[("a", "b")] = scores[("c", "d")] = 1e6
    tree = spanning_tree(names, scores, 1.0, np.random.default_rng(1))
    assert len(tree) == 3
    assert {("a", "b"), ("c", "d")} <= set(tree)


def test_the_peers_budget_is_a_sound_and_not_wasteful_conversion():
    """Zero-concentrated budgets are a little below the exact Gaussian one (mu^2 / 2), never above."""
    for epsilon in (0.1, 0.8, 3.2):
        exact = float(mu2_of(epsilon, 1e-5)) / 2
        assert 0.75 * exact < zcdp(epsilon, 1e-5) < exact
