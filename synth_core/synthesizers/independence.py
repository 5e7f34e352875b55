"""Where most methods begin: noisy one-way marginals, and what tables would be if attributes were independent."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.privacy.curator import Curator
from synth_core.synthesizers.base import Scores


def one_way_scores(curator: Curator, mu2: Fraction) -> Scores:
    """Measure every attribute's own marginal; together they give the number of records."""
    singles = [(attribute,) for attribute in curator.domain]
    measured = curator.measure(singles, mu2, purpose="one-way marginals")
    return Scores(max(1.0, total_by_inverse_variance(measured)), (), tuple(measured))


def products(scores: Scores, cliques: Iterable[Clique]) -> list[NDArray[np.float64]]:
    """Expected counts of the cliques' cells under independence, each summing to the noisy number of records."""
    shares = {m.clique[0]: positive_shares(m) for m in scores.measurements if len(m.clique) == 1}
    return [
        scores.total * reduce(np.multiply.outer, (shares[attribute] for attribute in clique))
        for clique in cliques
    ]


def positive_shares(measurement: Measurement) -> NDArray[np.float64]:
    """The measurement as a distribution: negative counts become 0; all the same where nothing is positive."""
    positive = np.maximum(measurement.noisy, 0.0)
    whole = positive.sum()
    return positive / whole if whole > 0 else np.full(positive.shape, 1.0 / positive.size)
