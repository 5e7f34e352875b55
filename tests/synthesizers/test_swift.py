"""The one-shot clique-tree method: what a batch is worth, the tree's limit, and that nothing of the budget is left."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import chain, conversation

from synth_core.domain import Domain
from synth_core.errors import SpecError
from synth_core.measurement import Measurement
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers.base import Scores
from synth_core.synthesizers.independent import positive_shares, products
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE, best_batch
from synth_core.synthesizers.swift import Swift, orders, own_distance


@settings(max_examples=25)
@given(st.lists(st.floats(-200, 4000), min_size=6, max_size=6), st.floats(1e-3, 10))
def test_a_batch_is_the_best_of_its_order_and_worth_its_noise(distances, mu2):
    domain = Domain.of({"a": 2, "b": 3, "c": 5, "d": 8})
    gains = dict(zip(combinations("abcd", 2), distances, strict=True))

    def worth(cliques):
        noise = sum(domain.cells(clique) ** BY_SIZE for clique in cliques) ** 1.5 * MEAN_ABSOLUTE / mu2**0.5
        return sum(gains[clique] for clique in cliques) - noise

    value, chosen = best_batch(domain, gains, Fraction(mu2))
    assert value == pytest.approx(worth(chosen))
    assert value >= max(worth([clique]) for clique in chosen) - 1e-6
    assert value >= worth(chosen[:-1]) - 1e-6 or len(chosen) == 1


def test_a_larger_budget_is_worth_more_marginals():
    domain = Domain.of({"a": 4, "b": 4, "c": 4})
    gains = {("a", "b"): 4000.0, ("a", "c"): 300.0, ("b", "c"): 20.0}
    sizes = [len(best_batch(domain, gains, Fraction(mu2))[1]) for mu2 in (1e-5, 0.1, 100)]
    assert sizes[0] == 1 < sizes[1] < sizes[2] == 3


def test_without_candidates_single_attributes_are_measured_again():
    assert best_batch(Domain.of({"a": 2, "b": 2}), {}, Fraction(1)) == (0.0, (("a",), ("b",)))


def test_orders_differ_by_the_price_of_size_and_are_given_once():
    pairs = {("a", "b"): 50.0, ("a", "c"): 60.0, ("b", "c"): -1.0}
    small, large = Domain.of({"a": 2, "b": 2, "c": 2}), Domain.of({"a": 2, "b": 2, "c": 40})
    assert orders(small, pairs, Fraction(1)) == [(("a", "c"), ("a", "b"))]
    assert orders(large, pairs, Fraction(1)) == [(("a", "c"), ("a", "b")), (("a", "b"), ("a", "c"))]


def test_a_sets_own_distance_is_what_its_parts_do_not_have():
    pairs = {("a", "b"): 10.0, ("a", "c"): 30.0, ("b", "c"): 20.0, ("a", "d"): 5.0}
    larger = {("a", "b", "c"): 45.0, ("a", "b", "c", "d"): 50.0}
    assert own_distance(("a", "b", "c"), larger, pairs) == 15.0
    assert own_distance(("a", "b", "c", "d"), larger, pairs) == 5.0


def test_the_tree_holds_the_dependent_pairs_within_its_limit():
    domain, codes = chain([3, 4, 2, 5, 3, 2], 5000)
    _, structure, model, _ = conversation(Swift(largest_model=70.0), domain, codes)
    assert model.tree.cells <= 70
    inside = {pair for pair in pairwise(domain.attributes) if any(set(pair) <= set(c) for c in structure.cliques)}
    assert len(inside) >= 4
    assert conversation(Swift(), domain, codes).model.tree.cells > 70


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_all_of_the_budget_is_spent_in_one_batch(ways):
    """With pairs alone there are no larger sets to score, and what was meant for them goes to the batch."""
    domain, codes = chain([3, 4, 2, 3], 3000)
    _, structure, _, records = conversation(Swift(ways=ways), domain, codes)
    assert sum(record.mechanism.mu2() for record in records) == mu2_of(1.0, 1e-6)
    assert [record.purpose for record in records].count("marginals") == 1
    assert max(map(len, structure.initial)) <= ways


def test_options_are_checked():
    assert synthesizer("swift", "default", {"ways": 4}).ways == 4
    with pytest.raises(SpecError, match="swift has no option 'way'"):
        synthesizer("swift", "default", {"way": 4})


def test_preview_tells_the_bounds():
    domain = Domain.of({f"x{k}": 4 for k in range(9)})
    lines = dict(Swift().preview(domain, Swift().plan(domain, mu2_of(0.8, 1e-5))))
    assert lines["clique tree"] == "up to 262,144 cells"
    assert "sigma" in lines["noise on each count if all pairs were measured"]


def test_products_are_independent_tables_of_the_noisy_total():
    measured = (
        Measurement(("a",), np.array([30.0, -5.0, 10.0]), 1.0),
        Measurement(("b",), np.array([-1.0, -2.0]), 1.0),
        Measurement(("a", "b"), np.zeros((3, 2)), 1.0),
    )
    (table,) = products(Scores(40.0, (), measured), [("a", "b")])
    np.testing.assert_allclose(table, 40 * np.outer([0.75, 0, 0.25], [0.5, 0.5]))
    np.testing.assert_allclose(positive_shares(measured[1].noisy), [0.5, 0.5])


def test_many_attributes_stay_within_bounds():
    domain, codes = chain([4] * 60, 5000)
    model = conversation(Swift(largest_model=1e5), domain, codes).model
    assert model.tree.cells <= 2e5  # of what was measured the tree is found anew, by rules of thumb
