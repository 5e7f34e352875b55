"""The hot audit: unchanged code runs on two neighbouring tables with a large budget, and an adversary keeps count.

The adversary knows both tables, sees everything that is stored or answered, and guesses from the exact likelihood
ratio which table it was. How often he is right bounds from below the privacy really lost (Dong, Roth & Su 2022;
errors certified by Clopper-Pearson). At mu = 3 a correct curator lets him err in 7 % of the runs; one that
adds half the noise, in 0.1 %. Beside that, a white-box look at the noise: its variance, its correlation, and whether
each charge has exactly one stored answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from synth_core.audit.verdict import AuditCertificate, Evidence, certify
from synth_core.domain import Clique, Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement
from synth_core.privacy.accounts import Answer, Ledger, Reservation, SpendRequest, State
from synth_core.privacy.budget import Mechanism
from synth_core.privacy.curator import AnyQuery, CountSource, Curator, Spending
from synth_core.privacy.entropy import Entropy, SystemEntropy
from synth_core.privacy.noise import GRID
from synth_core.privacy.queries import Query
from synth_core.privacy.strategies import Answers, Asked
from synth_core.privacy.wall import open_private

Experiment = Callable[[Curator], object]
"""Code under audit: it talks to a curator once, from beginning to end; what it returns is ignored."""

Worlds = tuple[CountSource, CountSource]
"""A table without and the same table with the canary record."""

HOT_MU2 = Fraction(9)
"""The budget of an audited step: mu = 3 is where few runs separate right from wrong."""

MIN_RUNS = 100
"""Lower limit of the conversations of an audit."""

RUNS = 2000
"""Conversations of an audit, half of them with the canary."""


def run_audit(
    title: str,
    experiment: Experiment,
    *,
    worlds: Worlds,
    granted_mu2: Fraction = HOT_MU2,
    runs: int = RUNS,
    curator: Callable[..., Curator] = Curator,
) -> AuditCertificate:
    """Run the experiment `runs` times, half in each world, and certify what it loses of `granted_mu2`."""
    if runs < MIN_RUNS:
        raise SpecError(f"an audit needs at least {MIN_RUNS} runs; 2000 detect all known faults")
    entropy = SystemEntropy()
    evidence: tuple[list[Evidence], list[Evidence]] = ([], [])
    for run in range(runs):
        here = run % 2
        witness = Witness(worlds, here, curator=curator, entropy=entropy)
        experiment(cast("Curator", witness))  # it has a curator's verbs, and asks one
        evidence[here].append(witness.evidence())
    return certify(title, without=evidence[0], canary=evidence[1], granted_mu2=granted_mu2)


class Notebook:
    """A ledger in memory for one run: it grants everything and keeps all that was charged and stored."""

    def __init__(self) -> None:
        self.requests: dict[str, SpendRequest] = {}
        self.answers: dict[str, list[Answer]] = {}
        self.fresh: str | None = None

    def reserve(self, request: SpendRequest) -> Reservation:
        """Grant the request, or hand out the answer that its key already has."""
        key = request.key
        stored = self.answers.get(key)
        if stored:
            return Reservation(key=key, attempt=1, state=State.MEASURED, answer=stored[0])
        self.requests[key] = request
        self.fresh = key
        return Reservation(key=key, attempt=1, state=State.RESERVED)

    def begin(self, reservation: Reservation) -> None:
        """Nothing can crash here."""

    def store(self, reservation: Reservation, answer: Answer) -> Answer:
        """Keep every answer and return the first."""
        self.answers.setdefault(reservation.key, []).append(answer)
        return self.answers[reservation.key][0]


class Witness:
    """A curator that passes every question to the audited one and weighs what comes out in both worlds."""

    def __init__(self, worlds: Worlds, here: int, *, curator: Callable[..., Curator], entropy: Entropy) -> None:
        self._worlds = worlds
        self._here = here
        self._notebook = Notebook()
        self._curator = curator(
            counts=worlds[here],
            ledger=cast("Ledger", self._notebook),  # the three methods a curator calls
            spending=Spending(dataset="audit", snapshot="audit", release="audit", step="audit"),
            entropy=entropy,
        )
        self._ratio = 0.0
        self._noise: list[NDArray[np.float64]] = []
        self._surprise = 0.0
        self._spread = 0.0
        self._strayed = 0

    @property
    def domain(self) -> Domain:
        """The public domain of both worlds."""
        return self._curator.domain

    def measure(self, cliques: Sequence[Clique], mu2: Fraction, **how: Any) -> list[Measurement]:
        """Ask the audited curator and weigh the noisy counts."""
        given = self._curator.measure(cliques, mu2, **how)
        asked = [measurement.clique for measurement in given]
        exact = [[GRID * table / world.scale for table in _tables(world, asked)] for world in self._worlds]
        self._weigh_numbers(exact, [measurement.noisy for measurement in given])
        return given

    def answer(self, strategies: Sequence[Asked], mu2: Fraction, **how: Any) -> list[Answers[Asked]]:
        """Ask the audited curator and weigh the noisy answers, each in units of its strategy's sensitivity."""
        given = self._curator.answer(strategies, mu2, **how)
        asked = [strategy.clique for strategy in strategies]
        exact = [
            [
                GRID * one.evaluate(table) / world.scale
                for one, table in zip(strategies, _tables(world, asked), strict=True)
            ]
            for world in self._worlds
        ]
        units = [one.strategy.sensitivity2 for one in given]
        self._weigh_numbers(exact, [one.noisy for one in given], units=units)
        return given

    def score(self, queries: Sequence[Query], mu2: Fraction, **how: Any) -> list[float]:
        """Ask the audited curator and weigh the noisy scores."""
        given = self._curator.score(queries, mu2, **how)
        self._weigh_numbers([_values(world, queries) for world in self._worlds], given)
        return given

    def choose(self, queries: Sequence[AnyQuery], mu2: Fraction, **how: Any) -> list[AnyQuery]:
        """Ask the audited curator and weigh the choices."""
        given = self._curator.choose(queries, mu2, **how)
        key, self._notebook.fresh = self._notebook.fresh, None
        if key is None:
            return given
        exact = [np.array(_values(world, queries), dtype=np.float64) for world in self._worlds]
        mechanism = self._notebook.requests[key].mechanism
        for answer in self._notebook.answers.get(key, []):
            self._weigh_choices(exact, answer, mechanism, with_replacement=how.get("with_replacement", False))
        stored = self._notebook.answers.get(key, [np.empty(0, np.int64)])[0]
        self._strayed += [id(query) for query in given] != [id(queries[int(at)]) for at in stored]
        return given

    def evidence(self) -> Evidence:
        """All that this run gave away."""
        requests, answers = self._notebook.requests, self._notebook.answers
        return Evidence(
            ratio=self._ratio,
            noise=np.concatenate([np.empty(0), *self._noise]),
            surprise=self._surprise,
            spread=self._spread,
            mu2=sum((request.mechanism.mu2() for request in requests.values()), Fraction(0)),
            charged=len(requests),
            stored=sum(len(stored) for stored in answers.values()),
            strayed=self._strayed,
        )

    def _weigh_numbers(
        self,
        exact: Sequence[Sequence[ArrayLike]],
        noisy: Sequence[ArrayLike],
        *,
        units: list[int] | None = None,
    ) -> None:
        """Weigh a call's noisy numbers against the exact ones of both worlds, which are in grid units."""
        key, self._notebook.fresh = self._notebook.fresh, None
        if key is None:
            return  # nothing asked, or asked before and answered from the ledger
        absent, present = map(_flat, exact)
        given = _flat(noisy) * GRID
        mechanism = self._notebook.requests[key].mechanism
        scaled = [float(v * unit) for v, unit in zip(mechanism.variances(), units or [1] * len(noisy), strict=True)]
        variance = np.repeat(scaled, [np.size(part) for part in noisy]) * GRID**2
        outputs = [answer.astype(np.float64) for answer in self._notebook.answers.get(key, [])]
        if not outputs or not np.array_equal(np.rint(given), outputs[0]):
            self._strayed += 1
            outputs.append(given)
        for output in outputs:
            noise = output - (absent, present)[self._here]
            if mechanism.name == "discrete_laplace":
                scale = np.sqrt(variance / 2)
                ratios = (np.abs(output - absent) - np.abs(output - present)) / scale
                self._noise.append(_normal_scores(noise / scale))
            else:
                ratios = ((output - absent) ** 2 - (output - present) ** 2) / (2 * variance)
                self._noise.append(noise / np.sqrt(variance))
            self._ratio += float(ratios.sum())

    def _weigh_choices(
        self,
        exact: list[NDArray[np.float64]],
        positions: Answer,
        mechanism: Mechanism,
        *,
        with_replacement: bool,
    ) -> None:
        rate = float(mechanism.scale / (2 * mechanism.sensitivity * GRID))
        left = np.ones(len(exact[0]), dtype=bool)
        for position in positions.tolist():
            chances = [_softmax(rate * utilities, left) for utilities in exact]
            self._ratio += math.log(chances[1][position]) - math.log(chances[0][position])
            utilities, chance = rate * exact[self._here], chances[self._here]
            mean = float(chance @ utilities)
            self._surprise += float(utilities[position]) - mean
            self._spread += float(chance @ (utilities - mean) ** 2)
            left[position] = with_replacement


def _normal_scores(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Laplace noise of scale 1 as the standard normal numbers of the same ranks."""
    return np.asarray(-np.sign(noise) * ndtri(np.exp(-np.abs(noise)) / 2))


def _flat(parts: Sequence[ArrayLike]) -> NDArray[np.float64]:
    return np.concatenate([[], *map(np.ravel, parts)])


def _tables(world: CountSource, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
    return [open_private(table) for table in world.tables(cliques)]


def _values(world: CountSource, queries: Sequence[Query]) -> list[int]:
    tables = _tables(world, [query.clique for query in queries])
    return [query.evaluate(table, world.scale) for query, table in zip(queries, tables, strict=True)]


def _softmax(logits: NDArray[np.float64], left: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Probabilities of the candidates that are left, never quite 0 (a chosen one may be that unlikely)."""
    weights = np.exp(np.maximum(logits - logits[left].max(), -700.0)) * left
    return np.asarray(weights / weights.sum(), dtype=np.float64)
