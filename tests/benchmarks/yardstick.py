"""How the benchmarks judge a table: errors of a fixed draw of marginals, and of linear classifiers."""

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
from sklearn.svm import SVC

from synth_core.domain import Domain
from synth_core.evaluation.classification import usual_targets
from synth_core.evaluation.distances import tvd
from synth_core.evaluation.support_vectors import Lessons

LARGE = 1_000_000
"""Of a marginal with more cells only those are held that some table has: most are empty."""


def marginals(width: int, alpha: int, *, number: int = 300) -> list[tuple[int, ...]]:
    """The marginals every method is judged on."""
    if math.comb(width, alpha) <= number:
        return list(itertools.combinations(range(width), alpha))
    rng, drawn = random.Random(alpha), set()
    while len(drawn) < number:
        drawn.add(tuple(sorted(rng.sample(range(width), alpha))))
    return sorted(drawn)


def mean_tvd(real: np.ndarray, made: np.ndarray, sizes: Sequence[int], alpha: int, *, number: int = 300) -> float:
    """Mean total variation distance over the marginals."""
    columns = [np.ascontiguousarray(table.T, dtype=np.int64) for table in (real, made)]
    errors = []
    for clique in marginals(len(sizes), alpha, number=number):
        shape = [sizes[j] for j in clique]
        cells = math.prod(shape)
        keys = [np.ravel_multi_index(tuple(table[j] for j in clique), shape) for table in columns]
        if cells > LARGE:
            codes, both = np.unique(np.concatenate(keys), return_inverse=True)
            keys, cells = np.split(both, [len(real)]), len(codes)
        errors.append(tvd(*(np.bincount(key, minlength=cells) for key in keys)))
    return float(np.mean(errors))


RBF_ROWS = 5000
"""Rows from which a machine with a radial kernel learns, at most; the work grows with more than their square."""


def wrong_by_radial_kernel(training: np.ndarray, test: np.ndarray, domain: Domain) -> dict[str, float]:
    """The same for machines with a radial kernel on codes as numbers: the first `RBF_ROWS` rows of a fixed shuffle."""
    errors = {}
    shuffled = [np.random.default_rng(1).permutation(rows)[:RBF_ROWS] for rows in (training, test)]
    for name in usual_targets(domain):
        at = domain.position(name)
        (known, codes), (asked, truth) = ((np.delete(rows, at, axis=1), rows[:, at]) for rows in shuffled)
        one = len(np.unique(codes)) == 1
        told = np.full(len(truth), codes[0]) if one else SVC(kernel="rbf").fit(known, codes).predict(asked)
        errors[name] = float((told != truth).mean())
    return errors


def wrong_predictions(
    training: np.ndarray, test: np.ndarray, domain: Domain, targets: Sequence[str] = ()
) -> dict[str, float]:
    """Shares of the test rows that linear SVMs, each trained on all other columns, predict wrongly, by target."""
    lessons = Lessons.of(training, domain)
    return {
        name: float((lessons.predict(name, test) != test[:, domain.position(name)]).mean())
        for name in targets or usual_targets(domain)
    }
