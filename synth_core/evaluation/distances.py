"""How far two integer-coded tables are apart: distances of their marginals, one by one and in summary.

A table is an array of codes with one row for each record and one column for each attribute of a domain.
Nothing here adds noise: what is computed from confidential rows stays confidential.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain

Weights: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]

MARGINALS = 300
"""Marginals drawn for each alpha (PrivMRF, Section 5); all of them where there are fewer."""
MARGINAL_SEED = 2021
"""Fixed, so that every table of a domain is judged on the same marginals."""
Z95 = NormalDist().inv_cdf(0.975)
"""Standard deviations on either side of a mean that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Distances over many marginals; `low` and `high` are a 95 % interval for the mean over all marginals."""

    mean: float
    low: float
    high: float
    median: float
    upper_decile: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a marginal with its share of each table."""

    clique: Clique
    codes: tuple[int, ...]
    left: float
    right: float


def tvd(left: Weights, right: Weights) -> float:
    """Total variation distance: half the L1 distance of the two tables, each scaled to sum 1; from 0 to 1."""
    p, q = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if p.shape != q.shape:
        raise ValueError("two tables can be compared only over the same cells")
    if not (p.sum() > 0 and q.sum() > 0):
        raise ValueError("a table without records has no shares to compare")
    return float(np.abs(p / p.sum() - q / q.sum()).sum() / 2)


def alpha_way(domain: Domain, alpha: int, *, limit: int = MARGINALS, seed: int = MARGINAL_SEED) -> tuple[Clique, ...]:
    """The cliques of `alpha` attributes, or a fixed random sample of `limit` of them where there are more."""
    if alpha < 1:
        raise ValueError("a marginal has at least one attribute")
    if math.comb(len(domain), alpha) <= limit:
        return tuple(itertools.combinations(domain.attributes, alpha))
    rng = np.random.default_rng([seed, alpha])
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < limit:
        drawn.add(tuple(sorted(rng.choice(len(domain), size=alpha, replace=False).tolist())))
    return tuple(tuple(domain.attributes[position] for position in positions) for positions in sorted(drawn))


def summarize(values: Sequence[float], *, population: int | None = None) -> Summary:
    """Mean, 95 % interval, median, upper decile and worst of the distances of sampled marginals.

    The interval is about the mean over the `population` marginals the values were drawn from, without
    replacement, hence the finite-population factor: it has no width when every marginal was measured.
    """
    if not len(values):
        raise ValueError("a summary needs at least one value")
    array = np.asarray(values, dtype=np.float64)
    m, total = len(array), population or len(array)
    spread = float(array.std(ddof=1)) / math.sqrt(m) if m > 1 else 0.0
    half = Z95 * spread * math.sqrt(max(0, total - m) / max(1, total - 1))
    mean = float(array.mean())
    return Summary(
        mean=mean,
        low=max(0.0, mean - half),
        high=mean + half,
        median=float(np.median(array)),
        upper_decile=float(np.quantile(array, 0.9)),
        worst=float(array.max()),
    )


def relative_entropy(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Kullback-Leibler divergence in bits; cells in which p is 0 add nothing."""
    held = p > 0
    kept = p[held]
    return float((kept * np.log2(kept / q[held])).sum())
