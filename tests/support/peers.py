"""Errors of other implementations on the reference tables, and what privacy they really spend."""

from __future__ import annotations

import math
from fractions import Fraction

from synth_core.privacy.budget import epsilon_of, mu2_of

DELTA = 1e-5
PEERS = {  # 2-, 3-, 4- and 5-way errors of other implementations, by the epsilon that they state
    ("nltcs", 0.1): {
        "PrivMRF": (0.0134, 0.0244, 0.0396, 0.0531),
        "ABSyn": (0.0134, 0.0262, 0.0403, 0.0564),
        "SWIFT": (0.0121, 0.0247, 0.0406, 0.0623),
    },
    ("nltcs", 0.8): {
        "PrivMRF": (0.0030, 0.0052, 0.0083, 0.0122),
        "ABSyn": (0.0025, 0.0070, 0.0139, 0.0232),
        "SWIFT": (0.0020, 0.0045, 0.0085, 0.0145),
    },
    ("nltcs", 3.2): {"PrivMRF": (0.0015, 0.0025, 0.0042, 0.0065), "SWIFT": (0.0011, 0.0022, 0.0054, 0.0102)},
    ("acs", 0.1): {"SWIFT": (0.0073, 0.0143, 0.0231, 0.0340)},
    ("acs", 0.8): {"PrivMRF": (0.0025, 0.0040, 0.0060, 0.0088), "SWIFT": (0.0016, 0.0037, 0.0061, 0.0101)},
    ("adult", 0.1): {
        "PrivMRF": (0.0599, 0.1267, 0.2015, 0.2787),
        "ABSyn": (0.0521, 0.0987, 0.1463, 0.2125),
        "SWIFT": (0.0600, 0.1142, 0.1701, 0.2412),
    },
    ("adult", 0.8): {"PrivMRF": (0.0191, 0.0421, 0.0743, 0.1242), "SWIFT": (0.0209, 0.0476, 0.0832, 0.1374)},
    ("br2000", 0.1): {"SWIFT": (0.0436, 0.0843, 0.1361, 0.1833)},
    ("br2000", 0.8): {"PrivMRF": (0.0119, 0.0272, 0.0543, 0.0861), "SWIFT": (0.0109, 0.0248, 0.0502, 0.0803)},
}
IMPLEMENTATIONS = {
    "PrivMRF": "its authors' code, on numpy instead of CuPy; 3 runs on nltcs at 0.8 and on adult at 0.1, else 1",
    "ABSyn": "its authors' code, on numpy instead of CuPy; 1 run",
    "SWIFT": "google/dpsynth's selection, noise and sampler with a fit in numpy of 1,000 steps; 1 run",
}
COLUMNS = {"nltcs": 16, "acs": 23, "adult": 15, "br2000": 14}


def spent(implementation: str, name: str, epsilon: float) -> float:
    """The epsilon that an implementation spends where it states another one.

    PrivMRF's code draws the noise on n with variance 0.1 / g where its share of the budget g, a hundredth, would buy
    100 / g, so that n alone costs 10 g. ABSyn's gives each R-score the whole tenth that all
    d (d - 1) / 2 of them should share.
    """
    pairs = Fraction(math.comb(COLUMNS[name], 2))
    factor = {"PrivMRF": 10 + Fraction(99, 100), "ABSyn": Fraction(9, 10) + pairs / 10, "SWIFT": Fraction(1)}
    return float(epsilon_of(mu2_of(epsilon, DELTA) * factor[implementation], DELTA))


def best_peers(name: str, epsilon: float) -> list[tuple[str, float]]:
    """For 3-, 4- and 5-way marginals the implementation of least error and its error."""
    peers = PEERS.get((name, epsilon), {})
    rivals = [[(errors[k], who) for who, errors in peers.items()] for k in (1, 2, 3)] if peers else []
    return [(who, error) for error, who in map(min, rivals)]
