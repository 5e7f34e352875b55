import itertools
from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from brute_force import joint, onto, structures
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.arrays import NUMPY, generic
from synth_core.domain import Domain
from synth_core.errors import FeasibilityError
from synth_core.models import inference
from synth_core.models import plan as layout
from synth_core.models.calibration import (
    Linear,
    Log,
    OutOfRangeError,
    Table,
    calibrate,
    calibrate_in,
    inside_cliques,
    projections,
    split,
)
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree

LIBRARIES = [NUMPY, generic(np), generic(array_api_strict)]


def random_potentials(domain, cliques, seed, scale):
    cells = sum(domain.cells(clique) for clique in cliques)
    return np.random.default_rng(seed).normal(size=cells) * scale


@pytest.mark.parametrize("arrays", LIBRARIES, ids=["compiled", "numpy", "strict"])
@given(structure=structures(), seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0, 1500.0]))
@settings(max_examples=60, deadline=None)
def test_belief_propagation_equals_brute_force(arrays, structure, seed, scale):
    domain, cliques = structure
    potentials = random_potentials(domain, cliques, seed, scale)
    log_mass, table = joint(domain, cliques, potentials)
    marginals, found = marginal_oracle(junction_tree(domain, cliques), cliques, arrays)(
        arrays.xp.asarray(potentials)
    )
    expected = [onto(domain, table, clique).ravel() for clique in cliques]
    np.testing.assert_allclose(np.asarray(marginals), np.concatenate([np.zeros(0), *expected]), atol=1e-9)
    assert found == pytest.approx(log_mass, rel=1e-10, abs=1e-9)


@given(structure=structures(), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_log_space_equals_linear_space(structure, seed):
    domain, cliques = structure
    tree = junction_tree(domain, cliques)
    tables = split(domain, cliques, random_potentials(domain, cliques, seed, 2.0))
    linear, logs = calibrate_in(Linear(), tree, tables), calibrate_in(Log(), tree, tables)
    assert linear.log_mass == pytest.approx(logs.log_mass)
    for one, other in zip(linear.beliefs, logs.beliefs, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-12)


def opposed():
    """Two tables that cancel: each alone drives every likely cell of the other out of range."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    cliques = [("a", "b"), ("b", "c")]
    first = np.array([[0.0, -900.0], [0.0, -900.0]])
    second = np.array([[-900.0, -900.0], [0.0, 1.0]])
    return domain, cliques, np.concatenate([first.ravel(), second.ravel()])


def test_linear_space_refuses_potentials_out_of_its_range():
    domain, cliques, potentials = opposed()
    with pytest.raises(OutOfRangeError, match="log space"):
        calibrate_in(Linear(), junction_tree(domain, cliques), split(domain, cliques, potentials))


@pytest.mark.parametrize("arrays", LIBRARIES, ids=["compiled", "numpy", "strict"])
def test_out_of_range_potentials_are_answered_in_log_space(arrays):
    domain, cliques, potentials = opposed()
    log_mass, table = joint(domain, cliques, potentials)
    tree = junction_tree(domain, cliques)
    marginals, found = marginal_oracle(tree, cliques, arrays)(arrays.xp.asarray(potentials))
    expected = np.concatenate([onto(domain, table, clique).ravel() for clique in cliques])
    np.testing.assert_allclose(np.asarray(marginals), expected, atol=1e-12)
    assert found == pytest.approx(log_mass)


def test_a_larger_tree_agrees_between_compiled_and_generic_code():
    domain = Domain.of({f"x{k}": size for k, size in enumerate((7, 16, 2, 15, 5, 3, 8, 2, 2, 4))})
    chance = np.random.default_rng(3)
    cliques = sorted(
        {domain.clique(chance.choice(domain.attributes, size, replace=False)) for size in [2, 2, 2, 3] * 5}
    )
    tree = junction_tree(domain, cliques)
    potentials = random_potentials(domain, cliques, 5, 1.0)
    compiled, mass = marginal_oracle(tree, cliques, NUMPY)(potentials)
    plain, other = marginal_oracle(tree, cliques, generic(np))(potentials)
    np.testing.assert_allclose(compiled, plain, atol=1e-13)
    assert mass == pytest.approx(other)


def test_two_threads_give_the_same_numbers(monkeypatch):
    monkeypatch.setattr(inference, "SHARED_CELLS", 50)
    domain = Domain.of({f"x{k}": size for k, size in enumerate((7, 6, 5, 4, 3))})
    cliques = [("x0", "x1"), ("x1", "x2"), ("x0", "x2", "x3"), ("x3", "x4")]
    tree = junction_tree(domain, cliques)
    for scale in (1.0, 900.0):
        potentials = random_potentials(domain, cliques, 1, scale)
        one, mass = marginal_oracle(tree, cliques, NUMPY)(potentials)
        two, other = marginal_oracle(tree, cliques, replace(NUMPY, threads=2))(potentials)
        np.testing.assert_allclose(two, one, atol=1e-14)
        assert mass == pytest.approx(other)


def test_many_tables_that_underflow_together_stay_in_linear_space(monkeypatch):
    """Each table's largest cell is unlikely because the others forbid it: maxima mislead, means do not."""
    domain = Domain.of({f"x{k}": 2 for k in range(5)})
    cliques = [c for size in (2, 3) for c in itertools.combinations(domain.attributes, size)]
    lifted = [np.where(np.arange(domain.cells(c)) == domain.cells(c) - 1, 30.0, 0.0) for c in cliques]
    ones = np.indices(domain.sizes).sum(axis=0)
    potentials = np.concatenate([*lifted, np.where(ones > 1, -1000.0, 0.0).ravel()])
    cliques.append(domain.attributes)
    tree = junction_tree(domain, cliques)
    oracle = marginal_oracle(tree, cliques, NUMPY)
    expected, _ = oracle(potentials)
    monkeypatch.setattr(inference, "GenericOracle", None)
    found, mass = oracle(potentials)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    log_mass, joint_table = joint(domain, cliques, potentials)
    assert mass == pytest.approx(log_mass)
    np.testing.assert_allclose(found[:4].reshape(2, 2), onto(domain, joint_table, ("x0", "x1")), atol=1e-12)


def test_a_table_outside_the_tree_is_refused():
    domain = Domain.of({"a": 2, "b": 2})
    with pytest.raises(ValueError, match="no clique of the tree contains"):
        calibrate(junction_tree(domain, []), [Table(("a", "b"), np.zeros((2, 2)))])


@given(structure=structures(attributes=5), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_projections_equal_direct_sums(structure, seed):
    domain, cliques = structure
    table = np.random.default_rng(seed).random(domain.sizes)
    found = projections(Table(domain.attributes, table), cliques)
    assert set(found) == set(cliques)
    for clique in cliques:
        np.testing.assert_allclose(found[clique], onto(domain, table, clique))


def test_marginals_inside_cliques_come_from_any_clique_that_holds_them():
    domain = Domain.of({"a": 2, "b": 3, "c": 2})
    cliques = [("a", "b"), ("b", "c")]
    potentials = random_potentials(domain, cliques, 0, 1.0)
    tree = junction_tree(domain, cliques)
    calibration = calibrate(tree, split(domain, cliques, potentials))
    _, table = joint(domain, cliques, potentials)
    for clique, values in inside_cliques(tree, calibration.beliefs, [("b",), ("a", "b"), ("c",)]).items():
        np.testing.assert_allclose(values, onto(domain, table, clique))


def test_tables_beyond_the_reach_of_offsets_are_refused(monkeypatch):
    monkeypatch.setattr(layout, "LARGEST_OFFSET", 20)
    domain = Domain.of({"a": 5, "b": 5})
    with pytest.raises(FeasibilityError, match="a, b need more than 20 cells"):
        layout.plan(junction_tree(domain, [("a", "b")]), [("a", "b")])
