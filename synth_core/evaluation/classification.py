"""Measures over single rows: what a classifier learns from synthetic rows, whether it separates them from real ones,
how close they are.

That synthetic rows are not too close to real ones is a warning for reviewers, not a guarantee: the guarantee is the
ledger's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.cluster import Cluster
from synth_core.compiled import compiled
from synth_core.domain import Codes, Domain
from synth_core.errors import needing
from synth_core.evaluation.support_vectors import Lessons
from synth_core.privacy.wall import wall

TRAINING_ROWS, TEST_ROWS = 20_000, 10_000
"""Upper limits of the rows that a classifier is trained on, and of the held-out real rows that it is tested on."""
MAX_CLASSES = 64
"""Columns with more codes are not targets unless asked for: one SVM is trained for each class."""
_SPLIT_SEED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetError:
    """Share of held-out real rows whose `target` was predicted wrongly from all other columns.

    `synthetic` and `real` name the rows a linear SVM was trained on; `majority` always guesses the commonest. Each is
    the share of `tested` rows.
    """

    target: str
    synthetic: float
    real: float
    majority: float
    tested: int

    @property
    def margin(self) -> float:
        """Half the 95 % interval of `synthetic`, for the chance with which rows were held out."""
        return 1.96 * math.sqrt(self.synthetic * (1 - self.synthetic) / self.tested)


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
    lessons = {side: Lessons.of(getattr(parts, side), domain) for side in ("synthetic", "real")}
    return tuple(cluster.map(target_error, targets, held_out=parts.held_out, **lessons))


def target_error(target: str, *, synthetic: Lessons, real: Lessons, held_out: Codes) -> TargetError:
    """The errors for one target; runs on a worker."""
    with wall():
        truth = held_out[:, real.domain.position(target)]
        wrong = {
            "synthetic": synthetic.predict(target, held_out) != truth,
            "real": real.predict(target, held_out) != truth,
            "majority": real.commonest(target) != truth,
        }
        return TargetError(
            target=target, tested=len(truth), **{name: float(missed.mean()) for name, missed in wrong.items()}
        )


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
    kind = np.min_scalar_type(max(int(table.max(initial=0)) for table in (probes, rows)))
    return find_nearest(probes.astype(kind), np.ascontiguousarray(rows.T, dtype=kind))


@compiled
def find_nearest(probes: Codes, columns: Codes) -> NDArray[np.int64]:
    """For each probe the least number of columns, given as rows of a matrix, that differ from it in one record."""
    found = np.empty(probes.shape[0], np.int64)
    differ = np.empty(columns.shape[1], np.int32)
    for q in range(probes.shape[0]):
        differ[:] = 0
        for k in range(columns.shape[0]):
            own, column = probes[q, k], columns[k]
            for r in range(differ.size):
                differ[r] += own != column[r]
        found[q] = differ.min()
    return found
