"""Sensitivities are searched exhaustively over small tables: never above the stated one, and close to it."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from synth_core.errors import SpecError
from synth_core.privacy.queries import GRID, BoxCount, Dependence, Misfit, Total
from synth_core.privacy.strategies import SUM_STEPS, WeightedSum, number_sum, place_sums


def tables(shape, most):
    """All tables of counts with at most `most` records."""
    cells = int(np.prod(shape))
    for counts in product(range(most + 1), repeat=cells):
        if sum(counts) <= most:
            yield np.array(counts, dtype=np.int64).reshape(shape)


def largest_change(query, shape, most):
    """The most that one added record moves the query's grid value."""
    worst = 0
    for table in tables(shape, most):
        before = query.evaluate(table)
        for cell in np.ndindex(*shape):
            table[cell] += 1
            worst = max(worst, abs(query.evaluate(table) - before))
            table[cell] -= 1
    return worst


@pytest.mark.parametrize(("shape", "most"), [((2, 2), 8), ((2, 3), 5), ((3, 3), 3)])
def test_dependence_moves_by_at_most_two_and_nearly_that(shape, most):
    change = largest_change(Dependence(("a", "b")), shape, most)
    stated = Dependence.sensitivity * GRID
    assert change <= stated
    assert change >= stated * 2 / 3, "the bound 2n/(n+1) is attained, so a claim of 1 would be caught"


def test_dependence_is_the_formula():
    rng = np.random.default_rng(1)
    for _ in range(20):
        table = rng.integers(0, 50, size=(3, 4))
        n = table.sum()
        exact = 0.5 * np.abs(table - np.outer(table.sum(1), table.sum(0)) / n).sum()
        assert Dependence(("a", "b")).evaluate(table) == int(np.floor(exact * GRID + 1e-9))


def test_dependence_does_not_overflow():
    table = np.array([[2**33, 0], [0, 2**33]], dtype=np.int64)
    assert Dependence(("a", "b")).evaluate(table) == GRID * 2**33
    assert Dependence(("a", "b")).evaluate(np.zeros((2, 2), dtype=np.int64)) == 0


def test_misfit_moves_by_at_most_one_and_that():
    reference = np.array([[0.3, 2.7], [1.0, 0.0]])
    change = largest_change(Misfit(("a", "b"), reference, penalty=3.2), (2, 2), 4)
    assert change == Misfit.sensitivity * GRID


@pytest.mark.parametrize("weight", [Fraction(1), Fraction(2, 3), Fraction(1, 7), Fraction(65535, 65536)])
def test_a_weighted_misfit_moves_by_at_most_one_and_by_its_weight(weight):
    query = Misfit(("a", "b"), np.array([[0.3, 2.7], [1.0, 0.0]]), penalty=3.2, weight=weight)
    change = largest_change(query, (2, 2), 4)
    assert change <= Misfit.sensitivity * GRID
    assert weight * GRID - 1 < change < weight * GRID + 1


@pytest.mark.parametrize("weight", [Fraction(0), Fraction(-1), Fraction(5, 4)])
def test_a_weight_that_would_move_a_misfit_further_is_refused(weight):
    with pytest.raises(SpecError, match="divide weights by the largest"):
        Misfit(("a",), np.zeros(2), weight=weight)


def test_misfit_is_the_formula():
    counts = np.array([5, 0, 2], dtype=np.int64)
    query = Misfit(("a",), np.array([4.0, 1.5, 2.0]), penalty=0.5)
    assert query.evaluate(counts) == GRID * 2
    assert replace(query, weight=Fraction(1, 4)).evaluate(counts) == GRID // 2


@pytest.mark.parametrize(("size", "bins", "places", "most"), [(2, 2, 2, 6), (3, 2, 2, 4), (2, 2, 4, 3), (3, 2, 3, 2)])
def test_sums_of_places_move_by_at_most_half_a_bin_and_nearly_that(size, bins, places, most):
    """In units of 1 / (2 places) of the bin: places - 1, in one sum alone, for all tables and all records."""
    strategy = place_sums(("x", "place"), bins=bins, size=size, places=places)
    worst = 0
    for table in tables((size, places), most):
        before = strategy.evaluate(table.copy()).astype(np.int64)
        for cell in np.ndindex(size, places):
            table[cell] += 1
            change = strategy.evaluate(table) - before
            table[cell] -= 1
            assert np.count_nonzero(change) <= 1
            assert cell[0] < bins or not change.any(), "a code beyond the bins adds to no sum"
            worst = max(worst, int((change**2).sum()))
    assert worst == strategy.sensitivity2 == (places - 1) ** 2


def test_sums_of_places_are_distances_from_the_middle():
    """Of a bin of width 8 with 4 places, whose middles are 1, 3, 5 and 7: three records at 1, one at 7."""
    table = np.array([[3, 0, 0, 1], [0, 0, 0, 0], [9, 9, 9, 9]], dtype=np.int64)
    found = place_sums(("x", "place"), bins=2, size=3, places=4).evaluate(table)
    assert found.ravel().tolist() == [3 * -3 + 3, 0]
    assert 8 * found[0, 0] / (2 * 4) == 3 * (1 - 4) + (7 - 4)


@pytest.mark.parametrize(("size", "bins", "most"), [(2, 2, 6), (3, 2, 3)])
@pytest.mark.parametrize("centre", [0.0, 3.5, 10.0])
def test_a_sum_of_numbers_moves_by_at_most_its_reach_and_by_just_that(size, bins, most, centre):
    """In units of reach / SUM_STEPS, for all tables and all records; codes beyond the bins add nothing."""
    numbers = np.array([[0.0, 1.0], [4.0, 10.0]])[:bins]
    reach = float(np.abs(numbers - centre).max())
    query, worst = number_sum(("x", "place"), numbers, size=size, centre=centre, reach=reach), 0
    for table in tables((size, 2), most):
        before = query.evaluate(table.copy()).item()
        for cell in np.ndindex(size, 2):
            table[cell] += 1
            change = abs(query.evaluate(table).item() - before)
            table[cell] -= 1
            expected = SUM_STEPS * abs(numbers[cell] - centre) / reach if cell[0] < bins else 0
            assert change == pytest.approx(expected, abs=0.5)
            worst = max(worst, change)
    assert worst**2 == query.sensitivity2 == SUM_STEPS**2


def test_a_number_beyond_the_reach_of_its_sum_is_refused():
    with pytest.raises(SpecError, match="beyond the reach"):
        number_sum(("x", "place"), np.array([[0.0, 10.0]]), size=1, centre=4.0, reach=5.0)
    with pytest.raises(SpecError, match="64-bit integers, not all 0"):
        WeightedSum(("x",), np.zeros(3, dtype=np.int64))


def test_total():
    assert Total().evaluate(np.array(7)) == 7 * GRID
    assert Total().clique == ()


@pytest.mark.parametrize("sign", [1, -1])
def test_box_counts_move_by_exactly_a_half(sign):
    query = BoxCount(("a", "b"), ((0, 1), (1, 3)), sign=sign, offset=2.7)
    assert largest_change(query, (2, 3), 3) == BoxCount.sensitivity * GRID


def test_box_count_is_the_formula():
    counts = np.array([[5, 1, 2], [0, 3, 1]], dtype=np.int64)
    assert BoxCount(("a", "b"), ((0, 2), (1, 2))).evaluate(counts) == GRID * (4 - 6)
    assert BoxCount(("a", "b"), ((0, 2), (1, 2)), sign=-1, offset=0.5).evaluate(counts) == GRID * 5 // 2
