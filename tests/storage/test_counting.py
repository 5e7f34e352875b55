"""Counts are exact whatever is asked, however it is fused and split; codes outside the domain reach no kernel."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.cluster import Cluster
from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.privacy.wall import open_private
from synth_core.schema import Schema
from synth_core.storage import counting
from synth_core.storage.counting import PartitionCounts, TableCounts, count_codes
from synth_core.storage.ingest import ingest_partitions


def oracle(codes, domain, clique):
    """One np.bincount of 64-bit keys."""
    shape = domain.shape(clique)
    rows = len(next(iter(codes.values())))
    key = np.zeros(rows, dtype=np.int64)
    for attribute, size in zip(clique, shape, strict=True):
        key = key * size + codes[attribute].astype(np.int64)
    return np.bincount(key, minlength=math.prod(shape)).reshape(shape)


def table(sizes, rows, seed=0):
    rng = np.random.default_rng(seed)
    domain = Domain.of({f"c{k}": size for k, size in enumerate(sizes)})
    codes = {
        name: (rng.random(rows) ** 2 * size).astype(np.min_scalar_type(size - 1))
        for name, size in zip(domain, domain.sizes, strict=True)
    }
    return codes, domain


def check(codes, domain, cliques):
    found = count_codes(codes, domain, cliques)
    assert len(found) == len(cliques)
    for clique, counted in zip(cliques, found, strict=True):
        assert counted.dtype == np.int64
        assert np.array_equal(counted, oracle(codes, domain, clique)), clique


@st.composite
def questions(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7, 10, 40, 200, 256, 257, 700]), min_size=1, max_size=9))
    names = [f"c{k}" for k in range(len(sizes))]
    clique = st.lists(st.sampled_from(names), unique=True, max_size=min(3, len(names))).map(tuple)
    cliques = draw(st.lists(clique, max_size=25))
    return sizes, [c for c in cliques if math.prod(sizes[int(a[1:])] for a in c) <= 500_000]


@settings(max_examples=60, deadline=None)
@given(questions(), st.integers(0, 500), st.integers(0, 99))
def test_any_set_of_tables_is_exact(question, rows, seed):
    """Also in an attribute order that is not the domain's, with a table asked twice, and the empty clique."""
    sizes, cliques = question
    check(*table(sizes, rows, seed), cliques)


@pytest.mark.parametrize("limit", counting.LANE_SIZES)
def test_every_way_of_fusing_gives_the_same_tables(monkeypatch, limit):
    monkeypatch.setattr(counting, "LANE_SIZES", (limit,))
    counting.plan.cache_clear()
    codes, domain = table([16, 9, 2, 7, 42, 3, 2, 2, 300], 3_000)
    cliques = [c for k in (1, 2, 3) for c in itertools.combinations(domain, k) if domain.cells(c) < 200_000]
    check(codes, domain, cliques)
    counting.plan.cache_clear()


def test_slabs_add_up(monkeypatch):
    monkeypatch.setattr(counting, "SLAB_ROWS", 1_000)
    codes, domain = table([5, 4, 3, 60], 3_333)
    check(codes, domain, [*itertools.combinations(domain, 2), ("c0", "c1", "c2"), ("c3",)])


def test_a_column_of_many_codes_is_counted():
    codes, domain = table([70_000, 2, 3], 2_000)
    check(codes, domain, [("c0",), ("c0", "c1"), ("c1", "c2"), ("c0", "c2")])


def test_pairs_of_a_wide_table_share_few_counted_tables():
    domain = Domain.of({f"c{k}": 10 for k in range(98)})
    made = counting.plan(domain, tuple(itertools.combinations(domain, 2)), 1 << 18)
    assert len(made.pairs) == 49 * 48 // 2
    assert len(made.drains) == 98 * 97 // 2
    assert len(made.key_begins) == 0


def test_one_pair_is_not_fused_with_anything():
    domain = Domain.of({f"c{k}": 10 for k in range(98)})
    made = counting.plan(domain, (("c3", "c7"),), 1 << 18)
    assert made.lanes == (("c3",), ("c7",))


@pytest.mark.parametrize("wrong", [np.array([0, 3], np.uint8), np.array([-1, 0], np.int8)])
def test_a_code_outside_the_domain_is_refused_before_it_is_an_address(wrong):
    domain = Domain.of({"a": 3, "b": 3})
    right = np.array([0, 2], np.uint8)
    with pytest.raises(SourceError, match="'b' holds a code outside its domain"):
        count_codes({"a": right, "b": wrong}, domain, [("a", "b")])


def test_partitions_and_tables_in_memory_agree(tmp_path):
    codes, domain = table([5, 4, 3, 60], 2_500)
    schema = Schema.from_sizes(dict(zip(domain, domain.sizes, strict=True)))
    rows = np.column_stack(list(codes.values()))
    np.savetxt(tmp_path / "x.csv", rows, fmt="%d", delimiter=",", header=",".join(domain), comments="")
    snapshot = ingest_partitions([tmp_path / "x.csv"], schema, tmp_path / "out", key=bytes(32), rows_per_partition=200)
    paths = [tmp_path / "out" / name for name in snapshot.partitions]
    cliques = [(), *itertools.combinations(domain, 2), ("c0", "c1", "c3"), ("c0",)]
    apart = PartitionCounts(paths, domain, Cluster()).tables(cliques)
    whole = TableCounts(codes, domain).tables(cliques)
    for clique, one, other in zip(cliques, apart, whole, strict=True):
        assert np.array_equal(open_private(one), open_private(other)), clique
        assert np.array_equal(open_private(one), oracle(codes, domain, clique))
