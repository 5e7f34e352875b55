"""Models drawn table by table: the chain rule where tables agree, and sound where they do not."""

import numpy as np

from synth_core.domain import Domain
from synth_core.synthesizers.consistency import model_in_turn, order_by_dependence

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 2})


def chain():
    """A joint table in which each attribute depends on the one before alone."""
    rng = np.random.default_rng(3)
    joint = rng.dirichlet(np.ones(2))
    for size in (3, 2, 2):
        joint = joint[..., None] * rng.dirichlet(np.ones(size), size=joint.shape[-1])
    return joint * 1000


def table(joint, clique):
    axes = tuple(k for k, attribute in enumerate(DOMAIN) if attribute not in clique)
    return tuple(clique), joint.sum(axis=axes)


def test_exact_tables_of_a_chain_give_the_chain_back():
    joint = chain()
    model = model_in_turn(DOMAIN, [table(joint, pair) for pair in ("ab", "bc", "cd")], total=1000)
    np.testing.assert_allclose(model.marginal(DOMAIN.attributes), joint, atol=1e-6)


def test_only_the_largest_overlap_with_one_table_is_given():
    joint = chain()
    apart = [table(joint, "a"), table(joint, "bc"), table(joint, "abcd")]
    model = model_in_turn(DOMAIN, apart, total=1000)
    assert set(model.cliques) == {("a",), ("b", "c"), ("b", "c", "d")}, "a is not given: another table has it"
    np.testing.assert_allclose(model.marginal("bcd"), table(joint, "bcd")[1], atol=1e-6)


def test_negative_counts_have_no_weight_and_empty_rows_are_even():
    noisy = np.array([[10.0, -5.0, 30.0], [-1.0, -2.0, -3.0]])
    model = model_in_turn(DOMAIN, [(("a",), np.array([50.0, 50.0])), (("a", "b"), noisy)], total=100)
    expected = [[12.5, 0, 37.5], [50 / 3] * 3]
    np.testing.assert_allclose(model.marginal(("a", "b")), expected, atol=1e-6)
    np.testing.assert_allclose(model.marginal(("d",)), [50, 50], err_msg="no table: uniform")


def test_the_most_dependent_tables_come_first():
    tables = [
        (("a", "b"), np.full((2, 3), 100.0)),
        (("b", "c"), np.array([[200.0, 0], [0, 200], [100, 100]])),
        (("a", "c"), np.array([[150.0, 150], [140, 160]])),
    ]
    assert [clique for clique, _ in order_by_dependence(tables)] == [("b", "c"), ("a", "c"), ("a", "b")]
