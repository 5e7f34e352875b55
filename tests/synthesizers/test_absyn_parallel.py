"""Cliques estimated alone: joined as conditional distributions, spread over workers, and safe from a lost one."""

import os
import signal
import threading
from functools import partial

import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, Queue

from synth_core.cluster import Cluster
from synth_core.domain import Domain
from synth_core.ledger.book import charged_records
from synth_core.ledger.memory import MemoryLedger
from synth_core.measurement import Measurement
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.maximum_entropy import estimate
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import mu2_of
from synth_core.privacy.curator import Curator, Spending
from synth_core.steps.conversation import cluster_tools
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.absyn import estimate_by_clique, join_cliques
from synth_core.synthesizers.base import Fit, Tools
from synth_core.synthesizers.methods import synthesizer

DOMAIN = Domain.of({"a": 3, "b": 2, "c": 4, "d": 2, "e": 3})
CLIQUES = (("a", "b", "c"), ("b", "c", "d"), ("d", "e"))


def random_model(clique, seed):
    domain = DOMAIN.project(clique)
    potentials = np.random.default_rng(seed).normal(size=domain.cells())
    return MarkovRandomField(junction_tree(domain, [clique]), [clique], potentials, total=50.0)


def test_joined_models_are_the_product_of_their_conditionals():
    tree = junction_tree(DOMAIN, CLIQUES)
    models = [random_model(clique, seed) for seed, clique in enumerate(tree.cliques)]
    letters = "abcde"
    product, glued = np.ones(DOMAIN.sizes), np.ones(DOMAIN.sizes)
    for i, model in enumerate(models):
        clique, separator = "".join(tree.cliques[i]), "".join(tree.separator(i))
        table = model.marginal(tuple(clique)) / 50.0
        given = np.einsum(f"{clique}->{separator}", table)
        conditional = np.einsum(f"{clique},{separator}->{clique}", table, 1 / given)
        product = np.einsum(f"{letters},{clique}->{letters}", product, conditional)
        glued = np.einsum(f"{letters},{clique}->{letters}", glued, table)
    found = join_cliques(tree, models, total=50.0).marginal(DOMAIN.attributes)
    assert product.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(found / 50.0, product, rtol=1e-9)
    assert np.abs(found / 50.0 - glued / glued.sum()).sum() > 0.1, "the test must tell gluing from conditioning"


def test_the_root_keeps_its_own_marginal_whatever_the_others_say():
    tree = junction_tree(DOMAIN, CLIQUES)
    models = [random_model(clique, seed) for seed, clique in enumerate(tree.cliques)]
    model = join_cliques(tree, models, total=50.0)
    np.testing.assert_allclose(model.marginal(tree.cliques[0]), models[0].marginal(tree.cliques[0]), rtol=1e-9)


def test_a_separator_too_unlikely_for_floating_point_stays_unlikely():
    """Its tables, scaled one by one, multiply to 0, although beside the other value it has exp(-360)."""
    domain = Domain.of({"r": 20, "s": 2, "u": 2, "v": 2})
    tree = junction_tree(domain, [("r", "s"), ("s", "u", "v")])
    models = []
    for clique in tree.cliques:
        own, cliques = domain.project(clique), [("r", "s")]
        potentials = np.array([0.0, -20.0] * 20)
        if "u" in clique:
            cliques = [("s", "u"), ("s", "v")]
            potentials = np.array([-400.0, -400.0, 0.0, 0.0, 0.0, 0.0, -760.0, -760.0])
        models.append(MarkovRandomField(junction_tree(own, cliques), cliques, potentials, total=1.0))
    assert tree.separator(1) == ("s",)
    assert models[1].marginal(("s",))[1] == 0.0
    assert join_cliques(tree, models, total=1.0).marginal(("s",))[1] < 1e-6


def measured(sigma=2.0, seed=0):
    """Noisy pairs of a random model on the cliques."""
    rng = np.random.default_rng(seed)
    potentials = rng.normal(size=sum(map(DOMAIN.cells, CLIQUES)))
    truth = MarkovRandomField(junction_tree(DOMAIN, CLIQUES), CLIQUES, potentials, total=20000.0)
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
    tables = [Measurement(p, truth.marginal(p) + rng.normal(scale=sigma, size=DOMAIN.shape(p)), sigma) for p in pairs]
    return truth, tables


def by_clique(tables, tools):
    return estimate_by_clique(DOMAIN, tables, tools, total=20000.0, level=lambda domain, inside: 0.5, max_passes=500)


def test_fits_alone_find_what_the_whole_fit_finds_where_separators_are_measured():
    truth, tables = measured()
    whole = estimate(DOMAIN, tables, total=20000.0, until=0.5)
    parts = by_clique(tables, Tools())
    for table in tables:
        clique = table.clique
        assert np.abs(whole.marginal(clique) - parts.marginal(clique)).sum() < 0.01 * 20000
        assert np.abs(truth.marginal(clique) - parts.marginal(clique)).sum() < 0.01 * 20000


@pytest.fixture(scope="module")
def workers():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield client


def test_without_a_cluster_the_threads_of_this_process_do_it():
    _, tables = measured()
    here = by_clique(tables, Tools())
    threads = by_clique(tables, cluster_tools(Cluster()))
    np.testing.assert_array_equal(here.potentials, threads.potentials)


def test_results_come_in_the_order_asked_and_the_largest_goes_first(workers):
    sizes = [1, 5, 3]
    assert Cluster(workers).map_by_size(abs, [-1, -2, -3], sizes=sizes) == [1, 2, 3]
    started = []
    assert Cluster().map_by_size(partial(_noted, started), [7, 8, 9], sizes=sizes) == [7, 8, 9]
    assert sorted(started) == [7, 8, 9]


def _noted(started, item):
    started.append(item)
    return item


def test_large_items_ask_for_a_gpu_only_where_a_worker_has_one():
    client = _Submitted(gpu=True)
    Cluster(client).map_by_size(abs, [1, 2, 3], sizes=[10, 30, 20], large=20)
    assert [(item, wanted) for item, wanted, _ in client.asked] == [
        (2, {"GPU": 1}),
        (3, {"GPU": 1}),
        (1, None),
    ]
    assert [priority for _, _, priority in client.asked] == [0, -1, -2]
    client = _Submitted(gpu=False)
    Cluster(client).map_by_size(abs, [1, 2], sizes=[10, 30], large=20)
    assert all(wanted is None for _, wanted, _ in client.asked)


class _Submitted:
    """A client that writes down what it was asked and answers at once."""

    status = "running"

    def __init__(self, *, gpu):
        self.asked, self.gpu = [], gpu

    def scheduler_info(self, n_workers):
        return {"workers": {"w": {"resources": {"GPU": 1} if self.gpu else {}}}}

    def submit(self, in_one_thread, work, item, *, priority, resources, pure):
        self.asked.append((item, resources, priority))
        return type("Done", (), {"result": staticmethod(lambda timeout: in_one_thread(work, item))})


COLUMNS = Domain.of(dict.fromkeys("uvwxyz", 3))


def table_of_codes():
    rng = np.random.default_rng(6)
    rows, columns = 5000, {}
    columns["u"] = rng.integers(0, 3, rows)
    for before, name in zip("uvwxy", "vwxyz", strict=True):
        columns[name] = np.where(rng.random(rows) < 0.7, columns[before], rng.integers(0, 3, rows))
    return {name: column.astype(np.uint8) for name, column in columns.items()}


def conversation(ledger, tools):
    """Select and fit; with the same ledger a second time all answers are the stored ones."""
    method = synthesizer("absyn", "paper", {"estimation": "parallel"})
    spending = Spending(dataset="people", snapshot="s", release="r", step="all")
    counts = TableCounts(table_of_codes(), COLUMNS)
    curator = Curator(counts=counts, ledger=ledger, spending=spending)
    plan = method.plan(COLUMNS, mu2_of(2.0, 1e-6))
    structure = method.select(curator, plan, method.score(curator, plan))
    return method.fit(curator, plan, structure, tools)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_neither_the_result_nor_the_spend(workers, tmp_path):
    """Each fit writes down who works on it and waits; the first worker is killed, then all may go on."""
    begun, go = Queue("begun", client=workers), Event("go", client=workers)

    def held(fit: Fit):
        """Nested, so that it travels to the workers as it is."""
        (tmp_path / f"{'-'.join(fit.domain.attributes)}.{os.getpid()}").touch()
        Queue("begun").put(os.getpid())
        Event("go").wait()
        return fit.by(estimate)

    def spread(fits):
        sizes = [fit.domain.cells() for fit in fits]
        return Cluster(workers).map_by_size(held, fits, sizes=sizes)

    ledger = MemoryLedger()
    ledger.declare(Account(dataset="people", delta=1e-6, cap_epsilon=2.0), actor="test")
    expected = conversation(ledger, Tools())
    spent = [record.mu2 for record in charged_records(ledger.records())]
    killed = []

    def kill_one():
        killed.append(begun.get())
        os.kill(killed[0], signal.SIGKILL)
        go.set()

    killer = threading.Thread(target=kill_one)
    killer.start()
    model = conversation(ledger, Tools(spread=spread))
    killer.join()
    again = [file for file in tmp_path.glob("*.*") if int(file.suffix[1:]) != killed[0]]
    lost = [file.stem for file in tmp_path.glob(f"*.{killed[0]}")]
    assert lost
    assert {file.stem for file in again} >= set(lost), "what the killed worker had was done by another"
    np.testing.assert_array_equal(model.potentials, expected.potentials)
    assert [record.mu2 for record in charged_records(ledger.records())] == spent
