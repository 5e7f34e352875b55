import numpy as np
import pytest

from synth_core.domain import Domain
from synth_core.models.junction_tree import junction_tree
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.sampling import code_type, sample_rows

DOMAIN = Domain.of({"a": 3, "b": 5, "c": 4, "d": 2, "e": 6})
CLIQUES = [("a", "b"), ("b", "c", "d"), ("e",)]


@pytest.fixture(scope="module")
def model():
    potentials = np.random.default_rng(2).normal(size=15 + 40 + 6)
    return MarkovRandomField(junction_tree(DOMAIN, CLIQUES), CLIQUES, potentials, total=1.0)


def shares(codes, clique):
    columns = codes[:, [DOMAIN.position(a) for a in clique]].T
    cells = np.ravel_multi_index(columns.astype(np.int64), DOMAIN.shape(clique))
    return np.bincount(cells, minlength=DOMAIN.cells(clique)).reshape(DOMAIN.shape(clique)) / len(codes)


def distance(codes, model, clique):
    return np.abs(shares(codes, clique) - model.marginal(clique)).sum() / 2


def test_rows_are_seeded_codes_of_the_domain(model):
    codes = model.sample(1000, np.random.default_rng(1))
    assert codes.shape == (1000, 5)
    assert codes.dtype == np.uint8
    assert (codes.max(axis=0) < DOMAIN.sizes).all()
    np.testing.assert_array_equal(codes, model.sample(1000, np.random.default_rng(1)))
    assert (codes != model.sample(1000, np.random.default_rng(2))).any()
    assert model.sample(0, np.random.default_rng(1)).shape == (0, 5)


def test_root_cells_get_the_floor_or_ceiling_of_their_expected_count(model):
    root = model.tree.cliques[0]
    codes = sample_rows(DOMAIN, model.beliefs, 777, rng=np.random.default_rng(3))
    expected = model.marginal(root) * 777
    assert (np.abs(shares(codes, root) * 777 - expected) < 1 + 1e-9).all()


@pytest.mark.parametrize("clique", [("a", "b"), ("b", "c", "d"), ("e",)])
def test_low_variance_rows_are_at_least_three_times_closer_than_independent_ones(model, clique):
    rng = np.random.default_rng(4)
    low = [sample_rows(DOMAIN, model.beliefs, 2000, rng=rng) for _ in range(20)]
    close = np.mean([distance(codes, model, clique) for codes in low])
    independent = [sample_rows(DOMAIN, model.beliefs, 2000, rng=rng, independent=True) for _ in range(20)]
    far = np.mean([distance(codes, model, clique) for codes in independent])
    assert far > 3 * close
    assert 0.5 * expected_distance(model, clique, 2000) < far < 1.5 * expected_distance(model, clique, 2000)


def expected_distance(model, clique, rows):
    """Mean total variation distance of independent rows: a half-normal deviation in each cell."""
    p = model.marginal(clique)
    return np.sqrt(p * (1 - p) / rows * 2 / np.pi).sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("independent", [False, True])
def test_means_are_right_also_across_cliques_and_for_tiny_samples(model, independent):
    """Averaged over many samples of 3 rows, pairs that no clique holds follow the model; a shuffled column does not."""
    rng = np.random.default_rng(5)
    parts = [sample_rows(DOMAIN, model.beliefs, 3, rng=rng, independent=independent) for _ in range(15_000)]
    codes = np.concatenate(parts)
    for clique in [("a", "c"), ("a", "d"), ("d", "e"), ("a", "b")]:
        assert distance(codes, model, clique) < 2.5 * expected_distance(model, clique, len(codes))
    wrong = codes.copy()
    wrong[:, 0] = np.roll(wrong[:, 0], 1)
    assert distance(wrong, model, ("a", "b")) > 10 * expected_distance(model, ("a", "b"), len(codes))


def test_rows_come_in_no_order(model):
    codes = sample_rows(DOMAIN, model.beliefs, 20_000, rng=np.random.default_rng(6))
    first, second = codes[:10_000], codes[10_000:]
    for k in range(5):
        assert abs(first[:, k].mean() - second[:, k].mean()) < 0.1


@pytest.mark.parametrize(("size", "dtype"), [(256, np.uint8), (257, np.uint16), (65_537, np.int32)])
def test_codes_take_the_smallest_type(size, dtype):
    assert code_type(Domain.of({"a": size})) == dtype
