"""Linear strategies at the curator: sensitivity by exhaustive search, exact answers, charges, noise, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import people_curator, people_ledger, spent

from synth_core.domain import Domain
from synth_core.errors import SpecError, WallError
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.strategies import Strategy, fingerprint

DOMAIN = Domain.of({"a": 2, "b": 3})
BUDGET = mu2_of(1.0, 1e-6)
ROWS = {"a": np.array([0, 1, 1, 1, 0] * 400), "b": np.array([0, 1, 2, 2, 2] * 400)}
PREFIX = np.tril(np.ones((3, 3), dtype=np.int64))
SINGLE = np.eye(2, dtype=np.int64)


@pytest.fixture
def ledger():
    return people_ledger(60.0)


@pytest.fixture
def curator(ledger):
    return people_curator(ROWS, DOMAIN, ledger)


@st.composite
def matrices(draw):
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    cells = draw(st.lists(st.integers(-4, 4), min_size=rows * columns, max_size=rows * columns).filter(any))
    return np.array(cells, dtype=np.int64).reshape(rows, columns)


@given(matrices(), matrices())
def test_sensitivity_is_what_the_worst_record_does(left, right):
    strategy = Strategy(("a", "b"), (left, right))
    empty = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    changes = []
    for cell in np.ndindex(*empty.shape):
        record = empty.copy()
        record[cell] = 1
        changes.append(int((strategy.evaluate(record) ** 2).sum()))
    assert max(changes) == strategy.sensitivity2


@given(matrices(), matrices(), st.randoms(use_true_random=False))
def test_answers_are_those_of_the_full_kronecker_product(left, right, random):
    shape = (left.shape[1], right.shape[1])
    table = np.array([random.randrange(50) for _ in range(math.prod(shape))], dtype=np.int64).reshape(shape)
    answers = Strategy(("a", "b"), (left, right)).evaluate(table)
    assert answers.dtype == np.int64
    np.testing.assert_array_equal(answers.ravel(), np.kron(left, right) @ table.ravel())


def test_the_whole_share_is_charged_and_the_weights_share_it(curator, ledger):
    asked = [Strategy(("a", "b"), (SINGLE, PREFIX)), Strategy(("b",), (PREFIX,))]
    pair, single = curator.answer(asked, BUDGET / 2, purpose="x", weights=[1.0, 3.0])
    assert spent(ledger) == BUDGET / 2
    assert pair.sigma / single.sigma == pytest.approx(3**0.5, rel=1e-4)
    assert pair.noisy.shape == (2, 3)
    assert abs(single.noisy[2] - 2000) < 6 * single.sigma
    price = 3 / pair.sigma**2 + 3 / single.sigma**2
    assert price == pytest.approx(float(BUDGET / 2), rel=3e-4), "squared sensitivity 3 for each"


@pytest.mark.slow
def test_noise_is_that_of_the_sensitivity(curator):
    truth = np.array([400, 800, 2000])
    z = []
    for number in range(200):
        (answers,) = curator.answer([Strategy(("b",), (PREFIX,))], BUDGET / 4, purpose=f"draw {number}")
        z.append((answers.noisy - truth) / math.sqrt(3 / float(BUDGET / 4)))
    spread = (np.array(z) ** 2).sum()
    low, high = 600 - 5 * 1200**0.5, 600 + 5 * 1200**0.5
    assert low < spread < high
    assert not low < spread * 3 < high, "noise for a sensitivity of 1 would be caught"


def test_a_retry_is_free_and_another_matrix_is_another_question(curator, ledger):
    first = curator.answer([Strategy(("b",), (PREFIX,))], BUDGET / 4, purpose="x")[0]
    again = curator.answer([Strategy(("b",), (PREFIX,))], BUDGET / 4, purpose="x")[0]
    np.testing.assert_array_equal(first.noisy, again.noisy)
    assert spent(ledger) == BUDGET / 4
    other = curator.answer([Strategy(("b",), (np.triu(PREFIX.T),))], BUDGET / 4, purpose="x")[0]
    assert (other.noisy != first.noisy).all()
    assert spent(ledger) == BUDGET / 2
    assert fingerprint([first.strategy]) != fingerprint([other.strategy])


def test_nothing_asked_nothing_charged(curator, ledger):
    assert curator.answer([], BUDGET, purpose="x") == []
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    ("clique", "given"),
    [
        (("b",), (SINGLE,)),
        (("b", "a"), (PREFIX, SINGLE)),
    ],
)
def test_a_strategy_must_fit_the_domain(curator, clique, given):
    with pytest.raises(SpecError, match="order and sizes"):
        curator.answer([Strategy(clique, given)], BUDGET, purpose="x")


def test_malformed_strategies_are_refused():
    with pytest.raises(SpecError, match="one matrix for each"):
        Strategy(("a", "b"), (SINGLE,))
    for wrong in (SINGLE.astype(float), np.zeros((2, 2), dtype=np.int64), np.ones(2, dtype=np.int64)):
        with pytest.raises(SpecError, match="integers"):
            Strategy(("a",), (wrong,))


def test_coefficients_that_would_overflow_are_refused():
    huge = Strategy(("a",), (SINGLE * 2**53,))
    assert huge.evaluate(np.array([1, 0])).tolist() == [2**53, 0]
    with pytest.raises(WallError, match="no room"):
        huge.evaluate(np.array([3, 0]))
