"""Tables in pieces tell what the same rows in memory tell; what is estimated is near, and said to be."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from support.tabulation import tabulate

from synth_core.cluster import Cluster, connect
from synth_core.domain import Domain, Impossible
from synth_core.errors import SourceError, SynthError
from synth_core.evaluation import CodedTable, cells, compare_codes, compare_tables, tables
from synth_core.evaluation.cells import Cells, align_cells, count_cells, distances, merge_cells, occupied_cells
from synth_core.evaluation.distances import tvd
from synth_core.evaluation.marginals import marginal_errors
from synth_core.evaluation.tables import Conjunctions

DOMAIN = Domain(
    ("a", "b", "c", "d"),
    (3, 4, 2, 300),
    (Impossible("no 1 with 2", (("a", (1,)), ("b", (2,)))), Impossible("never 299", (("d", (299,)),))),
)


def rows_of(count: int, seed: int, domain: Domain = DOMAIN) -> np.ndarray:
    rng = np.random.default_rng(seed)
    codes = np.column_stack([(rng.random(count) ** 2 * size).astype(int) for size in domain.sizes])
    codes[:, 1] = np.where(rng.random(count) < 0.5, codes[:, 0], codes[:, 1])
    return codes


def in_partitions(folder, codes, cuts, domain=DOMAIN, cluster=None):
    """The rows as encoded partitions of unequal size."""
    paths = []
    for number, block in enumerate(np.split(codes, cuts)):
        columns = {name: block[:, k].astype(np.uint16) for k, name in enumerate(domain)}
        paths.append(str(folder / f"{codes[0, -1]}-{number}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    return CodedTable(paths, domain, cluster=cluster)


@pytest.fixture(params=[None, "local"])
def cluster(request):
    with connect(request.param) as place:
        yield place


def test_partitions_tell_what_memory_tells(tmp_path, cluster):
    codes = rows_of(1000, 1)
    parts, memory = (
        in_partitions(tmp_path, codes, [100, 101, 700], cluster=cluster),
        CodedTable.of(codes, DOMAIN),
    )
    cliques = [*combinations(DOMAIN, 2), ("a",), ("c", "a")]
    for clique, found in zip(cliques, parts.tables(cliques), strict=True):
        np.testing.assert_array_equal(found, tabulate(codes, DOMAIN, clique))
    asked = np.zeros((2, 2, 300), dtype=bool)
    asked[0, 0, :90], asked[0, 1, [0, 2]], asked[1, :, :300] = True, True, True
    questions = Conjunctions(np.array([[3, 0], [1, 2]]), asked)
    expected = [((codes[:, 3] < 90) & (codes[:, 0] != 1)).sum(), 1000]
    np.testing.assert_array_equal(parts.matching(questions), expected)
    breaking = {
        "no 1 with 2": ((codes[:, 0] == 1) & (codes[:, 1] == 2)).sum(),
        "never 299": (codes[:, 3] == 299).sum(),
    }
    assert parts.breaking(list(breaking)) == breaking
    assert breaking["no 1 with 2"] > 0
    assert parts.rows == memory.rows == 1000
    np.testing.assert_array_equal(parts.sample, codes)


def test_whole_evaluations_are_equal(tmp_path):
    real, synthetic = rows_of(900, 1), rows_of(800, 2)
    parts = in_partitions(tmp_path, real, [500]), in_partitions(tmp_path, synthetic, [1, 300])
    assert compare_tables(*parts, targets=["a"]) == compare_codes(real, synthetic, DOMAIN, targets=["a"])


def test_a_code_outside_the_domain_is_refused_whatever_is_asked(tmp_path):
    table = in_partitions(tmp_path, np.full((10, 4), 3), [])
    with pytest.raises(SourceError, match="'a' holds a code outside its domain"):
        table.table(("a", "b"))
    with pytest.raises(SynthError):
        table.breaking(["no 1 with 2"])
    none = CodedTable.of(rows_of(0, 1), DOMAIN)
    with pytest.raises(SourceError, match="the real table has no rows"):
        compare_tables(none, none)


def test_large_marginals_are_counted_some_at_a_time_and_small_ones_once(monkeypatch):
    codes = rows_of(500, 3)
    table = CodedTable.of(codes, DOMAIN)
    passes = []
    monkeypatch.setattr(tables, "BATCH_CELLS", 1000)
    count = Cluster.map_reduce
    monkeypatch.setattr(
        Cluster, "map_reduce", lambda *args, **asked: passes.append(list(asked["cliques"])) or count(*args, **asked)
    )
    cliques = [("a",), ("a", "b"), ("a", "d"), ("b", "d"), ("a", "b")]
    for clique, found in zip(cliques, table.tables(cliques), strict=True):
        np.testing.assert_array_equal(found, tabulate(codes, DOMAIN, clique))
    assert passes == [[("a",), ("a", "b"), ("a", "d")], [("b", "d")]]
    for _ in range(2):
        np.testing.assert_array_equal(table.table(("c",)), tabulate(codes, DOMAIN, ("c",)))
    assert passes[2:] == [[("c",)]], "one table is remembered, too"


def test_marginals_that_were_announced_are_sums_of_larger_ones(monkeypatch):
    codes = rows_of(500, 3)
    table = CodedTable.of(codes, DOMAIN)
    smaller = [("a",), ("c", "b"), ("b", "c"), ("a", "d")]
    table.expect(smaller)
    list(table.tables([("a", "b", "c")]))
    passes, count = [], Cluster.map_reduce
    monkeypatch.setattr(
        Cluster, "map_reduce", lambda *args, **asked: passes.append(list(asked["cliques"])) or count(*args, **asked)
    )
    for clique, found in zip(smaller, table.tables(smaller), strict=True):
        np.testing.assert_array_equal(found, tabulate(codes, DOMAIN, clique))
    assert passes == [[("c", "b"), ("a", "d")]], "one lies outside, one has another order of axes"


@pytest.mark.parametrize("rows", [1, 254, 255, 256, 700])
def test_conjunctions_are_counted_row_by_row(rows):
    """Counters of eight bits are emptied in time: here every row matches the first question."""
    codes = rows_of(rows, 4)
    asked = np.ones((2, 2, 300), dtype=bool)
    asked[1, 0, 1:] = False
    found = CodedTable.of(codes, DOMAIN).matching(Conjunctions(np.array([[3, 0], [0, 3]]), asked))
    np.testing.assert_array_equal(found, [rows, (codes[:, 0] == 0).sum()])


def test_arrays_and_hash_tables_count_the_same_cells(monkeypatch):
    """A marginal is an array where there are rows enough; it is known by no more of its cells for that."""
    domain = Domain.of({"a": 60, "b": 70, "c": 80})
    codes = rows_of(40_000, 8, domain)
    monkeypatch.setattr(cells, "MAX_CELLS", 900)
    for module in (cells, tables):
        monkeypatch.setattr(module, "DENSE_CELLS", 1800)
    found = []
    for limit in (0, 10**6):
        monkeypatch.setattr(CodedTable, "_dense", limit)
        found += CodedTable.of(codes, domain).cells([domain.attributes])
    assert found[0].halvings == found[1].halvings > 0
    np.testing.assert_array_equal(found[0].positions, found[1].positions)
    np.testing.assert_array_equal(found[0].counts, found[1].counts)


def test_the_sample_is_the_same_whoever_draws_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 100)
    codes = rows_of(2000, 4)
    first, second = (in_partitions(tmp_path, codes, [300, 310, 1500]).sample for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(first) == 100


def test_every_row_has_the_same_chance(tmp_path, monkeypatch):
    """A sample that took as many rows of each piece would put 250 of a piece of a tenth of the rows into 500."""
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 500)
    codes = np.column_stack([np.zeros((1000, 3), int), np.r_[np.zeros(100, int), np.ones(900, int)]])
    table = in_partitions(tmp_path, codes, [100])
    found = []
    for seed in range(40):
        monkeypatch.setattr(tables, "_SEED", seed)
        table.__dict__.pop("sample", None)
        found.append(500 - table.sample[:, 3].sum())
    assert abs(np.mean(found) - 50) < 4 * 4.8 / np.sqrt(40)
    assert 2 < np.std(found) < 8  # hypergeometric: 4.7


places = st.lists(st.integers(0, 60), min_size=1, max_size=120).map(np.array)


@pytest.mark.slow
@given(values=places, cuts=st.lists(st.integers(0, 120), max_size=4).map(sorted))
@settings(max_examples=80, deadline=None)
def test_cells_do_not_depend_on_how_rows_are_divided(values, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "MAX_CELLS", 7)
        shape = (61,)
        whole = count_cells([values], shape)
        parts = merge_cells([count_cells([block], shape) for block in np.split(values, cuts)])
        pairwise = merge_cells([merge_cells([count_cells([b], shape)]) for b in np.split(values, cuts)])
    for found in (parts, pairwise):
        assert found.halvings == whole.halvings
        np.testing.assert_array_equal(found.positions, whole.positions)
        np.testing.assert_array_equal(found.counts, whole.counts)
    assert len(whole.positions) <= 7
    assert whole.halvings == 0 or len(np.unique(values)) > 7
    np.testing.assert_array_equal(whole.counts, np.bincount(values, minlength=61)[whole.positions])


def test_complete_cells_give_the_exact_distances():
    left, right = (tabulate(rows_of(400, seed), DOMAIN, DOMAIN.attributes) for seed in (1, 2))
    found = distances(occupied_cells(left), occupied_cells(right), rows=(400, 400))
    p, q = left.ravel() / 400, right.ravel() / 400
    expected = tvd(left, right), np.linalg.norm(p - q), jensenshannon(p, q, base=2) ** 2
    assert (found.tvd, found.l2, found.jensen_shannon) == pytest.approx(expected, abs=1e-12)
    assert not found.estimated


def test_estimates_are_near_the_exact_distances_and_need_their_scale(monkeypatch):
    domain = Domain.of({"a": 50, "b": 60, "c": 70})
    exact, guessed, raw = [], [], []
    for seed in range(8):
        pair = [rows_of(60_000, 10 * seed + side, domain).T for side in (0, 1)]
        monkeypatch.setattr(cells, "MAX_CELLS", 10**6)
        exact.append(distances(*(count_cells(c, domain.sizes) for c in pair), rows=(60_000, 60_000)))
        monkeypatch.setattr(cells, "MAX_CELLS", 2000)
        thin = [count_cells(c, domain.sizes) for c in pair]
        assert all(1000 < len(part.positions) <= 2000 for part in thin)
        guessed.append(distances(*thin, rows=(60_000, 60_000)))
        left, right = align_cells(*thin)
        raw.append(np.abs(left - right).sum() / 120_000)
    assert all(guess.estimated for guess in guessed)
    for name in ("tvd", "l2", "jensen_shannon"):
        truth, guess = (np.array([getattr(one, name) for one in found]) for found in (exact, guessed))
        assert guess == pytest.approx(truth, rel=0.15)
        assert guess.mean() == pytest.approx(truth.mean(), rel=0.05)
    assert np.mean(raw) < np.mean([one.tvd for one in exact]) / 5, "without the scale it would be plainly wrong"


def test_a_table_of_one_cell_that_is_not_kept_is_still_compared(monkeypatch):
    monkeypatch.setattr(cells, "MAX_CELLS", 100)
    domain = Domain.of({"a": 100, "b": 100})
    spread = count_cells(rows_of(5000, 1, domain).T, domain.sizes)
    for code in range(20):
        one = count_cells(np.full((2, 50), code), domain.sizes)
        assert distances(spread, one, rows=(5000, 50)).tvd == pytest.approx(1, abs=0.12)


def test_estimated_marginals_and_sampled_rows_are_told(monkeypatch):
    real, synthetic = rows_of(1500, 1), rows_of(1500, 2)
    exact = compare_codes(real, synthetic, DOMAIN, targets=["a"])
    assert exact.sampling == ""
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 600)
    monkeypatch.setattr(tables, "DENSE_CELLS", 500)
    monkeypatch.setattr(cells, "MAX_CELLS", 300)
    thin = compare_codes(real, synthetic, DOMAIN, targets=["a"])
    assert thin.judged_rows == (600, 600)
    assert "on a random sample of 600 real and 600 synthetic rows" in thin.sampling
    assert "1 of 1 4-way marginals on a random part of their cells" in thin.sampling
    assert thin.pairs == exact.pairs
    assert thin.marginal(4).tvd.mean == pytest.approx(exact.marginal(4).tvd.mean, rel=0.2)
    assert thin.marginal(4).floor == pytest.approx(exact.marginal(4).floor, rel=0.2)
    assert thin.marginal(4).independent == pytest.approx(exact.marginal(4).independent, rel=0.2)


def test_yardsticks_are_those_of_rows_drawn_and_columns_shuffled():
    codes = rows_of(3000, 5)
    table = CodedTable.of(codes, DOMAIN)
    found = marginal_errors(table, CodedTable.of(codes[:1000], DOMAIN), alpha=3)
    cliques = list(combinations(DOMAIN, 3))
    rng = np.random.default_rng(6)
    fresh, apart = [], []
    for _ in range(10):
        drawn, shuffled = codes[rng.integers(3000, size=1000)], rng.permuted(codes, axis=0)
        for other, errors in ((drawn, fresh), (shuffled, apart)):
            errors.append(np.mean([tvd(tabulate(codes, DOMAIN, c), tabulate(other, DOMAIN, c)) for c in cliques]))
    assert found.floor == pytest.approx(np.mean(fresh), rel=0.05)
    assert found.independent == pytest.approx(np.mean(apart), rel=0.05)


def test_a_marginal_beyond_64_bits_is_left_out():
    domain = Domain.of({f"a{k}": 60_000 for k in range(5)})
    table = CodedTable.of(np.arange(50).reshape(10, 5), domain)
    assert marginal_errors(table, table, alpha=5) is None
    assert marginal_errors(table, table, alpha=3).tvd.worst == 0


@given(st.dictionaries(st.integers(0, 30), st.integers(1, 9)), st.dictionaries(st.integers(0, 30), st.integers(1, 9)))
@settings(deadline=None)
def test_cells_of_two_tables_stand_beside_each_other(left, right):
    sides = [
        Cells(*(np.array(list(values), dtype=np.int64) for values in (sorted(of), (of[k] for k in sorted(of)))))
        for of in (left, right)
    ]
    found = align_cells(*sides)
    both = sorted(left | right)
    assert [list(counts) for counts in found] == [[of.get(k, 0) for k in both] for of in (left, right)]


def test_ties_of_very_many_cells_are_those_of_the_whole_table(monkeypatch):
    """Before, two columns of 20,000 values took 16 GB, when all was paid."""
    from synth_core.domain import Domain
    from synth_core.evaluation import public
    from synth_core.evaluation.tables import CodedTable

    rng = np.random.default_rng(4)
    first = rng.integers(0, 30, 5000)
    codes = np.stack([first, (first + rng.integers(0, 4, 5000)) % 40, rng.integers(0, 3, 5000)], axis=1)
    domain = Domain.of({"a": 30, "b": 40, "c": 3})
    whole = public._ties(CodedTable.of(codes.astype(np.uint8), domain))
    monkeypatch.setattr(public, "MAX_TIED_CELLS", 100)
    monkeypatch.setattr(np, "outer", lambda left, right: np.multiply.outer(left, right) if left.size < 31 else 1 / 0)
    np.testing.assert_allclose(public._ties(CodedTable.of(codes.astype(np.uint8), domain)), whole, atol=1e-12)
    assert whole[0][1] > 0.5 > whole[0][2]
