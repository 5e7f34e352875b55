"""The one door to confidential counts: it reserves, measures with noise, stores, and only then answers.

Every verb follows the same five lines (`Curator._answer`): reserve the spend, reuse a stored answer if the key
has one, record that measuring begins, draw the noisy integers, store them. If it spends privacy, it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement, without_impossible
from synth_core.privacy.accounts import Answer, Ledger, Runner, SpendRequest, Stratum
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.budget import Mechanism, exponential_for, gaussian_for, laplace_for
from synth_core.privacy.entropy import Entropy, SystemEntropy
from synth_core.privacy.noise import (
    GRID,
    exponential_choice,
    grid_noise,
    noisy_counts,
    pure_grid_noise,
    purely_noisy_counts,
    require_drawable,
)
from synth_core.privacy.queries import Counts, Query
from synth_core.privacy.strategies import Answers, Asked
from synth_core.privacy.strategies import fingerprint as short_fingerprint
from synth_core.privacy.wall import Private, open_private, wall

AnyQuery = TypeVar("AnyQuery", bound=Query)
WEIGHT_GRID = 2**20
"""Denominator of the shares that a call's weights are rounded to."""


class CountSource(Protocol):
    """A confidential table as the curator sees it: exact integer counts, wrapped."""

    @property
    def scale(self) -> int:
        """The counts are in units of 1/scale records; 1 where a record is in one cell."""

    @property
    def domain(self) -> Domain:
        """The table's public domain."""

    def tables(self, cliques: Sequence[Clique]) -> list[Private[Counts]]:
        """One table of exact counts for each clique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """On whose account, for which release and step, a curator spends."""

    dataset: str
    snapshot: str
    release: str
    step: str
    stratum: Stratum | None = None
    runner: Runner = field(default_factory=Runner)

    def request(self, purpose: str, mechanism: Mechanism, **more: Any) -> SpendRequest:
        """A spend request of this step."""
        own: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return SpendRequest(purpose=purpose, mechanism=mechanism, **own, **more)


class Curator:
    """Everything it returns is public; every verb reserves, measures and stores.

    `mu2` is the squared Gaussian-DP parameter that the whole call may spend. `purpose` names the question inside its
    step; together with a fingerprint of what is asked it makes the key under which the answer is stored for ever.
    `fault` is called at each point where a crash must do no harm.
    """

    def __init__(
        self,
        *,
        counts: CountSource,
        ledger: Ledger,
        spending: Spending,
        entropy: Entropy | None = None,
        fault: Callable[[str], None] | None = None,
    ) -> None:
        self._counts = counts
        self._ledger = ledger
        self._spending = spending
        self._entropy = entropy or SystemEntropy()
        self._fault = fault or (lambda _: None)

    @property
    def domain(self) -> Domain:
        """The public domain of the confidential table."""
        return self._counts.domain

    def measure(
        self,
        cliques: Sequence[Clique],
        mu2: Fraction,
        *,
        purpose: str,
        weights: Sequence[float] | None = None,
        pure: bool = False,
    ) -> list[Measurement]:
        """Noisy counts of the cliques' cells; `weights` says how the spend is shared among them.

        With `pure` the noise is Laplace's, of one scale for all tables. A table's L1 sensitivity is 1, so each is
        (1 / scale)-differentially private without a delta; the ledger charges the Gaussian price of that.
        """
        cliques = [self.domain.clique(clique) for clique in cliques]
        if not cliques:
            return []
        if pure and weights is not None:
            raise SpecError("Laplace noise has one scale for all tables; leave the weights out")
        mechanism = (
            laplace_for(mu2, sensitivity=Fraction(1), count=len(cliques))
            if pure
            else weighted_gaussian(mu2, len(cliques), weights)
        )
        variances = mechanism.variances()
        parts = self._noisy(
            purpose,
            mechanism,
            asked=cliques,
            variances=variances,
            form=_marginals(self.domain, cliques),
            exact=lambda: self._open(cliques),
        )
        return [
            without_impossible(Measurement(clique, part, math.sqrt(v)), self.domain)
            for clique, part, v in zip(cliques, parts, variances, strict=True)
        ]

    def answer(
        self,
        strategies: Sequence[Asked],
        mu2: Fraction,
        *,
        purpose: str,
        weights: Sequence[float] | None = None,
    ) -> list[Answers[Asked]]:
        """Noisy answers of the strategies; `weights` says how the spend is shared among them.

        Dividing a strategy's answers by its sensitivity makes queries of sensitivity 1, and these are what is charged;
        multiplying their noise back gives each answer the variance sensitivity^2 * variance, still a rational.
        """
        for strategy in strategies:
            strategy.check(self.domain)
        if not strategies:
            return []
        mechanism = weighted_gaussian(mu2, len(strategies), weights)
        variances = [s.sensitivity2 * v for s, v in zip(strategies, mechanism.variances(), strict=True)]
        cliques = [strategy.clique for strategy in strategies]
        parts = self._noisy(
            f"{purpose} (strategy {short_fingerprint(strategies)})",
            mechanism,
            asked=cliques,
            variances=variances,
            form=AnswerForm(
                fingerprint=fingerprint("answer", [strategy.facts() for strategy in strategies]),
                blocks=tuple(strategy.block() for strategy in strategies),
            ),
            exact=lambda: [s.evaluate(t) for s, t in zip(strategies, self._open(cliques), strict=True)],
        )
        return [
            Answers(strategy, part, math.sqrt(variance))
            for strategy, part, variance in zip(strategies, parts, variances, strict=True)
        ]

    def score(self, queries: Sequence[Query], mu2: Fraction, *, purpose: str, pure: bool = False) -> list[float]:
        """Each query's value with Gaussian noise, or Laplace noise if `pure`; all have the same sensitivity."""
        if not queries:
            return []
        mechanism_for = laplace_for if pure else gaussian_for
        mechanism = mechanism_for(mu2, sensitivity=_one_sensitivity(queries), count=len(queries))

        def draw() -> Answer:
            noise = (pure_grid_noise if pure else grid_noise)(mechanism.scale, len(queries), self._entropy)
            return np.array(self._evaluate(queries), dtype=np.int64) + noise

        form = _form("score", queries, Block(kind=AnswerKind.SCORES, shape=(len(queries),)))
        answer = self._answer(purpose, mechanism, asked=[q.clique for q in queries], form=form, draw=draw)
        return [float(value) / GRID for value in answer]

    def choose(
        self,
        queries: Sequence[AnyQuery],
        mu2: Fraction,
        *,
        purpose: str,
        count: int = 1,
        with_replacement: bool = False,
    ) -> list[AnyQuery]:
        """The `count` queries that the exponential mechanism picks one after the other.

        Each is picked once, or any number of times `with_replacement`; every pick is charged alike.
        """
        if not with_replacement:
            count = min(count, len(queries))
        if not queries or count == 0:
            return []
        mechanism = exponential_for(mu2, sensitivity=_one_sensitivity(queries), count=count)
        rate = mechanism.scale / (2 * mechanism.sensitivity * GRID)

        def draw() -> Answer:
            positions, values = list(range(len(queries))), self._evaluate(queries)
            chosen = []
            for _ in range(count):
                at = exponential_choice(values, rate, self._entropy)
                chosen.append(positions[at])
                if not with_replacement:
                    del positions[at], values[at]
            return np.array(chosen, dtype=np.int64)

        name = f"{purpose} (with replacement)" if with_replacement else purpose
        cliques = list(dict.fromkeys(query.clique for query in queries))
        form = _form("choose", queries, Block(kind=AnswerKind.CHOICES, shape=(count,)))
        answer = self._answer(name, mechanism, asked=cliques, form=form, draw=draw)
        return [queries[int(position)] for position in answer]

    def _answer(
        self,
        purpose: str,
        mechanism: Mechanism,
        *,
        asked: Sequence[Clique],
        form: AnswerForm,
        draw: Callable[[], Answer],
    ) -> Answer:
        mechanism.require_drawable()
        request = self._spending.request(purpose, mechanism, asked=tuple(asked), form=form, entropy=self._entropy.name)
        reservation = self._ledger.reserve(request)
        if reservation.answer is not None:
            return reservation.answer
        self._fault("curator:reserved")
        self._ledger.begin(reservation)
        self._fault("curator:measuring")
        with wall():
            noisy = draw()
        self._fault("curator:drawn")
        kept = self._ledger.store(reservation, noisy)
        self._fault("curator:stored")
        return kept

    def _noisy(
        self,
        purpose: str,
        mechanism: Mechanism,
        *,
        asked: Sequence[Clique],
        variances: Sequence[Fraction],
        form: AnswerForm,
        exact: Callable[[], list[Counts]],
    ) -> list[NDArray[np.float64]]:
        """The exact tables with the mechanism's noise, in records."""
        if mechanism.name != "discrete_laplace":  # its variances hold the strategies' sensitivities, the mechanism not
            for variance in set(variances):
                require_drawable(variance)

        def noisy(table: Counts, variance: Fraction) -> Answer:
            scale = self._counts.scale
            if mechanism.name == "discrete_laplace":
                return purely_noisy_counts(table.ravel(), mechanism.scale, self._entropy, scale=scale)
            return noisy_counts(table.ravel(), variance, self._entropy, scale=scale)

        def draw() -> Answer:
            return np.concatenate(list(map(noisy, exact(), variances)))

        answer = self._answer(purpose, mechanism, asked=asked, form=form, draw=draw)
        return [block / GRID for block in form.split(answer)]

    def _open(self, cliques: Sequence[Clique]) -> list[Counts]:
        return [open_private(table) for table in self._counts.tables(cliques)]

    def _evaluate(self, queries: Sequence[Query]) -> list[int]:
        tables = self._open([query.clique for query in queries])
        return [query.evaluate(table, self._counts.scale) for query, table in zip(queries, tables, strict=True)]


def _marginals(domain: Domain, cliques: Sequence[Clique]) -> AnswerForm:
    blocks = [Block(kind=AnswerKind.MARGINAL, clique=clique, shape=domain.shape(clique)) for clique in cliques]
    facts = [["marginal", list(block.clique), list(block.shape)] for block in blocks]
    return AnswerForm(fingerprint=fingerprint("measure", facts), blocks=tuple(blocks))


def _form(verb: str, queries: Sequence[Query], block: Block) -> AnswerForm:
    return AnswerForm(fingerprint=fingerprint(verb, [query.facts() for query in queries]), blocks=(block,))


def weighted_gaussian(mu2: Fraction, count: int, weights: Sequence[float] | None) -> Mechanism:
    """The Gaussian noise of a batch that spends `mu2`; `weights` says how that is shared, None equally."""
    shares = None
    if weights is not None:
        total = math.fsum(weights)
        if min(weights) <= 0 or not math.isfinite(total):
            raise SpecError("weights of a measurement must be positive and finite")
        shares = tuple(Fraction(max(1, round(weight / total * WEIGHT_GRID)), WEIGHT_GRID) for weight in weights)
    return gaussian_for(mu2, sensitivity=Fraction(1), count=count, weights=shares)


def _one_sensitivity(queries: Sequence[Query]) -> Fraction:
    sensitivities = {query.sensitivity for query in queries}
    if len(sensitivities) != 1:
        raise SpecError("one call asks queries of one sensitivity; ask the others in a call of their own")
    return sensitivities.pop()
