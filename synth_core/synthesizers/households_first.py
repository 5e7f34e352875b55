"""Tables of households alone are measured before any person is asked about, and the method builds on their answers.

Beside many columns of people, few tables of household columns would be chosen, and those with a noise that a table of
households by itself would not have. `HouseholdsFirst` wraps a method: a share of the budget goes to a field over the
household columns and the size alone, in rounds of its own, and its noisy tables are handed on as those of an earlier
release are. A method that cannot build on such answers is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

from synth_core.domain import Clique, Domain
from synth_core.measurement import EarlierRelease, EarlierTable, Measurement
from synth_core.models.mixture import Model
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator
from synth_core.schema.linked import SIZE, LinkedSchema
from synth_core.synthesizers.base import CanReuse, CountNoise, Scores, Structure, Synthesizer, Tools, run_phases
from synth_core.synthesizers.privmrf import PrivMRF

SHARE = "households"
"""Name of the share of a plan from which tables of households alone are measured."""

HOUSEHOLDS = Fraction(3, 10)
"""That share of the method's budget."""

ALONE = PrivMRF(rare=0.0)
"""What chooses these tables; it merges no codes, so that every answer is a whole table."""


TUNED = PrivMRF(sized=False)
"""What stands for `privmrf` as it is: tables of people are the small ones here, so large ones get no more budget."""


def households_first(method: Synthesizer, schema: LinkedSchema) -> Synthesizer:
    """Let a method begin with tables of households alone.

    Args:
        method: any method.
        schema: the declaration of both tables.

    Returns:
        The wrapped method, or the method itself if it cannot build on answers, or if one column of households is all
        there is.
    """
    attributes = (*schema.household_attributes, SIZE)
    if len(attributes) < 2 or not (isinstance(method, CanReuse) and method.can_reuse):
        return method
    return HouseholdsFirst(_tuned(method), attributes)


def _tuned(method: Synthesizer) -> Synthesizer:
    return TUNED if isinstance(method, PrivMRF) and method == PrivMRF() else method


@dataclass(frozen=True, slots=True)
class HouseholdsFirst:
    """A method, and the attributes of which tables are measured before it begins."""

    method: Synthesizer
    attributes: Clique

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """The method's plan with what the share leaves, and the share."""
        inner = self.method.plan(domain, total_mu2 * (1 - HOUSEHOLDS))
        shares = [(name, share * (1 - HOUSEHOLDS)) for name, share in inner.shares]
        return BudgetPlan(total_mu2, (*shares, (SHARE, HOUSEHOLDS)))

    @property
    def can_reuse(self) -> bool:
        """So it does from what earlier releases have measured."""
        return True

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """Rounds of tables of households alone, then the method's first questions."""
        return self.score_with(curator, plan, ())

    def score_with(self, curator: Curator, plan: BudgetPlan, earlier: Sequence[EarlierRelease]) -> Scores:
        """The same with what earlier releases have measured."""
        alone = _Part(curator, curator.domain.project(self.attributes))
        run_phases(ALONE, ALONE.plan(alone.domain, plan.mu2(SHARE)), lambda _: cast("Curator", alone))
        tables = tuple(EarlierTable(one, (None,) * len(one.clique)) for one in alone.measured)
        known = [EarlierRelease(SHARE, tables), *earlier]
        return cast("CanReuse", self.method).score_with(curator, self._inner(plan), known)

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The method's choice, beside the tables it has already."""
        return self.method.select(curator, self._inner(plan), scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The method's model, which knows the tables of households."""
        return self.method.fit(curator, self._inner(plan), structure, tools)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """The method's facts."""
        return self.method.preview(domain, self._inner(plan))

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """The method's own noise, where it can say."""
        return self.method.count_noise(domain, self._inner(plan)) if isinstance(self.method, CountNoise) else {}

    def _inner(self, plan: BudgetPlan) -> BudgetPlan:
        rest = 1 - HOUSEHOLDS
        shares = tuple((name, share / rest) for name, share in plan.shares if name != SHARE)
        return BudgetPlan(plan.total_mu2 * rest, shares)


@dataclass(eq=False)
class _Part:
    """A curator who is asked about some attributes alone, and what was measured."""

    curator: Curator
    domain: Domain
    measured: list[Measurement] = field(default_factory=list)

    def measure(self, cliques: Sequence[Clique], mu2: Fraction, **asked: Any) -> list[Measurement]:
        """Noisy tables, which are kept."""
        answers = self.curator.measure(cliques, mu2, **asked)
        self.measured += answers
        return answers

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.curator, verb)
