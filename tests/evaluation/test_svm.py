"""The SVM chooses its library by what answers; cuML's branch is driven by a stand-in, for want of a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from synth_core.arrays import NUMPY, Arrays
from synth_core.domain import Domain
from synth_core.evaluation import classification
from synth_core.evaluation.classification import misclassification_rate

DOMAIN = Domain.of({"a": 3, "b": 3, "c": 2})


class StandIn:
    """What cuML's machine accepts and returns: dense floats in host memory; scikit-learn does the work."""

    made: list[dict] = []  # noqa: RUF012 - one list for all, read by the tests

    def __init__(self, *, penalized_intercept, tol, max_iter, output_type):
        StandIn.made.append({"tol": tol, "max_iter": max_iter, "output_type": output_type})
        assert penalized_intercept

    def fit(self, rows, labels):
        assert isinstance(rows, np.ndarray)
        assert rows.dtype == labels.dtype == np.float32
        self.machine = LinearSVC(dual=False, tol=1e-2, max_iter=100).fit(rows, labels)
        return self

    def predict(self, rows):
        assert isinstance(rows, np.ndarray)
        return self.machine.predict(rows)


@pytest.fixture
def tables():
    rng = np.random.default_rng(1)
    a = rng.integers(3, size=2000)
    rows = np.column_stack([a, np.where(rng.random(2000) < 0.8, a, 0), rng.integers(2, size=2000)])
    return {"training": rows[:1500], "test": rows[1500:], "domain": DOMAIN}


def test_scikit_learn_serves_where_no_gpu_answers_and_cuml_is_not_looked_for(monkeypatch, tables):
    monkeypatch.setattr(classification, "default_backend", lambda: NUMPY)
    monkeypatch.setattr(classification.importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert misclassification_rate("a", **tables) < 0.25


def test_scikit_learn_serves_where_cuml_is_missing(monkeypatch, tables):
    monkeypatch.setattr(classification, "default_backend", lambda: Arrays("cupy", None, compiled=False))
    monkeypatch.setitem(sys.modules, "cuml.svm", None)
    assert classification._cuml() is None
    assert misclassification_rate("a", **tables) < 0.25


def test_cuml_serves_where_both_are_there_with_the_same_result(monkeypatch, tables):
    on_cpu = [misclassification_rate(target, **tables) for target in DOMAIN]
    monkeypatch.setattr(classification, "default_backend", lambda: Arrays("cupy", None, compiled=False))
    monkeypatch.setitem(sys.modules, "cuml", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuml.svm", SimpleNamespace(LinearSVC=StandIn))
    StandIn.made.clear()
    assert [misclassification_rate(target, **tables) for target in DOMAIN] == pytest.approx(on_cpu, abs=0.01)
    assert StandIn.made == [{"tol": 1e-2, "max_iter": 100, "output_type": "numpy"}] * 3


def test_a_constant_target_needs_no_machine(monkeypatch):
    monkeypatch.setattr(classification, "_cuml", lambda: pytest.fail("no machine is needed"))
    rows = np.zeros((9, 3), dtype=int)
    assert misclassification_rate("a", training=rows, test=rows, domain=DOMAIN) == 0
