"""The curator: what it charges, what it stores, what a retry gets, and what its errors say."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest, laplace
from support.conversations import people_curator, people_ledger, spent
from support.seeded_entropy import SeededEntropy

from synth_core.domain import Domain
from synth_core.errors import BudgetRefused, SpecError, WallError
from synth_core.ledger.book import charged_records
from synth_core.privacy.accounts import CHARGED, State
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.noise import GRID, purely_noisy_counts
from synth_core.privacy.queries import Dependence, Misfit, Total
from synth_core.privacy.strategies import Strategy
from synth_core.privacy.wall import wall
from synth_core.storage.counting import TableCounts

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4})
BUDGET = mu2_of(1.0, 1e-6)
SPENDING = Spending(dataset="people", snapshot="s", release="r", step="fit")


@pytest.fixture
def codes():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 5000)
    b = (a + (rng.random(5000) < 0.2)) % 3
    return {"a": a.astype(np.uint8), "b": b.astype(np.uint8), "c": rng.integers(0, 4, 5000).astype(np.uint8)}


@pytest.fixture
def ledger():
    return people_ledger(1.0)


@pytest.fixture
def curator(codes, ledger):
    return people_curator(codes, DOMAIN, ledger)


def test_measure_charges_exactly_its_share(curator, ledger):
    measurements = curator.measure([("a", "b"), ("c",)], BUDGET / 2, purpose="tables")
    assert [m.noisy.shape for m in measurements] == [(2, 3), (4,)]
    assert spent(ledger) == BUDGET / 2
    assert abs(measurements[0].noisy.sum() - 5000) < 6 * measurements[0].sigma * 6**0.5


def test_laplace_noise_has_the_scale_that_is_charged(curator, ledger, codes):
    tables = curator.measure([("a", "b", "c"), ("a",)], BUDGET / 2, purpose="tables", pure=True)
    (record,) = charged_records(ledger.records())
    assert record.mechanism.name == "discrete_laplace"
    assert record.mechanism.count == 2
    assert BUDGET / 2 * Fraction(999_999, 1_000_000) < spent(ledger) <= BUDGET / 2
    assert [m.sigma for m in tables] == [pytest.approx(float(record.mechanism.scale) * 2**0.5)] * 2
    again = curator.measure([("a", "b", "c"), ("a",)], BUDGET / 2, purpose="tables", pure=True)
    np.testing.assert_array_equal(again[0].noisy, tables[0].noisy)


@pytest.mark.parametrize(("factor", "fits"), [(0.7, False), (1.0, True), (1.3, False)])
def test_laplace_noise_is_laplace_noise(factor, fits):
    """4,000 draws on one cell against the distribution, also on two of wrong scale, which must be rejected."""
    scale, entropy = Fraction(3), SeededEntropy(1)
    noise = purely_noisy_counts(np.zeros(4000, dtype=np.int64), scale, entropy) / GRID
    p = kstest(noise, laplace(scale=float(scale) * factor).cdf).pvalue
    assert bool(p > 1e-4) is fits


def test_pure_scores_have_laplace_noise_of_the_scale_that_is_charged(codes, ledger):
    """2,000 scores of 0 against the distribution of the record's scale, and of two that are not it."""
    entropy = SeededEntropy(7)
    queries = [Misfit(("a",), np.zeros(2), penalty=float(k)) for k in range(2000)]
    asked = people_curator(codes, DOMAIN, ledger, entropy=entropy)
    values = asked.score(queries, BUDGET / 2, purpose="scores", pure=True)
    (record,) = charged_records(ledger.records())
    assert record.mechanism.name == "discrete_laplace"
    assert record.mechanism.pure_epsilon() == 2000 / record.mechanism.scale
    assert BUDGET / 2 * Fraction(999_999, 1_000_000) < spent(ledger) <= BUDGET / 2
    noise = np.array(values) - (5000 - np.arange(2000))
    fits = {f: kstest(noise, laplace(scale=float(record.mechanism.scale) * f).cdf).pvalue > 1e-4 for f in (0.7, 1, 1.3)}
    assert fits == {0.7: False, 1: True, 1.3: False}
    assert asked.score(queries, BUDGET / 2, purpose="scores", pure=True) == values, "asked again, answered again"


def test_laplace_noise_takes_no_weights(curator):
    with pytest.raises(SpecError, match="one scale for all tables"):
        curator.measure([("a",)], BUDGET, purpose="tables", weights=[1.0], pure=True)


def test_weights_share_the_noise(curator, ledger):
    heavy, light = curator.measure([("a",), ("c",)], BUDGET / 2, purpose="tables", weights=[3.0, 1.0])
    assert light.sigma / heavy.sigma == pytest.approx(3**0.5, rel=1e-4)
    assert spent(ledger) == BUDGET / 2
    assert 1 / heavy.sigma**2 + 1 / light.sigma**2 == pytest.approx(float(BUDGET / 2), rel=3e-4)


def test_weights_must_be_positive(curator):
    with pytest.raises(SpecError, match="weights"):
        curator.measure([("a",)], BUDGET, purpose="tables", weights=[0.0])


def test_score_is_noisy_truth(curator):
    (total,) = curator.score([Total()], BUDGET / 4, purpose="n")
    assert total != 5000.0
    assert abs(total - 5000) < 6 / float(BUDGET / 4) ** 0.5
    dependent, independent = curator.score(
        [Dependence(("a", "b")), Dependence(("a", "c"))], BUDGET / 4, purpose="pairs"
    )
    assert dependent > independent + 500


def test_choose_prefers_the_largest(curator, ledger):
    queries = [Misfit(("a", "b"), np.full((2, 3), 5000 / 6)), Misfit(("a", "c"), np.full((2, 4), 5000 / 8))]
    assert curator.choose(queries, BUDGET / 4, purpose="choice")[0] is queries[0]
    both = curator.choose(queries, BUDGET / 4, purpose="both", count=5)
    assert sorted(q.clique for q in both) == [("a", "b"), ("a", "c")]
    assert BUDGET / 2 * Fraction(999, 1000) < spent(ledger) <= BUDGET / 2


def test_with_replacement_one_query_may_be_chosen_often(curator, ledger):
    queries = [Misfit(("a", "b"), np.full((2, 3), 5000 / 6)), Misfit(("a", "c"), np.full((2, 4), 5000 / 8))]
    assert curator.choose(queries, BUDGET / 4, purpose="x", count=4, with_replacement=True) == [queries[0]] * 4
    assert BUDGET / 4 * Fraction(999, 1000) < spent(ledger) <= BUDGET / 4
    assert len(curator.choose(queries, BUDGET / 4, purpose="x", count=4)) == 2, "another question"
    assert curator.choose([], BUDGET / 4, purpose="none", count=4, with_replacement=True) == []


def test_mixed_sensitivities_are_refused(curator):
    with pytest.raises(SpecError, match="one sensitivity"):
        curator.score([Total(), Dependence(("a", "b"))], BUDGET, purpose="mixed")


def test_nothing_asked_nothing_charged(curator, ledger):
    assert curator.measure([], BUDGET, purpose="x") == []
    assert curator.score([], BUDGET, purpose="x") == []
    assert curator.choose([], BUDGET, purpose="x") == []
    assert spent(ledger) == 0


def test_a_retry_gets_the_same_answer_and_pays_once(curator, ledger, codes):
    first = curator.measure([("a", "b")], BUDGET / 2, purpose="tables")
    again = Curator(counts=TableCounts(codes, DOMAIN), ledger=ledger, spending=SPENDING)
    second = again.measure([("a", "b")], BUDGET / 2, purpose="tables")
    np.testing.assert_array_equal(first[0].noisy, second[0].noisy)
    assert spent(ledger) == BUDGET / 2


def test_another_question_gets_another_draw(curator):
    one = curator.measure([("a",)], BUDGET / 4, purpose="one")[0].noisy
    two = curator.measure([("a",)], BUDGET / 4, purpose="two")[0].noisy
    assert (one != two).any()


class Unreadable:
    """Counts that raise an error when they are read."""

    domain, scale = DOMAIN, 1

    def __init__(self, error):
        self.error = error

    def tables(self, cliques):
        raise self.error


def test_over_the_cap_nothing_is_counted(ledger):
    curator = Curator(counts=Unreadable(AssertionError("counts were read")), ledger=ledger, spending=SPENDING)
    with pytest.raises(BudgetRefused):
        curator.measure([("a",)], BUDGET * 2, purpose="too much")
    assert spent(ledger) == 0


def test_errors_inside_the_wall_lose_their_words(ledger):
    curator = Curator(counts=Unreadable(KeyError("Jane Doe, born 1970")), ledger=ledger, spending=SPENDING)
    with pytest.raises(WallError) as refusal:
        curator.measure([("a",)], BUDGET / 4, purpose="x")
    assert "Jane" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
    assert spent(ledger) == BUDGET / 4, "a crash while measuring stays charged"


def test_the_wall_lets_refusals_through():
    with pytest.raises(BudgetRefused, match="no room"), wall():
        raise BudgetRefused("no room")


@pytest.mark.parametrize(
    ("point", "attempts"),
    [("curator:reserved", 1), ("curator:measuring", 2), ("curator:drawn", 2), ("curator:stored", 1)],
)
def test_a_crash_at_each_point_is_charged_as_the_protocol_says(codes, ledger, point, attempts):
    class CrashError(BaseException):
        pass

    def crash(here):
        if here == point:
            raise CrashError

    counts = TableCounts(codes, DOMAIN)
    with pytest.raises(CrashError):
        Curator(counts=counts, ledger=ledger, spending=SPENDING, fault=crash).measure([("a",)], BUDGET / 4, purpose="x")
    retry = Curator(counts=counts, ledger=ledger, spending=SPENDING)
    answer = retry.measure([("a",)], BUDGET / 4, purpose="x")[0].noisy
    assert spent(ledger) == attempts * BUDGET / 4
    np.testing.assert_array_equal(answer, retry.measure([("a",)], BUDGET / 4, purpose="x")[0].noisy)
    measured = [record for record in ledger.records() if record.state is State.MEASURED]
    assert len(measured) == 1
    assert {record.state for record in charged_records(ledger.records())} <= CHARGED


def test_white_box_noise_has_the_stated_variance(codes, ledger):
    ledger.set_cap("people", epsilon=60.0, actor="test", reason="room for many draws")
    curator = Curator(counts=TableCounts(codes, DOMAIN), ledger=ledger, spending=SPENDING)
    truth = np.bincount(codes["c"], minlength=4)
    z = []
    for number in range(150):
        measured = curator.measure([("c",)], BUDGET / 4, purpose=f"draw {number}")[0]
        z.append((measured.noisy - truth) / measured.sigma)
    z = np.array(z)
    spread = (z**2).sum()
    low, high = 600 - 5 * (2 * 600) ** 0.5, 600 + 5 * (2 * 600) ** 0.5
    assert low < spread < high
    assert not low < spread / 0.7**2 < high, "a wrong sigma would be caught"
    assert not low < spread / 1.3**2 < high, "a wrong sigma would be caught"
    assert np.abs(np.corrcoef(z.T) - np.eye(4)).max() < 5 / 150**0.5


def test_noise_that_cannot_be_drawn_is_refused_before_it_is_charged(codes, ledger):
    """Before, the sensitivity of a strategy was forgotten, so that its question was charged and never answered."""
    curator = Curator(counts=TableCounts(codes, DOMAIN), ledger=ledger, spending=SPENDING)
    strategy = Strategy(("c",), (np.array([[1, 2**25, 0, 0]], dtype=np.int64),))
    with pytest.raises(SpecError, match="the noise would exceed every count"):
        curator.answer([strategy], Fraction(1, 10**6), purpose="x")
    assert spent(ledger) == 0
    assert [record.state for record in ledger.records() if record.step == SPENDING.step] == []
