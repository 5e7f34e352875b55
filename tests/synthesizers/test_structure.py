"""Attribute graphs and candidates agree with plain enumeration."""

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.synthesizers.structure import Candidates, all_pairs, attribute_graph, pair_matrix, without_subsets

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5, "e": 2})


def plain(domain, cliques, limit):
    found = set()
    for clique in cliques:
        for size in range(1, len(clique) + 1):
            found |= {s for s in combinations(clique, size) if domain.cells(s) <= limit}
    return found


@settings(max_examples=40)
@given(
    cliques=st.lists(
        st.sets(st.sampled_from(DOMAIN.attributes), min_size=1).map(DOMAIN.clique), min_size=1, max_size=4
    ),
    limit=st.integers(1, 300),
)
def test_candidates_are_the_small_subsets_each_once(cliques, limit):
    candidates = Candidates(DOMAIN, tuple(cliques), limit)
    listed = candidates.at(range(len(candidates)))
    assert len(set(listed)) == len(listed)
    assert set(listed) == plain(DOMAIN, cliques, limit)
    for row, clique in zip(candidates.memberships(), listed, strict=True):
        assert DOMAIN.clique(a for a, member in zip(DOMAIN, row, strict=True) if member) == clique


def test_graph_takes_the_best_pairs_that_fit():
    pairs = [(a, b, 10.0 - i) for i, (a, b) in enumerate(all_pairs(DOMAIN))]
    whole = attribute_graph(DOMAIN, pairs, largest_clique=240)
    assert whole == (DOMAIN.attributes,)
    small = attribute_graph(DOMAIN, pairs, largest_clique=12)
    assert all(DOMAIN.cells(clique) <= 12 for clique in small)
    assert {"a", "b"} <= set(next(c for c in small if "a" in c and "b" in c))
    assert set(chain.from_iterable(small)) == set(DOMAIN)


def test_pair_matrix_is_cut_to_shares():
    matrix = pair_matrix(DOMAIN, [("a", "b", 50.0), ("a", "c", -3.0), ("d", "e", 500.0)], scale=100.0)
    assert matrix[0, 1] == matrix[1, 0] == 0.5
    assert matrix[0, 2] == 0.0
    assert matrix[3, 4] == 1.0


def test_subsets_are_dropped():
    assert without_subsets([("a",), ("a", "b"), ("a", "b"), ("c",)]) == (("a", "b"), ("c",))
