import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import running_intersection_holds, structures
from support.work_counter import count_calls

from synth_core.domain import Domain
from synth_core.errors import FeasibilityError
from synth_core.models.junction_tree import JunctionTree, affordable_cliques, junction_tree
from synth_core.models.triangulation import TriangulatedGraph


def largest(graph):
    return max(map(graph.size, graph.masks))


@given(structures(attributes=9))
@settings(max_examples=100, deadline=None)
def test_every_tree_covers_its_cliques_with_running_intersection(structure):
    domain, cliques = structure
    tree = junction_tree(domain, cliques)
    assert running_intersection_holds(tree)
    assert all(tree.host(clique) is not None for clique in cliques)
    assert {a for clique in tree.cliques for a in clique} == set(domain)
    sets = [set(clique) for clique in tree.cliques]
    assert not any(x <= y for i, x in enumerate(sets) for j, y in enumerate(sets) if i != j)


def test_the_check_of_running_intersection_rejects_a_broken_tree():
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    assert not running_intersection_holds(JunctionTree(domain, (("a", "b"), ("c",), ("a", "c")), (-1, 0, 1)))


def test_a_cycle_is_triangulated_over_its_small_attributes():
    domain = Domain.of({"a": 2, "b": 50, "c": 2, "d": 50})
    tree = junction_tree(domain, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    assert sorted(tree.cliques) == [("a", "b", "c"), ("a", "c", "d")]
    assert tree.cells == 400
    assert tree.bytes == 3200
    assert tree.largest in tree.cliques
    assert 0 < tree.seconds < 1


def test_separators_and_children_of_a_chain():
    domain = Domain.of({"a": 2, "b": 3, "c": 4})
    tree = junction_tree(domain, [("a", "b"), ("b", "c")])
    assert tree.cliques[0] == ("b", "c")
    assert tree.separator(0) == ()
    assert tree.separator(1) == ("b",)
    assert tree.children(0) == (1,)


@given(structures(attributes=8), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_affordable_is_what_leaves_a_tree_within_the_limit(structure, share):
    domain, measured = structure
    pairs = list(combinations(domain, 2))
    cells = {pair: junction_tree(domain, [*measured, pair]).cells for pair in pairs}
    for limit in sorted(cells.values())[int(share * (len(pairs) - 1)) :][:1]:
        found = affordable_cliques(domain, measured, pairs, limit_cells=limit)
        assert found == [pair for pair in pairs if cells[pair] <= limit]
        assert affordable_cliques(domain, measured, found, limit_cells=min(cells.values()) - 1) == []


def test_over_the_limit_the_clique_and_the_remedy_are_named():
    domain = Domain.of({"age": 100, "income": 100, "state": 50})
    with pytest.raises(FeasibilityError, match=r"age, income, state .* 500,000 cells.*raise the limit"):
        junction_tree(domain, [("age", "income"), ("income", "state"), ("age", "state")], limit_cells=10_000)
    assert junction_tree(domain, [("age", "income")], limit_cells=10_050).cells == 10_050


def test_a_chain_of_a_thousand_attributes_takes_about_linear_work():
    def build(attributes):
        domain = Domain.of({f"x{k}": 10 for k in range(attributes)})
        triples = [domain.attributes[k : k + 3] for k in range(attributes - 2)]
        assert junction_tree(domain, triples).cells == (attributes - 2) * 1000

    assert count_calls(lambda: build(1000)) < 4.5 * count_calls(lambda: build(250))


def is_clique_forest(graph):
    for k in range(len(graph.domain)):
        holding = {i for i, mask in enumerate(graph.masks) if mask >> k & 1}
        reached = [min(holding)]
        for i in reached:
            reached += [j for j in graph.links[i] if j in holding and j not in reached]
        if set(reached) != holding:
            return False
    return sum(map(len, graph.links)) // 2 < len(graph.masks)


@pytest.mark.slow
@given(st.integers(2, 10), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_adding_edges_one_by_one_keeps_a_clique_forest(count, chance):
    domain = Domain.of({f"x{k}": chance.randint(2, 5) for k in range(count)})
    graph = TriangulatedGraph.empty(domain)
    for _ in range(20):
        a, b = chance.sample(domain.attributes, 2)
        announced = graph.largest_new_clique(a, b)
        come, go = graph.change(a, b)
        grown = graph.with_edge(a, b)
        assert set(grown.masks) == (set(graph.masks) - go) | come
        assert go <= set(graph.masks)
        assert not come & set(graph.masks)
        assert largest(grown) == max(largest(graph), announced)
        assert is_clique_forest(grown)
        assert grown.adjacent(a, b)
        graph = grown
    masks = graph.masks
    assert not any(x & ~y == 0 for i, x in enumerate(masks) for j, y in enumerate(masks) if i != j)
    fresh = graph.retriangulated()
    assert is_clique_forest(fresh)
    assert fresh.cells <= graph.cells
    for i, j in graph.edges:
        assert fresh.adjacent(domain.attributes[i], domain.attributes[j])


def test_an_incremental_graph_costs_what_its_junction_tree_costs():
    domain = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5})
    graph = TriangulatedGraph.empty(domain).with_edge("a", "b").with_edge("b", "c").with_edge("c", "d")
    assert sorted(graph.cliques) == [("a", "b"), ("b", "c"), ("c", "d")]
    assert graph.largest_new_clique("a", "b") == 0
    assert graph.largest_new_clique("a", "c") == 24
    closed = graph.with_edge("a", "d")
    assert sorted(closed.cliques) == sorted(junction_tree(domain, [*graph.cliques, ("a", "d")]).cliques)


@pytest.mark.slow
def test_a_trial_edge_costs_about_as_much_over_a_hundred_attributes_as_over_fifty():
    def calls_a_pair(attributes):
        chance = random.Random(1)
        domain = Domain.of({f"x{k}": chance.choice([2, 5, 10, 16]) for k in range(attributes)})
        pairs = [(a, b) for i, a in enumerate(domain) for b in domain.attributes[:i]]
        chance.shuffle(pairs)

        def try_all():
            graph = TriangulatedGraph.empty(domain)
            for a, b in pairs:
                if graph.largest_new_clique(a, b) <= 100_000:
                    graph = graph.with_edge(a, b)
            assert largest(graph) <= 100_000

        return count_calls(try_all) / len(pairs)

    assert calls_a_pair(100) < 2 * calls_a_pair(50)


@pytest.mark.parametrize("seed", range(4))
def test_a_change_that_an_earlier_graph_found_is_the_change_here(seed, monkeypatch):
    """While a graph grows, most changes are remembered; each is what a graph without memory finds."""
    rng = random.Random(seed)
    domain = Domain.of({f"a{k}": rng.choice((2, 3, 5)) for k in range(12)})
    pairs = list(combinations(domain.attributes, 2))
    graph, searched, route = TriangulatedGraph.empty(domain), [], TriangulatedGraph._route
    monkeypatch.setattr(TriangulatedGraph, "_route", lambda *args: searched.append(0) or route(*args))
    for pair in rng.sample(pairs, 25):
        for a, b in pairs:
            fresh = replace(graph, _changes={}).change(a, b)
            assert graph.change(a, b) == fresh
        graph = graph.with_edge(*pair)
    apart = [pair for pair in pairs if not graph.adjacent(*pair)]
    searched.clear()
    for _ in range(2):
        for a, b in apart:
            graph.change(a, b)
    assert len(searched) <= len(apart), "what is known of this graph is not searched for again"
