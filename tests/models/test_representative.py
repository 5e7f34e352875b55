from itertools import combinations

import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.models import sampling, sampling_kernels
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.sampling import MAX_REPRESENTATIVE_ROWS, representative_rows, sample_rows, small_tables

DOMAIN = Domain.of({"a": 3, "b": 5, "c": 4, "d": 2, "e": 6})
CLIQUES = [("a", "b"), ("b", "c", "d"), ("d", "e")]


@pytest.fixture(scope="module")
def model():
    potentials = np.random.default_rng(2).normal(size=15 + 40 + 12)
    potentials[:5] = -np.inf  # the first value of a never occurs
    return MarkovRandomField(junction_tree(DOMAIN, CLIQUES), CLIQUES, potentials, total=1.0)


def counts(codes, clique, domain=DOMAIN):
    columns = codes[:, [domain.position(a) for a in clique]].T
    cells = np.ravel_multi_index(columns.astype(np.int64), domain.shape(clique))
    return np.bincount(cells, minlength=domain.cells(clique)).reshape(domain.shape(clique))


def mean_distance(codes, model, order):
    cliques = list(combinations(DOMAIN.attributes, order))
    return np.mean([np.abs(counts(codes, c) / len(codes) - model.marginal(c)).sum() / 2 for c in cliques])


def chosen(model, rows, seed):
    rng = np.random.default_rng(seed)
    return representative_rows(
        DOMAIN, lambda number: sample_rows(DOMAIN, model.beliefs, number, rng=rng), rows, rng=rng
    )


@pytest.mark.parametrize(("order", "gain"), [(1, 1.5), (2, 2.0), (3, 1.7), (4, 1.3)])
def test_chosen_rows_are_closer_to_the_model_than_rows_drawn_with_little_variance(model, order, gain):
    rng = np.random.default_rng(3)
    drawn = [sample_rows(DOMAIN, model.beliefs, 2000, rng=rng) for _ in range(5)]
    far = np.mean([mean_distance(codes, model, order) for codes in drawn])
    close = np.mean([mean_distance(chosen(model, 2000, seed), model, order) for seed in range(5)])
    assert far > gain * close


def test_every_row_is_one_that_was_drawn(model):
    seen = []

    def draw(number):
        seen.append(sample_rows(DOMAIN, model.beliefs, number, rng=np.random.default_rng(4)))
        return seen[-1]

    rows = representative_rows(DOMAIN, draw, 300, rng=np.random.default_rng(5))
    (pool,) = seen
    there, kept = ({tuple(row) for row in codes.tolist()} for codes in (pool, rows))
    assert rows.shape == (300, 5)
    assert kept <= there
    assert (rows[:, 0] > 0).all()


def test_the_model_chooses_up_to_a_number_of_rows_and_draws_beyond(model, monkeypatch):
    few = model.sample(MAX_REPRESENTATIVE_ROWS // 100, np.random.default_rng(6))
    rng = np.random.default_rng(6)
    again = representative_rows(DOMAIN, lambda k: sample_rows(DOMAIN, model.beliefs, k, rng=rng), len(few), rng=rng)
    np.testing.assert_array_equal(few, again)
    many = model.sample(MAX_REPRESENTATIVE_ROWS + 1, np.random.default_rng(6))
    plain = sample_rows(DOMAIN, model.beliefs, MAX_REPRESENTATIVE_ROWS + 1, rng=np.random.default_rng(6))
    np.testing.assert_array_equal(many, plain)


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_tiny_tables(model, rows):
    assert chosen(model, rows, 7).shape == (rows, 5)


def test_one_attribute_with_codes_of_two_bytes():
    domain = Domain.of({"a": 700})
    potentials = np.random.default_rng(0).normal(size=700)
    model = MarkovRandomField(junction_tree(domain, [("a",)]), [("a",)], potentials, total=1.0)
    rows = model.sample(5000, np.random.default_rng(1))
    assert rows.dtype == np.uint16
    assert np.abs(counts(rows, ("a",), domain) - model.marginal(("a",)) * 5000).max() < 1.5


def test_cells_of_a_few_rows_keep_their_mean(model):
    """Averaged over samples of 40 rows, cells of two rows or more follow the model; after a roll they do not."""
    codes = np.concatenate([chosen(model, 40, seed) for seed in range(400)])
    for clique in [("a",), ("e",), ("a", "b"), ("c", "e")]:
        assert largest_bias(codes, model, clique) < 0.05
    codes[:, 1] = np.roll(codes[:, 1], 1)
    assert largest_bias(codes, model, ("a", "b")) > 0.05


def largest_bias(codes, model, clique):
    expected = model.marginal(clique) * len(codes)
    frequent = expected >= len(codes) / 20
    return np.abs(counts(codes, clique)[frequent] / expected[frequent] - 1).max()


def test_an_exchange_is_made_exactly_where_it_lowers_the_cost():
    """Against a plain computation of the weighted squares, row by row."""
    rng = np.random.default_rng(8)
    domain = Domain.of({"a": 3, "b": 2, "c": 4})
    tables = small_tables(domain, most_cells=100, rng=rng)
    rows, others = (rng.integers(0, (3, 2, 4, 1), (n, 4)).astype(np.uint8) for n in (20, 60))
    expected = rng.uniform(0.2, 9.0, tables.cells)
    weights = rng.uniform(0.1, 1.0, tables.cells)

    def counted(of):
        return sampling_kernels.count_tables(of, *tables[:3], np.zeros(tables.cells))

    def cost(of):
        return float((weights * (counted(of) - expected) ** 2).sum())

    costs = np.stack([weights * (2 * (counted(rows) - expected) + 1), 2 * weights], axis=1).astype(np.float32)
    changed = rows.copy()
    sampling_kernels.exchange(changed, others, *tables[:3], costs, np.uint64(1))
    np.testing.assert_allclose(costs[:, 0], weights * (2 * (counted(changed) - expected) + 1), atol=1e-3)
    assert cost(changed) < cost(rows)

    by_hand, counter = rows.copy(), np.uint64(1)
    for other in others:
        with np.errstate(over="ignore"):
            counter += sampling_kernels.GOLDEN
            place = int(sampling_kernels._uniform(counter) * len(rows))
        trial = by_hand.copy()
        trial[place] = other
        if cost(trial) < cost(by_hand):
            by_hand = trial
    np.testing.assert_array_equal(changed, by_hand)


@pytest.mark.slow
def test_tables_are_few_small_and_of_few_attributes_first(monkeypatch):
    domain = Domain.of({f"x{k}": 2 + 3 * (k % 7) for k in range(98)})
    tables = small_tables(domain, most_cells=300, rng=np.random.default_rng(0))
    orders = (tables.places < 98).sum(axis=1)
    assert len(tables.starts) == sampling.MAX_SETS
    assert (orders[:98] == 1).all()
    assert (orders[98:] == 2).all()
    monkeypatch.setattr(sampling, "MAX_CELLS", 500)
    assert small_tables(domain, most_cells=300, rng=np.random.default_rng(0)).cells <= 500
    assert small_tables(Domain.of({"a": 40}), most_cells=39, rng=np.random.default_rng(0)).cells == 0
