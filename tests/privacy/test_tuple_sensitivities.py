"""A household of any size moves no answer about the tuple relation by more than its sensitivity: exhaustively."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest
from support.seeded_entropy import SeededEntropy

from synth_core.audit.adversary import run_audit
from synth_core.audit.cases import verb_experiments
from synth_core.domain import Domain
from synth_core.models import tuples
from synth_core.models.tuples import Households, count_tuples
from synth_core.privacy.noise import GRID, noisy_counts
from synth_core.privacy.queries import BoxCount, Dependence, Misfit, Total
from synth_core.privacy.strategies import Strategy
from synth_core.storage.households import TupleCounts, count_scale

LARGEST = 3


def domain_of(places):
    marks = ["", "@2", "@3"][:places]
    own = {"household.h": 2, "size": LARGEST - places + 1}
    return Domain.of(own | {f"person.{a}{mark}": 2 for mark in marks for a in "ab"})


def all_households():
    """Every household there can be: its code, and a multiset of people of two attributes."""
    kinds = list(product(range(2), repeat=2))
    for size in range(1, LARGEST + 1):
        for people in combinations_with_replacement(kinds, size):
            yield from ((h, people) for h in range(2))


def together(households):
    people = [one for _, own in households for one in own]
    return Households(
        {"household.h": np.array([h for h, _ in households], dtype=np.int64)},
        {f"person.{a}": np.array([one[k] for one in people], dtype=np.int64) for k, a in enumerate("ab")},
        np.array([len(own) for _, own in households], dtype=np.int64),
    )


def change_by_one(places, cliques):
    """For each household that may be added, by what it changes each table, in units of 1 / scale."""
    domain, scale = domain_of(places), count_scale(places, LARGEST)
    for one in all_households():
        yield one, scale, count_tuples(together([one]), domain, cliques, places=places, scale=scale)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_household_changes_a_table_by_one_at_most_and_by_one(places):
    """L1 and with it L2: 1 for every household of at least as many people as there are places, 0 for others."""
    domain = domain_of(places)
    cliques = [c for k in (0, 1, 2, 3) for c in combinations(domain.attributes, k)]
    reached = 0.0
    for (_, people), scale, tables in change_by_one(places, cliques):
        for table in tables:
            assert (table >= 0).all()
            assert table.sum() == (scale if len(people) >= places else 0)
            reached = max(reached, float(np.sqrt((table.astype(float) ** 2).sum())) / scale)
    assert reached == 1.0, "people who are alike all fall into one cell"


def test_a_household_changes_a_table_of_its_reference_person_by_one_at_most_and_by_one():
    """Of one reference person and others the weights sum to 1; of none, of several, and of nobody else to 0."""
    marked = Domain.of(dict(zip(domain_of(2), domain_of(2).sizes, strict=True)) | {"person.b@reference": 2})
    cliques = [c for k in (1, 2, 3, 4) for c in combinations(marked.attributes, k) if "person.b@reference" in c]
    lead, scale, reached = ("person.a", np.array([True, False])), count_scale(2, LARGEST), 0.0
    for one in all_households():
        leads = sum(person[0] == 0 for person in one[1])
        for table in count_tuples(together([one]), marked, cliques, places=2, scale=scale, anchor=lead):
            assert (table >= 0).all()
            assert table.sum() == (scale if leads == 1 and len(one[1]) > 1 else 0)
            reached = max(reached, float(np.sqrt((table.astype(float) ** 2).sum())) / scale)
    assert reached == 1.0, "others who are alike all fall into one cell"


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("reference", [False, True])
def test_people_who_are_all_alike_move_every_table_by_one(size, reference):
    """Up to eight identical people, or a reference person and up to seven: every table of one and of two places."""
    held = Households(
        {"household.h": np.array([1])},
        {"person.a": np.array([0 if reference else 1] + [1] * (size - 1)), "person.b": np.ones(size, np.int64)},
        np.array([size]),
    )
    lead, reached = ("person.a", np.array([True, False])), 0
    for places in (1, 2):
        more = {"person.a@2": 2, "person.b@2": 2, "person.b@reference": 2} if places == 2 else {}
        domain = Domain.of({"household.h": 2, "person.a": 2, "person.b": 2, "size": 9 - places} | more)
        cliques = [c for k in (0, 1, 2, 3) for c in combinations(domain.attributes, k)]
        scale = count_scale(places, 8)
        for table in count_tuples(held, domain, cliques, places=places, scale=scale, anchor=lead):
            assert table.min(initial=0) == 0
            assert table.sum() in (0, scale)
            reached = max(reached, int(table.max()) // scale)
    assert reached == 1


def test_weights_that_are_not_normalised_are_found(monkeypatch):
    """The planted fault: every tuple has the same weight, so a large household counts for more than a small one."""
    monkeypatch.setattr(tuples, "math", FlatWeights)
    sums = {int(table.sum()) for _, _, (table,) in change_by_one(2, [("person.a", "person.a@2")])}
    assert max(sums) > count_scale(2, LARGEST)


class FlatWeights:
    """`math` in which a household of any size has one tuple."""

    prod = staticmethod(math.prod)

    @staticmethod
    def perm(size, places):
        return 1


@pytest.mark.parametrize("places", [1, 2])
def test_queries_move_by_at_most_their_sensitivity_and_nearly_that(places):
    """Every household added to every small population, for every kind of question."""
    domain, scale = domain_of(places), count_scale(places, LARGEST)
    clique = ("person.a", "person.b" if places == 1 else "person.b@2")
    queries = [
        Total(),
        Dependence(clique),
        Misfit(clique, np.array([[0.3, 1.7], [0.25, 0.0]]), penalty=1.2),
        Misfit(clique, np.array([[0.3, 1.7], [0.25, 0.0]]), weight=Fraction(2, 3)),
        BoxCount(clique, ((0, 1), (1, 2)), sign=-1, offset=0.7),
    ]
    kinds = [one for one in all_households() if one[0] == 0]
    tables = {one: count_tuples(together([one]), domain, [clique], places=places, scale=scale)[0] for one in kinds}
    worst = [0] * len(queries)
    none = np.zeros((2, 2), dtype=np.int64)
    bases = [(), *combinations_with_replacement(kinds, 1), *combinations_with_replacement(kinds, 2)]
    populations = {sum((tables[one] for one in base), none).tobytes() for base in bases}
    added = {table.tobytes() for table in tables.values()}
    for population, one in product(populations, added):
        before = np.frombuffer(population, dtype=np.int64).reshape(2, 2)
        after = before + np.frombuffer(one, dtype=np.int64).reshape(2, 2)
        for k, query in enumerate(queries):
            worst[k] = max(worst[k], abs(query.evaluate(after, scale) - query.evaluate(before, scale)))
    stated = [int(query.sensitivity * GRID) for query in queries]
    assert all(moved <= most for moved, most in zip(worst, stated, strict=True))
    assert worst[0] == stated[0]
    assert worst[2] == stated[2]
    assert worst[4] == stated[4]
    assert worst[1] > stated[1] / 2, "a claim of half the sensitivity would be caught"


def test_strategies_move_by_at_most_their_sensitivity():
    strategy = Strategy(("person.a", "person.a@2"), (np.array([[1, 1], [0, 1]]), np.array([[2, 0], [1, 3]])))
    reached = 0.0
    for _, scale, (table,) in change_by_one(2, [strategy.clique]):
        moved = strategy.evaluate(table) / scale
        reached = max(reached, float((moved**2).sum()))
    assert reached == pytest.approx(strategy.sensitivity2)


WIDE = Domain.of({"household.h": 3, "size": 7, "person.a": 3, "person.a@2": 3})
"""Pairs of people in households of 2 to 8."""
ROWS = 40
EXPERIMENTS = verb_experiments(WIDE, rows=ROWS)


def wide_world(*, canary, kind=TupleCounts):
    """Couples, and with the canary a household of eight people who are alike, as nobody else is."""
    sizes = np.array([2] * ROWS + [8] * canary)
    codes = np.array([0, 1] * ROWS + [2] * 8 * canary)
    held = Households({"household.h": np.array([0, 1] * (ROWS // 2) + [2] * canary)}, {"person.a": codes}, sizes)
    return kind(held, WIDE, places=2, largest=8)


class FlatCounts(TupleCounts):
    """The planted fault: a household counts for as many couples as it has."""

    def _count(self, cliques):
        tables = super()._count(cliques)
        return [table * (1 if table.sum() == ROWS * self.scale else 28) for table in tables]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["measure", "measure by weight", "measure purely", "answer", "score", "choose"])
def test_the_audit_with_a_household_of_eight_passes(verb):
    worlds = wide_world(canary=False), wide_world(canary=True)
    certified = run_audit(verb, EXPERIMENTS[verb], worlds=worlds, runs=1000)
    assert certified.passed, certified.failures
    assert 1.2 < certified.mu_lower < 3


@pytest.mark.slow
def test_the_audit_catches_weights_that_are_not_normalised():
    worlds = wide_world(canary=False), wide_world(canary=True, kind=FlatCounts)
    certified = run_audit("planted", EXPERIMENTS["score"], worlds=worlds, runs=400)
    assert not certified.passed


@pytest.mark.parametrize("places", [1, 2, 3])
def test_the_scale_divides_every_weight(places):
    for largest in range(places, 11):
        scale = count_scale(places, largest)
        assert scale >= GRID
        assert all(scale % math.perm(size, places) == 0 for size in range(places, largest + 1))


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (0.7, False), (1.3, False)])
def test_noise_on_parts_of_records_has_its_variance(factor, accepted):
    """In records: sigma 3, whatever the units of the counts; a wrong sigma is told from it."""
    sigma, scale, draws = 3.0, 840, 4000
    counts = np.full(draws, 7 * scale + scale // 3, dtype=np.int64)
    variance = Fraction(sigma * factor).limit_denominator(1000) ** 2
    noisy = noisy_counts(counts, variance, SeededEntropy(5), scale=scale) / GRID
    assert noisy.mean() == pytest.approx(7 + 1 / 3, abs=0.25)
    spread = noisy.var() * draws / sigma**2
    assert (abs(spread - draws) < 4 * math.sqrt(2 * draws)) == accepted
