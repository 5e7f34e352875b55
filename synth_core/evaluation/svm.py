"""One linear SVM: learned by cuML where a GPU answers and cuML is installed, by scikit-learn everywhere else."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from synth_core.arrays import chosen
from synth_core.evaluation.distances import Codes

TOLERANCE, MOST_STEPS = 1e-2, 100
"""They bound the time; the last digits of an SVM's weights do not move its error."""


def predicted(features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    """The labels of the unseen rows, by a machine that has learned from labelled ones."""
    if labels.min() == labels.max():
        return np.full(unseen.shape[0], labels[0])
    cuml = _cuml()
    return (
        _by_scikit_learn(features, labels, unseen)
        if cuml is None
        else _by_cuml(cuml, features, labels, unseen)
    )


def _cuml() -> Any:
    """cuML's SVMs, or None; nothing is imported where no GPU answers."""
    if chosen().name != "cupy":
        return None
    try:
        return importlib.import_module("cuml.svm")
    except ImportError:
        return None


def _by_scikit_learn(features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    # scikit-learn takes a second to import and reading a stored evaluation does not need it.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # The primal solver is deterministic and several times faster here: many rows, few columns.
        machine = LinearSVC(dual=False, tol=TOLERANCE, max_iter=MOST_STEPS).fit(features, labels)
    return np.asarray(machine.predict(unseen))


def _by_cuml(cuml: Any, features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    """The same machine on the card; never run on one.

    cuML's linear machines take dense rows of floats. The intercept is penalised, as that of liblinear is.
    """
    dense, asked = (rows.astype(np.float32).toarray() for rows in (features, unseen))
    machine = cuml.LinearSVC(
        penalized_intercept=True, tol=TOLERANCE, max_iter=MOST_STEPS, output_type="numpy"
    )
    return np.asarray(machine.fit(dense, labels.astype(np.float32)).predict(asked)).astype(np.int64)
