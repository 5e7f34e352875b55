"""PrivBayes: how the network grows, how records are drawn, and what the method does with its budget and options."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain, Impossible
from synth_core.errors import SourceError, SpecError
from synth_core.ledger.book import charged_records
from synth_core.ledger.memory import MemoryLedger
from synth_core.measurement import Measurement
from synth_core.models.bayesian_network import BayesianNetwork
from synth_core.models.calibration import Factor
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Scores, Tools, noise_text
from synth_core.synthesizers.consistency import as_published, reconcile
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, by_size
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.network import Growth, shared_by_versions
from synth_core.synthesizers.privbayes import sampling_misfit, within_groups

BUDGET = mu2_of(2.0, 1e-6)


def affinity(domain, scores):
    matrix = np.zeros((len(domain), len(domain)))
    for (a, b), score in scores.items():
        i, j = domain.position(a), domain.position(b)
        matrix[i, j] = matrix[j, i] = score
    return matrix


def grown(domain, scores, *, tau, hierarchies=NO_HIERARCHIES, **limits):
    matrix = shared_by_versions(domain, hierarchies, affinity(domain, scores))
    return Growth(domain, hierarchies, matrix, tau, **limits).families()


def test_the_paper_example_network():
    """Figure 1: age, then higrade given age, then income given higrade."""
    domain = Domain.of({"age": 20, "higrade": 2, "income": 10})
    families = grown(domain, {("age", "higrade"): 0.5, ("higrade", "income"): 0.2}, tau=45)
    assert families == [("age", "higrade"), ("higrade", "income")]


def test_head_takes_the_best_scores_for_each_cell_while_the_table_holds_them():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 40})
    scores = {("a", "b"): 0.3, ("b", "c"): 0.2, ("a", "d"): 0.9}
    assert grown(domain, scores, tau=8)[0] == ("a", "b", "c")
    assert grown(domain, scores, tau=5)[0] == ("a", "b")


def test_parents_are_taken_by_score_and_the_best_sum_comes_first():
    domain = Domain.of({"a": 2, "b": 2, "c": 3, "d": 3})
    scores = {("a", "b"): 0.9, ("a", "c"): 0.2, ("b", "c"): 0.1, ("a", "d"): 0.3, ("b", "d"): 0.4}
    families = grown(domain, scores, tau=6)
    assert families == [("a", "b"), ("b", "d"), ("a", "c")]


def test_pairs_of_no_positive_score_are_never_parents():
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    assert grown(domain, {("a", "b"): 0.5, ("b", "c"): -0.1}, tau=100) == [("a", "b"), ("c",)]


def test_a_large_attribute_is_a_parent_in_its_coarsest_version():
    domain = Domain.of({"code": 100, "sex": 2})
    families = grown(domain, {("code", "sex"): 0.5}, tau=60, hierarchies=by_size(domain, group=4))
    assert families == [("code/16", "sex"), ("sex", "code/4"), ("code",)]


def test_what_is_counted_has_a_limit():
    domain = Domain.of({"one": 100, "two": 100, "sex": 2})
    scores = {("one", "two"): 0.9, ("one", "sex"): 0.1, ("two", "sex"): 0.1}
    hierarchies = by_size(domain, group=4)
    limited = grown(domain, scores, tau=1000, hierarchies=hierarchies, limit_counted=5000)
    assert all(len({name.split("/")[0] for name in f} & {"one", "two"}) < 2 for f in limited)
    free = grown(domain, scores, tau=1000, hierarchies=hierarchies)
    assert any(len({name.split("/")[0] for name in f} & {"one", "two"}) == 2 for f in free)


def test_a_finer_version_of_a_larger_score_is_the_parent():
    domain = Domain.of({"code": 100, "sex": 4, "age": 5})
    hierarchies = by_size(domain, group=4)
    versions = hierarchies.domain(domain)
    scores = {("code/16", "age"): 0.9, ("code/4", "age"): 0.3}
    scores |= {("code/4", "sex"): 0.5, ("code/16", "sex"): 0.2, ("code", "sex"): 0.4}
    matrix = affinity(versions, scores)
    start = [("code/16", "age"), ("age", "code/4")]
    found = Growth(domain, hierarchies, matrix, 130, any_parent=True).families()
    assert found == [*start, ("code/4", "sex"), ("code",)]
    assert Growth(domain, hierarchies, matrix, 130).families() == [*start, ("code/16", "sex"), ("code",)]


@given(st.integers(0, 200), st.sampled_from([6.0, 30.0, 200.0]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_network_draws_every_version_once_within_its_limits(seed, tau, any_parent):
    domain = Domain.of({"a": 2, "b": 3, "c": 20, "d": 5, "e": 2})
    hierarchies = by_size(domain, group=3)
    rng = np.random.default_rng(seed)
    size = len(hierarchies.domain(domain)) if any_parent else 5
    matrix = np.triu(rng.normal(0.1, 0.2, (size, size)), 1)
    matrix += matrix.T
    if not any_parent:
        matrix = shared_by_versions(domain, hierarchies, matrix)
    growth = Growth(domain, hierarchies, matrix, tau, any_parent=any_parent)
    drawn = []
    for position, family in enumerate(growth.families()):
        fresh = family if position == 0 else family[-1:]
        assert set(family) - set(fresh) <= set(drawn)
        bases = [hierarchies.attribute(name) for name in family]
        assert len(set(bases)) == len(bases)
        assert growth.versions.cells(family) <= tau or len(family) == 1
        drawn += fresh
    assert sorted(drawn) == sorted(growth.versions.attributes)
    for attribute in domain:
        versions = [name for name in drawn if hierarchies.attribute(name) == attribute]
        assert versions == list(hierarchies.versions(attribute))[::-1]


def test_a_graphical_model_bounds_the_junction_tree():
    domain = Domain.of(dict.fromkeys("abcdef", 10))
    scores = {(a, b): 0.5 for a in "abcdef" for b in "abcdef" if a < b}
    wide = grown(domain, scores, tau=1000)
    narrow = grown(domain, scores, tau=1000, limit_cells=1500)
    assert max(map(len, wide)) == 3
    assert max(map(len, narrow[1:])) == 2


def test_the_first_families_leave_a_parent_to_the_last(monkeypatch):
    """Thirty columns that all depend on each other, in a tree that half of them could fill."""
    domain = Domain.of({f"x{k}": 4 for k in range(30)})
    rng = np.random.default_rng(0)
    scores = {pair: rng.random() for pair in combinations(domain.attributes, 2)}
    found = grown(domain, scores, tau=64, limit_cells=2000)
    assert min(map(len, found)) >= 2
    assert max(map(len, found[1:])) >= 3, "some still have several"
    assert sum(map(domain.cells, junction_tree(domain, found).cliques)) <= 2000
    bounded = Growth._tractable
    monkeypatch.setattr(Growth, "_tractable", lambda *given, filled: bounded(*given, filled=1.0))
    assert min(map(len, grown(domain, scores, tau=64, limit_cells=2000))) == 1, "who comes first takes all"


# -- records -----------------------------------------------------------------------------------------------------


def network(tables, *, domain, **options):
    ready = tuple(Factor(clique, np.asarray(values, dtype=float)) for clique, values in tables)
    return BayesianNetwork(domain, domain, ready, total=1000.0, **options)


def counts(rows, sizes):
    return np.bincount(np.ravel_multi_index(rows.T, sizes), minlength=int(np.prod(sizes))).reshape(sizes)


SMALL = Domain.of({"age": 3, "higrade": 2})
TABLE_5 = [(("age",), [500, 0, 670]), (("age", "higrade"), [[250, 250], [0, 0], [335, 335]])]


def test_paper_tables_5_and_6_are_counted_down_to_nothing():
    """Without replacement, as many records as the histograms hold give exactly the histograms."""
    model = network(TABLE_5, domain=SMALL, generation="without replacement")
    rows = model.sample(1170, np.random.default_rng(0))
    assert counts(rows, (3, 2)).tolist() == [[250, 250], [0, 0], [335, 335]]


def test_with_replacement_counts_stray():
    model = network(TABLE_5, domain=SMALL, generation="with replacement")
    rows = model.sample(1170, np.random.default_rng(0))
    assert counts(rows, (3, 2)).tolist() != [[250, 250], [0, 0], [335, 335]]
    assert counts(rows, (3, 2)) == pytest.approx(np.array([[250, 250], [0, 0], [335, 335]]), abs=60)


def test_dealt_counts_are_within_one():
    rows = network(TABLE_5, domain=SMALL).sample(1170, np.random.default_rng(0))
    assert counts(rows, (3, 2)) == pytest.approx(np.array([[250, 250], [0, 0], [335, 335]]), abs=1)


def test_step_back_finds_another_value_where_tables_contradict():
    """Tables 3a and 3b: the oldest have no grade at all, so such records start again and none is left."""
    tables = [(("age",), [50, 0, 100]), (("age", "higrade"), [[25, 25], [0, 0], [0, 0]])]
    model = network(tables, domain=SMALL, step_back=True, generation="with replacement")
    rows = model.sample(2000, np.random.default_rng(1))
    assert counts(rows, (3, 2))[2].sum() == 0
    filled = network(tables, domain=SMALL, generation="with replacement").sample(2000, np.random.default_rng(1))
    assert counts(filled, (3, 2))[2].sum() > 1000


def test_step_back_goes_further_back_after_ten_vain_tries():
    """The row that is empty depends on an attribute two steps back: one step back never helps."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    tables = [(("a",), [50, 50]), (("b",), [50, 50]), (("a", "c"), [[25, 25], [0, 0]])]
    rows = network(tables, domain=domain, step_back=True).sample(500, np.random.default_rng(2))
    assert (rows[:, 0] == 0).all()
    assert 150 < rows[:, 1].sum() < 350


def test_a_record_is_drawn_even_where_no_way_back_helps():
    domain = Domain.of({"a": 2, "c": 2})
    tables = [(("a",), [50, 50]), (("a", "c"), [[0, 0], [0, 0]])]
    rows = network(tables, domain=domain, step_back=True).sample(300, np.random.default_rng(3))
    assert 100 < rows[:, 1].sum() < 200


def test_empty_rows_are_filled_by_the_other_rows():
    tables = [(("age",), [50, 0, 50]), (("age", "higrade"), [[30, 10], [0, 0], [0, 0]])]
    rows = network(tables, domain=SMALL).sample(4000, np.random.default_rng(4))
    found = counts(rows, (3, 2))
    assert found[2, 0] / found[2].sum() == pytest.approx(0.75, abs=0.01)


def test_a_finer_version_is_drawn_within_its_group():
    domain = Domain.of({"code": 20, "sex": 2})
    hierarchies = by_size(domain, group=4)
    versions = hierarchies.domain(domain)
    rng = np.random.default_rng(5)
    by_sex = np.array([[30.0, 0, 0, 0, 10], [0, 0, 5, 40, 15]]).T
    tables = [(("sex",), np.array([40.0, 60])), (("sex", "code/4"), by_sex), (("code",), rng.random(20) * 3)]
    tables[2][1][8:12] = 0.0  # nothing is known inside this group: its codes are even
    model = BayesianNetwork(domain, versions, tuple(within_groups(tables, versions, hierarchies)), total=100.0)
    rows = model.sample(10_000, np.random.default_rng(6))
    found = np.zeros((5, 2))
    np.add.at(found, (rows[:, 0] // 4, rows[:, 1]), 1)
    assert found == pytest.approx(by_sex * 100, abs=2)
    assert model.cliques == (("sex",), ("code", "sex"), ("code",))
    assert model.tree.cliques == (("code", "sex"),)
    inside = np.bincount(rows[:, 0], minlength=20)[8:12]
    assert inside == pytest.approx(inside.mean(), rel=0.25)


def test_marginals_are_expected_counts():
    model = network(TABLE_5, domain=SMALL)
    expected = np.array([[250, 250], [0, 0], [335, 335]]) * (1000 / 1170)
    assert model.marginal(("age", "higrade")) == pytest.approx(expected, abs=1.0)
    assert model.marginal(("higrade", "age")) == pytest.approx(expected.T, abs=1.0)
    assert model.marginal(()) == pytest.approx(1000.0)


def test_a_stored_network_draws_the_same_records(tmp_path):
    model = network(TABLE_5, domain=SMALL, generation="without replacement")
    model.save(tmp_path / "model.npz")
    loaded = BayesianNetwork.load(tmp_path / "model.npz")
    one, other = (m.sample(100, np.random.default_rng(7)) for m in (model, loaded))
    np.testing.assert_array_equal(one, other)
    (tmp_path / "other.npz").write_bytes(b"no model")
    with pytest.raises(SourceError, match="not a stored model"):
        BayesianNetwork.load(tmp_path / "other.npz")
    np.savez(tmp_path / "third.npz", header=np.frombuffer(b'{"format": "x"}', dtype=np.uint8), tables=[1.0])
    with pytest.raises(SourceError, match="not a stored model"):
        BayesianNetwork.load(tmp_path / "third.npz")


# -- the method --------------------------------------------------------------------------------------------------


def conversation(method, codes, domain):
    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=2.0), actor="test")
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    curator = Curator(counts=TableCounts(codes, domain), ledger=ledger, spending=spending)
    plan = method.plan(domain, BUDGET)
    scores = method.score(curator, plan)
    structure = method.select(curator, plan, scores)
    return ledger, structure, method.fit(curator, plan, structure, Tools())


def large_table(rows=20_000):
    """Two attributes of many codes that depend on each other, and a small one."""
    rng = np.random.default_rng(8)
    one = rng.integers(0, 400, rows)
    two = np.clip(one // 2 + rng.integers(-20, 21, rows), 0, 199)
    domain = Domain.of({"one": 400, "two": 200, "three": 2})
    return domain, {"one": one, "two": two, "three": (one < 150).astype(np.int64)}


def coarse_tvd(model, codes, *, group=40):
    rows = model.sample(20_000, np.random.default_rng(9))
    real = np.zeros((400 // group, 200 // (group // 2)))
    made = np.zeros_like(real)
    np.add.at(real, (codes["one"] // group, codes["two"] // (group // 2)), 1 / len(codes["one"]))
    np.add.at(made, (rows[:, 0] // group, rows[:, 1] // (group // 2)), 1 / len(rows))
    return 0.5 * float(np.abs(real - made).sum())


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_hierarchies_see_dependence_of_large_attributes(preset):
    """Without them no table can hold both attributes, and what joins them is lost."""
    domain, codes = large_table()
    with_levels = conversation(synthesizer("privbayes", preset, {"g": 6}), codes, domain)
    without = conversation(synthesizer("privbayes", preset, {"g": 0, "pgm": False}), codes, domain)
    assert coarse_tvd(with_levels[2], codes) < coarse_tvd(without[2], codes) / 2
    for ledger, *_ in (with_levels, without):
        spent = sum((record.mu2 for record in charged_records(ledger.records())), Fraction(0))
        assert BUDGET * Fraction(999, 1000) <= spent <= BUDGET


def chain(rows=8000):
    rng = np.random.default_rng(10)
    domain = Domain.of({"a": 3, "b": 4, "c": 2, "d": 5})
    codes = {"a": rng.integers(0, 3, rows)}
    for before, name in zip("abc", "bcd", strict=True):
        fresh = rng.random(rows) < 0.3
        codes[name] = np.where(fresh, rng.integers(0, 60, rows), codes[before]) % domain.size(name)
    return domain, codes


def test_default_is_a_graphical_model_that_the_pipeline_stores():
    domain, codes = chain()
    _, _, model = conversation(synthesizer("privbayes"), codes, domain)
    assert isinstance(model, MarkovRandomField)


@pytest.mark.parametrize("generation", ["dealt", "with replacement", "without replacement"])
@pytest.mark.parametrize("consistency", [True, False])
def test_every_way_of_generation_keeps_dependence(generation, consistency):
    domain, codes = chain()
    options = {"generation": generation, "consistency": consistency}
    _, _, model = conversation(synthesizer("privbayes", "paper", options), codes, domain)
    rows = model.sample(8000, np.random.default_rng(0))
    real = counts(np.column_stack([codes["a"], codes["b"]]), (3, 4)) / 8000
    assert 0.5 * np.abs(real - counts(rows[:, :2], (3, 4)) / 8000).sum() < 0.06


def test_paper_divides_beta_evenly_among_n_and_pairs():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 2})
    plan = synthesizer("privbayes", "paper").plan(domain, BUDGET)
    assert dict(plan.shares) == {"n": Fraction(1, 35), "scores": Fraction(6, 35), "tables": Fraction(4, 5)}


def test_paper_scores_every_pair_of_the_enlarged_set_but_those_of_one_hierarchy():
    domain = Domain.of({"one": 100, "two": 70, "sex": 2})  # one, one/8, two, two/8, sex
    plan = synthesizer("privbayes", "paper").plan(domain, BUDGET)
    assert dict(plan.shares)["n"] == Fraction(1, 5) / (1 + 10 - 2)
    rng = np.random.default_rng(3)
    codes = {name: rng.integers(0, size, 2000) for name, size in zip(domain, domain.sizes, strict=True)}
    _, structure, _ = conversation(synthesizer("privbayes", "paper"), codes, domain)
    scored = {frozenset(pair[:2]) for pair in structure.scores.pairs}
    assert len(scored) == 8
    assert {frozenset({"one/8", "two"}), frozenset({"one", "two/8"}), frozenset({"one/8", "sex"})} <= scored
    _, structure, _ = conversation(synthesizer("privbayes"), codes, domain)
    assert {frozenset(pair[:2]) for pair in structure.scores.pairs} == {
        frozenset(pair) for pair in (("one", "two"), ("one", "sex"), ("two", "sex"))
    }


def test_tau_is_the_papers():
    domain, codes = chain()
    method = synthesizer("privbayes", "paper")
    _, structure, _ = conversation(method, codes, domain)
    sigma = (4 / float(BUDGET * Fraction(4, 5))) ** 0.5
    tau = structure.scores.total / (4 * sigma)
    # Sigma is computed twice, exactly and here: a tau next to a whole number may be rounded down to either side of it.
    assert tau - 1 - 1e-3 * tau <= structure.largest_table <= tau * (1 + 1e-3)


@pytest.mark.parametrize(("preset", "growth"), [("default", 0.75), ("paper", 0.0)])
def test_tables_hold_less_noise_at_a_larger_budget(preset, growth):
    """Cells times sigma over records, the noise of a full table: the same at any budget in the paper."""
    domain, noise = Domain.of({"a": 3, "b": 4, "c": 2, "d": 5}), []
    method = synthesizer("privbayes", preset)
    counts = TableCounts({name: np.zeros(9, dtype=np.int64) for name in domain}, domain)
    for factor in (1, 16):
        plan = method.plan(domain, BUDGET * factor)
        spending = Spending(dataset="people", snapshot="s", release="r", step="all")
        curator = Curator(counts=counts, ledger=MemoryLedger(), spending=spending)
        sigma = method._sigma(domain, plan)
        pairs = tuple((a, b, 0.0) for a, b in combinations(domain, 2))
        structure = method.select(curator, plan, Scores(4e6, pairs))
        noise.append(structure.largest_table * sigma / 4e6)
    assert noise[0] / noise[1] == pytest.approx(4**growth, rel=1e-2)


def test_sampling_misfit_is_the_mean_distance_of_poisson_counts():
    rng = np.random.default_rng(11)
    expected = np.array([0.05, 0.7, 1.0, 3.4, 40.0])
    seen = np.abs(rng.poisson(expected, (200_000, 5)) - expected).sum(axis=1).mean()
    assert sampling_misfit(expected) == pytest.approx(seen, rel=0.01)


def test_turns_beat_the_published_order():
    """Mostly empty tables: shrinking in proportion takes from large counts what noise put into small ones."""
    rng = np.random.default_rng(12)
    errors = {as_published: 0.0, reconcile: 0.0}
    for _ in range(20):
        exact = rng.gamma(0.02, 3000.0, (12, 8, 6))
        tables = [Measurement(("a", "b"), exact.sum(2) + rng.normal(0, 20, (12, 8)), 20.0)]
        tables.append(Measurement(("b", "c"), exact.sum(0) + rng.normal(0, 20, (8, 6)), 20.0))
        for order in errors:
            errors[order] += float(np.abs(order(tables)[0].noisy - exact.sum(2)).sum())
    assert errors[reconcile] < 0.8 * errors[as_published]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generation": "magic"}, "generation must be one of: dealt"),
        ({"g": 1}, "g must be at least 2"),
        ({"one_way": 0.3}, "one_way < beta < 1"),
        ({"usefulness": 0.0}, "usefulness must be a number from"),
        ({"usefulness_pgm": -1.0}, "usefulness_pgm must be a number from"),
        ({"graphical": True}, "no option 'graphical'"),
        ({"levels": [1, 2]}, "levels must map a column"),
        ({"levels": {"one": "abc"}}, "levels must map a column"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        synthesizer("privbayes", "default", options)


def test_a_column_of_many_codes_leaves_the_graphical_model_to_the_others():
    """A single column of more than 64 codes turned it off for the whole table."""
    domain, codes = chain(20_000)
    wide = Domain.of(dict(zip(domain, domain.sizes, strict=True)) | {"wide": 65})
    codes["wide"] = (13 * codes["d"] + np.random.default_rng(4).integers(13, size=20_000)) % 65
    _, _, field = conversation(synthesizer("privbayes"), codes, domain)
    _, _, mixed = conversation(synthesizer("privbayes"), codes, wide)
    assert isinstance(mixed, BayesianNetwork)
    coarse = [set(table.clique) for table in mixed.tables if "wide" not in table.clique]
    assert any("wide/8" in clique for clique in coarse), "the field has the coarse version"
    assert sum(len(clique) > 1 for clique in coarse) >= len(field.tree.cliques) - 1
    shared = [t for t in mixed.tables if {"wide/8"} <= set(t.clique)]
    one_way = [t.values.sum(axis=tuple(k for k, n in enumerate(t.clique) if n != "wide/8")) for t in shared[:-1]]
    for table in one_way[1:]:
        assert table == pytest.approx(one_way[0], rel=1e-6), "tables of one model agree"
    rows = mixed.sample(20_000, np.random.default_rng(0))
    real = np.bincount(codes["wide"], minlength=65) / 20_000
    assert np.abs(real - np.bincount(rows[:, 4], minlength=65) / 20_000).sum() / 2 < 0.1
    assert np.corrcoef(rows[:, 3], rows[:, 4] // 13)[0, 1] > 0.8


def test_scores_are_half_as_noisy_at_a_quarter_of_the_cost():
    domain = Domain.of({"a": 2, "b": 2, "c": 2, "d": 2, "e": 2, "f": 2, "g": 2})
    noise, cost = {}, {}
    for preset in ("default", "paper"):
        method = synthesizer("privbayes", preset)
        plan = method.plan(domain, BUDGET)
        text = dict(method.preview(domain, plan))["noise on each score"]
        noise[preset], cost[preset] = float(text.split()[1].replace(",", "")), float(plan.mu2("scores"))
    assert cost["paper"] / cost["default"] == pytest.approx(4, rel=0.05)
    assert noise["paper"] / noise["default"] == pytest.approx(2, rel=0.03)


def test_preview_counts_the_pairs_of_versions_that_are_charged():
    """It counted pairs of columns, 1,695 where 2,038 are scored, and so showed too little noise."""
    domain, _ = large_table()
    method = synthesizer("privbayes", "paper", {"g": 6})
    plan = method.plan(domain, BUDGET)
    scored = 3 * 2 + 3 + 2  # one, one/6, one/36; two, two/6; three
    assert plan.mu2("n") == BUDGET * Fraction(1, 5) / (scored + 1)
    shown = dict(method.preview(domain, plan))["noise on each score"]
    assert shown == noise_text(plan.mu2("scores"), count=scored, sensitivity=Fraction(2))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, "generation: dealt"),
        ({"generation": "dealt", "consistency": False}, "consistency: true"),
        ({"pgm": True, "g": 2}, "generation: dealt"),
    ],
)
def test_what_rules_do_not_allow_is_refused(options, remedy):
    """Both were dropped without a word where rules were declared."""
    domain = replace(Domain.of({"a": 5, "b": 2}), impossible=(Impossible("no", (("a", (0,)), ("b", (0,)))),))
    with pytest.raises(SpecError, match=remedy):
        synthesizer("privbayes", "paper", options).plan(domain, BUDGET)
    lawful = {"generation": "dealt", "consistency": True}
    assert synthesizer("privbayes", "paper", options | lawful).plan(domain, BUDGET)


def test_a_declared_level_replaces_the_automatic_ones():
    domain, codes = large_table()
    options = {"g": 6, "levels": {"one": [0, 150, 300], "two": [0, 75, 150]}}
    _, structure, model = conversation(synthesizer("privbayes", "default", options), codes, domain)
    names = {name for family in structure.cliques for name in family}
    assert names == {"one", "one/declared", "two", "two/declared", "three"}
    rows = model.sample(20_000, np.random.default_rng(0))
    assert (rows[:, 0] < 150).mean() == pytest.approx((codes["one"] < 150).mean(), abs=0.02)


def test_preview_tells_of_coarser_versions():
    domain, _ = large_table()
    method = synthesizer("privbayes")
    lines = dict(method.preview(domain, method.plan(domain, BUDGET)))
    assert lines["coarser versions of attributes"] == "2"
