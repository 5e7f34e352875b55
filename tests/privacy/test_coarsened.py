"""A query on grouped codes: its value, and that its sensitivity is the inner query's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.privacy.noise import GRID
from synth_core.privacy.queries import Coarsened, Dependence, Misfit

GROUPS = (np.array([0, 0, 1, 1, 1]), None)


def grouped(counts):
    return np.stack([counts[:2].sum(axis=0), counts[2:].sum(axis=0)])


tables = st.lists(st.integers(0, 6), min_size=15, max_size=15).map(lambda v: np.array(v).reshape(5, 3))


@given(tables, st.integers(0, 14))
@settings(max_examples=60, deadline=None)
def test_value_and_sensitivity(counts, cell):
    for inner in (Dependence(("a", "b")), Misfit(("a", "b"), np.ones((2, 3)))):
        query = Coarsened(inner, GROUPS)
        assert query.evaluate(counts) == inner.evaluate(grouped(counts))
        more = counts.copy()
        more.flat[cell] += 1
        moved = abs(query.evaluate(more) - query.evaluate(counts))
        assert moved <= query.sensitivity * GRID
        assert query.sensitivity == inner.sensitivity
        assert query.clique == inner.clique


def test_grouping_hides_what_is_inside_a_group():
    counts = np.zeros((5, 3), dtype=np.int64)
    counts[0, 0] = counts[1, 1] = counts[2, 0] = counts[3, 1] = 5
    assert Coarsened(Dependence(("a", "b")), GROUPS).evaluate(counts) == 0
    assert Dependence(("a", "b")).evaluate(counts) == pytest.approx(10 * GRID)
