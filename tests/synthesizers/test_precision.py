"""What small tables can pay for: one-way marginals measured twice, and pairs that may be nothing but noise."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.ledger.memory import MemoryLedger
from synth_core.measurement import Measurement
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers import privmrf
from synth_core.synthesizers.base import Tools, last_fit
from synth_core.synthesizers.precision import MAX_STEPS, measure_one_way, plan_after, see_dependence
from synth_core.synthesizers.privmrf import MAX_PAIR_STEPS, PrivMRF

DOMAIN = Domain.of({"a": 60, "b": 50, "c": 3, "d": 4})


def independent(rows, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, size, rows).astype(np.uint8) for name, size in zip(DOMAIN, DOMAIN.sizes, strict=True)}


def conversation(codes, domain=DOMAIN, epsilon=1.0):
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=epsilon), actor="test")
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=TableCounts(codes, domain), ledger=ledger, spending=spending)
    return curator, PrivMRF().plan(domain, mu2_of(epsilon, 1e-6)), ledger


def purposes(ledger):
    return {record.purpose for record in ledger.records(release="r")}


@pytest.mark.parametrize(("rows", "repeated"), [(300, MAX_STEPS), (4_000_000, 0)])
def test_one_way_marginals_are_measured_again_where_they_are_mostly_noise(rows, repeated):
    curator, plan, ledger = conversation(independent(rows))
    scores = measure_one_way(curator, plan, aim=0.02, reserve="marginals")
    assert scores.repeated == repeated
    assert ("one-way marginals again" in purposes(ledger)) == bool(repeated)
    assert {m.clique for m in scores.measurements} == {(name,) for name in DOMAIN}
    left = plan_after(plan, scores, reserve="marginals")
    assert sum(share for _, share in left.shares) == 1
    assert left.mu2("marginals") == plan.mu2("marginals") * (1 - Fraction(repeated, 64))


def test_both_measurements_count_by_their_precision():
    """The pooled noise is what one measurement with both budgets would have."""
    curator, plan, _ = conversation(independent(300))
    scores = measure_one_way(curator, plan, aim=0.02, reserve="marginals")
    spent = float(plan.mu2("one-way") + plan.mu2("marginals") * Fraction(scores.repeated, 64))
    precision = sum(m.sigma**-2 for m in scores.measurements)
    assert precision == pytest.approx(spent, rel=1e-3)


def noisy_pairs(strength, *, columns, sigma, seed):
    rng = np.random.default_rng(seed)
    names = [f"x{k}" for k in range(columns)]
    pairs = list(combinations(names, 2))
    true = np.where(np.arange(len(pairs)) < 5, strength, 0.0)
    misfits = dict(zip(pairs, true + rng.normal(0, sigma, len(pairs)), strict=True))
    one_way = [Measurement((name,), np.full(4, 2500.0), 1.0) for name in names]
    return Domain.of(dict.fromkeys(names, 4)), misfits, one_way


@pytest.mark.parametrize("columns", [4, 10, 30])
def test_noise_alone_is_rarely_taken_for_dependence_and_strong_dependence_never_missed(columns):
    def seen(strength):
        found = []
        for seed in range(40):
            domain, misfits, one_way = noisy_pairs(strength, columns=columns, sigma=500.0, seed=seed)
            found.append(see_dependence(domain, misfits, one_way, sigma=500.0, mu2=Fraction(1, 400)))
        return sum(found)

    assert seen(0.0) <= 10
    assert seen(8000.0) == 40


def test_a_table_of_independent_columns_gets_all_of_the_budget_for_columns():
    codes = independent(800)
    curator, plan, ledger = conversation(codes)
    method = PrivMRF()
    structure = method.select(curator, plan, method.score(curator, plan))
    assert all(score == 0 for *_, score in structure.scores.pairs)
    model = method.fit(curator, plan, structure, Tools())
    assert "one-way marginals at last" in purposes(ledger)
    assert all(len(clique) == 1 for clique in model.cliques)


def test_a_dependent_table_of_the_same_size_gets_pairs():
    codes = independent(800)
    codes["d"] = codes["c"]
    curator, plan, ledger = conversation(codes, epsilon=4.0)
    method = PrivMRF()
    model = method.fit(curator, plan, method.select(curator, plan, method.score(curator, plan)), Tools())
    assert "one-way marginals at last" not in purposes(ledger)
    pair = model.marginal(("c", "d")) / model.total
    assert np.trace(pair[:, :3]) > 0.6  # 0.25 if the columns were independent


@pytest.mark.parametrize(("rows", "more"), [(300, MAX_PAIR_STEPS), (4_000_000, 0)])
def test_the_dependence_of_pairs_gets_more_where_its_noise_would_hide_it(rows, more):
    """What scores get is taken from the marginals, and all that is planned is spent."""
    curator, plan, ledger = conversation(independent(rows))
    method = PrivMRF()
    once = measure_one_way(conversation(independent(rows))[0], plan, aim=method.aim, reserve="marginals").repeated
    scores = method.score(curator, plan)
    assert scores.repeated == pytest.approx(once + more)
    measured = [record for record in ledger.records(release="r") if record.state is State.MEASURED]
    (asked,) = [record.mu2 for record in measured if record.purpose == "dependence of pairs"]
    assert asked == pytest.approx(plan.mu2("pairs") + plan.mu2("marginals") * Fraction(more, 64), rel=1e-6)
    method.fit(curator, plan, method.select(curator, plan, scores), Tools())
    spent = sum(record.mu2 for record in ledger.records(release="r") if record.state is State.MEASURED)
    assert plan.total_mu2 * Fraction(99, 100) < spent <= plan.total_mu2


@pytest.mark.parametrize(("most", "rows", "emphasis"), [(5.0, 3000, 3.4), (1.0, 3000, 1.0), (5.0, 3_000_000, 1.0)])
def test_small_tables_count_more_where_few_are_measured_with_noise(monkeypatch, most, rows, emphasis):
    """Three columns have three pairs, so three marginals are measured: of at most 15, or of at most three."""
    asked = []
    monkeypatch.setattr(privmrf, "last_fit", lambda *_, **settings: asked.append(settings) or last_fit(*_, **settings))
    domain = Domain.of({"c": 3, "d": 4, "e": 3})
    rng = np.random.default_rng(0)
    codes = {"c": rng.integers(0, 3, rows).astype(np.uint8)}
    codes |= {"d": codes["c"] + rng.integers(0, 2, rows).astype(np.uint8), "e": codes["c"]}
    curator, plan, _ = conversation(codes, domain, epsilon=4.0)
    method = PrivMRF(marginals_per_attribute=most)
    method.fit(curator, plan, method.select(curator, plan, method.score(curator, plan)), Tools())
    assert [settings["emphasis"] for settings in asked] == [pytest.approx(emphasis, abs=1e-3)]
