"""DualQuery: picks of badly answered queries, and out of the picks alone a model of greatest likelihood.

Gaboardi, Gallego Arias, Hsu, Roth & Wu (2014) keep a distribution over the workload's queries that favours those which
the records found so far answer badly. Picks from it are all that is asked of the confidential table; each
round finds a record that contradicts its picks, and the records are DualQuery's own synthetic rows (`converse`).
Private-PGM (Algorithms 4 and 5) fits a model by the likelihood of the picks instead, which is what `fit` does; in the
preset `rows` the release is drawn from the rows themselves, and no workload is too large for a model.

A pick is the likelier the worse its query is answered, by exp(rate * excess). A large budget makes that so sharp that
the same few queries are picked again and again, which says nothing about the others. More picks share the budget, and
each is less sharp; so their number grows with the budget, until an excess of 1 % of the records changes a chance by a
factor of exp(`sharpness`) in the last round. It follows from the noisy number of records, which was paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.models.linear import Queries
from synth_core.models.losses import DualQueryLoss
from synth_core.models.mirror_descent import estimate_by_loss
from synth_core.models.mixture import Model
from synth_core.models.rows import RowModel
from synth_core.privacy.budget import BudgetPlan, exact_share, exponential_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import BoxCount, Total
from synth_core.synthesizers.base import NUMBER, SHARE, Scores, Structure, Tools, noise_text, option
from synth_core.synthesizers.workloads import ALL_PAIRS, LIMIT_CELLS, QuerySet, Workload, refuse_large

Box = tuple[tuple[int, int], ...]
MAX_PICKS = 2000
"""Upper limit to which the queries picked in a round grow; `picks` may be more."""


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What a conversation left: the rows found, the picks, and the rate and total that explain them; all public.

    Query k of m is the k-th of the workload, query m + k its negation.
    """

    rows: NDArray[np.int64]
    picks: NDArray[np.int64]
    answers: NDArray[np.float64]
    eta: float
    total: float


@dataclass(frozen=True, slots=True)
class DualQuery:
    """Rounds of picking queries; after t rounds they are picked with a rate of t * eta, so that each costs as t^2."""

    workload: Workload = option(ALL_PAIRS, parse=Workload.parse)
    rounds: int = option(100, "Number of rounds, the first of which asks nothing; more pick less sharply in each.")
    picks: int = option(
        100, "Least queries picked in a round; more average out chance, and each is picked less sharply."
    )
    sharpness: float = option(
        1.0, "Logarithm of what 1 % of the records may do to a chance; smaller picks more queries (at most 2,000)."
    )
    number: float = option(
        0.02, "Share of the budget for the noisy number of records; more makes it more exact.", limits=SHARE
    )
    restarts: int = option(
        4, "Random rows from which the search for a record starts; more find a better one, slower.", limits=NUMBER
    )
    graphical: bool = option(True, "Whether a graphical model explains the picks; otherwise the rows found are all.")
    passes: int = option(200)
    limit_cells: int = option(LIMIT_CELLS)

    def __post_init__(self) -> None:
        if self.rounds < 2 or self.picks < 1:
            raise SpecError("dualquery needs at least 2 rounds and 1 pick: the first round asks nothing")
        if self.sharpness <= 0:
            raise SpecError("options: sharpness must be positive")

    def plan(self, domain: Domain, total_mu2: Fraction) -> BudgetPlan:
        """A little for the number of records; a workload whose model is too large is refused before any spending.

        So are rules where there is no model that could hold them.
        """
        if self.graphical:
            refuse_large(self.workload.parts(domain), domain, limit_cells=self.limit_cells)
        elif domain.impossible:
            raise SpecError("rules: the rows that dualquery/rows finds may break them; use preset default, or privmrf")
        number = exact_share(self.number)
        return BudgetPlan(total_mu2, (("number of records", number), ("picks", 1 - number)))

    def score(self, curator: Curator, plan: BudgetPlan) -> Scores:
        """The noisy number of records, by which answers become shares."""
        share = plan.mu2("number of records")
        (total,) = curator.score([Total()], share, purpose="number of records")
        return Scores(max(1.0, total))

    def select(self, curator: Curator, plan: BudgetPlan, scores: Scores) -> Structure:
        """Nothing: the workload is declared."""
        return Structure(scores)

    def fit(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Model:
        """The model under which the picks were most likely, or the rows found, all alike."""
        transcript = self.converse(curator, plan, structure, tools)
        if not self.graphical:
            cliques = tuple(dict.fromkeys(part.clique for part in self.workload.parts(curator.domain)))
            return RowModel(curator.domain, cliques, transcript.rows, total=transcript.total)
        queries = _Questions(curator.domain, self.workload.parts(curator.domain))
        loss = DualQueryLoss(
            queries.with_negations,
            sampled=transcript.picks,
            records=np.hstack([transcript.answers, -transcript.answers]),
            eta=transcript.eta,
            total=transcript.total,
        )
        return estimate_by_loss(
            curator.domain,
            loss,
            total=transcript.total,
            max_passes=self.passes,
            limit_cells=self.limit_cells,
        )

    def converse(self, curator: Curator, plan: BudgetPlan, structure: Structure, tools: Tools) -> Transcript:
        """Rounds of {pick queries, find a record that answers them as little as possible} (Algorithm 4)."""
        domain, total = curator.domain, structure.scores.total
        queries = _Questions(domain, self.workload.parts(domain))
        rng = np.random.default_rng(len(queries))  # public: what it decides depends on no record
        number = self._picks(plan, total)
        picks = [rng.integers(2 * len(queries), size=number)]
        rows = [_row(domain, queries.signed(picks[0]), rng, self.restarts)]
        answers = [queries.answered(rows[0])]
        for done in range(1, self.rounds):
            asked = queries.asked(np.mean(answers, axis=0), total=total)
            share = self._share(plan, done)
            found = curator.choose(asked, share, purpose=f"round {done}: picks", count=number, with_replacement=True)
            picks.append(queries.positions(found))
            rows.append(_row(domain, queries.signed(picks[-1]), rng, self.restarts))
            answers.append(queries.answered(rows[-1]))
            tools.progress(f"round {done} of {self.rounds - 1}: {number} queries picked")
        return Transcript(np.array(rows), np.array(picks), np.array(answers), self._eta(plan, total, number), total)

    def can_refit(self, domain: Domain) -> bool:
        """See `MayRefit`."""
        return False

    def preview(self, domain: Domain, plan: BudgetPlan) -> list[tuple[str, str]]:
        """Noise of the number of records, and how sharply queries are picked."""
        queries = sum(len(part.boxes(domain)) for part in self.workload.parts(domain))
        return [
            ("noise on the number of records", noise_text(plan.mu2("number of records"), count=1)),
            ("queries in the workload", f"{queries:,}"),
            ("queries picked", f"at least {self.picks} in each of {self.rounds} rounds, more for many records"),
            (
                "excess that makes a pick e times likelier",
                f"at least {1 / self._log_odds(plan, self.picks):.0f} records in the last round",
            ),
        ]

    def _share(self, plan: BudgetPlan, done: int) -> Fraction:
        """The budget of a round: mu of a pick is nearly proportional to its rate, which is `done` * eta / total."""
        squares = sum(t**2 for t in range(1, self.rounds))
        return plan.mu2("picks") * done**2 / squares

    def _picks(self, plan: BudgetPlan, total: float) -> int:
        """Queries picked in a round: the log-odds that a record makes fall with the square root of their number."""
        sharper = self._log_odds(plan, self.picks) * total / 100 / self.sharpness
        return min(max(self.picks, math.ceil(self.picks * sharper**2)), max(self.picks, MAX_PICKS))

    def _eta(self, plan: BudgetPlan, total: float, picks: int) -> float:
        """The rate at which shares of records count, from the last round, which knows most."""
        return self._log_odds(plan, picks) * total / (self.rounds - 1)

    def _log_odds(self, plan: BudgetPlan, picks: int) -> float:
        """What a record of excess adds to the logarithm of a query's odds in the last round."""
        share = self._share(plan, self.rounds - 1)
        mechanism = exponential_for(share, sensitivity=BoxCount.sensitivity, count=picks)
        return float(mechanism.scale / (2 * mechanism.sensitivity))


class _Negatable(Queries):
    """A workload's answers followed by those of the negated queries.

    1 - y stands in every formula of DualQuery for the negation, and a constant changes no distribution: -y will do.
    """

    def answers(self, tables: Any) -> Any:
        found = Queries.answers(self, tables)
        return np.concatenate([found, -found])

    def transposed(self, answers: Any) -> Any:
        plain, negated = np.split(answers, 2)
        return Queries.transposed(self, plain - negated)


@dataclass(frozen=True)
class _Questions:
    """The workload's queries one by one, and negated."""

    domain: Domain
    parts: tuple[QuerySet, ...]

    @cached_property
    def boxes(self) -> list[tuple[Clique, Box]]:
        return [(part.clique, box) for part in self.parts for box in part.boxes(self.domain)]

    @cached_property
    def _position(self) -> dict[tuple[Clique, Box], int]:
        return {box: k for k, box in enumerate(self.boxes)}

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def with_negations(self) -> Queries:
        cliques = tuple(dict.fromkeys(part.clique for part in self.parts))
        matrices = [None if set(part.kinds) == {"codes"} else part.matrices(self.domain) for part in self.parts]
        places = [cliques.index(part.clique) for part in self.parts]
        return _Negatable(self.domain, cliques, tuple(zip(places, matrices, strict=True)))

    def asked(self, answered: NDArray[np.float64], *, total: float) -> list[BoxCount]:
        """How many records too many the rows give each query, and each negation.

        A share a of the rows against c records of n is an excess of total * (a - 1/2) - (c - n/2).
        """
        excess = (total * (answered - 0.5)).tolist()
        plain = [BoxCount(*box, sign=-1, offset=e) for box, e in zip(self.boxes, excess, strict=True)]
        negated = [BoxCount(*box, sign=1, offset=-e) for box, e in zip(self.boxes, excess, strict=True)]
        return plain + negated

    def positions(self, asked: list[BoxCount]) -> NDArray[np.int64]:
        """Where queries stand among all of them and their negations."""
        found = [self._position[query.clique, query.box] + (query.sign > 0) * len(self) for query in asked]
        return np.array(found, dtype=np.int64)

    def signed(self, positions: NDArray[np.int64]) -> list[tuple[Clique, Box, int]]:
        """Queries at some positions; the sign is -1 for negations."""
        return [(*self.boxes[k % len(self)], 1 if k < len(self) else -1) for k in positions.tolist()]

    def answered(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 for each query that counts the row, 0 for the others."""
        code = dict(zip(self.domain.attributes, row.tolist(), strict=True))
        inside = [
            all(first <= code[a] < end for a, (first, end) in zip(clique, box, strict=True))
            for clique, box in self.boxes
        ]
        return np.array(inside, dtype=np.float64)


def _row(
    domain: Domain, asked: list[tuple[Clique, Box, int]], rng: np.random.Generator, restarts: int
) -> NDArray[np.int64]:
    """A row that as few of the queries as possible count: attribute by attribute from random rows, the best kept.

    Finding the best of all rows is NP-hard; any row will do for privacy and for the likelihood.
    """
    signs = np.array([sign for _, _, sign in asked], dtype=np.float64)
    counted = [np.ones((len(asked), size)) for size in domain.sizes]  # by the attribute's own interval
    for k, (clique, box, _) in enumerate(asked):
        for attribute, (first, end) in zip(clique, box, strict=True):
            interval = counted[domain.position(attribute)][k]
            interval[:first] = interval[end:] = 0.0
    best, fewest = np.zeros(len(domain), dtype=np.int64), math.inf
    for _ in range(restarts):
        row = rng.integers(domain.sizes)
        inside = np.array([table[:, code] for table, code in zip(counted, row, strict=True)])
        for j in np.concatenate([rng.permutation(len(domain)), rng.permutation(len(domain))]):
            inside[j] = 1.0
            counts = (inside.prod(axis=0) * signs) @ counted[j]
            row[j] = rng.choice(np.flatnonzero(counts <= counts.min() + 0.5))
            inside[j] = counted[j][:, row[j]]
        reached = float(inside.prod(axis=0) @ signs)
        if reached < fewest:
            best, fewest = row, reached
    return best


PRESETS = {"default": DualQuery(), "rows": DualQuery(graphical=False)}
