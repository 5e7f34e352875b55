"""Mixtures: marginals and rows of the parts put together, whole numbers of rows, storage."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.npyio import NpzFile

from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.measurement import Measurement
from synth_core.models import stored
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mixture import Component, Mixture, apportion, load_model

DOMAIN = Domain.of({"age": 3, "region": 4, "state": 2, "sex": 2})
"""Strata are the regions: 0 alone, 3 alone, 1 and 2 together; each lies in one state."""


def fitted(domain, seed, total):
    rng = np.random.default_rng(seed)
    tables = [rng.random(domain.shape(clique)) for clique in (("age",), ("age", "sex")) if set(clique) <= set(domain)]
    if "region" in domain:
        tables.append(rng.random(domain.shape(("age", "region"))))
    cliques = [("age",), ("age", "sex"), ("age", "region")][: len(tables)]
    measured = [Measurement(c, t * total / t.sum(), 1e-3) for c, t in zip(cliques, tables, strict=True)]
    return estimate(domain, measured, total=total, until=1e-6)


@pytest.fixture(scope="module")
def mixture():
    single = Domain.of({"age": 3, "sex": 2})
    pooled = Domain.of({"age": 3, "region": 2, "sex": 2})
    return Mixture(
        DOMAIN,
        (
            Component(fitted(single, 1, 50.0), 100.0, {"region": 0, "state": 0}, {}),
            Component(fitted(pooled, 2, 70.0), 60.5, {"state": 1}, {"region": (1, 2)}),
            Component(fitted(single, 3, 10.0), 39.5, {"region": 3, "state": 1}, {}),
        ),
    )


def whole_table(mixture):
    """All cells, put together by hand."""
    table = np.zeros(DOMAIN.sizes)
    first, second, third = (c.model.marginal(c.model.domain.attributes) / c.model.total for c in mixture.components)
    table[:, 0, 0, :] += 100.0 * first
    table[:, 1:3, 1, :] += 60.5 * second
    table[:, 3, 1, :] += 39.5 * third
    return table


@pytest.mark.parametrize(
    "clique",
    [(), ("age",), ("region",), ("state",), ("sex", "region"), ("state", "age", "region"), tuple(DOMAIN)],
)
def test_marginals_are_those_of_the_parts_put_together(mixture, clique):
    table = whole_table(mixture)
    others = tuple(axis for axis, name in enumerate(DOMAIN) if name not in clique)
    kept = [name for name in DOMAIN if name in clique]
    expected = table.sum(axis=others).transpose([kept.index(name) for name in clique])
    np.testing.assert_allclose(mixture.marginal(clique), expected, atol=1e-9)
    assert mixture.total == 200.0


def test_rows_follow_the_parts_and_keep_their_columns(mixture):
    rows = mixture.sample(20_000, np.random.default_rng(0))
    assert rows.shape == (20_000, 4)
    counts = np.zeros(DOMAIN.sizes)
    np.add.at(counts, tuple(rows.T), 1)
    assert np.abs(counts / 100 - whole_table(mixture)).max() < 0.5
    assert counts.sum(axis=(0, 2, 3))[[0, 3]].tolist() == [10_000, 3_950]
    assert not counts[:, 0, 1].any()
    assert not counts[:, 1:, 0].any()


@pytest.mark.parametrize("shards", [1, 3, 7, 50])
def test_all_shards_together_have_each_parts_rows_however_many_they_are(mixture, shards):
    total = 97
    pieces = [
        mixture.sample_shard(total, np.random.default_rng([1, k]), shards=shards, number=k) for k in range(shards)
    ]
    assert [len(piece) for piece in pieces] == [len(range(k, total, shards)) for k in range(shards)]
    together = np.concatenate(pieces)
    parts = [(together[:, 1] == 0).sum(), np.isin(together[:, 1], (1, 2)).sum(), (together[:, 1] == 3).sum()]
    assert parts == apportion([100.0, 60.5, 39.5], total)


def test_no_rows(mixture):
    assert mixture.sample(0, np.random.default_rng(0)).shape == (0, 4)


@settings(max_examples=50)
@given(
    st.lists(st.floats(-5, 1e6, allow_nan=False), min_size=1, max_size=20),
    st.integers(0, 10_000),
)
def test_apportioned_rows_are_floor_or_ceiling_and_add_up(weights, total):
    found = apportion(weights, total)
    positive = np.maximum(weights, 0)
    shares = positive / positive.sum() if positive.sum() > 0 else np.full(len(weights), 1 / len(weights))
    assert sum(found) == total
    assert np.abs(np.array(found) - shares * total).max() < 1 + 1e-6


@pytest.mark.parametrize("weights", [[5e-324], [2.2250738585072014e-308, 0.0], [1e308] * 4, [1e308, 1e-308]])
def test_the_smallest_and_the_largest_weights_are_apportioned_too(weights):
    """The quotient of a total and a sum may overflow, and so may the sum."""
    assert sum(apportion(weights, 4)) == 4


def test_it_is_stored_whole_and_read_as_any_model(mixture, tmp_path):
    mixture.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert isinstance(again, Mixture)
    assert all(isinstance(component.model, MarkovRandomField) for component in again.components)
    np.testing.assert_array_equal(again.marginal(tuple(DOMAIN)), mixture.marginal(tuple(DOMAIN)))
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def test_another_file_is_refused(tmp_path):
    np.savez(tmp_path / "model.npz", header=np.frombuffer(b'{"format": "synth-core/mixture/1"}', dtype=np.uint8))
    with pytest.raises(SourceError, match=r"model\.npz is not a stored model of format"):
        load_model(tmp_path / "model.npz")


def test_its_cliques_tell_the_parts_apart(mixture):
    assert mixture.cliques == (("age", "region", "state"), ("age", "region", "state", "sex"))
    assert mixture.tree.cliques == (("age", "region", "state", "sex"),)


def test_a_shard_in_blocks_has_the_rows_of_the_shard(mixture):
    """Blocks of a shard are smaller shards: those whose number is the shard's modulo the number of shards."""

    def regions(shards, number):
        return mixture.sample_shard(97, np.random.default_rng(0), shards=shards, number=number)[:, 1]

    whole = np.bincount(regions(3, 1), minlength=4)
    blocks = sum(np.bincount(regions(15, 1 + 3 * block), minlength=4) for block in range(5))
    assert whole[[0, 3]].tolist() == blocks[[0, 3]].tolist()
    assert whole.sum() == blocks.sum()


def test_one_thread_at_a_time_reads_an_array_of_a_stored_model(mixture, tmp_path, monkeypatch):
    """NumPy's parser of headers is not for two threads before Python 3.12, and shards read their model at once."""
    path, read_one, entered = tmp_path / "model.npz", NpzFile.__getitem__, []
    mixture.save(path)

    def read(file, name):
        with ThreadPoolExecutor(1) as other:
            entered.append(other.submit(stored._READING.acquire, blocking=False).result())
        return read_one(file, name)

    monkeypatch.setattr(NpzFile, "__getitem__", read)
    assert load_model(path).total == pytest.approx(mixture.total)
    assert len(entered) > 3
    assert not any(entered), "another thread could have entered"
