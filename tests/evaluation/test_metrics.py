"""Distances and summaries agree with hand-made tables and with scipy and pandas."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from support.sample_tables import CENSUS_SIZES
from support.tabulation import marginal_distances, tabulate

from synth_core.domain import Domain
from synth_core.evaluation import CodedTable
from synth_core.evaluation import distances as metrics
from synth_core.evaluation.cells import Distances, distances, occupied_cells
from synth_core.evaluation.distances import alpha_way, summarize, tvd
from synth_core.evaluation.marginals import marginal_errors, pair_tvd, worst_cells

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4})


def table(rows: int, seed: int, domain: Domain = DOMAIN) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(size, size=rows) for size in domain.sizes]).astype(np.uint8)


def measured(left: np.ndarray, right: np.ndarray) -> Distances:
    return distances(occupied_cells(left), occupied_cells(right), rows=(left.sum(), right.sum()))


counts = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any).map(np.array)


def test_hand_made_distances():
    left, right = np.array([[1, 1], [2, 0]]), np.array([[3, 0], [0, 5]])
    # shares .25 .25 .5 0 against .375 0 0 .625
    assert tvd(left, right) == measured(left, right).tvd == pytest.approx(0.75)
    assert measured(left, right).l2 == pytest.approx(math.sqrt(0.125**2 + 0.25**2 + 0.5**2 + 0.625**2))
    assert measured(np.array([1, 0]), np.array([0, 9])).jensen_shannon == pytest.approx(1.0)
    assert measured(left, 7 * left).jensen_shannon == 0


@given(left=counts, right=counts, factor=st.integers(1, 9))
@settings(max_examples=60)
def test_laws_of_the_distances(left, right, factor):
    found, swapped, scaled, same = (
        astuple(measured(*pair)) for pair in ((left, right), (right, left), (left * factor, right), (left, left))
    )
    assert all(0 <= found[place] <= 1 + 1e-12 for place in (0, 2))  # the total variation and the divergence in bits
    assert found == pytest.approx(swapped, abs=1e-9)
    assert found == pytest.approx(scaled, abs=1e-9)
    assert same == pytest.approx((0, 0, 0, False), abs=1e-9)
    assert tvd(left, right) == pytest.approx(found[0])


@given(left=counts, right=counts)
@settings(max_examples=60)
def test_jensen_shannon_agrees_with_scipy(left, right):
    assert measured(left, right).jensen_shannon == pytest.approx(jensenshannon(left, right, base=2) ** 2, abs=1e-9)


def test_tvd_agrees_with_pandas_on_many_rows(samples):
    frame, domain = pd.read_csv(samples / "census.csv"), Domain.of(CENSUS_SIZES)
    half = len(frame) // 2
    left, right = frame.iloc[:half], frame.iloc[half:]
    for clique in [("a0",), ("a3", "a4"), ("a0", "a6", "a13"), ("a0", "a2", "a6", "a12", "a13")]:
        p, q = (part.value_counts(list(clique), normalize=True) for part in (left, right))
        expected = p.sub(q, fill_value=0).abs().sum() / 2
        ours = marginal_distances(left.to_numpy(), right.to_numpy(), domain, clique).tvd
        assert ours == pytest.approx(expected, abs=1e-12)


def test_a_table_with_more_cells_than_rows_gives_the_same_distances(monkeypatch):
    left, right = table(3, 1), table(4, 2)
    dense = marginal_distances(left, right, DOMAIN, DOMAIN.attributes)
    monkeypatch.setattr("synth_core.evaluation.tables.DENSE_CELLS", 0)
    assert marginal_distances(left, right, DOMAIN, DOMAIN.attributes) == dense


def test_a_marginal_whose_cells_64_bits_cannot_number_is_left_out():
    domain = Domain.of({f"a{i}": 60_000 for i in range(6)})
    assert domain.cells() > 2**64
    rows = CodedTable.of(np.full((3, 6), 59_999), domain)
    assert marginal_errors(rows, rows, alpha=6) is None


def test_alpha_way_takes_all_marginals_where_there_are_few():
    assert alpha_way(DOMAIN, 2) == (("a", "b"), ("a", "c"), ("b", "c"))
    assert alpha_way(DOMAIN, 4) == ()


def test_alpha_way_draws_a_fixed_sample_of_distinct_cliques():
    domain = Domain.of({f"a{i}": 2 for i in range(20)})
    drawn = alpha_way(domain, 3)
    assert len(set(drawn)) == len(drawn) == metrics.MARGINALS
    assert drawn == alpha_way(domain, 3)
    assert drawn != alpha_way(domain, 3, seed=1)
    assert all(clique == domain.clique(clique) and len(clique) == 3 for clique in drawn)
    used = np.bincount([domain.position(name) for clique in drawn for name in clique], minlength=20)
    assert used.min() > 20  # 45 expected: no column is left out
    assert used.max() < 75


def test_summary_of_hand_made_values():
    summary = summarize([0.1, 0.2, 0.3, 0.4], population=100)
    assert (summary.mean, summary.median, summary.worst) == pytest.approx((0.25, 0.25, 0.4))
    half = 1.959964 * np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2 * math.sqrt(96 / 99)
    assert (summary.low, summary.high) == pytest.approx((0.25 - half, 0.25 + half), abs=1e-6)
    assert summary.upper_decile == pytest.approx(0.37)


def test_the_interval_has_no_width_when_every_marginal_was_measured():
    summary = summarize([0.1, 0.9])
    assert summary.low == summary.mean == summary.high


def test_the_interval_covers_the_mean_over_all_marginals_as_often_as_it_says():
    rng = np.random.default_rng(7)
    everything = rng.gamma(2.0, 0.01, size=600)
    intervals = [summarize(rng.choice(everything, 300, replace=False), population=600) for _ in range(400)]
    covered = np.mean([i.low <= everything.mean() <= i.high for i in intervals])
    assert 0.92 < covered < 0.98
    narrow = np.mean([abs(i.mean - everything.mean()) <= (i.high - i.mean) * 0.7 for i in intervals])
    assert narrow < 0.90  # an interval 30 % too narrow would be found out


def test_pair_matrix_holds_every_pair_and_the_columns_alone():
    left, right = table(500, 1), table(400, 2)
    matrix = pair_tvd(CodedTable.of(left, DOMAIN), CodedTable.of(right, DOMAIN))
    np.testing.assert_array_equal(matrix, matrix.T)
    ab = tvd(tabulate(left, DOMAIN, ("a", "b")), tabulate(right, DOMAIN, ("a", "b")))
    assert matrix[0, 1] == pytest.approx(ab)
    assert matrix[2, 2] == pytest.approx(tvd(*(np.bincount(t[:, 2], minlength=4) for t in (left, right))))
    assert (matrix.max(axis=1) >= matrix.diagonal()).all()


def test_worst_cells_are_found_and_ordered():
    left = np.array([[0, 0, 0]] * 8 + [[1, 2, 3]] * 2)
    right = np.array([[0, 0, 0]] * 5 + [[1, 2, 3]] * 2 + [[1, 1, 3]] * 3)
    tables = (CodedTable.of(codes, DOMAIN) for codes in (left, right))
    first, *rest = worst_cells(*tables, cliques=[("a", "b"), ("b", "c")], count=4)
    assert (first.clique, first.codes, first.left, first.right) == (("a", "b"), (0, 0), 0.8, 0.5)
    gaps = [abs(cell.left - cell.right) for cell in (first, *rest)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps == pytest.approx([0.3] * 4)


def test_incomparable_tables_are_refused():
    with pytest.raises(ValueError, match="same cells"):
        tvd(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="without records"):
        tvd(np.ones(3), np.zeros(3))


def test_empty_questions_are_refused():
    with pytest.raises(ValueError, match="at least one attribute"):
        alpha_way(DOMAIN, 0)
    with pytest.raises(ValueError, match="at least one value"):
        summarize([])
