"""Rules inside the engine: excluded records have probability 0 in every path, and nothing else changes."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import calibrate_random, joint, onto, propagate_random, random_potentials, stacked
from support.ruled_domains import possible, ruled

from synth_core.arrays import NUMPY, generic
from synth_core.domain import Domain, Impossible, breaking_rows, forbidden_cells, forbidden_tables
from synth_core.errors import FeasibilityError, SchemaError
from synth_core.measurement import Measurement, without_impossible
from synth_core.models import inference
from synth_core.models.calibration import Factor, Linear, Log, calibrate
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.loopy import ClusterGraphField
from synth_core.models.losses import Problem
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.models.sampling import redraw_rows, sample_rows
from synth_core.models.triangulation import TriangulatedGraph

LIBRARIES = [NUMPY, replace(NUMPY, threads=2), generic(np), generic(array_api_strict)]
NAMES = ["compiled", "threads", "numpy", "strict"]


def given_rules(domain, cliques, potentials):
    """Log-partition function and joint distribution by brute force: what `joint` gives if the rules are a table too."""
    forbidding = np.where(possible(domain), 0.0, -np.inf).ravel()
    return joint(domain, [*cliques, domain.attributes], np.concatenate([potentials, forbidding]))


@pytest.mark.slow
@pytest.mark.parametrize("arrays", LIBRARIES, ids=NAMES)
@given(case=ruled(), seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 3.0, 300.0]))
@settings(max_examples=25, deadline=None)
def test_inference_equals_brute_force_given_the_rules(arrays, case, seed, scale):
    domain, cliques = case
    marginals, found, log_mass = propagate_random(domain, cliques, seed, scale, arrays=arrays, oracle=given_rules)
    reached = stacked(domain, possible(domain), cliques)
    assert np.all(marginals[reached == 0] == 0), "an excluded cell is exactly 0"
    assert found == pytest.approx(log_mass, rel=1e-9, abs=1e-8)


def test_large_cliques_swept_by_two_threads_keep_the_rules(monkeypatch):
    monkeypatch.setattr(inference, "SHARED_CELLS", 20)
    rule = Impossible("r", (("x0", (0, 1)), ("x2", (2, 3, 4))))
    domain = Domain(("x0", "x1", "x2", "x3"), (7, 6, 5, 4), (rule,))
    cliques = [("x0", "x1"), ("x1", "x2"), ("x2", "x3")]
    potentials = random_potentials(domain, cliques, 1, 2.0)
    _, table = given_rules(domain, cliques, potentials)
    found, _ = marginal_oracle(junction_tree(domain, cliques), cliques, replace(NUMPY, threads=2))(potentials)
    expected = np.concatenate([onto(domain, table, clique).ravel() for clique in cliques])
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(case=ruled(), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_beliefs_are_exactly_0_in_linear_and_in_log_space(case, seed):
    domain, cliques = case
    for algebra in (Linear(), Log()):
        for belief in calibrate_random(algebra, domain, cliques, seed).beliefs:
            assert np.all(belief.values[forbidden_cells(domain, belief.clique)] == 0)
            assert belief.values.sum() == pytest.approx(1.0)


@given(case=ruled())
@settings(max_examples=60, deadline=None)
def test_tree_and_graph_hold_every_rule(case):
    domain, cliques = case
    tree, graph = junction_tree(domain, cliques), TriangulatedGraph.empty(domain)
    for rule in domain.impossible:
        assert tree.host(rule.attributes) is not None
        assert any(set(rule.attributes) <= set(clique) for clique in graph.cliques)
    assert graph.retriangulated().cells <= graph.cells


@given(case=ruled(), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_a_model_keeps_the_rules_in_marginals_rows_and_on_disk(case, seed, tmp_path_factory):
    domain, cliques = case
    potentials = random_potentials(domain, cliques, seed, 1.0)
    model = MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=100.0)
    path = tmp_path_factory.mktemp("models") / "model.npz"
    model.save(path)
    read = MarkovRandomField.load(path)
    assert read.domain == domain
    _, table = given_rules(domain, cliques, potentials)
    np.testing.assert_allclose(read.marginal(domain.attributes), 100 * table, atol=1e-9)
    for independent in (False, True):
        rng = np.random.default_rng(seed)
        rows = sample_rows(domain, read.beliefs, 200, rng=rng, independent=independent)
        assert not breaking_rows(rows, domain).any()


def obeying_measurements(domain, cliques, *, sigma, seed):
    """Noisy tables of 1,000 records that obey the rules, spread evenly over the possible ones."""
    table = possible(domain) * (1000 / possible(domain).sum())
    rng = np.random.default_rng(seed)
    return [Measurement(c, onto(domain, table, c) + rng.normal(size=domain.shape(c)) * sigma, sigma) for c in cliques]


RULES = (Impossible("r", (("a", (0,)), ("b", (0, 1)))), Impossible("s", (("b", (2,)), ("c", (1,)))))
RULED = Domain(("a", "b", "c"), (2, 3, 2), RULES)


def test_noise_in_excluded_cells_does_not_move_the_fit():
    cliques = [("a", "b"), ("b", "c")]
    one = obeying_measurements(RULED, cliques, sigma=5.0, seed=0)
    other = [Measurement(m.clique, m.noisy + 500.0 * forbidden_cells(RULED, m.clique), m.sigma) for m in one]
    first, second = (estimate(RULED, tables, total=1000.0) for tables in (one, other))
    np.testing.assert_allclose(first.marginal("abc"), second.marginal("abc"), rtol=1e-9)
    assert np.all(first.potential(("a", "b"))[forbidden_cells(RULED, ("a", "b"))] == 0)


def test_cells_that_rules_exclude_only_together_are_known_to_be_0_too():
    """a = 0 leaves b = 2, and b = 2 leaves c = 0: so a = 0 never goes with c = 1, though no rule says it."""
    cliques = [("a", "c")]
    tree = junction_tree(RULED, cliques)
    measured = obeying_measurements(RULED, cliques, sigma=5.0, seed=0)
    problem = Problem.of(RULED, measured, total=1000.0, arrays=NUMPY)
    within = problem.within_rules(marginal_oracle(tree, cliques, NUMPY))
    assert within.open.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert within.answers[1] == 0
    assert within.expected.tolist() == [1.5]
    assert problem.expected.tolist() == [2.0]


def test_a_warm_start_from_a_model_without_rules_ends_at_the_same_fit():
    cliques = [("a", "b"), ("b", "c")]
    measured = obeying_measurements(RULED, cliques, sigma=5.0, seed=1)
    free = estimate(RULED.unruled, measured, total=1000.0)
    cold, warm = (estimate(RULED, measured, total=1000.0, warm=start, until=0.2) for start in (None, free))
    np.testing.assert_allclose(warm.marginal("abc"), cold.marginal("abc"), atol=3.0)
    assert np.all(warm.marginal("abc")[~possible(RULED)] == 0)
    assert np.any(free.marginal("abc")[~possible(RULED)] > 1)


def test_a_measurement_loses_its_noise_where_no_record_can_be():
    noisy = Measurement(("a", "b"), np.full((2, 3), 7.0), 2.0)
    kept = without_impossible(noisy, RULED)
    assert kept.noisy.tolist() == [[0.0, 0.0, 7.0], [7.0, 7.0, 7.0]]
    assert kept.sigma == 2.0
    assert without_impossible(noisy, RULED.unruled) is noisy


def test_rows_that_break_a_rule_are_told_by_rule():
    rows = np.array([[0, 0, 0], [0, 2, 1], [1, 1, 1]])
    assert breaking_rows(rows, RULED).tolist() == [True, True, False]
    assert breaking_rows(rows, RULED, rule="s").tolist() == [False, True, False]


def test_a_part_of_the_domain_keeps_the_rules_about_it():
    assert RULED.project(("a", "b")).impossible == RULES[:1]
    assert RULED.project(("a", "c")).impossible == ()
    assert RULED.unruled.impossible == ()


@pytest.mark.slow
@given(case=ruled())
@settings(max_examples=40, deadline=None)
def test_records_with_one_code_have_the_rules_that_are_left_for_them(case):
    domain, _ = case
    for position, attribute in enumerate(domain if len(domain) > 1 else ()):
        for code in range(domain.size(attribute)):
            expected = possible(domain).take(code, axis=position)
            np.testing.assert_array_equal(possible(domain.given(attribute, code)), expected)


def test_a_rule_about_a_code_that_is_not_there_is_refused():
    with pytest.raises(SchemaError, match="rule 'r' names a code that 'a' has not"):
        Domain(("a",), (2,), (Impossible("r", (("a", (2,)),)),))


def test_a_rule_about_too_large_a_table_is_refused_by_name():
    rule = Impossible("vast", tuple((name, (0,)) for name in "abcd"))
    domain = Domain(tuple("abcd"), (100, 100, 100, 100), (rule,))
    with pytest.raises(FeasibilityError, match=r"rule 'vast' joins a, b, c, d .* coarser bins"):
        forbidden_tables(domain)


def test_the_limit_of_cells_counts_rules_and_says_so():
    domain = Domain(("a", "b"), (100, 100), (Impossible("r", (("a", (0,)), ("b", (0,)))),))
    with pytest.raises(FeasibilityError, match="measured cliques and rules join a, b"):
        junction_tree(domain, [], limit_cells=200)
    assert junction_tree(domain.unruled, [], limit_cells=200).cells == 200


@pytest.mark.parametrize("arrays", LIBRARIES, ids=NAMES)
def test_rules_that_leave_no_record_are_refused(arrays):
    rules = (Impossible("r", (("a", (0,)),)), Impossible("s", (("a", (1,)), ("b", (0, 1)))))
    domain = Domain(("a", "b"), (2, 2), rules)
    oracle = marginal_oracle(junction_tree(domain, [("a",)]), [("a",)], arrays)
    with pytest.raises(FeasibilityError, match="the rules leave no possible record"):
        oracle(arrays.xp.asarray(np.zeros(2)))
    with pytest.raises(FeasibilityError, match="the rules leave no possible record"):
        calibrate(junction_tree(domain, []), [])


def test_loopy_propagation_refuses_rules():
    with pytest.raises(FeasibilityError, match="rule 'r' is not kept by loopy propagation"):
        ClusterGraphField(RULED, [("a",)], np.zeros(2), total=1.0)


def test_rejection_draws_the_samplers_distribution_given_the_rules():
    def drawn(rows, rng):
        return np.column_stack([rng.integers(size, size=rows) for size in RULED.sizes])

    rows = redraw_rows(drawn, 40_000, domain=RULED, rng=np.random.default_rng(0))
    assert len(rows) == 40_000
    counts = np.zeros(RULED.sizes)
    np.add.at(counts, tuple(rows.T), 1)
    expected = possible(RULED) * (40_000 / possible(RULED).sum())
    assert np.all(counts[expected == 0] == 0)
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected) + 1)


def test_a_sampler_that_hardly_ever_obeys_is_refused_by_the_rules_names():
    def stubborn(rows, rng):
        return np.zeros((rows, 3), dtype=np.uint8)

    with pytest.raises(FeasibilityError, match=r"obeys the rules \(r, s\); use a method that holds them"):
        redraw_rows(stubborn, 10, domain=RULED, rng=np.random.default_rng(0))


def test_attributes_drawn_early_follow_their_tables_and_later_ones_give_way():
    """Drawing independent columns around the rules: a is even, b is never 0 or 1 with a = 0, c never 1 with b = 2."""
    tables = [Factor((name,), np.ones(size)) for name, size in zip(RULED, RULED.sizes, strict=True)]
    for independent in (False, True):
        rng = np.random.default_rng(0)
        rows = sample_rows(RULED.unruled, tables, 30_000, rules=RULED.impossible, rng=rng, independent=independent)
        assert not breaking_rows(rows, RULED).any()
        counts = np.zeros(RULED.sizes)
        np.add.at(counts, tuple(rows.T), 1 / 30_000)
        np.testing.assert_allclose(counts.sum(axis=(1, 2)), [0.5, 0.5], atol=0.01)
        np.testing.assert_allclose(counts.sum(axis=2)[1], [1 / 6] * 3, atol=0.01)
        np.testing.assert_allclose(counts.sum(axis=0)[0], [1 / 12, 1 / 12], atol=0.01)


@given(case=ruled(), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_rows_drawn_around_rules_break_none_after_dead_ends_are_drawn_again(case, seed):
    domain, _ = case
    tables = [Factor((name,), np.ones(domain.size(name))) for name in domain]

    def drawn(rows, rng):
        return sample_rows(domain.unruled, tables, rows, rules=domain.impossible, rng=rng)

    rows = redraw_rows(drawn, 300, domain=domain, rng=np.random.default_rng(seed))
    assert len(rows) == 300
    assert not breaking_rows(rows, domain).any()


def test_many_rules_at_once_are_told_apart():
    rules = tuple(Impossible(f"r{k}", (("a", (k,)), ("b", (k,)))) for k in range(70))
    domain = Domain(("a", "b"), (70, 70), rules)
    tables = [Factor((name,), np.ones(70)) for name in domain]
    rows = sample_rows(domain.unruled, tables, 20_000, rules=rules, rng=np.random.default_rng(0))
    assert not breaking_rows(rows, domain).any()
    assert (np.bincount(rows[:, 0], minlength=70) > 0).all()
