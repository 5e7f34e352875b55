"""PrivMN: the printed rule is refused and attacked, ours resists; loopy calibration of its clusters changes nothing."""

import numpy as np
import pandas as pd
import pytest

from synth_core import Schema, synthesize
from synth_core.audit.adversary import Notebook
from synth_core.domain import Domain
from synth_core.errors import SpecError
from synth_core.ledger.memory import MemoryLedger
from synth_core.measurement import Measurement
from synth_core.models.loopy import LoopyOracle
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.wording import loss_text
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Scores, Tools
from synth_core.synthesizers.consistency import model_in_turn, reconcile
from synth_core.synthesizers.methods import synthesizer

EPSILON, DELTA = 0.5, 1e-5
WIDTH, ROWS = 24, 20
"""Attributes of each half: in the first half the attacked record is like all others, in the second it is unique."""


def worlds():
    """Records that are all alike, and the same with one more, which differs in the second half of the attributes."""
    without = np.zeros((ROWS, 2 * WIDTH), dtype=np.int64)
    target = np.repeat([0, 1], WIDTH)
    return without, np.vstack([without, target])


def pairs_of_halves():
    """Positions of the pairs inside the first and inside the second half."""
    first, second = np.triu_indices(WIDTH, 1)
    return (first, second), (first + WIDTH, second + WIDTH)


def printed_edges(rows, epsilon, rng):
    """Algorithm 1 of the paper as printed: one draw on every mutual information, Cramér's V as threshold."""
    n, width = rows.shape
    ones = rows.mean(axis=0)
    both = rows.T @ rows / n
    cells = [both, ones[:, None] - both, ones[None, :] - both, 1 - ones[:, None] - ones[None, :] + both]
    p, q = ones[:, None] * np.ones(width), np.ones((width, 1)) * ones
    products = [p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)]
    with np.errstate(divide="ignore", invalid="ignore"):
        information = sum(np.where(c > 0, c * np.log(c / e), 0.0) for c, e in zip(cells, products, strict=True))
        cramer = np.sqrt(sum(np.where(e > 0, (c - e) ** 2 / e, 0.0) for c, e in zip(cells, products, strict=True)))
    shared = rng.laplace(scale=1 / epsilon)
    return information + shared >= cramer + rng.laplace(scale=1 / epsilon, size=information.shape)


def distinguishability(without, with_target):
    """How many standard deviations apart the attacker's statistic is in the two worlds."""
    spread = np.sqrt((np.var(without) + np.var(with_target)) / 2)
    return abs(np.mean(with_target) - np.mean(without)) / spread


def test_the_printed_rule_gives_a_record_away():
    """The one shared draw cancels in the difference of two halves, so the many thresholds' own draws average out."""
    rng = np.random.default_rng(0)
    here, there = pairs_of_halves()
    statistics = []
    for rows in worlds():
        edges = [printed_edges(rows, EPSILON, rng) for _ in range(400)]
        statistics.append(np.array([e[here].mean() - e[there].mean() for e in edges]))
    cut = np.quantile(statistics[0], 0.98)
    hits = (statistics[1] > cut).mean()
    assert hits > 10 * np.exp(EPSILON) * 0.02, "the attack should break epsilon-DP by far"
    assert distinguishability(*statistics) > 1.5


def told_apart(mu2, *, runs):
    """What the attacker's statistic on our noisy scores, which say more than edges, gives away at a price."""
    names = [f"a{k}" for k in range(2 * WIDTH)]
    domain = Domain.of(dict.fromkeys(names, 2))
    method = synthesizer("privmn")
    plan = method.plan(domain, mu2)
    here, there = pairs_of_halves()
    statistics = []
    for rows in worlds():
        counts = TableCounts(dict(zip(names, rows.T, strict=True)), domain)
        values = []
        for _ in range(runs):
            notebook = Notebook()  # a ledger in memory, which costs less than all the rest of a run
            scores = method.score(curator(counts, notebook), plan)
            assert sum(request.mechanism.mu2() for request in notebook.requests.values()) <= mu2
            matrix = np.zeros((2 * WIDTH, 2 * WIDTH))
            for a, b, score in scores.pairs:
                matrix[domain.position(a), domain.position(b)] = score
            values.append(matrix[here].mean() - matrix[there].mean())
        statistics.append(np.array(values))
    return distinguishability(*statistics)


@pytest.mark.slow
def test_ours_resists_the_attack():
    """It tells no more than the budget allows; with a thousandth of the noise the same attack would succeed."""
    price, runs = mu2_of(EPSILON, DELTA), 40
    bound = float(price) ** 0.5 + 3.5 * np.sqrt(2 / runs)
    assert told_apart(price, runs=runs) < bound
    assert told_apart(price * 1000**2, runs=10) > 10 * bound


def curator(counts, ledger=None):
    if ledger is None:
        ledger = MemoryLedger()
        ledger.declare(Account(dataset="people", delta=DELTA, cap_epsilon=4.0), actor="test")
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    return Curator(counts=counts, ledger=ledger, spending=spending)


def test_the_printed_algorithm_is_refused_in_two_sentences():
    with pytest.raises(SpecError, match="does not keep the epsilon it states") as refusal:
        synthesizer("privmn", "default", {"algorithm": "printed"})
    assert str(refusal.value).count(". ") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fast"}, "must be 'sound'"),
        ({"one_way": 0.95}, "something left over"),
        ({"alpha": 0.0}, "must be positive"),
        ({"usefulness": -1.0}, "must be a number from 1e-06"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        synthesizer("privmn", "default", options)


DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2, "d": 3, "e": 2})


def noisy(cliques, *, seed=0):
    rng = np.random.default_rng(seed)
    return [Measurement(c, rng.gamma(2.0, 50.0, DOMAIN.shape(c)), 5.0) for c in cliques]


@pytest.mark.parametrize("cliques", [("ab", "bc", "cd", "be"), ("abc", "bcd", "cde"), ("abc", "bcd", "be")])
def test_loopy_calibration_of_the_clusters_would_change_nothing(cliques):
    """Section 4.3 on the factors of (14): what records are drawn by are conditional distributions, which it leaves."""
    tables = reconcile(noisy([tuple(clique) for clique in cliques]))
    model = model_in_turn(DOMAIN, [(m.clique, m.noisy) for m in tables], total=1.0)
    logs = np.concatenate([model.potential(m.clique).ravel() for m in tables])
    agreement = LoopyOracle(DOMAIN, [m.clique for m in tables], max_passes=5000, tolerance=1e-13).agree(logs)
    assert agreement.converged
    calibrated = model_in_turn(DOMAIN, [(b.clique, np.asarray(b.values)) for b in agreement.clusters], total=1.0)
    for m in tables:
        assert calibrated.marginal(m.clique) == pytest.approx(model.marginal(m.clique), abs=1e-12)


def test_edges_need_what_matters_and_more_than_noise():
    """With pairs at 4 % and 6 % of the largest dependence, and with little budget, at 6 % of few records."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    method = synthesizer("privmn")
    rich = method.plan(domain, mu2_of(8.0, DELTA))
    table = TableCounts({name: np.zeros(10, dtype=np.uint8) for name in domain}, domain)

    def clusters(total, plan):
        pairs = (("a", "b", 0.06 * total / 2), ("b", "c", 0.04 * total / 2), ("a", "c", 0.0))
        return set(method.select(curator(table), plan, Scores(total, pairs)).cliques)

    assert clusters(1e6, rich) == {("a", "b"), ("c",)}
    assert clusters(20.0, rich) == {("a",), ("b",), ("c",)}


def test_edges_of_independent_columns_are_as_rare_as_alpha_says_under_either_noise():
    """Scores of pairs without dependence are noise alone; in 400 tables of 28 pairs one in twenty has an edge."""
    domain = Domain.of(dict.fromkeys("abcdefgh", 2))
    rng = np.random.default_rng(5)
    found = {}
    for preset, draw in (("default", rng.normal), ("pure", rng.laplace)):
        method = synthesizer("privmn", preset)
        plan = method.plan(domain, mu2_of(1.0, DELTA))
        thresholds = np.array(list(method._thresholds(domain, plan, 1.0).values()))
        sigma = method._sigmas(domain, plan)["dependence"]
        width = sigma if preset == "default" else sigma / 2**0.5
        found[preset] = np.mean([(draw(0, width, thresholds.size) > thresholds).any() for _ in range(400)])
        assert np.mean([(draw(0, 1.4 * width, thresholds.size) > thresholds).any() for _ in range(400)]) > 0.12
    assert found == {"default": pytest.approx(0.05, abs=0.04), "pure": pytest.approx(0.05, abs=0.04)}


def test_pure_asks_with_laplace_noise_alone_and_states_what_that_loses():
    domain, codes = dependent_pair()
    frame, schema = pd.DataFrame(codes), Schema.from_sizes(dict(zip(domain.attributes, domain.sizes, strict=True)))
    costs = {
        preset: synthesize(frame, schema, method="privmn", preset=preset, epsilon=2.0, delta=DELTA).cost
        for preset in ("default", "laplace", "pure")
    }
    assert (costs["default"].pure, costs["laplace"].pure) == (None, None)
    pure = costs["pure"].pure
    assert 0.3 < pure < 2.0
    assert str(costs["pure"]).endswith(f"without a delta {loss_text(pure)}")
    method = synthesizer("privmn", "pure")
    lines = dict(method.preview(domain, method.plan(domain, mu2_of(2.0, DELTA))))
    most = float(lines["epsilon of one record without a delta"].removeprefix("at most "))
    assert pure < most < 2 * pure, "one cluster of two was measured, and as many as columns may be"
    gaussian = synthesizer("privmn")
    assert "epsilon of one record without a delta" not in dict(
        gaussian.preview(domain, gaussian.plan(domain, mu2_of(2.0, DELTA)))
    )


def dependent_pair():
    """A domain of two columns and codes that depend on each other."""
    rng = np.random.default_rng(3)
    domain = Domain.of({"a": 2, "b": 3})
    first = rng.integers(0, 2, 4000)
    return domain, {"a": first, "b": np.where(rng.random(4000) < 0.8, first, rng.integers(0, 3, 4000))}


def test_dependence_is_kept_and_progress_reported():
    domain, codes = dependent_pair()
    method, ours = synthesizer("privmn"), curator(TableCounts(codes, domain))
    plan = method.plan(domain, mu2_of(2.0, DELTA))
    lines = []
    structure = method.select(ours, plan, method.score(ours, plan))
    model = method.fit(ours, plan, structure, Tools(progress=lines.append))
    assert lines == ["1 clusters measured"]
    real = np.zeros((2, 3))
    np.add.at(real, (codes["a"], codes["b"]), 1)
    assert model.marginal(("a", "b")) == pytest.approx(real, abs=150)
