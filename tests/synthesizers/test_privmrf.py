"""The default PrivMRF: rounds, choices, bounds of work in large domains, and what its options do."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.ledger.memory import MemoryLedger
from synth_core.models.junction_tree import junction_tree
from synth_core.models.triangulation import TriangulatedGraph
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.privmrf import PrivMRF, round_sizes
from synth_core.synthesizers.structure import best_batch, proposals, with_clique


def chain(sizes, rows, seed=0):
    """Attributes that copy their neighbour often."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, sizes[0], rows)]
    for size in sizes[1:]:
        copied = rng.random(rows) < 0.6
        columns.append(np.where(copied, columns[-1], rng.integers(0, 1000, rows)) % size)
    domain = Domain.of({f"x{k:03d}": size for k, size in enumerate(sizes)})
    return domain, dict(zip(domain, (c.astype(np.uint16) for c in columns), strict=True))


def fitted(method, domain, codes, epsilon=2.0, ledger=None):
    ledger = ledger or MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=epsilon), actor="test")
    plan = method.plan(domain, mu2_of(epsilon, 1e-6))
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=TableCounts(codes, domain), ledger=ledger, spending=spending)
    structure = method.select(curator, plan, method.score(curator, plan))
    return method.fit(curator, plan, structure, Tools())


@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(1, 30), st.floats(1.0, 20.0))
def test_rounds_grow_and_add_up(count, rounds, ramp):
    sizes = round_sizes(count, rounds, ramp=ramp)
    assert sum(sizes) == count
    assert min(sizes) >= 1
    assert sizes[-1] >= sizes[0]


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(8, 200))
def test_proposals_fit_the_graph_and_the_table_limit(seed, limit):
    domain = Domain.of({name: 2 + k % 5 for k, name in enumerate("abcdefgh")})
    graph = with_clique(TriangulatedGraph.empty(domain), ("a", "b", "c"))
    found = proposals(
        graph,
        np.ones((8, 8)),
        largest_table=limit,
        largest_graph=lambda members: 400,
        count=30,
        rng=np.random.default_rng(seed),
    )
    assert len(set(found)) == len(found) <= 30
    for clique in found:
        assert len(clique) > 1
        assert domain.cells(clique) <= limit
        assert with_clique(graph, clique).cells <= 400


def test_proposals_are_the_same_again_and_follow_affinity():
    domain = Domain.of({f"x{k}": 3 for k in range(40)})
    affinity = np.full((40, 40), 1e-6)
    affinity[:5, :5] = 1.0
    graph = TriangulatedGraph.empty(domain)

    def drawn():
        rng = np.random.default_rng(7)
        limits = {"largest_table": 27, "largest_graph": lambda members: 1e6}
        return proposals(graph, affinity, count=500, rng=rng, **limits)

    assert drawn() == drawn()
    near = {c for c in drawn() if set(c) <= set(domain.attributes[:5])}
    assert len(near) == 20  # all pairs and triples of the five dependent attributes


def test_large_pairs_have_a_limit_of_their_own():
    domain = Domain.of({"a": 40, "b": 30, "c": 2})
    limits = {"largest_table": 100, "largest_graph": lambda members: 1e6, "count": 20}
    graph, rng = TriangulatedGraph.empty(domain), np.random.default_rng(0)
    assert ("a", "b") not in proposals(graph, np.ones((3, 3)), rng=rng, **limits)
    found = proposals(graph, np.ones((3, 3)), rng=rng, largest_pair=1200, **limits)
    assert ("a", "b") in found
    assert ("a", "b", "c") not in found


def test_a_small_budget_is_worth_few_pairs():
    domain = Domain.of({"a": 4, "b": 4, "c": 4})
    gains = {("a", "b"): 8000.0, ("a", "c"): 600.0, ("b", "c"): 10.0}
    assert best_batch(domain, gains, Fraction(1, 10**5))[1] == (("a", "b"),)
    assert len(best_batch(domain, gains, Fraction(1))[1]) == 2 + 1 * (10 > 0.8 * 16)
    assert len(best_batch(domain, gains, Fraction(100))[1]) == 3


def test_options_change_what_is_measured():
    domain, codes = chain([3, 4, 2, 5, 3, 2], 4000)
    large = fitted(PrivMRF(tau=1e6), domain, codes)
    small = fitted(PrivMRF(tau=60.0), domain, codes)
    assert small.tree.cells <= 60 < large.tree.cells


def test_pairs_may_make_the_tree_larger_than_other_tables():
    domain, codes = chain([3, 4, 2, 5, 3, 2], 4000)
    model = fitted(PrivMRF(tau=200.0, tau_beyond_pairs=1.0), domain, codes)
    pairs = [clique for clique in model.cliques if len(clique) <= 2]
    assert 60 < model.tree.cells <= 200
    assert junction_tree(domain, pairs).cells == model.tree.cells


@pytest.mark.parametrize("method", [PrivMRF(), PrivMRF(sized=False), PrivMRF(tau=1.0)], ids=["", "even", "no room"])
def test_rounds_spend_the_whole_budget(method):
    domain, codes = chain([3, 4, 2, 5, 3, 2], 300)
    ledger = MemoryLedger()
    fitted(method, domain, codes, ledger=ledger)
    answered = [r for r in ledger.records(release="r") if r.state is State.MEASURED]
    paid = ("marginals", "marginals again", "marginals at last", "dependence of pairs")
    spent = sum(r.mu2 for r in answered if r.purpose.endswith(paid) and r.purpose != "one-way marginals")
    plan = method.plan(domain, mu2_of(2.0, 1e-6))
    planned = plan.mu2("marginals") + plan.mu2("pairs")
    assert float(spent) == pytest.approx(float(planned), rel=1e-6)
    assert spent <= planned


def test_every_choice_is_inside_the_plan():
    domain = Domain.of({"a": 3, "b": 4})
    plan = PrivMRF().plan(domain, Fraction(1, 20))
    assert sum(share for _, share in plan.shares) == 1
    assert PrivMRF().plan(Domain.of({"a": 3}), Fraction(1)).shares == (("one-way", Fraction(1)),)


def test_preview_tells_the_bounds():
    domain = Domain.of({f"x{k}": 4 for k in range(9)})
    method = PrivMRF()
    lines = dict(method.preview(domain, method.plan(domain, mu2_of(0.8, 1e-5))))
    assert "sigma" in lines["noise on each marginal count"]
    assert lines["one-way marginals, again"] == "with up to 62% of the marginals' share, where noise leaves over 2%"
    assert lines["candidates"] == "up to 200 a round"
    assert lines["junction tree"] == "up to 262,144 cells"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([10] * 98, 20_000), ([300, 2, 450, 3, 7, 250, 2], 30_000)],
    ids=["98 attributes", "hundreds of values"],
)
def test_large_domains_stay_within_bounds(sizes, rows):
    domain, codes = chain(sizes, rows)
    method = PrivMRF(rounds=4, marginals_per_attribute=1.0, proposals=150)
    model = fitted(method, domain, codes)
    assert model.tree.cells <= method.tau
    rows = model.sample(200, np.random.default_rng(0))
    assert (rows < np.array(domain.sizes)).all()
