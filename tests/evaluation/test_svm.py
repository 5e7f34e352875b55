"""The machines over codes are LinearSVC's: the same objective, hence the same weights and the same mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from synth_core.domain import Domain
from synth_core.evaluation import support_vectors
from synth_core.evaluation.classification import TargetError
from synth_core.evaluation.support_vectors import Lessons

DOMAIN = Domain.of({"a": 3, "b": 3, "c": 2, "d": 300})


@pytest.fixture
def tables():
    rng = np.random.default_rng(1)
    a = rng.integers(3, size=2000)
    rest = rng.integers(2, size=2000), rng.integers(300, size=2000)
    rows = np.column_stack([a, np.where(rng.random(2000) < 0.8, a, 0), *rest])
    return {"training": rows[:1500], "test": rows[1500:], "domain": DOMAIN}


def by_scikit_learn(target, training, test, domain):
    """What LinearSVC predicts from indicators of all other columns."""
    at = domain.position(target)

    def indicators(rows):
        others = [k for k in range(len(domain)) if k != at]
        return np.column_stack([rows[:, [k]] == np.arange(domain.sizes[k]) for k in others])

    return LinearSVC(dual=False, tol=1e-8).fit(indicators(training), training[:, at]).predict(indicators(test))


@pytest.mark.parametrize("target", ["a", "b", "c"])
@pytest.mark.parametrize("met", [2000, 100], ids=["meetings", "occurrences"])
def test_predictions_are_those_of_linear_svc(monkeypatch, tables, target, met):
    monkeypatch.setattr(support_vectors, "TOLERANCE", 1e-12)
    monkeypatch.setattr(support_vectors, "MAX_MET_CELLS", met)
    found = Lessons.of(tables["training"], DOMAIN).predict(target, tables["test"])
    expected = by_scikit_learn(target, **tables)
    assert np.mean(found != expected) <= 0.004, "both have converged; ties of scores may fall either way"


@pytest.mark.parametrize("target", ["a", "b", "c"])
def test_the_tolerance_costs_less_than_the_chance_of_the_held_out_rows(tables, target):
    truth = tables["test"][:, DOMAIN.position(target)]
    expected = float(np.mean(by_scikit_learn(target, **tables) != truth))
    margin = TargetError(target=target, synthetic=expected, real=0.0, majority=0.0, tested=len(truth)).margin
    found = Lessons.of(tables["training"], DOMAIN).predict(target, tables["test"])
    assert float(np.mean(found != truth)) == pytest.approx(expected, abs=margin / 2)


def test_many_cells_take_memory_that_grows_with_their_number(tables):
    domain = Domain.of({"a": 3, "b": 3, "c": 2, "d": 100_000})
    assert Lessons.of(tables["training"], domain).meetings.shape == (100_009,)


def test_the_bound_of_the_curvature_holds_for_any_weights(monkeypatch, tables):
    exact = Lessons.of(tables["training"], DOMAIN).meetings
    monkeypatch.setattr(support_vectors, "MAX_MET_CELLS", 1)
    bound = np.diag(Lessons.of(tables["training"], DOMAIN).meetings)
    assert np.linalg.eigvalsh(bound - exact).min() > -1e-9 * bound.max()
    assert np.linalg.eigvalsh(bound / 5 - exact).min() < -1.0, "the occurrences alone are no bound"


def test_equal_rows_count_as_often_as_they_occur(tables):
    rows = np.repeat(tables["training"][:300], 3, axis=0)
    lessons = Lessons.of(rows, DOMAIN)
    assert len(lessons.rows) <= 300
    assert lessons.times.sum() == len(rows)
    assert lessons.commonest("a") == np.bincount(rows[:, 0]).argmax()
    diagonal = np.concatenate([np.bincount(rows[:, k], minlength=size) for k, size in enumerate(DOMAIN.sizes)])
    np.testing.assert_array_equal(np.diagonal(lessons.meetings), [*diagonal, len(rows)])


def test_all_machines_of_a_target_learn_in_the_same_few_passes(monkeypatch, tables):
    passes, work = [], support_vectors.add_gradient
    monkeypatch.setattr(support_vectors, "add_gradient", lambda *args: passes.append(args[3].shape[1]) or work(*args))
    lessons = Lessons.of(tables["training"], DOMAIN)
    lessons.predict("a", tables["test"])
    assert set(passes) == {support_vectors.TOGETHER}, "three, and idle ones"
    assert len(passes) < 40
    passes.clear()
    lessons.predict("c", tables["test"])
    assert set(passes) == {1}, "of two values one machine decides"


def test_a_value_that_nobody_has_is_never_predicted(tables):
    tables["training"][tables["training"][:, 0] == 1, 0] = 0
    assert set(Lessons.of(tables["training"], DOMAIN).predict("a", tables["test"])) <= {0, 2}


def test_a_constant_target_needs_no_machine(monkeypatch):
    monkeypatch.setattr(support_vectors, "learn", lambda *_, **__: pytest.fail("no machine is needed"))
    rows = np.zeros((9, 4), dtype=int)
    assert set(Lessons.of(rows, DOMAIN).predict("a", rows)) == {0}
