"""Which tables the page of a release holds, and that they come back out of it as they went in."""

import base64
import math

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.report import page_tables
from synth_core.report.page_tables import Layer, Numbers, Wanted, choose_tables, list_givens, pack, packed_size

SMALL = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5})


def unpack(table, shape):
    """What `page_data.js` does, in Python."""
    raw = np.frombuffer(base64.b64decode(table["cells"]), dtype=np.uint8)
    cells = math.prod(shape)
    places = raw[: 3 * cells].reshape(-1, 3).astype(np.int64)
    steps = places @ [1, 256, 65536]
    values = np.where(steps == 0xFFFFFF, np.nan, (table["least"] + steps) / table["per_unit"])
    planes = raw[3 * cells :].reshape(-1, cells).astype(np.float64)
    sigmas = [
        np.where(plane > 0, layer["least"] * layer["ratio"] ** (plane - 1), 0.0).reshape(shape)
        for plane, layer in zip(planes, table["layers"], strict=True)
    ]
    return values.reshape(shape), sigmas


def packed(values, *sigmas, by=("a", "b")):
    layers = tuple(
        Layer(None if k == 0 else given, s)
        for k, (s, given) in enumerate(zip(sigmas, [None, (), ("a",)], strict=False))
    )
    numbers = Numbers(values, layers, measured=True, sampled=False, replicates=24)
    places = {name: place for place, name in enumerate(SMALL)}
    return pack(numbers, of=[places[name] for name in by], mean=None, places=places)


@pytest.mark.parametrize("largest", [0.5, 1234.5, 60_000.0, 5e6, 4e7, 3e9])
def test_counts_come_back_to_a_ten_millionth_of_the_largest(largest):
    values = largest * np.random.default_rng(1).random((2, 3))
    values[0, 0], values[1, 2] = largest, 0.0
    sigma = np.full((2, 3), 3.0)
    got, _ = unpack(packed(values, sigma), (2, 3))
    assert np.abs(got - values).max() <= max(0.0005, largest * 6e-7) * 1.0001
    assert got[1, 2] == 0


def test_means_may_be_below_zero_or_not_there():
    values = np.array([[-5.25, 7.0, np.nan], [0.0, 1.0, 2.0]])
    got, _ = unpack(packed(values, np.ones((2, 3))), (2, 3))
    np.testing.assert_allclose(got, values, atol=0.0005)


@pytest.mark.parametrize("spread", [1.0, 30.0, 1e9])
def test_margins_are_never_smaller_than_they_were(spread):
    sigma = 0.7 * spread ** np.random.default_rng(2).random((2, 3))
    sigma[0, 1] = 0.0
    _, (got,) = unpack(packed(np.ones((2, 3)), sigma), (2, 3))
    assert got[0, 1] == 0
    there = sigma > 0
    assert (got[there] >= sigma[there] * (1 - 1e-12)).all()
    large = sigma > sigma.max() / 3000
    assert (got[large] <= 1.034 * sigma[large]).all()


def test_every_small_table_is_held():
    wanted = choose_tables(SMALL, numbers=["d"], cliques=[SMALL.attributes], measured=lambda clique: True)
    counts = {one.by for one in wanted if one.mean is None}
    assert {len(by) for by in counts} == {1, 2, 3}
    assert len(counts) == 4 + 6 + 4
    means = {one.by for one in wanted if one.mean == "d"}
    assert means == {(), ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")}


def test_what_does_not_fit_is_left_out_larger_and_unmeasured_tables_first(monkeypatch):
    needed = [Wanted((name,)) for name in SMALL]
    room = sum(packed_size(one, SMALL) for one in needed) + packed_size(Wanted(("a", "b")), SMALL)
    monkeypatch.setattr(page_tables, "MAX_PACKED", room)
    wanted = choose_tables(SMALL, numbers=[], cliques=[SMALL.attributes], measured=lambda clique: True)
    assert [one.by for one in wanted] == [("a",), ("b",), ("c",), ("d",), ("a", "b")]
    room += sum(packed_size(Wanted(by), SMALL) for by in [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")])
    monkeypatch.setattr(page_tables, "MAX_PACKED", room + packed_size(Wanted(("b", "c", "d")), SMALL))
    wanted = choose_tables(
        SMALL, numbers=[], cliques=[SMALL.attributes], measured=lambda clique: clique == ("b", "c", "d")
    )
    assert [one.by for one in wanted if len(one.by) == 3] == [("b", "c", "d")]


@pytest.mark.parametrize("columns", [3, 24, 60, 150])
def test_a_page_stays_below_eight_megabytes_whatever_the_domain(columns):
    domain = Domain.of({f"c{k}": 2 + 31 * k % 300 for k in range(columns)})
    wanted = choose_tables(domain, numbers=["c1"], cliques=[], measured=lambda clique: False)
    assert sum(packed_size(one, domain) for one in wanted) <= page_tables.MAX_PACKED
    assert {one.by for one in wanted if one.mean is None} >= {(name,) for name in domain}


def test_the_stated_size_of_a_table_is_enough():
    domain = Domain.of({"a": 7, "b": 9})
    layers = (
        Layer(None, np.full((7, 9), 1 / 3)),
        *(Layer(given, np.full((7, 9), 1 / 3)) for given in list_givens(("a", "b"))),
    )
    numbers = Numbers(np.full((7, 9), 1e7 / 3), layers, measured=False, sampled=False, replicates=24)
    text = str(pack(numbers, of=[0, 1], mean=None, places={"a": 0, "b": 1}))
    assert len(text) <= packed_size(Wanted(("a", "b")), domain) + 100
