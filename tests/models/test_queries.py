import numpy as np
import pytest
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st
from support.brute_force import joint, onto, structures

from synth_core.domain import Domain
from synth_core.errors import SchemaError, SpecError
from synth_core.models import linear
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField, answer_queries, condition_on

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 5, "d": 2})
CLIQUES = [("a", "b"), ("b", "c"), ("c", "d")]


@pytest.fixture(scope="module")
def model():
    potentials = np.random.default_rng(8).normal(size=12 + 20 + 10)
    return MarkovRandomField(junction_tree(DOMAIN, CLIQUES), CLIQUES, potentials, total=500.0)


@pytest.fixture(scope="module")
def counts(model):
    return joint(DOMAIN, CLIQUES, model.potentials)[1] * 500.0


BLOCKS = {
    "identity": linear.identity(5),
    "total": linear.total(5),
    "evidence": linear.evidence(5, 3),
    "disjunction": linear.evidence(5, [0, 4]),
    "cumulative": linear.prefixes(5),
    "ranges": linear.ranges(5, [(0, 2), (1, 1), (2, 4)]),
    "compressed": linear.group_codes(5, [0, 0, 1, 2, 1]),
    "mean": linear.mean(5),
    "moments": linear.moments(5, 3),
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_every_row_of_table_2_equals_brute_force(model, counts, block):
    """One block on c, together with the cumulative distribution of a: two attributes no clique holds together."""
    found = answer_queries(model, {"a": linear.prefixes(3), "c": block})
    table = onto(DOMAIN, counts, ("a", "c"))
    np.testing.assert_allclose(found, linear.prefixes(3) @ table @ block.T, rtol=1e-10)


def test_the_blocks_mean_what_they_say():
    values = np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    assert (BLOCKS["total"] @ values).tolist() == [150.0]
    assert (BLOCKS["evidence"] @ values).tolist() == [40.0]
    assert (BLOCKS["disjunction"] @ values).tolist() == [60.0]
    assert (BLOCKS["cumulative"] @ values).tolist() == [10.0, 30.0, 60.0, 100.0, 150.0]
    assert (BLOCKS["ranges"] @ values).tolist() == [60.0, 20.0, 120.0]
    assert (BLOCKS["compressed"] @ values).tolist() == [30.0, 80.0, 40.0]
    assert (BLOCKS["mean"] @ values).tolist() == [10 + 40 + 90 + 160 + 250]
    assert BLOCKS["moments"].tolist() == [[1, 2, 3, 4, 5], [1, 4, 9, 16, 25], [1, 8, 27, 64, 125]]
    assert linear.mean(2, [0.5, -1.0]).tolist() == [[0.5, -1.0]]


@cases(structures(largest=3), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_random_factored_queries_equal_brute_force(structure, seed):
    domain, cliques = structure
    rng = np.random.default_rng(seed)
    potentials = rng.normal(size=sum(map(domain.cells, cliques)))
    model = MarkovRandomField(junction_tree(domain, cliques), cliques, potentials, total=1.0)
    asked = {a: rng.normal(size=(2, domain.size(a))) for a in domain if rng.random() < 0.5}
    expected = onto(domain, joint(domain, cliques, potentials)[1], tuple(asked))
    for matrix in asked.values():
        expected = np.tensordot(expected, matrix, axes=((0,), (1,)))
    np.testing.assert_allclose(answer_queries(model, asked), expected, atol=1e-12)


def test_evidence_gives_the_conditional_model(model, counts):
    found = condition_on(model, {"a": 1, "d": [0], "c": [0, 2]})
    part = counts[1][:, [0, 2], 0]
    assert found.total == pytest.approx(part.sum())
    np.testing.assert_allclose(found.marginal(("b",)), part.sum(axis=1))
    np.testing.assert_allclose(found.marginal(("c",))[[0, 2]], part.sum(axis=0))
    assert found.marginal(("c",))[[1, 3, 4]].max() == 0.0
    codes = found.sample(200, np.random.default_rng(0))
    assert set(codes[:, 0]) == {1}
    assert set(codes[:, 2]) <= {0, 2}


def test_evidence_twice_is_evidence_once(model):
    once = condition_on(model, {"a": [0, 1]})
    twice = condition_on(once, {"a": 1})
    np.testing.assert_allclose(twice.marginal(("b",)), condition_on(model, {"a": 1}).marginal(("b",)))


def test_impossible_evidence_is_refused(model):
    with pytest.raises(SchemaError, match="no records with this evidence on a"):
        condition_on(condition_on(model, {"a": 1}), {"a": 0})


def test_a_matrix_of_another_width_is_refused(model):
    with pytest.raises(SchemaError, match="'a' need one column"):
        answer_queries(model, {"a": np.ones((2, 4))})


def test_codes_outside_the_attribute_are_refused():
    with pytest.raises(SpecError, match="outside 0 … 2"):
        linear.evidence(3, 3)
    with pytest.raises(SpecError, match="outside 0 … 2"):
        linear.ranges(3, [(0, 3)])


def test_a_compression_names_every_code():
    with pytest.raises(SpecError, match="needs 3 group numbers"):
        linear.group_codes(3, [0, 1])


def test_moments_need_a_value_for_every_code():
    with pytest.raises(SpecError, match="need 3 values"):
        linear.moments(3, 2, [1.0, 2.0])
