import numpy as np
import pytest
from support.brute_force import joint, onto

from synth_core.domain import Domain
from synth_core.errors import SchemaError, SourceError
from synth_core.measurement import Measurement
from synth_core.models.loopy import ClusterGraphField, LoopyOracle, estimate_loopy

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2, "d": 3, "e": 2})
TREE = [("a", "b"), ("b", "c"), ("c", "d")]
LOOP = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")]


def potentials(cliques, scale=0.5, seed=0):
    return np.random.default_rng(seed).normal(size=sum(map(DOMAIN.cells, cliques))) * scale


def test_without_loops_it_is_exact():
    logs = potentials(TREE, scale=2.0)
    log_mass, table = joint(DOMAIN, TREE, logs)
    marginals, found = LoopyOracle(DOMAIN, TREE)(logs)
    expected = np.concatenate([onto(DOMAIN, table, clique).ravel() for clique in TREE])
    np.testing.assert_allclose(marginals, expected, atol=1e-7)
    assert found == pytest.approx(log_mass, abs=1e-6)


def test_with_loops_it_is_close_and_clusters_agree_on_attributes():
    logs = potentials(LOOP)
    _, table = joint(DOMAIN, LOOP, logs)
    agreement = LoopyOracle(DOMAIN, LOOP).agree(logs)
    assert agreement.converged
    for cluster in agreement.clusters:
        assert np.abs(cluster.values - onto(DOMAIN, table, cluster.clique)).max() < 0.05
        for axis, a in enumerate(cluster.clique):
            single = cluster.values.sum(axis=tuple(k for k in range(cluster.values.ndim) if k != axis))
            np.testing.assert_allclose(single, agreement.singles[DOMAIN.position(a)].values, atol=1e-6)


def test_marginals_are_the_slope_of_the_bethe_log_partition():
    logs, step = potentials(LOOP), 1e-4
    oracle = LoopyOracle(DOMAIN, LOOP, max_passes=2000, tolerance=1e-13)
    marginals, _ = oracle(logs)
    for cell in (0, 13, 25):
        up, down = logs.copy(), logs.copy()
        up[cell] += step
        down[cell] -= step
        assert (oracle(up)[1] - oracle(down)[1]) / (2 * step) == pytest.approx(marginals[cell], abs=1e-5)


def test_messages_that_have_not_settled_are_reported():
    assert not LoopyOracle(DOMAIN, LOOP, max_passes=1).agree(potentials(LOOP)).converged


def measurements(sigma=5.0):
    rng = np.random.default_rng(3)
    _, table = joint(DOMAIN, LOOP, potentials(LOOP, scale=1.0, seed=4))
    exact = [onto(DOMAIN, table * 10_000, clique) for clique in LOOP]
    return [Measurement(c, t + rng.normal(size=t.shape) * sigma, sigma) for c, t in zip(LOOP, exact, strict=True)]


def test_a_fit_with_loops_explains_its_measurements():
    measured = measurements()
    seen = []
    model = estimate_loopy(DOMAIN, measured, total=10_000.0, progress=seen.append)
    assert seen[-1].loss <= seen[-1].target
    for m in measured:
        np.testing.assert_allclose(model.marginal(m.clique), m.noisy, atol=40)
    codes = model.sample(10_000, np.random.default_rng(0))
    cells = np.ravel_multi_index(codes[:, :2].T.astype(int), (3, 4))
    drawn = np.bincount(cells, minlength=12).reshape(3, 4)
    np.testing.assert_allclose(drawn, model.marginal(("a", "b")), atol=60)
    assert set(codes[:, 4]) == {0, 1}


def test_a_clique_over_several_clusters_is_refused():
    model = ClusterGraphField(DOMAIN, TREE, potentials(TREE), total=1.0)
    assert model.marginal(("b", "a")).shape == (4, 3)
    with pytest.raises(SchemaError, match="no cluster holds a, d together"):
        model.marginal(("a", "d"))


def test_a_model_comes_back_from_disk(tmp_path):
    model = ClusterGraphField(DOMAIN, LOOP, potentials(LOOP), total=7.0)
    model.save(tmp_path / "model.npz")
    loaded = ClusterGraphField.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.marginal(("a", "c")), model.marginal(("a", "c")))
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(SourceError, match=r"other\.npz"):
        ClusterGraphField.load(tmp_path / "other.npz")


def test_nothing_measured_is_refused_by_loopy_fits():
    with pytest.raises(ValueError, match="without measurements"):
        estimate_loopy(DOMAIN, [])
