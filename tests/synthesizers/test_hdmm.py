"""HDMM: strategies near the optimum, shares that minimise the error, estimates with the predicted variance."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tabulation import tabulate
from support.workload_error import relative_error

from synth_core.audit.adversary import Witness
from synth_core.domain import Domain
from synth_core.errors import FeasibilityError
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator
from synth_core.privacy.entropy import SystemEntropy
from synth_core.privacy.strategies import Answers
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.hdmm import HDMM, choose_strategies, error_of, local_least_squares, strategy_of
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.workloads import QuerySet, Workload, queries_of

DOMAIN = Domain.of({"a": 2, "b": 12, "c": 3})


def squared_error(queries, strategy):
    """What the matrix mechanism charges for answering `queries` from `strategy` at mu = 1."""
    strategy = strategy.astype(float)
    assert np.allclose(queries @ np.linalg.pinv(strategy) @ strategy, queries), "not reconstructible"
    return (strategy**2).sum(axis=0).max() * ((queries @ np.linalg.pinv(strategy)) ** 2).sum()


def lower_bound(queries):
    """No strategy does better than the squared sum of the singular values over the codes (Li & Miklau 2013)."""
    return np.linalg.svd(queries, compute_uv=False).sum() ** 2 / queries.shape[1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 5, 16, 41, 100])
@pytest.mark.parametrize("kind", ["codes", "prefixes", "ranges"])
def test_strategies_are_near_the_lower_bound(kind, size):
    queries, part = queries_of(kind, size), QuerySet(("x",), (kind,))
    reached = squared_error(queries, strategy_of(part, Domain.of({"x": size})).matrices[0])
    assert lower_bound(queries) * (1 - 1e-9) <= reached <= 1.1 * lower_bound(queries)
    if kind != "codes" and size >= 16:
        assert reached < 0.6 * squared_error(queries, np.eye(size)), "single codes would be far worse"
        assert reached < 0.6 * squared_error(queries, queries), "and so would the queries themselves"


def test_the_cost_of_a_part_is_that_of_the_kronecker_product():
    part = QuerySet(("a", "b"), ("codes", "prefixes"))
    queries = np.kron(*part.matrices(DOMAIN))
    strategy = strategy_of(part, DOMAIN)
    assert error_of(part, DOMAIN, strategy) == pytest.approx(squared_error(queries, np.kron(*strategy.matrices)))


def test_many_rounded_attributes_have_small_coefficients():
    domain = Domain.of(dict.fromkeys("abcd", 10))
    for ways in (1, 2, 3, 4):
        part = QuerySet(tuple("abcd"[:ways]), ("prefixes",) * ways)
        assert strategy_of(part, domain).sensitivity2 < 2**37


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=3))
def test_no_other_shares_have_less_error(other):
    parts = Workload(prefixes=("b",)).parts(DOMAIN)
    strategies, shares = choose_strategies(parts, DOMAIN)
    costs = [error_of(part, DOMAIN, strategy) for part, strategy in zip(parts, strategies, strict=True)]

    def error(weights):
        return sum(c * sum(weights) / w for c, w in zip(costs, weights, strict=True))

    assert error(shares) <= error(other) * (1 + 1e-9)


def test_least_squares_is_unbiased_with_the_predicted_error():
    rng = np.random.default_rng(2)
    part = QuerySet(("b",), ("prefixes",))
    strategy = strategy_of(part, DOMAIN)
    (matrix,) = strategy.matrices
    truth = rng.integers(0, 300, size=12)
    sigma = strategy.sensitivity2**0.5
    errors = []
    for _ in range(400):
        noisy = matrix @ truth + rng.normal(size=len(matrix)) * sigma
        ((clique, table),) = local_least_squares([Answers(strategy, noisy, sigma)])
        assert clique == ("b",)
        errors.append(((np.cumsum(table) - np.cumsum(truth)) ** 2).sum())
    predicted = error_of(part, DOMAIN, strategy)
    assert np.mean(errors) == pytest.approx(predicted, rel=0.2)
    assert np.mean(errors) < 0.7 * squared_error(queries_of("prefixes", 12), np.eye(12))


@pytest.mark.parametrize("preset", ["default", "lls"])
def test_prefixes_are_answered(preset):
    rng = np.random.default_rng(1)
    b = np.minimum(rng.geometric(0.25, 20_000) - 1, 11)
    columns = {"a": (b > 3).astype(int), "b": b, "c": rng.integers(0, 3, len(b))}
    counts = TableCounts(columns, DOMAIN)
    method = synthesizer("hdmm", preset, {"workload": {"marginals": [["a", "b"], ["c"]], "prefixes": ["b"]}})
    curator = Witness((counts, counts), 0, curator=Curator, entropy=SystemEntropy())
    plan = method.plan(DOMAIN, mu2_of(2.0, 1e-6))
    structure = method.select(curator, plan, method.score(curator, plan))
    model = method.fit(curator, plan, structure, Tools())
    real = np.cumsum(np.bincount(b, minlength=12))
    np.testing.assert_allclose(np.cumsum(model.marginal(("b",))), real, atol=250)
    assert model.marginal(("a", "b"))[0, 8:].sum() < 150


def test_a_workload_that_is_too_large_is_refused_before_anything_is_spent():
    method = synthesizer("hdmm", options={"limit_cells": 70})
    with pytest.raises(FeasibilityError, match="over the limit of 70"):
        method.plan(DOMAIN, mu2_of(1.0, 1e-6))
    assert synthesizer("hdmm", "lls", {"limit_cells": 70}).plan(DOMAIN, mu2_of(1.0, 1e-6))


def test_on_average_a_graphical_model_beats_local_least_squares_on_the_same_answers():
    """The ratio of the errors of one run has a mean of 0.67 and a standard deviation of 0.14."""
    domain = Domain.of({"a": 6, "b": 10, "c": 6, "d": 10})
    rng = np.random.default_rng(5)
    columns = {"a": rng.choice(6, 4000, p=[0.5, 0.3, 0.1, 0.05, 0.04, 0.01])}
    for before, name in zip("abc", "bcd", strict=True):
        noise = rng.choice(3, 4000, p=[0.8, 0.15, 0.05])
        columns[name] = np.minimum(columns[before] + noise, domain.size(name) - 1)
    real = partial(tabulate, np.stack(list(columns.values()), axis=1), domain)
    counts = TableCounts(columns, domain)
    workload = Workload(marginals=(("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")), prefixes=("b", "d"))
    parts, method = workload.parts(domain), HDMM(workload=workload)
    plan = method.plan(domain, mu2_of(0.1, 1e-6))
    ratios = []
    for _ in range(12):
        curator = Witness((counts, counts), 0, curator=Curator, entropy=SystemEntropy())
        structure = method.select(curator, plan, method.score(curator, plan))
        model = method.fit(curator, plan, structure, Tools())
        strategies, shares = choose_strategies(parts, domain)
        answers = curator.answer(strategies, plan.mu2("strategy"), purpose="strategy", weights=shares)
        local = dict(local_least_squares(answers)).__getitem__
        with_model, without = (
            relative_error(parts, domain, real=real, estimated=estimated) for estimated in (model.marginal, local)
        )
        ratios.append(with_model / without)
    assert np.mean(ratios) < 0.9
