"""A field over groups of codes: what it says of codes, the rows it draws, raking, and its file."""

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.measurement import Measurement
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mixture import load_model
from synth_core.models.refined import Refined, split_groups

FULL = Domain.of({"a": 6, "b": 3})
GROUPS = (np.array([0, 1, 1, 2, 1, 2]), np.arange(3))
SHARES = (np.array([1.0, 0.5, 0.3, 0.9, 0.2, 0.1]), np.ones(3))


@pytest.fixture(scope="module")
def model():
    table = np.array([[300.0, 20.0, 10.0], [40.0, 200.0, 60.0], [5.0, 15.0, 350.0]])
    small = Domain.of({"a": 3, "b": 3})
    return Refined(FULL, estimate(small, [Measurement(("a", "b"), table, 1.0)]), GROUPS, SHARES)


def test_rows_follow_the_marginals(model):
    rows = model.sample(20_000, np.random.default_rng(1))
    counts = np.zeros((6, 3))
    np.add.at(counts, (rows[:, 0], rows[:, 1]), 1)
    expected = model.marginal(("a", "b")) * 20_000 / model.total
    assert 0.5 * np.abs(counts - expected).sum() / 20_000 < 0.01
    wrong = expected[[0, 2, 1, 3, 4, 5]]
    assert 0.5 * np.abs(counts - wrong).sum() / 20_000 > 0.02
    np.testing.assert_array_equal(rows, model.sample(20_000, np.random.default_rng(1)))


def test_each_code_gets_the_floor_or_the_ceiling_of_its_share():
    column = np.repeat([0, 1, 2], [7, 101, 1])
    for seed in range(20):
        codes = split_groups(column, GROUPS[0], SHARES[0], np.random.default_rng(seed))
        np.testing.assert_array_equal(GROUPS[0][codes], column)
        counts = np.bincount(codes, minlength=6)
        assert (np.abs(counts[[1, 2, 4]] - 101 * np.array([0.5, 0.3, 0.2])) < 1).all()


def test_a_share_of_one_row_comes_as_often_as_it_should():
    rng = np.random.default_rng(0)
    drawn = [int(split_groups(np.array([2]), GROUPS[0], SHARES[0], rng)[0]) for _ in range(3000)]
    assert 0.08 < np.mean(np.array(drawn) == 5) < 0.12


def test_raking_moves_groups_and_shares(model):
    wanted = np.array([100.0, 10.0, 80.0, 50.0, 10.0, 150.0])
    raked = model.rake({"a": wanted, "b": np.array([1.0, 1.0, 2.0])})
    np.testing.assert_allclose(raked.marginal(("a",)) / raked.total, wanted / wanted.sum(), atol=1e-6)
    np.testing.assert_allclose(raked.marginal(("b",)) / raked.total, [0.25, 0.25, 0.5], atol=1e-6)


def test_it_is_stored_and_read_like_any_other(model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert isinstance(again, Refined)
    assert again.tree.cliques == model.tree.cliques
    np.testing.assert_array_equal(again.marginal(("b", "a")), model.marginal(("b", "a")))


@pytest.mark.parametrize("groups", [(np.array([0, 1, 1, 1, 1, 1]), np.arange(3)), (np.arange(5), np.arange(3))])
def test_a_file_whose_groups_do_not_fit_is_refused(model, tmp_path, groups):
    broken = Refined(FULL, model.field, groups, SHARES)
    broken.save(tmp_path / "model.npz")
    with pytest.raises(SourceError, match=r"model\.npz is not a stored model"):
        load_model(tmp_path / "model.npz")
