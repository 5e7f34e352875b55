"""Merging rare codes: the mapping and its way back, and that merged cells carry the noise of one cell."""

from fractions import Fraction

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.ledger.memory import MemoryLedger
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate
from synth_core.privacy.accounts import Account
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.noise import GRID
from synth_core.privacy.queries import Misfit
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.compression import Compression

DOMAIN = Domain.of({"a": 5, "b": 3, "c": 2})
ONE_WAY = [
    Measurement(("a",), np.array([100.0, 2.0, 50.0, 6.0, -1.0]), 4.0),
    Measurement(("b",), np.array([80.0, 70.0, 3.0]), 4.0),
]


@pytest.fixture
def compression():
    return Compression.from_measurements(DOMAIN, ONE_WAY, threshold=3.0)


def test_rare_codes_become_one(compression):
    assert compression.domain == Domain.of({"a": 3, "b": 3, "c": 2})
    np.testing.assert_array_equal(compression.groups[0], [0, 1, 2, 1, 1])
    np.testing.assert_allclose(compression.shares[0], [1, 0.25, 1, 0.75, 0], atol=1e-8)


def test_a_run_ends_when_it_is_seen_above_the_noise_of_its_codes():
    """Of 12 codes with 7 records each, noise 2.5: one is below 3 sigmas, two are 14 > 3 * 2.5 * sqrt(2)."""
    counts = np.array([*[7.0] * 4, 90.0, *[7.0] * 5])
    runs = Compression.from_measurements(Domain.of({"a": 10}), [Measurement(("a",), counts, 2.5)], threshold=3.0)
    np.testing.assert_array_equal(runs.groups[0], [0, 0, 1, 1, 2, 3, 3, 4, 4, 4])  # the last joins the run before it
    np.testing.assert_allclose(runs.shares[0], [0.5] * 4 + [1] + [0.5] * 2 + [1 / 3] * 3)
    assert not runs.trivial
    assert Compression.from_measurements(Domain.of({"a": 10}), [], threshold=3.0).trivial


def test_a_misfit_is_asked_of_the_merged_table(compression):
    counts = np.arange(15).reshape(5, 3)
    merged = np.array([counts[0], counts[[1, 3, 4]].sum(axis=0), counts[2]])
    query = compression.misfit(("a", "b"), merged + 1.0, penalty=2.0)
    assert query.clique == ("a", "b")
    assert query.evaluate(counts) == GRID * (9 - 2)
    assert isinstance(compression.misfit(("b", "c"), np.ones((3, 2))), Misfit)


def test_a_single_rare_code_and_an_unmeasured_attribute_stay(compression):
    np.testing.assert_array_equal(compression.groups[1], [0, 1, 2])
    np.testing.assert_array_equal(compression.groups[2], [0, 1])
    nothing = Compression.from_measurements(DOMAIN, ONE_WAY, threshold=-np.inf)
    assert nothing.domain == DOMAIN


def test_all_codes_may_be_rare():
    only = Compression.from_measurements(DOMAIN, [Measurement(("a",), -np.ones(5), 1.0)], threshold=3.0)
    assert only.domain.size("a") == 1
    np.testing.assert_allclose(only.shares[0], 0.2)


def test_a_merged_cell_carries_the_noise_of_one_cell(compression):
    """The errors' spread is the stated sigma; a sum of three noisy cells would have 1.7 times as much."""
    codes = {
        name: np.repeat(np.arange(size, dtype=np.uint8), 60 // size)
        for name, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)
    }
    exact = np.zeros((3, 3))
    np.add.at(exact, (compression.groups[0][codes["a"]], codes["b"]), 1)
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=50.0), actor="test")
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=TableCounts(codes, DOMAIN), ledger=ledger, spending=spending)
    found = [compression.measure(curator, [("b", "a")], Fraction(1, 50), purpose=f"asked {k}")[0] for k in range(150)]
    assert found[0].clique == ("a", "b")
    errors = np.array([(m.noisy - exact)[1] / m.sigma for m in found])
    assert 0.85 < errors.std() < 1.15
    assert abs(errors.mean()) < 0.2


def test_sums_of_noisy_tables_keep_one_sigma(compression):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 50, (5, 2)).astype(float)
    noise = rng.normal(0, 4.0, (4000, 5, 2))
    encoded = [compression.encode(Measurement(("a", "c"), truth + n, 4.0)) for n in noise]
    small = np.stack([truth[0], truth[[1, 3, 4]].sum(axis=0), truth[2]])
    expected = np.diag(encoded[0].matrices[0])[:, None] * small
    errors = np.array([e.noisy for e in encoded]) - expected
    np.testing.assert_allclose(errors.std(axis=0), 4.0, rtol=0.06)
    np.testing.assert_allclose(errors.mean(axis=0), 0.0, atol=0.3)


def test_an_expanded_model_is_the_spread_of_the_small_one(compression):
    rng = np.random.default_rng(3)
    small = estimate(
        compression.domain,
        [
            Measurement(("a", "b"), rng.uniform(5, 50, (3, 3)), 1.0),
            Measurement(("a",), np.array([60.0, 70.0, 80.0]), 1.0),
            Measurement(("b", "c"), rng.uniform(5, 50, (3, 2)), 1.0),
        ],
    )
    full = compression.refined(small)
    assert full.domain == DOMAIN
    share, group = compression.shares[0], compression.groups[0]
    for clique in (("a",), ("a", "b"), ("c", "a"), ("a", "b", "c")):
        table = full.marginal(clique)
        axis = clique.index("a")
        expected = np.moveaxis(np.moveaxis(small.marginal(clique), axis, -1)[..., group] * share, -1, axis)
        np.testing.assert_allclose(table, expected, rtol=1e-12)
        assert table.sum() == pytest.approx(small.total)
