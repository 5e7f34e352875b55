"""Answers of a model with their errors: of every kind of model, for every kind of question."""

from dataclasses import replace

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.errors import SourceError
from synth_core.inference.expected import expected_counts, sampled_counts
from synth_core.inference.replicates import Replicates, parameters
from synth_core.inference.uncertain import Uncertain
from synth_core.measurement import Measurement
from synth_core.models import BayesianNetwork, MarkovRandomField, Mixture, estimate, maximum_entropy
from synth_core.models.calibration import Factor
from synth_core.models.junction_tree import junction_tree
from synth_core.models.mixture import Component
from synth_core.models.refined import Refined
from synth_core.synthesizers import replicates
from synth_core.synthesizers.base import Fit
from synth_core.synthesizers.replicates import Redrawing

DOMAIN = Domain.of({"a": 3, "b": 2, "c": 4, "d": 2})
CLIQUES = (("a", "b"), ("b", "c"), ("d",))


def field(seed, domain=DOMAIN, cliques=CLIQUES, total=1000.0):
    size = sum(map(domain.cells, cliques))
    potentials = np.random.default_rng(seed).normal(size=size)
    return MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=total)


def refined(seed):
    rng = np.random.default_rng(seed)
    domain = Domain.of({"a": 3, "b": 2, "c": 6, "d": 2})
    groups = (np.arange(3), np.arange(2), np.array([0, 1, 2, 3, 3, 3]), np.arange(2))
    inside = rng.dirichlet([1, 1, 1])
    shares = (np.ones(3), np.ones(2), np.concatenate([np.ones(3), inside]), np.ones(2))
    return Refined(domain, field(seed), groups, shares)


def mixture(seed):
    rng = np.random.default_rng(seed)
    inner = Domain.of({"a": 3, "c": 4, "d": 2})
    own = field(seed, inner, (("a", "c"), ("d",)))
    pooled_domain = Domain.of({"b": 2, "a": 3, "c": 4, "d": 2})
    pooled = field(seed + 100, pooled_domain, (("b", "a"), ("c", "d")))
    domain = Domain.of({"b": 3, "a": 3, "c": 4, "d": 2})
    return Mixture(
        domain,
        (
            Component(own, float(rng.uniform(100, 900)), {"b": 1}, {}),
            Component(pooled, float(rng.uniform(100, 900)), {}, {"b": (0, 2)}),
        ),
    )


def network(seed):
    rng = np.random.default_rng(seed)
    tables = (Factor(("a", "b"), rng.uniform(1, 9, (3, 2))), Factor(("b", "c"), rng.uniform(1, 9, (2, 4))))
    tables = (*tables, Factor(("d",), rng.uniform(1, 9, 2)))
    return BayesianNetwork(DOMAIN, DOMAIN, tables, 1000.0)


KINDS = {"field": field, "refined": refined, "mixture": mixture, "network": network}


@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_counts_the_records_that_meet_it(kind):
    model = KINDS[kind](1)
    whole = model.marginal(("c", "a", "b"))
    asked = expected_counts(model, ("c", "a"), {"b": [1]})
    np.testing.assert_allclose(asked, whole[:, :, 1], rtol=1e-9)
    several = expected_counts(model, ("c",), {"b": {0, 1}, "a": [0, 2]})
    np.testing.assert_allclose(several, whole[:, [0, 2]][:, :, [0, 1]].sum(axis=(1, 2)), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_no_columns_count_the_records(kind):
    model = KINDS[kind](2)
    assert float(expected_counts(model, (), {})) == pytest.approx(model.total)


def test_a_condition_on_a_column_of_the_table_empties_its_other_codes():
    model = field(3)
    expected = model.marginal(("a", "b"))
    expected[[0, 2]] = 0
    np.testing.assert_allclose(expected_counts(model, ("a", "b"), {"a": [1]}), expected)


def test_a_large_sample_counts_what_the_model_expects():
    model = field(4)
    exact = expected_counts(model, ("a", "c"), {"d": [1]})
    np.testing.assert_allclose(sampled_counts(model, ("a", "c"), {"d": [1]}), exact, atol=3.0)


@pytest.mark.parametrize("kind", KINDS)
def test_replicates_are_stored_and_read(kind, tmp_path):
    model, others = KINDS[kind](5), [KINDS[kind](seed) for seed in (6, 7, 8)]
    stored = Replicates.of(model, others)
    stored.save(tmp_path / "replicates.npz")
    found = Replicates.load(tmp_path / "replicates.npz")
    assert len(found) == 3
    assert found.dependence == stored.dependence > 0
    for one, other in zip(found.models(model), others, strict=True):
        assert one.total == pytest.approx(other.total)
        np.testing.assert_allclose(parameters(one), parameters(other), atol=0.01)


@pytest.mark.parametrize("kind", ["field", "refined", "mixture"])
def test_sigma_is_how_far_replicates_are_from_the_model(kind):
    model, others = KINDS[kind](5), [KINDS[kind](seed) for seed in (6, 7, 8)]
    table = Uncertain(model, Replicates.of(model, others)).table(("a", "b"))
    off = [other.marginal(("a", "b")) - model.marginal(("a", "b")) for other in others]
    np.testing.assert_allclose(table.sigma, np.sqrt(np.mean(np.square(off), axis=0)), rtol=1e-4)
    low, high = table.interval()
    assert (low <= table.values).all()
    assert (high >= table.values).all()


def test_without_replicates_there_is_no_error_to_tell():
    assert np.isnan(Uncertain(field(1)).table(("a",)).sigma).all()


def test_replicates_of_another_model_are_refused():
    stored = Replicates.of(field(1), [field(2)])
    with pytest.raises(SourceError, match="copy both files"):
        Uncertain(refined(1), stored)


def test_a_share_that_half_precision_cannot_tell_is_not_below_0():
    """Before, a release ended in a traceback as its page of tables was made, when all was paid."""
    model = refined(1)
    own = replace(model, shares=(*model.shares[:2], np.array([1, 1, 1, 0.3, 0.3, 0.4]), model.shares[3]))
    others = [np.array([1, 1, 1, 0, 0, 1]), np.array([1, 1, 1, 0, 1, 0])]
    found = Replicates.of(own, [replace(own, shares=(*own.shares[:2], one, own.shares[3])) for one in others])
    assert (np.array([1, 1, 1, 0.3, 0.3, 0.4]) + found.changes[:, -8:-2]).min() < 0, "it is such a case"
    for one, wanted in zip(found.models(own), others, strict=True):
        np.testing.assert_allclose(one.shares[2], wanted, atol=1e-3)
        assert one.shares[2].min() >= 0
        assert one.shares[2][3:].sum() == pytest.approx(1)
        assert len(one.sample(1000, np.random.default_rng(1))) == 1000


def test_what_no_answer_was_about_is_modelled():
    one = Uncertain(field(1))
    assert one.table(("a", "b")).measured
    assert one.table(("a",), where={"b": [0]}).measured
    assert not one.table(("a", "c")).measured
    assert not one.table(("a",), where={"d": [0]}).measured
    divided = Uncertain(mixture(1))
    assert divided.measured(("a", "b"))
    assert not divided.measured(("a", "c"))


def test_a_table_too_large_to_sum_out_is_counted_in_a_sample(monkeypatch):
    monkeypatch.setattr("synth_core.models.calibration.LARGEST_TABLE", 5)
    model = field(1)
    table = Uncertain(model, Replicates.of(model, [replace_total(model, 1010.0)])).table(("a", "c"))
    assert table.sampled
    assert (table.extra > 0).all()


def replace_total(model, total):
    return MarkovRandomField(model.tree, model.cliques, model.potentials.copy(), total=total)


@pytest.mark.parametrize("kind", ["field", "refined", "mixture"])
def test_a_stored_table_is_the_one_that_the_models_sum_out(kind):
    model, others = KINDS[kind](5), [KINDS[kind](seed) for seed in (6, 7)]
    asked, where = ("a",), {"b": [1]}
    stored = Uncertain(model, Replicates.of(model, others)).table(asked, where=where)
    np.testing.assert_allclose(stored.values, expected_counts(model, asked, where))
    for draw, other in zip(stored.draws, others, strict=True):
        np.testing.assert_allclose(draw, expected_counts(other, asked, where), rtol=1e-4)


def test_a_modelled_table_is_wider_by_what_measuring_changed_elsewhere():
    model = field(5)
    one = Uncertain(model, Replicates.of(model, [field(6)]))
    table = one.table(("a", "c"))
    np.testing.assert_allclose(table.extra, one.replicates.dependence * table.values)
    assert not one.table(("a", "b")).extra.any()


@pytest.mark.parametrize("misled", [False, True])
def test_replicates_of_tables_made_to_agree_are_those_of_the_tables(monkeypatch, misled):
    """Tables of unequal noise that overlap; averaged as if it were equal, they would lead to other models."""
    monkeypatch.setattr(maximum_entropy, "NEARLY_BALANCED", 1e-3)
    monkeypatch.setattr("synth_core.synthesizers.replicates.MAX_PASSES", 3000)
    domain, rng = Domain.of({"a": 3, "b": 4, "c": 2}), np.random.default_rng(0)
    sigmas = {("a",): 2.0, ("a", "b"): 20.0, ("b", "c"): 5.0, ("a", "c"): 10.0}
    tables = tuple(
        Measurement(clique, 1000 / domain.cells(clique) + rng.normal(0, 60, domain.shape(clique)), sigma)
        for clique, sigma in sigmas.items()
    )
    ridge = 0.05
    fit = Fit(domain, tables, {"ridge": ridge})
    redrawing = Redrawing(fit.by(estimate), fit, (), ridge, 0, {m.clique: m.noisy for m in tables})
    if misled:
        equal = lambda found, **_: [replace(m, sigma=7.0) for m in found]  # noqa: E731
        agree = replicates.make_consistent
        monkeypatch.setattr(
            replicates,
            "make_consistent",
            lambda found, update: [
                replace(m, sigma=own.sigma) for m, own in zip(agree(equal(found), update=update), found, strict=True)
            ],
        )
    fast = redrawing.replicate(0)
    monkeypatch.setattr(Redrawing, "_agreed", lambda self, found: list(found))
    slow = redrawing.replicate(0)
    gap = max(np.abs(fast.marginal(clique) - slow.marginal(clique)).max() for clique in sigmas)
    assert (gap > 1) if misled else (gap < 0.1)
