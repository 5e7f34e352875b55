"""What tables would be if attributes were independent: the product of noisy one-way marginals, public like them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.measurement import Measurement
from synth_core.synthesizers.base import Scores


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
