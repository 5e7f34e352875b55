"""The independent baseline: measure every column on its own and assume nothing else.

Most other methods begin with the same one-way marginals and ask what independence leaves unexplained.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import total_by_inverse_variance
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan, exact_share
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit
from synth_core.synthesizers.base import PairScores, Scores, Structure, Tools, noise_by_table, noise_sigma, noise_text

Shares = Mapping[str, float | Fraction]
"""Shares of a budget by name; decimal numbers are taken as they are written."""


@dataclass(frozen=True, slots=True)
class Independent:
    """All of the budget goes to the one-way marginals."""

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """One share."""
        return BudgetPlan(total_mu2, (("one-way", Fraction(1)),))

    def can_protect(self, domain: Domain) -> bool:
        """The fit takes what was measured before; columns are independent given that."""
        return True

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Measure the one-way marginals."""
        singles = [(attribute,) for attribute in curator.domain]
        measurements = curator.measure(singles, plan.mu2("one-way"), purpose="one-way")
        return Scores(total_by_inverse_variance(measurements), (), tuple(measurements))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Nothing to select."""
        return Structure(scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The product of the columns' distributions."""
        return tools.estimate(curator.domain, structure.scores.measurements, total=structure.scores.total)

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`."""
        return noise_by_table(domain, column=noise_sigma(plan.mu2("one-way"), count=len(domain)))

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """What the plan means in records."""
        return [("noise on each one-way count", noise_text(plan.mu2("one-way"), count=len(domain)))]


def one_way_scores(curator: Curator, mu2: Fraction, *, pure: bool = False) -> Scores:
    """Measure every attribute's own marginal; together they give the number of records."""
    singles = [(attribute,) for attribute in curator.domain]
    measured = curator.measure(singles, mu2, purpose="one-way marginals", pure=pure)
    return Scores(max(1.0, total_by_inverse_variance(measured)), (), tuple(measured))


class OneWayFirst:
    """A method that begins with one-way marginals; of a single attribute there is nothing else to ask.

    The methods with an underscore say what it does with two attributes or more.
    """

    __slots__ = ()

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """Most goes to the last of the shares; a single attribute has only its own marginal."""
        if len(domain) == 1:
            return BudgetPlan(total_mu2, (("one-way", Fraction(1)),))
        return self._divided(total_mu2)

    def can_protect(self, domain: Domain) -> bool:
        """Whatever was measured before is measured, to these methods: they select and fit around it."""
        return True

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Measure the one-way marginals, then what depends on what."""
        scores = one_way_scores(curator, plan.mu2("one-way"))
        return scores if len(curator.domain) == 1 else replace(scores, pairs=self._pairs(curator, plan, scores))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """What to measure; nothing yet where the rounds choose."""
        return Structure(scores) if len(curator.domain) == 1 else self._structure(curator, plan, scores)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of each phase, in records, and the bounds of the work."""
        sigmas = self._column_sigmas(domain, plan)
        low, high = f"{min(sigmas):.1f}", f"{max(sigmas):.1f}"
        lines = [("noise on each one-way count", f"sigma {low if low == high else f'{low} to {high}'} records")]
        return lines if len(domain) == 1 else lines + self._further(domain, plan)

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """See `CountNoise`; the noise of a pair is that of an average one."""
        columns: dict[Clique, float] = dict(
            zip(((name,) for name in domain), self._column_sigmas(domain, plan), strict=True)
        )
        pair = self._pair_sigma(domain, plan) if len(domain) > 1 else None
        return noise_by_table(domain, column=0.0, pair=pair) | columns

    def _divided(self, total_mu2: Fraction) -> BudgetPlan:
        shares, rest = self._shares()
        exact = [(name, exact_share(share)) for name, share in shares.items()]
        left = 1 - sum((share for _, share in exact), Fraction(0))
        if left <= 0:
            raise SpecError(f"options: the shares of the budget leave nothing for {rest}; lower one of them")
        return BudgetPlan(total_mu2, (*exact, (rest, left)))

    @abstractmethod
    def _shares(self) -> tuple[Shares, str]:
        """Decimal shares of the budget by name, and the name of what gets all that these leave."""

    def _column_sigmas(self, domain: Domain, plan: BudgetPlan) -> list[float]:
        return [noise_sigma(plan.mu2("one-way"), count=len(domain))] * len(domain)

    def _pair_sigma(self, domain: Domain, plan: BudgetPlan) -> float | None:
        return None

    def _pairs(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> PairScores:
        return ()

    def _structure(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        return Structure(scores)

    def _further(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        return []


def distances(
    curator: Curator, scores: Scores, cliques: Sequence[Clique], mu2: Fraction, *, purpose: str
) -> dict[Clique, float]:
    """Noisy L1 distances of tables from the product of the noisy one-way marginals, in records."""
    queries = list(map(Misfit, cliques, products(scores, cliques)))
    return dict(zip(cliques, curator.score(queries, mu2, purpose=purpose), strict=True))


def products(scores: Scores, cliques: Iterable[Clique]) -> list[NDArray[np.float64]]:
    """Expected counts of the cliques' cells under independence, each summing to the noisy number of records."""
    shares = {m.clique[0]: positive_shares(m.noisy) for m in scores.measurements if len(m.clique) == 1}
    return [scores.total * reduce(np.multiply.outer, (shares[attribute] for attribute in clique)) for clique in cliques]


def positive_shares(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts as a distribution: negative ones become 0; all the same where nothing is positive."""
    positive = np.maximum(noisy, 0.0)
    whole = positive.sum()
    return positive / whole if whole > 0 else np.full(positive.shape, 1.0 / positive.size)


PRESETS = {"default": Independent()}
