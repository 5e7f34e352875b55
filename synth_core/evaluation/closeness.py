"""Two tests on whole records: can a classifier tell the tables apart, and is the synthetic one too close to the real?

The second is a warning for reviewers, not a guarantee: the guarantee is the ledger's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth_core.evaluation.distances import Codes
from synth_core.evaluation.result import Closeness

TREE_ROWS = 20_000
PROBED_ROWS = 400
_SEED = 4
_SIGNIFICANT = 3.0


def propensity_mse(real: Codes, synthetic: Codes) -> float:
    """Mean squared distance from 1/2 of a classifier's belief that a row is synthetic: 0 unseen, 1/4 plain to see.

    A decision tree learns from half of an even mix of both tables and is asked about the other half, so that what it
    learned by heart does not count.
    """
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
    columns = np.ascontiguousarray(rows.T)
    nearest = np.empty(len(probes), dtype=np.int64)
    for number, probe in enumerate(probes):
        differing = np.zeros(len(rows), dtype=np.uint16)
        for column, code in zip(columns, probe, strict=True):
            differing += column != code
        nearest[number] = differing.min()
    return nearest
