"""Measures over single rows: what a classifier learns from synthetic rows, whether it separates them from real ones,
how close they are.

A linear SVM is trained by cuML where a GPU answers and cuML is installed, by scikit-learn everywhere else. That
synthetic rows are not too close to real ones is a warning for reviewers, not a guarantee: the guarantee is the
ledger's.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from synth_core.arrays import default_backend
from synth_core.cluster import Cluster
from synth_core.domain import Domain
from synth_core.errors import needing
from synth_core.evaluation.distances import Codes
from synth_core.privacy.wall import wall

TRAINING_ROWS = 20_000
"""Upper limit of the rows that a classifier is trained on."""
TEST_ROWS = 10_000
"""Upper limit of the held-out real rows that it is tested on."""
MAX_CLASSES = 64
"""Columns with more codes are not targets unless asked for: one SVM is trained for each class."""
_SPLIT_SEED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetError:
    """Share of held-out real rows whose `target` was predicted wrongly from all other columns.

    `synthetic` and `real` name the rows a linear SVM was trained on; `majority` always guesses the commonest.
    """

    target: str
    synthetic: float
    real: float
    majority: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How near synthetic rows are to real ones, beside how near fresh real rows are (`by_nature`).

    `same` is the share of probed rows that equal a real row in every column, `distance` the mean number of columns
    in which a probed row differs from the nearest real one.
    """

    same: float
    same_by_nature: float
    distance: float
    distance_by_nature: float
    suspicious: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Split:
    """Two training tables of equal length and the real rows held out to test them; it does not show them."""

    synthetic: Codes
    real: Codes
    held_out: Codes


def split_rows(real: Codes, synthetic: Codes) -> Split:
    """Hold out a third of the real rows at random, and cut both training tables to the same random size.

    Equal sizes, because a difference in error should speak of the rows' quality and not of their number. A single row
    is both learned from and held out.
    """
    rng = np.random.default_rng(_SPLIT_SEED)
    held_out, rest = np.split(real[rng.permutation(len(real))], [max(1, len(real) // 3)])
    rest = rest if len(rest) else held_out
    rows = min(TRAINING_ROWS, len(rest), len(synthetic))
    return Split(
        synthetic=synthetic[rng.permutation(len(synthetic))[:rows]],
        real=rest[:rows],
        held_out=held_out[:TEST_ROWS],
    )


def usual_targets(domain: Domain) -> tuple[str, ...]:
    """The columns worth predicting: more than one code, and not too many classes to train in seconds."""
    return tuple(name for name in domain if 1 < domain.size(name) <= MAX_CLASSES)


def target_errors(parts: Split, domain: Domain, *, targets: Sequence[str], cluster: Cluster) -> tuple[TargetError, ...]:
    """Train on synthetic and on real rows and test both on the held-out rows, each target a task of its own."""
    if len(domain) < 2:
        return ()  # no other column to predict from
    return tuple(cluster.map(target_error, targets, parts=parts, domain=domain))


def target_error(target: str, *, parts: Split, domain: Domain) -> TargetError:
    """The errors for one target; runs on a worker."""
    at = domain.position(target)
    with wall():
        commonest = np.bincount(parts.real[:, at]).argmax()
        return TargetError(
            target=target,
            synthetic=misclassification_rate(target, training=parts.synthetic, test=parts.held_out, domain=domain),
            real=misclassification_rate(target, training=parts.real, test=parts.held_out, domain=domain),
            majority=float((parts.held_out[:, at] != commonest).mean()),
        )


def misclassification_rate(target: str, *, training: Codes, test: Codes, domain: Domain) -> float:
    """Share of the test rows whose target a linear SVM, trained on all other columns, predicts wrongly."""
    at = domain.position(target)
    features, unseen = _one_hot(training, domain, without=at), _one_hot(test, domain, without=at)
    return float((predict_labels(features, training[:, at], unseen) != test[:, at]).mean())


def _one_hot(codes: Codes, domain: Domain, *, without: int) -> csr_matrix:
    """One indicator column for each code of every attribute but the target's; each row holds d-1 ones."""
    sizes = np.delete(np.asarray(domain.sizes, dtype=np.int32), without)
    kept = np.delete(codes, without, axis=1)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    columns = (kept.astype(np.int32) + first).ravel()
    row_starts = np.arange(0, kept.size + 1, kept.shape[1], dtype=np.int32)
    return csr_matrix((np.ones(kept.size), columns, row_starts), shape=(len(kept), int(sizes.sum())))


TOLERANCE, MAX_STEPS = 1e-2, 100
"""They bound the time; the last digits of an SVM's weights do not move its error."""


def predict_labels(features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    """The labels of the unseen rows, by a machine that has learned from labelled ones."""
    if labels.min() == labels.max():
        return np.full(unseen.shape[0], labels[0])
    cuml = _cuml()
    return _by_scikit_learn(features, labels, unseen) if cuml is None else _by_cuml(cuml, features, labels, unseen)


def _cuml() -> Any:
    """cuML's SVMs, or None; nothing is imported where no GPU answers."""
    if default_backend().name != "cupy":
        return None
    try:
        return importlib.import_module("cuml.svm")
    except ImportError:
        return None


def _by_scikit_learn(features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    # scikit-learn takes a second to import and reading a stored evaluation does not need it.
    with needing("evaluation"):
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # The primal solver is deterministic and several times faster here: many rows, few columns.
        machine = LinearSVC(dual=False, tol=TOLERANCE, max_iter=MAX_STEPS).fit(features, labels)
    return np.asarray(machine.predict(unseen))


def _by_cuml(cuml: Any, features: csr_matrix, labels: Codes, unseen: csr_matrix) -> NDArray[np.int64]:
    """The same machine on the card; never run on one.

    cuML's linear machines take dense rows of floats. The intercept is penalised, as that of liblinear is.
    """
    dense, asked = (rows.astype(np.float32).toarray() for rows in (features, unseen))
    machine = cuml.LinearSVC(penalized_intercept=True, tol=TOLERANCE, max_iter=MAX_STEPS, output_type="numpy")
    return np.asarray(machine.fit(dense, labels.astype(np.float32)).predict(asked)).astype(np.int64)


TREE_ROWS = 20_000
"""Upper limit of the rows of each table that the propensity tree sees."""
PROBED_ROWS = 400
"""Rows of each kind whose nearest real row is searched."""
_SEED = 4
_SIGNIFICANT = 3.0


def propensity_mse(real: Codes, synthetic: Codes) -> float:
    """Mean squared distance from 1/2 of a classifier's belief that a row is synthetic: 0 unseen, 1/4 plain to see.

    A decision tree learns from half of an even mix of both tables and is asked about the other half, so that what it
    learned by heart does not count.
    """
    with needing("evaluation"):
        from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(_SEED)
    rows = min(TREE_ROWS, len(real), len(synthetic))
    mix = np.concatenate([rng.permutation(real)[:rows], rng.permutation(synthetic)[:rows]])
    order = rng.permutation(2 * rows)
    learned, asked = np.array_split(order, 2)
    labels = np.arange(2 * rows) >= rows
    if not 0 < labels[learned].sum() < len(learned):
        return 0.0
    tree = DecisionTreeClassifier(min_samples_leaf=max(20, rows // 100), random_state=0)
    belief = tree.fit(mix[learned], labels[learned]).predict_proba(mix[asked])[:, 1]
    return float(np.mean((belief - 0.5) ** 2))


def closeness(real: Codes, synthetic: Codes) -> Closeness:
    """Distances of synthetic rows to the nearest of half of the real rows, beside those of the other real half.

    Real rows of the other half are as close as records of the same population come by nature. Synthetic rows that
    are clearly more often equal to a row of the half have learned it by heart: `suspicious`.
    """
    rng = np.random.default_rng(_SEED)
    shuffled = rng.permutation(real)
    known, fresh = np.array_split(shuffled, 2)
    fresh = fresh if len(fresh) else known
    probes = [rng.permutation(table)[:PROBED_ROWS] for table in (synthetic, fresh)]
    distances, natural = (_nearest(probe, known) for probe in probes)
    same, same_by_nature = float((distances == 0).mean()), float((natural == 0).mean())
    pooled = (same * len(distances) + same_by_nature * len(natural)) / (len(distances) + len(natural))
    error = np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / len(distances) + 1 / len(natural)))
    return Closeness(
        same=same,
        same_by_nature=same_by_nature,
        distance=float(distances.mean()),
        distance_by_nature=float(natural.mean()),
        suspicious=bool(same - same_by_nature > _SIGNIFICANT * error),
    )


def _nearest(probes: Codes, rows: Codes) -> NDArray[np.int64]:
    """For each probe the least number of columns in which it differs from any of the rows."""
    shares = cdist(probes, rows, "hamming").min(axis=1)
    nearest: NDArray[np.int64] = np.rint(shares * rows.shape[1]).astype(np.int64)
    return nearest
