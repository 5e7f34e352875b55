"""The model of a public table: what is learned, when it is trusted, how much it weighs, what a wrong one costs."""

from dataclasses import dataclass

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.models.reference import Reference
from synth_core.privacy.budget import mu2_of
from synth_core.storage.counting import count_codes
from synth_core.synthesizers.base import Scores, ask_first, load_scores, run_phases, save_scores
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.prior import bears_out, completed, model_of, relative_fit, shown_weight
from tests.support.conversations import chain, people_curator, people_ledger, spent

SIZES = [3, 4, 3, 2, 4]
PAIR = Domain.of({"a": 2, "b": 3})


@dataclass
class Public:
    """A public table of codes."""

    domain: Domain
    codes: dict

    @property
    def rows(self):
        return len(next(iter(self.codes.values())))

    def count(self, cliques):
        return count_codes(self.codes, self.domain, cliques)


def learned(codes, domain):
    own = domain.project(domain.clique(codes))
    return synthesizer("privmrf").learn_prior(Public(own, {name: codes[name] for name in own.attributes}))


def counted(codes, domain, clique):
    return count_codes(codes, domain, [clique])[0]


@pytest.fixture(scope="module")
def population():
    """A public and a confidential table of one population, in which each attribute copies its neighbour."""
    domain, public = chain(SIZES, 6000, seed=1)
    return domain, public, chain(SIZES, 4000, seed=2)[1]


def talked(domain, codes, prior, *, epsilon):
    """A conversation of privmrf about rows."""
    method, ledger = synthesizer("privmrf"), people_ledger(50.0)
    plan = method.plan(domain, mu2_of(epsilon, 1e-6))
    talk = run_phases(method, plan, lambda step: people_curator(codes, domain, ledger, step=step), prior=prior)
    return talk, ledger, plan


def error(model, domain, codes):
    pairs = [(a, b) for k, a in enumerate(domain.attributes) for b in domain.attributes[k + 1 :]]
    rows = len(next(iter(codes.values())))
    return np.mean(
        [np.abs(model.marginal(pair) / model.total - counted(codes, domain, pair) / rows).sum() / 2 for pair in pairs]
    )


def test_what_is_learned_is_the_dependence_of_the_public_table(population):
    domain, public, _ = population
    prior = learned(public, domain)
    model = model_of(prior, domain, 6000.0)
    assert prior.joined == set(domain)
    assert error(model, domain, public) < 0.02  # sampling alone is about as much
    assert learned(public, domain).rows == 6000


def test_a_table_of_independent_columns_teaches_no_dependence():
    """Sampling alone makes every pair look dependent; a prior that took that for dependence would have joined pairs."""
    rng = np.random.default_rng(3)
    domain = Domain.of({f"x{k}": size for k, size in enumerate(SIZES)})
    codes = {name: rng.integers(0, domain.size(name), 3000).astype(np.uint8) for name in domain}
    assert learned(codes, domain).joined == frozenset()


def test_learning_twice_gives_the_same_bytes(population):
    domain, public, _ = population
    first, second = learned(public, domain), learned(public, domain)
    assert first.cliques == second.cliques
    for one, other in zip(first.tables, second.tables, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_good_prior_at_a_small_price_halves_the_errors(population):
    domain, public, confidential = population
    prior = learned(public, domain)
    with_prior, _, _ = talked(domain, confidential, prior, epsilon=0.1)
    without, _, _ = talked(domain, confidential, None, epsilon=0.1)
    assert with_prior.scores.reference is not None
    assert error(with_prior.model, domain, confidential) < error(without.model, domain, confidential) / 2


def test_a_wrong_prior_is_set_aside_and_costs_one_step_of_the_budget(population):
    """Each column of the prior copies another neighbour, with its codes turned round."""
    domain, public, confidential = population
    names = domain.attributes
    wrong = {name: (domain.size(name) - 1 - np.roll(public[name], 7 * k)) for k, name in enumerate(names)}
    wrong["x02"] = (wrong["x00"] + 1) % 3
    prior = learned({name: codes.astype(np.uint8) for name, codes in wrong.items()}, domain)
    assert prior.joined
    talk, _, _ = talked(domain, confidential, prior, epsilon=5.0)
    plain, _, _ = talked(domain, confidential, None, epsilon=5.0)
    assert talk.scores.reference is None
    assert talk.scores.repeated == plain.scores.repeated + 1


def test_nothing_is_spent_beyond_the_plan(population):
    domain, public, confidential = population
    for prior in (learned(public, domain), learned({name: public[name] for name in ("x00", "x01")}, domain)):
        _, ledger, plan = talked(domain, confidential, prior, epsilon=1.0)
        assert spent(ledger) <= plan.total_mu2


def test_a_retry_asks_the_same_again(population):
    """All answers come from the ledger the second time, and the model is the same."""
    domain, public, confidential = population
    prior, method, ledger = learned(public, domain), synthesizer("privmrf"), people_ledger(50.0)
    plan = method.plan(domain, mu2_of(1.0, 1e-6))
    models, charged = [], []
    for _ in range(2):
        talk = run_phases(
            method, plan, lambda step: people_curator(confidential, domain, ledger, step=step), prior=prior
        )
        models.append(talk.model)
        charged.append(spent(ledger))
    assert charged[0] == charged[1]
    np.testing.assert_array_equal(models[0].potentials, models[1].potentials)


def test_columns_that_the_prior_lacks_are_modelled_as_ever(population):
    domain, public, confidential = population
    prior = learned({name: public[name] for name in ("x00", "x01", "x02")}, domain)
    talk, _, _ = talked(domain, confidential, prior, epsilon=5.0)
    plain, _, _ = talked(domain, confidential, None, epsilon=5.0)
    assert talk.model.domain == domain
    assert error(talk.model, domain, confidential) < 1.5 * error(plain.model, domain, confidential)


def test_scores_with_a_prior_are_read_as_they_were_written(tmp_path):
    table = np.random.default_rng(1).normal(size=(2, 3))
    reference = Reference.of(
        MarkovRandomField(junction_tree(PAIR, [("a", "b")]), [("a", "b")], table.ravel(), total=9), 7
    )
    save_scores(Scores(5.0, reference=reference), tmp_path / "scores.json")
    read = load_scores(tmp_path / "scores.json").reference
    assert (read.rows, read.cliques) == (7, (("a", "b"),))
    np.testing.assert_array_equal(read.tables[0].values, table)
    save_scores(Scores(5.0), tmp_path / "scores.json")
    assert load_scores(tmp_path / "scores.json").reference is None


def half_noisy(rng, prior, *, weight, sigma=5.0, total=3000.0):
    """A noisy table of a population that differs from the prior as the weight says."""
    expected = prior.marginal(("a", "b"))
    true = expected + rng.normal(size=expected.shape) * np.sqrt(expected / weight)
    return Measurement(("a", "b"), true + rng.normal(0, sigma, expected.shape), sigma)


def test_the_weight_is_found_again():
    """Over many draws the inverse of the weight is on average what the tables were drawn with."""
    rng = np.random.default_rng(8)
    reference = Reference.of(
        MarkovRandomField(junction_tree(PAIR, [("a", "b")]), [("a", "b")], rng.normal(size=6), total=1.0), 1e9
    )
    prior = model_of(reference, PAIR, 3000.0)
    for weight in (0.01, 0.1):
        many = [half_noisy(rng, prior, weight=weight) for _ in range(300)]
        found = shown_weight(prior, many, rows=1e9)
        assert 0.85 * weight < found < 1.15 * weight
    exact = [half_noisy(rng, prior, weight=1e9) for _ in range(300)]
    assert shown_weight(prior, exact, rows=1e9) > 0.8
    assert shown_weight(prior, exact, rows=1000.0) == pytest.approx(1 / 4)  # sampling of the public table counts


def test_a_prior_is_trusted_where_it_leaves_less_than_independence():
    domain = Domain.of({f"x{k}": 3 for k in range(6)})
    pairs = [(a, b) for k, a in enumerate(domain.attributes) for b in domain.attributes[k + 1 :]]
    near, far = dict.fromkeys(pairs, 20.0), dict.fromkeys(pairs, 400.0)
    mu2 = mu2_of(0.1, 1e-6)
    assert bears_out(domain, near, far, sigma=10.0, mu2=mu2)
    assert not bears_out(domain, far, near, sigma=10.0, mu2=mu2)
    assert not bears_out(domain, near, near, sigma=10.0, mu2=mu2)
    assert not bears_out(domain, near, far, sigma=4000.0, mu2=mu2)  # chance may explain it
    half = dict.fromkeys(pairs, 200.0)
    assert not bears_out(domain, half, far, sigma=1.0, mu2=mu2)  # half of the dependence is left unexplained
    few = pairs[:2]
    known = ({pair: misfits[pair] for pair in few} for misfits in (near, far))
    assert not bears_out(domain, *known, sigma=1.0, mu2=mu2)  # of most pairs it says nothing


def test_columns_that_a_reference_lacks_get_their_measured_shares():
    reference = Reference((), 10.0)
    full = completed(reference, [Measurement(("a",), np.array([30.0, 10.0]), 1.0)])
    np.testing.assert_allclose(np.exp(full.tables[0].values), [0.75, 0.25])


def test_methods_without_priors_are_refused_by_name():
    for method, preset in (("absyn", "default"), ("privmrf", "paper")):
        with pytest.raises(SpecError, match="prior: the method does not build on a public table; use privmrf"):
            ask_first(synthesizer(method, preset), None, None, prior=Reference((), 1.0))


# The engine


def brute_force(domain, reference, m, *, ridge, total):
    """Cells of the distribution of least loss plus ridge times relative entropy, by plain gradient steps."""
    base = np.exp(reference.tables[0].values)
    base = base / base.sum()
    p = base.copy()
    for _ in range(200_000):
        gradient = (total * p.sum(axis=1) - m.noisy)[:, None] / m.sigma**2 + ridge * np.log(p / base)
        p = p * np.exp(-1e-3 * gradient)
        p /= p.sum()
    return p * total


def test_the_fit_minimises_relative_entropy_to_its_reference():
    rng = np.random.default_rng(4)
    reference = Reference.of(
        MarkovRandomField(junction_tree(PAIR, [("a", "b")]), [("a", "b")], rng.normal(size=6), total=1.0), 100.0
    )
    m = Measurement(("a",), np.array([70.0, 30.0]), 10.0)
    fitted = estimate(PAIR, [m], total=100.0, ridge=0.5, reference=reference)
    np.testing.assert_allclose(
        fitted.marginal(("a", "b")), brute_force(PAIR, reference, m, ridge=0.5, total=100.0), rtol=0.05
    )
    plain = estimate(PAIR, [m], total=100.0, ridge=0.5)
    assert np.abs(plain.marginal(("a", "b")) - fitted.marginal(("a", "b"))).max() > 1


def test_without_evidence_the_fit_is_the_reference_and_starts_again_from_itself():
    rng = np.random.default_rng(5)
    reference = Reference.of(
        MarkovRandomField(junction_tree(PAIR, [("a", "b")]), [("a", "b")], rng.normal(size=6), total=1.0), 100.0
    )
    prior = model_of(reference, PAIR, 100.0)
    same = Measurement(("a",), prior.marginal(("a",)), 5.0)
    fitted = estimate(PAIR, [same], total=100.0, ridge=0.1, reference=reference)
    np.testing.assert_allclose(fitted.marginal(("a", "b")), prior.marginal(("a", "b")), rtol=1e-9)
    other = Measurement(("a", "b"), prior.marginal(("a", "b")) + rng.normal(0, 5, (2, 3)), 5.0)
    first = estimate(PAIR, [other], total=100.0, ridge=0.1, reference=reference)
    again = estimate(PAIR, [other], total=100.0, ridge=0.1, reference=reference, warm=first, max_passes=1)
    np.testing.assert_allclose(first.marginal(("a", "b")), again.marginal(("a", "b")), rtol=0.05)


def test_tables_that_the_prior_does_not_speak_of_have_a_weight_of_their_own():
    domain = Domain.of({"a": 2, "b": 3, "c": 2})
    potentials = np.array([0.5, 0.0, -0.5, -0.5, 0.0, 0.5])
    reference = Reference.of(
        MarkovRandomField(junction_tree(domain.project(("a", "b")), [("a", "b")]), [("a", "b")], potentials, total=1.0),
        1000.0,
    )
    prior = model_of(reference, domain, 1000.0)
    measured = [
        Measurement(("a", "b"), prior.marginal(("a", "b")), 2.0),
        Measurement(("c",), np.array([500.0, 500.0]), 2.0),
        Measurement(("b", "c"), np.array([[300.0, 33.0], [33.0, 300.0], [167.0, 167.0]]), 2.0),
    ]
    fit = relative_fit(reference, domain, measured)
    own, column, other = fit.tables()
    assert own.sigma == 2.0
    assert column.sigma == other.sigma < 2.0
    model = fit.by(estimate)
    assert np.abs(model.marginal(("b", "c")) - measured[2].noisy).sum() < 60
