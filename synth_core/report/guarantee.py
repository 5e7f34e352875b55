"""What a release promises about privacy and what each of its questions cost, in the words of a report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The promise of one release: its unit, its neighbours, and the privacy loss in three currencies.

    epsilon, mu: The larger of what the release asked for and what it was charged.
    spent: The epsilon that its charges are worth.
    """

    unit: str
    neighbours: str
    epsilon: float
    delta: float
    mu: float
    spent: float

    @property
    def largest_factor(self) -> float:
        """By how much at most one record changes the chance of any conclusion an observer may draw: e^epsilon."""
        return math.exp(self.epsilon)

    @property
    def best_guess(self) -> float:
        """Largest chance to guess rightly whether one record was there, starting from even odds: Phi(mu/2).

        Two neighbours under mu-GDP are no easier to tell apart than N(0,1) and N(mu,1), whose best test errs
        with probability Phi(-mu/2) on either side (Dong, Roth and Su, Gaussian differential privacy).
        """
        return NormalDist().cdf(self.mu / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """One line of the ledger as a report shows it; `mu2` is what it charges, 0 if it was free or refunded."""

    step: str
    purpose: str
    mechanism: str
    queries: int
    scale: float | None
    mu2: float
    state: str
