import itertools
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import calibrate_random, joint, onto, propagate_random, random_potentials, structures

from synth_core.arrays import NUMPY, generic
from synth_core.domain import Domain
from synth_core.errors import FeasibilityError
from synth_core.models import inference, kernels
from synth_core.models import plan as layout
from synth_core.models.calibration import (
    Factor,
    Linear,
    Log,
    OutOfRangeError,
    calibrate,
    calibrate_in,
    inside_cliques,
    projections,
    split_tables,
)
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree

WAIT = 500
"""Seconds after which a test gives another thread up: a loaded machine is slow, and a hanging one must end."""

LIBRARIES = [NUMPY, generic(np), generic(array_api_strict)]


@pytest.mark.slow
@pytest.mark.parametrize("arrays", LIBRARIES, ids=["compiled", "numpy", "strict"])
@given(structure=structures(), seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0, 1500.0]))
@settings(max_examples=60, deadline=None)
def test_belief_propagation_equals_brute_force(arrays, structure, seed, scale):
    _, found, log_mass = propagate_random(*structure, seed, scale, arrays=arrays)
    assert found == pytest.approx(log_mass, rel=1e-10, abs=1e-9)


@given(structure=structures(), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_log_space_equals_linear_space(structure, seed):
    linear, logs = (calibrate_random(algebra, *structure, seed) for algebra in (Linear(), Log()))
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
        calibrate_in(Linear(), junction_tree(domain, cliques), split_tables(domain, cliques, potentials))


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


@contextmanager
def shared_in_small(cells, *, longest_row):
    """Cliques of so many cells are shared already, and their rows are so short that there are several."""
    layout.blocking.cache_clear()
    with (
        patch.object(inference, "SHARED_CELLS", cells),
        patch.object(layout, "LONGEST_ROW", longest_row),
    ):
        yield
    layout.blocking.cache_clear()


def on_threads(domain, cliques, threads):
    return marginal_oracle(junction_tree(domain, cliques), cliques, replace(NUMPY, threads=threads))


@pytest.mark.slow
@given(
    structure=structures(largest=6),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1.0, 30.0, 1500.0]),
    cells=st.sampled_from([1, 30]),
    longest_row=st.sampled_from([1, 12, 2048]),
    threads=st.sampled_from([2, 3]),
)
@settings(max_examples=150, deadline=None)
def test_threads_change_no_marginal(structure, seed, scale, cells, longest_row, threads):
    domain, cliques = structure
    potentials = random_potentials(domain, cliques, seed, scale)
    with shared_in_small(cells, longest_row=longest_row):
        one, mass = on_threads(domain, cliques, 1)(potentials)
        shared, other = on_threads(domain, cliques, threads)(potentials)
    np.testing.assert_allclose(shared, one, rtol=1e-12, atol=1e-12)
    assert other == pytest.approx(mass, rel=1e-12, abs=1e-12)


FIVE = Domain.of({f"x{k}": size for k, size in enumerate((7, 6, 5, 4, 3))})
TRIANGLE = [("x0", "x1"), ("x1", "x2"), ("x0", "x2", "x3"), ("x3", "x4")]


@pytest.fixture
def large():
    """An oracle on two threads, potentials, and the marginals one thread finds."""
    potentials = random_potentials(FIVE, TRIANGLE, 1, 1.0)
    with shared_in_small(12, longest_row=12):
        expected, _ = on_threads(FIVE, TRIANGLE, 1)(potentials)
        oracle = on_threads(FIVE, TRIANGLE, 2)
    return oracle, potentials, expected


def test_both_threads_have_rows_and_the_bits_do_not_depend_on_chance(large):
    oracle, potentials, expected = large
    shares = [work.row_end - work.row_begin for work in (oracle._propagate.first, *oracle._propagate.others)]
    assert all(share.max() > 1 for share in shares)
    assert (sum(shares) == oracle.plan.layout.rows).all()
    found, mass = oracle(potentials)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    for _ in range(20):
        again, same = oracle(potentials)
        assert again.tobytes() == found.tobytes()
        assert same == mass


def test_a_thread_whose_rows_are_impossible_adds_nothing():
    domain = Domain.of({"a": 4, "b": 3, "c": 3})
    cliques = [("a", "b"), ("b", "c"), ("a", "c")]
    for impossible in (slice(0, 2), slice(2, 4)):
        tables = [np.zeros((4, 3)), np.arange(9.0), np.zeros((4, 3))]
        tables[0][impossible] = -2000.0
        potentials = np.concatenate([table.ravel() for table in tables])
        with shared_in_small(1, longest_row=1):
            shared = on_threads(domain, cliques, 2)
            with patch.object(inference, "GenericOracle", None):
                found, mass = shared(potentials)
        log_mass, table = joint(domain, cliques, potentials)
        expected = np.concatenate([onto(domain, table, clique).ravel() for clique in cliques])
        np.testing.assert_allclose(found, expected, atol=1e-14)
        assert mass == pytest.approx(log_mass)


def test_many_oracles_may_use_the_threads_at_once(large):
    _, potentials, expected = large
    with shared_in_small(12, longest_row=12):
        oracles = [on_threads(FIVE, TRIANGLE, threads) for threads in (2, 2, 2, 3, 3)]
    with ThreadPoolExecutor(len(oracles)) as callers:
        passes = [callers.submit(lambda o=o: [o(potentials)[0] for _ in range(50)]) for o in oracles]
        for each in passes:
            for found in each.result(timeout=WAIT):
                np.testing.assert_allclose(found, expected, atol=1e-14)


def test_a_forked_process_has_threads_of_its_own(large):
    oracle, potentials, expected = large
    oracle(potentials)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(oracle(potentials)[0]))
    child.start()
    child.join(timeout=WAIT)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0, "the child waited for threads that only its parent has"
    np.testing.assert_allclose(answers.get(), expected, atol=1e-14)
    np.testing.assert_allclose(oracle(potentials)[0], expected, atol=1e-14)


def test_rows_that_no_thread_takes_up_are_swept_by_the_first(large):
    oracle, potentials, _ = large
    expected, mass = oracle(potentials)
    begun, released = threading.Event(), threading.Event()

    def keep_the_other_thread_busy():
        begun.set()
        return released.wait(WAIT)

    busy = inference._pool(1).submit(keep_the_other_thread_busy)
    assert begun.wait(WAIT), "the pool has no thread"
    found, same = oracle(potentials)
    assert not busy.done(), "the pass waited for the busy thread"
    released.set()
    assert busy.result(WAIT)
    assert found.tobytes() == expected.tobytes()
    assert same == mass


def test_an_error_in_another_thread_reaches_the_caller(large, monkeypatch):
    oracle, potentials, expected = large
    sum_all, begun = kernels.shared_sum_all, threading.Event()

    def failing(layout, i, work):
        if work is not oracle._propagate.first:
            begun.set()
            raise MemoryError("no room in the second thread")
        begun.wait(WAIT)
        return sum_all(layout, i, work)

    with monkeypatch.context() as faulty:
        faulty.setattr(kernels, "shared_sum_all", failing)
        with pytest.raises(MemoryError, match="second thread"):
            oracle(potentials)
    np.testing.assert_allclose(oracle(potentials)[0], expected, atol=1e-14)


def test_an_error_in_the_first_thread_waits_for_the_others(large, monkeypatch):
    oracle, potentials, _ = large
    begun, ended = threading.Event(), threading.Event()

    def failing(layout, i, work):
        if work is oracle._propagate.first:
            begun.wait(WAIT)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.1)
        ended.set()
        return 1.0

    monkeypatch.setattr(kernels, "shared_sum_all", failing)
    with pytest.raises(KeyboardInterrupt):
        oracle(potentials)
    assert ended.is_set(), "the second thread would have gone on in memory that the next pass uses"


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


def test_likely_cells_far_from_those_of_the_last_pass_are_not_lost():
    """Before, the logarithm of the mass was 229 here instead of 121, and nothing told so."""
    domain = Domain.of(dict.fromkeys("abcd", 3))
    cliques = [("a", "b"), ("b", "c"), ("c", "d")]
    tree, rng = junction_tree(domain, cliques), np.random.default_rng(67)
    oracle, near, far = marginal_oracle(tree, cliques, NUMPY), rng.normal(0, 1, 27), rng.normal(0, 400, 27)
    oracle(near)
    oracle._around_mean = True  # as after a pass that many tables made underflow together
    marginals, log_mass = oracle(far)
    expected, expected_log = marginal_oracle(tree, cliques, generic(np))(far)
    assert log_mass == pytest.approx(expected_log)
    np.testing.assert_allclose(marginals, expected, atol=1e-12)


def test_a_table_outside_the_tree_is_refused():
    domain = Domain.of({"a": 2, "b": 2})
    with pytest.raises(ValueError, match="no clique of the tree contains"):
        calibrate(junction_tree(domain, []), [Factor(("a", "b"), np.zeros((2, 2)))])


@given(structure=structures(attributes=5), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_projections_equal_direct_sums(structure, seed):
    domain, cliques = structure
    table = np.random.default_rng(seed).random(domain.sizes)
    found = projections(Factor(domain.attributes, table), cliques)
    assert set(found) == set(cliques)
    for clique in cliques:
        np.testing.assert_allclose(found[clique], onto(domain, table, clique))


def test_marginals_inside_cliques_come_from_any_clique_that_holds_them():
    domain = Domain.of({"a": 2, "b": 3, "c": 2})
    cliques = [("a", "b"), ("b", "c")]
    potentials = random_potentials(domain, cliques, 0, 1.0)
    tree = junction_tree(domain, cliques)
    calibration = calibrate(tree, split_tables(domain, cliques, potentials))
    _, table = joint(domain, cliques, potentials)
    for clique, values in inside_cliques(tree, calibration.beliefs, [("b",), ("a", "b"), ("c",)]).items():
        np.testing.assert_allclose(values, onto(domain, table, clique))


def test_tables_beyond_the_reach_of_offsets_are_refused(monkeypatch):
    monkeypatch.setattr(layout, "LARGEST_OFFSET", 20)
    domain = Domain.of({"a": 5, "b": 5})
    with pytest.raises(FeasibilityError, match="a, b need more than 20 cells"):
        layout.plan(junction_tree(domain, [("a", "b")]), (("a", "b"),))
