"""Every method, whatever its model, draws no row that breaks a rule, and learns as much as without rules."""

import numpy as np
import pytest
from support.conversations import conversation

from synth_core.domain import Domain, Impossible, breaking_rows
from synth_core.measurement import Measurement
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import load_model
from synth_core.synthesizers.compression import Compression
from synth_core.synthesizers.methods import METHODS, synthesizer

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5, "e": 3, "f": 2}
RULES = (
    Impossible("a decides c", (("a", (0, 1)), ("c", (1,)))),
    Impossible("a decides c", (("a", (2,)), ("c", (0,)))),
    Impossible("b, d and f", (("b", (0, 1)), ("d", (3, 4)), ("f", (1,)))),
    Impossible("e after d", (("d", (0,)), ("e", (2,)))),
)
RULED = Domain(tuple(SIZES), tuple(SIZES.values()), RULES)
REFUSED = [("dualquery", "rows")]
"""Presets without a model that could hold rules."""
VARIANTS = [(name, p) for name, method in METHODS.items() for p in method.presets if (name, p) not in REFUSED]
LAWFUL = {("privbayes", "paper"): {"generation": "dealt"}}
"""Options of presets that are refused where there are rules."""


def lawful_rows(count, seed=11):
    """Rows of a chain of dependent attributes, without those that break a rule."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(3, count, p=[0.6, 0.3, 0.1])]
    for size in RULED.sizes[1:]:
        copied = rng.random(count) < 0.75
        columns.append(np.where(copied, columns[-1], rng.integers(0, 10, count)) % size)
    columns[2] = (columns[0] == 2).astype(int)
    rows = np.column_stack(columns)
    return rows[~breaking_rows(rows, RULED)]


def ruled(method, preset):
    return synthesizer(method, preset, LAWFUL.get((method, preset)))


def codes_of(rows):
    return dict(zip(RULED, rows.T.astype(np.uint8), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "preset"), VARIANTS, ids=lambda value: value)
def test_no_row_breaks_a_rule(method, preset, tmp_path):
    """At so little budget that tables are mostly noise; saved and read, as between two steps."""
    model = conversation(ruled(method, preset), RULED, codes_of(lawful_rows(3000)), epsilon=0.2).model
    model.save(tmp_path / "model.npz")
    rows = load_model(tmp_path / "model.npz").sample(20_000, np.random.default_rng(0))
    assert rows.shape == (20_000, 6)
    assert not breaking_rows(rows, RULED).any()


def test_cliques_that_are_fitted_one_by_one_keep_the_rules():
    parallel = synthesizer("absyn", "default", {"estimation": "parallel"})
    model = conversation(parallel, RULED, codes_of(lawful_rows(3000)), epsilon=0.2).model
    assert not breaking_rows(model.sample(20_000, np.random.default_rng(0)), RULED).any()


def test_without_rules_the_same_data_make_rows_that_break_them():
    """The test above can fail."""
    codes = codes_of(lawful_rows(3000))
    model = conversation(synthesizer("privmrf"), RULED.unruled, codes, epsilon=0.2).model
    assert breaking_rows(model.sample(20_000, np.random.default_rng(0)), RULED).any()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["privmrf", "mst"])
def test_rules_do_not_cost_utility(method):
    rows = lawful_rows(6000)

    def error(domain, runs=4):
        found = []
        for _ in range(runs):
            model = conversation(synthesizer(method), domain, codes_of(rows), epsilon=0.5).model
            real = np.zeros(RULED.sizes)
            np.add.at(real, tuple(rows.T), 1 / len(rows))
            made = model.marginal(RULED.attributes)
            found.append(np.abs(real - made / made.sum()).sum() / 2)
        return np.mean(found)

    assert error(RULED) < error(RULED.unruled)


def test_networks_and_fields_are_both_among_the_models():
    """So that both ways of keeping rules are seen by the tests above."""
    codes = codes_of(lawful_rows(3000))
    kinds = {type(conversation(ruled("privbayes", preset), RULED, codes).model) for preset in ("default", "paper")}
    assert kinds == {MarkovRandomField, BayesianNetwork}


def test_what_a_rule_speaks_about_is_not_merged():
    one_way = [Measurement((name,), np.ones(size), 1.0) for name, size in zip(RULED, RULED.sizes, strict=True)]
    smaller = Compression.from_measurements(RULED, one_way, threshold=3.0).domain
    ruled = {name for excluded in RULED.impossible for name in excluded.attributes}
    assert smaller.impossible == RULED.impossible
    assert all(smaller.size(name) == RULED.size(name) for name in ruled)
    free = Compression.from_measurements(RULED.unruled, one_way, threshold=3.0).domain
    assert all(free.size(name) < RULED.size(name) for name in ruled if RULED.size(name) > 1)
