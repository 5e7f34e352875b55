"""Figures that pages state, computed again from the committed results or by the code they are about."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.peers import spent

from synth_core.domain import Domain
from synth_core.inference.uncertain import COVERAGE
from synth_core.privacy.strategies import Strategy
from synth_core.synthesizers.hdmm import error_of, strategy_of
from synth_core.synthesizers.workloads import QuerySet
from tests.benchmarks import intervals
from tests.benchmarks.papers import privmrf
from tests.benchmarks.papers.figures import load

ROOT = Path(__file__).resolve().parents[2]


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def one_line(name):
    """A page without its line breaks."""
    return page(name).replace("\n", " ")


def utility():
    return pd.read_csv(ROOT / "tests" / "benchmarks" / "utility.csv")


def mean_ranks(methods, metric):
    """Mean rank of each method over the tables and epsilons."""
    table = utility()
    table = table[table.contestant.isin(methods) & (table.metric == metric)]
    means = table.groupby(["dataset", "epsilon", "contestant"]).value.mean().reset_index()
    means["rank"] = means.groupby(["dataset", "epsilon"]).value.rank()
    return means.groupby("contestant")["rank"].mean()


@pytest.mark.parametrize("method", ["privmrf", "aim", "absyn", "mwem", "mst"])
def test_the_ranks_beside_absyns_claim(method):
    (line,) = re.findall(rf"^\| `{method}` \|(.*)\|$", page("absyn.md"), re.MULTILINE)
    methods = ("privmrf", "aim", "absyn", "mwem", "mst")
    found = [mean_ranks(methods, f"tvd{alpha}")[method] for alpha in (2, 3, 4)]
    assert [float(cell) for cell in line.split("|")] == [round(rank, 2) for rank in found]


def test_what_the_authors_code_spends():
    of_privmrf = [spent("PrivMRF", "nltcs", epsilon) for epsilon in (0.8, 3.2)]
    assert [f"{value:.3g}" for value in of_privmrf] == ["3.03", "13.4"]
    assert "at 0.8 spends 3.03 and at 3.2 spends 13.4" in page("privmrf.md")
    by_columns = [spent("ABSyn", name, 0.8) for name in ("br2000", "nltcs", "acs")]
    text = "2.9 on 14 columns, 3.3 on 16 and 5.0 on 23"
    assert "{:.1f} on 14 columns, {:.1f} on 16 and {:.1f} on 23".format(*by_columns) == text
    assert text in page("absyn.md")
    assert spent("SWIFT", "nltcs", 0.8) == pytest.approx(0.8, rel=1e-3)


def test_what_hdmm_gains_on_prefixes():
    domain, part = Domain.of({"a": 100}), QuerySet(("a",), ("prefixes",))
    single = Strategy(("a",), (np.eye(100, dtype=np.int64),))
    squared = error_of(part, domain, single) / error_of(part, domain, strategy_of(part, domain))
    assert f"{np.sqrt(squared):.1f} times less than that of single codes ({squared:.0f} times" in page("mechanisms.md")


def test_what_svm_errors_say_at_the_smallest_epsilon():
    table = utility()
    svm = table[(table.metric == "svm_error") & (table.epsilon == 0.1)].groupby(["contestant", "dataset"]).value.mean()
    said = re.search(r"\((0\.\d+) and (0\.\d+), behind the tree's (0\.\d+) and (0\.\d+)\)", page("evaluation.md"))
    places = [("privbayes", "adult"), ("privbayes", "br2000"), ("mst", "adult"), ("mst", "br2000")]
    assert list(said.groups()) == [f"{svm[place]:.3f}" for place in places]


def test_errors_of_linked_tables():
    kept = (ROOT / "tests" / "benchmarks" / "households.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in kept]
    ways = {"linked tables": "(a)", "one flat table of people": "(b)", "two tables apart": "(c)"}
    pattern = r"^\| (survey|fictional) \| (\d\.\d) \| ([a-z ]+) \| (0.*) \|$"
    rows = re.findall(pattern, page("howto/link-two-tables.md"), re.MULTILINE)
    assert len(rows) == 18
    for data, epsilon, way, figures in rows:
        own = [
            list(r["errors"].values())
            for r in results
            if r["epsilon"] == float(epsilon) and r["way"].startswith(ways[way]) and r["data"].split()[0] == data
            if "200,000" not in r["data"]
        ]
        assert [f"{mean:.3f}" for mean in np.mean(own, axis=0)] == figures.replace(" | –", "").split(" | ")


def test_what_printed_elements_of_privmrf_change():
    results = [r for r in load(ROOT / "tests" / "benchmarks" / "papers" / "privmrf.jsonl") if r.figure == "literal"]
    found = dict(re.findall(r"^\| (.+?) \|.*\| ([+-]\d+ %) \|$", privmrf.show_literal(results), re.MULTILINE))
    said = {
        name: change
        for change, name in re.findall(r"([+-]\d+ %) with (.+?)(?=, \+|, and| \(\[)", one_line("privmrf.md"))
    }
    assert {name.removeprefix("an ") for name in said} == set(found)
    assert {name.removeprefix("an "): change for name, change in said.items()} == found


def test_what_a_certificate_says_of_intervals_was_measured():
    results = [json.loads(line) for line in intervals.RESULTS.read_text("utf-8").splitlines()]
    assert list(COVERAGE.values()) == intervals.together(results)
    assert intervals.PAGE.read_text("utf-8") == intervals.page(results)
