"""Many tables at once are the tables that are asked one by one."""

from itertools import combinations

import numpy as np
import pytest
from test_uncertain import KINDS

from synth_core.inference import many
from synth_core.inference.many import uncertain_tables
from synth_core.inference.replicates import Replicates
from synth_core.inference.uncertain import Uncertain
from synth_core.models.markov_random_field import MarkovRandomField

NAMES = ("a", "b", "c", "d")
CLIQUES = [(), *(clique for size in (1, 2, 3) for clique in combinations(NAMES, size)), ("c", "a")]


def asked(kind):
    own = KINDS[kind](1)
    return Uncertain(own, Replicates.of(own, [KINDS[kind](seed) for seed in (1, 2, 3)]))


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_the_tables_that_are_asked_one_by_one(kind):
    uncertain = asked(kind)
    for clique, table in zip(CLIQUES, uncertain_tables(uncertain, CLIQUES), strict=True):
        alone = uncertain.table(clique)
        np.testing.assert_allclose(table.values, alone.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(table.draws, alone.draws, rtol=1e-6, atol=1e-3)
        np.testing.assert_allclose(table.sigma, alone.sigma, rtol=1e-3, atol=1e-2)
        assert (table.attributes, table.measured, table.sampled) == (alone.attributes, alone.measured, alone.sampled)


@pytest.mark.parametrize("kind", ["field", "refined", "mixture"])
def test_what_is_much_work_is_counted_in_a_sample_with_its_error(kind, monkeypatch):
    monkeypatch.setattr(many, "SUMMED_CELLS", 0)
    uncertain = asked(kind)
    inside, across = uncertain_tables(uncertain, [("a",), ("a", "c", "d")])
    assert (inside.sampled, across.sampled) == (False, True)
    exact = uncertain.table(("a", "c", "d"))
    error = np.sqrt(exact.values * uncertain.model.total / many.ROWS)
    assert np.abs(across.values - exact.values).max() > 0
    assert (np.abs(across.values - exact.values) < 5 * error + 0.01).all()
    assert (across.extra >= 0.5 * error**2).all()


def test_a_model_is_forgotten_before_the_next_is_asked(monkeypatch):
    """Two dozen calibrated models would not fit into memory."""
    uncertain, calibrated = asked("field"), []
    beliefs = MarkovRandomField.beliefs.fget

    def watched(model):
        calibrated.append(model)
        return beliefs(model)

    monkeypatch.setattr(MarkovRandomField, "beliefs", property(watched))
    uncertain_tables(uncertain, [("a", "c")])
    made = {id(model) for model in calibrated}
    assert len(made) == 4
    assert not made & {id(model) for model in uncertain._few}


def test_without_replicates_there_is_no_error():
    (table,) = uncertain_tables(Uncertain(KINDS["field"](1)), [("a", "b")])
    assert table.draws.shape == (0, 3, 2)
    assert np.isnan(table.sigma).all()
