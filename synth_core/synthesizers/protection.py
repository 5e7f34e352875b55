"""Tables that a spec names are measured whatever the method would choose, and the method builds on their answers.

Relations between rare values are small beside the noise of finding them, so a method that looks for the largest ones
loses them without a word. `Protecting` wraps a method: it sets a share of the budget aside, measures the named tables
after the method's first questions, and hands their answers on with the scores. A method that can use them says so
by `can_protect`; the others are refused by name. A table may be a single column: what its mean hangs on, a top code
say, may be few records, and what is known of its counts is pooled before the method goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, runtime_checkable

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import EarlierRelease, Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.mixture import Model
from synth_core.names import suggest
from synth_core.privacy.budget import BudgetPlan
from synth_core.privacy.curator import Curator, weighted_gaussian
from synth_core.synthesizers.base import (
    CanReuse,
    CountNoise,
    Scores,
    Structure,
    Synthesizer,
    Tools,
    has_replicates,
    pool_tables,
)
from synth_core.synthesizers.structure import BY_SIZE

SHARE = "protected"
"""Name of the share of a plan from which protected tables are measured."""

MAX_CELLS = 1_000_000
"""Upper limit in cells of the junction tree of all protected tables, which every model of the release will hold."""


@runtime_checkable
class CanProtect(Protocol):
    """A method whose model keeps every table that comes with the scores."""

    def can_protect(self, domain: Domain) -> bool:
        """Whether it does so for tables over this domain."""


@dataclass(frozen=True, slots=True)
class Protecting:
    """A method, the tables that are measured for it, and the share of the budget that they get together."""

    method: Synthesizer
    name: str
    tables: tuple[Clique, ...]
    share: Fraction

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """The method's plan with what the share leaves, and the share; SpecError where a table cannot be kept."""
        self._check(domain)
        inner = self.method.plan(domain, total_mu2 * (1 - self.share))
        shares = [(name, share * (1 - self.share)) for name, share in inner.shares]
        return BudgetPlan(total_mu2, (*shares, (SHARE, self.share)))

    @property
    def can_reuse(self) -> bool:
        """Whether the method builds on answers of earlier releases."""
        return isinstance(self.method, CanReuse) and self.method.can_reuse

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """The method's first questions, then the protected tables, larger ones with more of the share."""
        return self._protected(curator, plan, self.method.score(curator, self._inner(plan)))

    def score_with(self, curator: Curator, plan: BudgetPlan, earlier: Sequence[EarlierRelease]) -> Scores:
        """The same with what earlier releases have measured, but tables that have merged codes of protected columns."""
        assert isinstance(self.method, CanReuse)  # noqa: S101 - `can_reuse` says so
        named = frozenset(name for table in self.tables for name in table)
        known = [release.keeping(named) for release in earlier]
        return self._protected(curator, plan, self.method.score_with(curator, self._inner(plan), known))

    def _protected(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Scores:
        tables, weights = self._batch(curator.domain)
        measured = curator.measure(tables, plan.mu2(SHARE), purpose="protected tables", weights=weights)
        return replace(scores, measurements=_with_pooled_columns(scores.measurements, measured))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """The method's choice, beside the tables it has already."""
        return self.method.select(curator, self._inner(plan), scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The method's model, which holds the protected tables."""
        return self.method.fit(curator, self._inner(plan), structure, tools)

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """The method's facts, and the noise on each protected table."""
        noise = self.noise(domain, plan)
        lines = [
            (
                f"protected {' × '.join(table)}",
                f"{domain.cells(table):,} cells, sigma {sigma:.1f} records on each count",
            )
            for table, sigma in noise.items()
        ]
        return [*self.method.preview(domain, self._inner(plan)), *lines]

    def count_noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """The method's own noise where it can say, and that of the protected tables; columns are asked about twice."""
        own = self.method.count_noise(domain, self._inner(plan)) if isinstance(self.method, CountNoise) else {}
        protected = self.noise(domain, plan)
        twice: dict[Clique, float] = {table: own[table] for table in protected if len(table) == 1 and table in own}
        pooled: dict[Clique, float] = {
            table: (sigma**-2 + protected[table] ** -2) ** -0.5 for table, sigma in twice.items()
        }
        return {**own, **protected, **pooled}

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return has_replicates(self.method, domain)

    def noise(self, domain: Domain, plan: BudgetPlan) -> dict[Clique, float]:
        """The standard deviation in records of the noise on each count of each protected table."""
        tables, weights = self._batch(domain)
        spent = weighted_gaussian(plan.mu2(SHARE), len(tables), weights)
        return {table: float(variance) ** 0.5 for table, variance in zip(tables, spent.variances(), strict=True)}

    def _batch(self, domain: Domain) -> tuple[list[Clique], list[float]]:
        tables = list(dict.fromkeys(domain.clique(table) for table in self.tables))
        return tables, [float(domain.cells(table)) ** BY_SIZE for table in tables]

    def _inner(self, plan: BudgetPlan) -> BudgetPlan:
        rest = 1 - self.share
        shares = tuple((name, share / rest) for name, share in plan.shares if name != SHARE)
        return BudgetPlan(plan.total_mu2 * rest, shares)

    def _check(self, domain: Domain) -> None:
        for name in dict.fromkeys(name for table in self.tables for name in table):
            if name not in domain:
                raise SpecError(
                    f"protect: column {name!r} is not among those modelled{suggest(name, domain.attributes)}"
                )
        if not isinstance(self.method, CanProtect) or not self.method.can_protect(domain):
            raise SpecError(
                f"protect: method {self.name!r} cannot keep tables that a spec names with these columns; "
                "use privmrf, or leave protect out"
            )
        cells = junction_tree(domain, self._batch(domain)[0]).cells
        if cells > max(MAX_CELLS, junction_tree(domain, ()).cells):
            raise SpecError(
                f"protect: together the tables need a model of {cells:,} cells, at most {MAX_CELLS:,} are allowed; "
                "name fewer or smaller ones, or coarser columns"
            )


def _with_pooled_columns(asked: Sequence[Measurement], protected: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """All measurements; a column that is protected has one, of both that were made of it."""
    both = (*asked, *protected)
    names = {m.clique for m in protected if len(m.clique) == 1}
    pooled = pool_tables([m for m in both if m.clique in names], order=1)
    return (*(m for m in both if m.clique not in names), *pooled)
