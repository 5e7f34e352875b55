import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import joint, onto, structures

from synth_core.domain import Domain
from synth_core.errors import FeasibilityError, SourceError
from synth_core.models import calibration
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField

CHAIN = Domain.of({"a": 2, "b": 3, "c": 4, "d": 2})


def field(domain, cliques, seed=0, total=100.0):
    cells = sum(domain.cells(clique) for clique in cliques)
    potentials = np.random.default_rng(seed).normal(size=cells)
    return MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=total)


@given(structures(largest=3), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_every_marginal_equals_brute_force(structure, seed):
    domain, cliques = structure
    model = field(domain, cliques, seed)
    _, table = joint(domain, cliques, model.potentials)
    asked = [c for k in range(4) for c in itertools.combinations(domain.attributes[::-1], k)]
    for clique, found in zip(asked, model.marginals(asked), strict=True):
        np.testing.assert_allclose(found, 100.0 * onto(domain, table, clique), atol=1e-9)


def test_entropy_is_that_of_the_joint_table():
    model = field(CHAIN, [("a", "b"), ("b", "c"), ("d",)])
    log_mass, table = joint(CHAIN, model.cliques, model.potentials)
    assert model.entropy == pytest.approx(-(table * np.log(table)).sum())
    assert model.log_partition == pytest.approx(log_mass)


def test_a_model_comes_back_from_disk_as_it_was(tmp_path):
    model = field(CHAIN, [("a", "b"), ("b", "c")])
    model.save(tmp_path / "model.npz")
    loaded = MarkovRandomField.load(tmp_path / "model.npz")
    assert (loaded.domain, loaded.cliques, loaded.total) == (model.domain, model.cliques, model.total)
    np.testing.assert_array_equal(loaded.potentials, model.potentials)
    np.testing.assert_array_equal(loaded.marginal(("a", "c")), model.marginal(("a", "c")))
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04 broken", None])
def test_anything_else_is_refused(tmp_path, content):
    path = tmp_path / "other.npz"
    if content is None:
        np.savez(path, header=np.frombuffer(b'{"format": "other"}', dtype=np.uint8), potentials=np.zeros(1))
    else:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=r"other\.npz is not a stored model"):
        MarkovRandomField.load(path)


def test_potentials_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match="24 cells"):
        MarkovRandomField(junction_tree(CHAIN, [("a", "b", "c")]), [("a", "b", "c")], np.zeros(7), total=1.0)


def test_potentials_are_found_by_clique_and_cannot_be_written():
    model = field(CHAIN, [("a", "b"), ("d",)])
    np.testing.assert_array_equal(model.potential(("d",)), model.potentials[6:])
    with pytest.raises(KeyError):
        model.potential(("c",))
    with pytest.raises(ValueError, match="read-only"):
        model.potentials[0] = 1.0


def test_a_marginal_too_large_to_hold_is_refused(monkeypatch):
    monkeypatch.setattr(calibration, "LARGEST_TABLE", 10)
    with pytest.raises(FeasibilityError, match="a, b, d would need 12 cells"):
        field(CHAIN, [("a", "b"), ("b", "c")]).marginal(("a", "b", "d"))


def test_a_zero_conditional_stays_zero_across_cliques():
    cliques = [("a", "b"), ("b", "c")]
    potentials = np.concatenate([np.where(np.arange(6) % 3 == 0, -2000.0, 0.0), np.zeros(12)])
    model = MarkovRandomField(junction_tree(CHAIN, cliques), cliques, potentials, total=1.0)
    found = model.marginal(("a", "c"))
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(1.0)
