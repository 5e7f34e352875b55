"""Workloads: what a declaration means over a domain, its refusals, and the error on it."""

import re

import numpy as np
import pytest
import yaml
from support.workload_error import relative_error

from synth_core.domain import Domain
from synth_core.errors import FeasibilityError, SchemaError, SpecError
from synth_core.models.linear import contract_axes
from synth_core.synthesizers.workloads import ALL_PAIRS, QuerySet, Workload, queries_of, refuse_large

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4})


def test_all_marginals_of_some_ways():
    parts = Workload(ways=2).parts(DOMAIN)
    assert [part.clique for part in parts] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(part.kinds == ("codes", "codes") for part in parts)
    assert [part.clique for part in Workload(ways=5).parts(DOMAIN)] == [("a", "b", "c")]


def test_declared_marginals_in_the_domains_order_with_kinds_and_weights():
    declared = Workload(marginals=(("c", "a"), ("b",)), prefixes=("c",), ranges=("b",), weights=(2.0, 0.5)).parts(
        DOMAIN
    )
    assert declared == (QuerySet(("a", "c"), ("codes", "prefixes"), 2.0), QuerySet(("b",), ("ranges",), 0.5))


@pytest.mark.parametrize(("kind", "queries"), [("codes", 4), ("prefixes", 4), ("ranges", 10)])
def test_kinds_of_queries(kind, queries):
    matrix = queries_of(kind, 4)
    assert matrix.shape == (queries, 4)
    assert len({tuple(row) for row in matrix}) == queries


@pytest.mark.parametrize("kind", ["codes", "prefixes", "ranges"])
def test_boxes_are_the_rows_of_the_matrices(kind):
    part = QuerySet(("a", "c"), ("codes", kind))
    table = np.random.default_rng(0).integers(0, 9, size=(2, 4))
    by_boxes = [table[i0:i1, j0:j1].sum() for (i0, i1), (j0, j1) in part.boxes(DOMAIN)]
    np.testing.assert_array_equal(by_boxes, contract_axes(table.astype(float), part.matrices(DOMAIN)).ravel())


def test_the_error_is_the_total_variation_distance_for_marginals():
    real, guess = {("a",): np.array([6.0, 4.0])}, {("a",): np.array([5.0, 5.0])}
    parts = Workload(marginals=(("a",),)).parts(DOMAIN)
    assert relative_error(parts, DOMAIN, real=real.get, estimated=guess.get) == pytest.approx(0.1)


def test_the_error_of_prefixes_and_weights():
    real = {("a",): np.array([6.0, 4.0]), ("b",): np.array([1.0, 1.0, 2.0])}
    guess = {("a",): np.array([5.0, 5.0]), ("b",): np.array([2.0, 1.0, 1.0])}
    parts = Workload(marginals=(("a",), ("b",)), prefixes=("b",), weights=(3.0, 1.0)).parts(DOMAIN)
    by_hand = (3 * 0.1 + (1 + 1 + 0) / (2 * (1 + 2 + 4))) / 4
    assert relative_error(parts, DOMAIN, real=real.get, estimated=guess.get) == pytest.approx(by_hand)


def test_a_spec_is_read():
    read = Workload.parse({"marginals": [["a", "b"], ["c"]], "prefixes": ["c"], "ranges": ["b"], "weights": [1, 2]})
    assert read == Workload(marginals=(("a", "b"), ("c",)), prefixes=("c",), ranges=("b",), weights=(1.0, 2.0))
    assert Workload.parse({"ways": 3}) == Workload(ways=3)
    assert Workload.parse(read) is read


@pytest.mark.parametrize("wrong", [["a"], {"way": 2}, "ab"])
def test_unknown_keys_are_refused(wrong):
    with pytest.raises(SpecError, match="keys: ways"):
        Workload.parse(wrong)


@pytest.mark.parametrize("wrong", [{"ways": "two"}, {"prefixes": "a"}, {"marginals": [[1]]}, {"weights": 3}])
def test_wrong_values_are_refused(wrong):
    with pytest.raises(SpecError, match="lists of column names"):
        Workload.parse(wrong)


@pytest.mark.slow
def test_contradictions_are_refused():
    with pytest.raises(SpecError, match="at least one attribute"):
        Workload(ways=0)
    with pytest.raises(SpecError, match="at least one attribute"):
        Workload(marginals=((),))
    with pytest.raises(SpecError, match="one positive number"):
        Workload(marginals=(("a",),), weights=(1.0, 2.0))
    with pytest.raises(SpecError, match="not both"):
        Workload(prefixes=("a",), ranges=("a",))
    with pytest.raises(SchemaError, match="'z'"):
        Workload(prefixes=("z",)).parts(DOMAIN)


@pytest.mark.parametrize(
    ("columns", "limit", "parts"),
    [(15, 100_000, 14), (15, 1000, 15), (200, 1_000_000, 200)],
    ids=["pairs", "few", "many"],
)
def test_a_workload_that_is_too_large_is_refused_with_one_that_fits(columns, limit, parts):
    """The advice comes first, and is a workload that can be written into the spec as it stands."""
    domain = Domain.of({f"column {k}": 20 for k in range(columns)})
    with pytest.raises(FeasibilityError, match=r"^options: workload needs too large a model; this one fits") as refusal:
        refuse_large(ALL_PAIRS.parts(domain), domain, limit_cells=limit)
    written = re.search(r"`(workload: .*?)`", str(refusal.value)).group(1)
    advised = Workload.parse(yaml.safe_load(written)["workload"]).parts(domain)
    assert len(advised) == parts
    refuse_large(advised, domain, limit_cells=limit)


def test_where_nothing_fits_the_limit_is_to_be_raised():
    with pytest.raises(FeasibilityError, match="raise limit_cells"):
        refuse_large(ALL_PAIRS.parts(DOMAIN), DOMAIN, limit_cells=5)
