"""CR-scores and the greedy selection, compared with plain versions that rebuild everything."""

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.models.junction_tree import junction_tree
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.synthesizers import correlation
from synth_core.synthesizers.correlation import Terms, connect_paths, normalise_scores, pair_loads, select_pairs
from synth_core.synthesizers.structure import graph_with

SCORE = st.floats(0.0, 1.0).map(lambda x: round(x, 3))


def symmetric(values, count):
    matrix = np.zeros((count, count))
    for (i, j), value in zip(combinations(range(count), 2), values, strict=True):
        matrix[i, j] = matrix[j, i] = value
    return matrix


def best_product(scores, edges, i, j):
    """The largest product over all simple paths, one by one."""
    allowed = {frozenset(edge) for edge in edges}
    others = [k for k in range(len(scores)) if k not in (i, j)]
    best = 0.0
    for length in range(len(others) + 1):
        for middle in permutations(others, length):
            route = [i, *middle, j]
            if all(frozenset(step) in allowed for step in pairwise(route)):
                best = max(best, np.prod([scores[a, b] for a, b in pairwise(route)]))
    return best


@settings(max_examples=30, deadline=None)
@given(st.lists(SCORE, min_size=10, max_size=10), st.sets(st.sampled_from(list(combinations(range(5), 2)))))
def test_paths_grown_edge_by_edge_are_the_best_of_all_paths(values, edges):
    scores = symmetric(values, 5)
    paths = np.eye(5)
    for edge in sorted(edges):
        paths = connect_paths(paths, edge, scores[edge])
    for i, j in combinations(range(5), 2):
        assert paths[i, j] == pytest.approx(best_product(scores, edges, i, j), abs=1e-12)


def test_scores_are_normalised_by_the_most_they_can_be():
    domain = Domain.of({"a": 3, "b": 5, "c": 1})
    # n = 90 records, b a copy of a: c_aa = 30 against 10 expected, 1/2 * (3 * 20 + 6 * 10) = 60
    scores = normalise_scores(domain, [("a", "b", 60.0), ("a", "c", 7.0), ("b", "c", -3.0)], total=90.0)
    assert scores[0, 1] == pytest.approx(1.0)
    assert scores[0, 2] == scores[1, 2] == 0.0
    np.testing.assert_array_equal(scores, scores.T)


def test_an_explained_pair_has_nothing_left():
    scores = symmetric([0.8, 0.9, 0.7], 3)
    paths = connect_paths(connect_paths(np.eye(3), (0, 1), 0.8), (0, 2), 0.9)
    assert paths[1, 2] >= scores[1, 2]
    assert connect_paths(np.eye(3), (0, 1), 0.8)[1, 2] == 0.0


def plain_selection(domain, scores, terms):
    """Algorithm 3 as printed: for every candidate the graph, the paths and the error are made from nothing."""
    names = domain.attributes
    smaller = np.minimum.outer(domain.sizes, domain.sizes)
    scale = 2 * terms.total * (smaller - 1) / smaller

    def outcome(order):
        graph = TriangulatedGraph.empty(domain)
        for i, j in order:
            graph = graph.with_edge(names[i], names[j])
        measured = set(map(tuple, map(sorted, order)))
        if terms.fill_measured:
            for clique in graph.cliques:
                measured |= set(combinations([domain.position(a) for a in clique], 2))
        missed = sum(
            scale[i, j] * max(0.0, scores[i, j] - best_product(scores, measured, i, j))
            for i, j in combinations(range(len(domain)), 2)
            if (i, j) not in measured
        )
        noise = sum(terms.loads[edge] ** (2 / 3) for edge in measured) ** 1.5 * np.sqrt(2 / np.pi / terms.mu2)
        return missed + noise, measured, max(map(graph.size, graph.masks)) <= terms.largest_clique

    chosen, (error, measured, _) = [], outcome([])
    while True:
        trials = [
            (found[0], pair, found[1])
            for pair in combinations(range(len(domain)), 2)
            if pair not in measured and scores[pair] > 0 and (found := outcome([*chosen, pair]))[2]
        ]
        if not trials or min(trials)[0] >= error:
            return {(names[i], names[j]) for i, j in measured}
        error, pair, measured = min(trials, key=lambda trial: trial[0])
        chosen.append(pair)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(SCORE, min_size=10, max_size=10),
    st.lists(st.integers(2, 5), min_size=5, max_size=5),
    st.sampled_from([0.05, 0.3, 2.0]),
    st.booleans(),
)
def test_the_incremental_selection_is_algorithm_3(values, sizes, mu, fill):
    domain = Domain.of(dict(zip("vwxyz", sizes, strict=True)))
    scores = symmetric(values, 5)
    terms = Terms(
        total=1000.0,
        mu2=mu**2,
        loads=pair_loads(domain, interactions=not fill),
        largest_clique=60.0,
        fill_measured=fill,
    )
    assert set(select_pairs(domain, scores, terms)) == plain_selection(domain, scores, terms)


def chain_scores(count):
    """Each attribute follows the one before; pairs further apart follow from that."""
    return np.power(0.8, np.abs(np.subtract.outer(np.arange(count), np.arange(count)))) - np.eye(count)


def test_a_chain_is_selected_link_by_link():
    domain = Domain.of({f"x{k}": 4 for k in range(8)})
    terms = Terms(
        total=1e6,
        mu2=1.0,
        loads=pair_loads(domain, interactions=True),
        largest_clique=1e4,
        fill_measured=False,
    )
    links = {(f"x{k}", f"x{k + 1}") for k in range(7)}
    assert set(select_pairs(domain, chain_scores(8), terms)) == links


def test_limits_of_cliques_and_of_the_whole_graph_hold():
    domain = Domain.of({f"x{k}": 10 for k in range(7)})
    rng = np.random.default_rng(5)
    scores = symmetric(rng.uniform(0.2, 1.0, 21), 7)
    loads = pair_loads(domain, interactions=True)
    for fill in (True, False):
        terms = Terms(total=1e7, mu2=1.0, loads=loads, largest_clique=1000.0, fill_measured=fill)
        tree = junction_tree(domain, select_pairs(domain, scores, terms))
        assert domain.cells(tree.largest) == 1000
        small = Terms(total=1e7, mu2=1.0, loads=loads, largest_clique=1e9, largest_graph=1500, fill_measured=fill)
        assert junction_tree(domain, select_pairs(domain, scores, small)).cells <= 1500


def test_more_budget_buys_more_pairs():
    domain = Domain.of({f"x{k}": 6 for k in range(10)})
    scores = symmetric(np.random.default_rng(1).uniform(0.0, 0.3, 45), 10)
    counts = [
        len(
            select_pairs(
                domain,
                scores,
                Terms(
                    total=1e4,
                    mu2=mu**2,
                    loads=pair_loads(domain, interactions=True),
                    largest_clique=1e6,
                    fill_measured=False,
                ),
            )
        )
        for mu in (0.01, 0.1, 1.0)
    ]
    assert counts[0] < counts[1] < counts[2]


def test_loads_count_the_noise_that_known_margins_leave():
    domain = Domain.of({"a": 2, "b": 2, "c": 1})
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(20000, 2, 2))
    rest = noise - noise.mean(1, keepdims=True) - noise.mean(2, keepdims=True) + noise.mean((1, 2), keepdims=True)
    ratio = np.abs(rest).sum(axis=(1, 2)).mean() / np.abs(noise).sum(axis=(1, 2)).mean()
    assert correlation.load(domain, ("a", "b"), interactions=True) / 4 == pytest.approx(ratio, rel=0.02)
    assert correlation.load(domain, ("a", "b"), interactions=False) == 4
    assert correlation.load(domain, ("a", "c"), interactions=True) > 0


def test_tables_are_measured_while_they_are_worth_their_noise():
    assert correlation.worth_their_noise([1.0, 1.0], [100.0, 100.0], mu2=0.01) == []
    assert correlation.worth_their_noise([10.0, 1000.0, 900.0], [8.0, 8.0, 8.0], mu2=1.0) == [1, 2]
    assert correlation.worth_their_noise([500.0, 500.0], [800.0, 8.0], mu2=1.0) == [1]


def test_triples_come_from_inside_the_cliques_the_strongest_first():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 50, "e": 2})
    strengths = symmetric([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], 5)
    cliques = [("a", "b", "c", "d"), ("c", "e"), ("a", "b", "e")]
    found = correlation.strongest_triples(domain, cliques, strengths, largest=100, count=10)
    assert found == [("a", "b", "e"), ("a", "b", "c")]
    assert correlation.strongest_triples(domain, cliques, strengths, largest=1000, count=1) == [("b", "c", "d")]
    assert correlation.strongest_triples(domain, [("a", "b")], strengths, largest=1000, count=5) == []


def test_cliques_are_widened_by_the_strongest_pairs_that_leave_them_small():
    domain = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5})
    strengths = np.zeros((4, 4))
    strengths[0, 2] = strengths[2, 0] = 0.5
    tree = junction_tree(domain, [("a", "b")])
    assert set(correlation.widen_cliques(tree, strengths, room=0)) == {("a", "b"), ("c",), ("d",)}
    assert set(correlation.widen_cliques(tree, strengths, room=25)) == {("a", "b"), ("a", "c"), ("d",)}
    assert set(correlation.widen_cliques(tree, strengths, room=1000)) == {("a", "b", "c", "d")}


def test_a_large_tree_stays_as_it_is_when_cliques_are_widened():
    """The same edges added one by one to an empty graph fill in fifteen times as many cells."""
    sizes = [20, 9, 16, 7, 15, 6, 5, 2, 42, 16, 20, 10, 5, 2, 4]
    domain = Domain.of(dict(zip("abcdefghijklmno", sizes, strict=True)))
    cliques = "abdegmn", "abcde", "abdegh", "bdegmno", "bdefgmo", "bdfgjmo", "bgijmo", "bgjkmo", "bgklmo"
    tree = junction_tree(domain, map(tuple, cliques))
    assert set(tree.cliques) == set(map(tuple, cliques))
    assert set(correlation.widen_cliques(tree, np.ones((15, 15)), room=tree.cells)) == set(tree.cliques)
    assert graph_with(domain, tree.cliques).cells > 10 * tree.cells
