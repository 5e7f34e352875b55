"""Attribute graphs and candidates agree with plain enumeration."""

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import structures

from synth_core.domain import Domain
from synth_core.models.junction_tree import clique_of
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.synthesizers.structure import (
    Candidates,
    all_pairs,
    attribute_graph,
    fits,
    pair_matrix,
    with_clique,
    without_subsets,
)

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


@given(structures(attributes=8), st.integers(1, 255), st.sampled_from([0.5, 0.99, 1.0, 1.5, 4.0, 20.0]))
@settings(max_examples=60, deadline=None)
def test_a_set_fits_exactly_where_the_graph_with_it_is_small_enough(structure, bits, share):
    domain, cliques = structure
    graph = TriangulatedGraph.empty(domain)
    for clique in cliques:
        graph = with_clique(graph, clique)
    mask = bits % 2 ** len(domain) or 1
    cells = with_clique(graph, clique_of(domain, mask)).cells
    limit = share * cells
    inside = any(mask & ~clique == 0 for clique in graph.masks)
    assert fits(graph, mask, largest_graph=limit) == (inside or domain.cells() <= limit or cells <= limit)
