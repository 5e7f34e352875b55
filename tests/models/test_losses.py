import numpy as np
import pytest

from synth_core.arrays import NUMPY
from synth_core.domain import Domain
from synth_core.errors import SchemaError
from synth_core.measurement import Measurement, total_by_inverse_variance
from synth_core.models import linear
from synth_core.models.inference import marginal_oracle
from synth_core.models.junction_tree import junction_tree
from synth_core.models.linear import LinearMeasurement, Queries, contract_axes, estimate_total
from synth_core.models.losses import AbsoluteLoss, DualQueryLoss, Problem, SquaredLoss, merge_measurements
from synth_core.models.maximum_entropy import estimate
from synth_core.models.mirror_descent import accelerate_descent, descend_mirror, estimate_by_loss, recover_model

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2})
RECORDS = 5_000.0


def truth():
    table = np.random.default_rng(0).gamma(0.7, size=DOMAIN.sizes)
    return table / table.sum() * RECORDS


def exact(clique):
    return truth().sum(axis=tuple(k for k, a in enumerate(DOMAIN) if a not in clique))


def measured(clique, *matrices, sigma=5.0, seed=0):
    rng = np.random.default_rng(seed)
    if not matrices:
        table = exact(clique)
        return Measurement(clique, table + rng.normal(size=table.shape) * sigma, sigma)
    answers = contract_axes(exact(clique), matrices)
    return LinearMeasurement(clique, matrices, answers + rng.normal(size=answers.shape) * sigma, sigma)


def mixed():
    return [
        measured(("a", "b"), linear.prefixes(3), linear.ranges(4, [(0, 1), (1, 3), (2, 2)]), seed=1),
        measured(("a", "b"), seed=2),
        measured(("b", "c"), linear.identity(4), linear.total(2), sigma=2.0, seed=3),
        measured(("c",), seed=4),
    ]


def problem(measurements):
    return Problem.of(DOMAIN, merge_measurements(DOMAIN, measurements), total=RECORDS, arrays=NUMPY)


def dual_query(rounds=6, drawn=3):
    rng = np.random.default_rng(5)
    workload = Queries(DOMAIN, (("a", "b"), ("c",)), ((0, None), (1, (linear.prefixes(2),))))
    size = sum(workload.lengths)
    return DualQueryLoss(
        workload,
        sampled=rng.integers(size, size=(rounds, drawn)),
        records=rng.integers(2, size=(rounds, size)).astype(float),
        eta=0.7,
        total=RECORDS,
    )


def test_kronecker_answers_equal_the_full_matrix():
    matrices = (linear.prefixes(3), linear.moments(4, 2))
    table = exact(("a", "b"))
    np.testing.assert_allclose(contract_axes(table, matrices).ravel(), np.kron(*matrices) @ table.ravel())


def test_queries_and_their_transpose_are_adjoint():
    queries = problem(mixed()).queries
    rng = np.random.default_rng(1)
    tables = rng.normal(size=sum(DOMAIN.cells(clique) for clique in queries.cliques))
    answers = rng.normal(size=sum(queries.lengths))
    assert queries.answers(tables) @ answers == pytest.approx(tables @ queries.transposed(answers))


@pytest.mark.parametrize("loss", [SquaredLoss(problem(mixed())), dual_query()], ids=["squared", "dual query"])
def test_gradients_are_those_of_the_loss(loss):
    rng = np.random.default_rng(2)
    point = rng.random(sum(DOMAIN.cells(clique) for clique in loss.cliques)) * 500
    _, gradient = loss(point)
    for _ in range(5):
        direction = rng.normal(size=point.size)
        slope = (loss(point + 1e-3 * direction)[0] - loss(point - 1e-3 * direction)[0]) / 2e-3
        assert gradient @ direction == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [SquaredLoss(problem(mixed())), AbsoluteLoss(problem(mixed())), dual_query()],
    ids=["l2", "l1", "dual"],
)
def test_losses_are_convex_and_lie_above_their_tangents(loss):
    rng = np.random.default_rng(3)
    size = sum(DOMAIN.cells(clique) for clique in loss.cliques)
    for _ in range(20):
        here, there = rng.random(size) * 900, rng.random(size) * 900
        value, gradient = loss(here)
        assert loss(there)[0] >= value + gradient @ (there - here) - 1e-9 * abs(value)


def test_the_first_round_of_dual_query_is_uniform():
    loss = dual_query(rounds=1, drawn=4)
    assert loss(np.zeros(14))[0] == pytest.approx(4 * np.log(14))
    assert not loss(np.zeros(14))[1].any()


def test_linear_measurements_are_fitted_to_the_noise():
    measurements = mixed()
    model = estimate(DOMAIN, measurements, total=RECORDS)
    value, _ = SquaredLoss(problem(measurements))(
        np.concatenate([model.marginal(clique).ravel() for clique in problem(measurements).cliques])
    )
    assert value <= sum(m.noisy.size for m in measurements) / 2
    assert np.abs(model.marginal(("a", "b")) - exact(("a", "b"))).max() < 25


def test_a_clique_in_another_order_carries_its_matrices_along():
    straight = measured(("a", "b"), linear.prefixes(3), linear.total(4))
    turned = LinearMeasurement(("b", "a"), straight.matrices[::-1], straight.noisy.T.copy(), straight.sigma)
    (found,) = merge_measurements(DOMAIN, [turned])
    assert found.clique == ("a", "b")
    np.testing.assert_array_equal(found.noisy, straight.noisy)
    np.testing.assert_array_equal(found.matrices[0], straight.matrices[0])


def test_the_total_follows_from_every_query_set_that_determines_it():
    plain = [measured(("a", "b")), measured(("c",), sigma=1.0)]
    assert estimate_total(plain) == pytest.approx(total_by_inverse_variance(plain))
    prefixes = measured(("a",), linear.prefixes(3), sigma=2.0)
    assert estimate_total([prefixes]) == pytest.approx(prefixes.noisy[-1])
    silent = measured(("a",), linear.evidence(3, 1))
    assert estimate_total([prefixes, silent]) == estimate_total([prefixes])


def test_a_total_that_no_measurement_determines_is_refused():
    with pytest.raises(SchemaError, match="give the total"):
        estimate_total([measured(("a",), linear.evidence(3, 1))])


def test_answers_must_match_their_queries():
    with pytest.raises(ValueError, match="one answer for each query"):
        LinearMeasurement(("a",), (linear.prefixes(3),), np.zeros(2), 1.0)
    with pytest.raises(ValueError, match="positive sigma"):
        LinearMeasurement(("a",), (linear.prefixes(3),), np.zeros(3), 0.0)
    with pytest.raises(SchemaError, match="shape of its columns"):
        merge_measurements(DOMAIN, [LinearMeasurement(("a",), (linear.prefixes(2),), np.zeros(2), 1.0)])


@pytest.mark.parametrize("kind", [SquaredLoss, AbsoluteLoss])
def test_algorithm_1_lowers_any_convex_loss(kind):
    loss = kind(problem(mixed()))
    seen = []
    model = estimate_by_loss(DOMAIN, loss, total=RECORDS, max_passes=1000, progress=seen.append)
    reached, _ = loss(np.concatenate([model.marginal(clique).ravel() for clique in loss.cliques]))
    assert reached == pytest.approx(min(s.loss for s in seen))
    assert reached < seen[0].loss / 20


def test_algorithm_1_raises_the_likelihood_of_dual_query():
    loss = dual_query(rounds=30)
    seen = []
    estimate_by_loss(DOMAIN, loss, total=RECORDS, max_passes=200, progress=seen.append)
    assert min(s.loss for s in seen) < 0.9 * seen[0].loss


def test_algorithm_1_ends_at_its_goal_and_starts_warm():
    loss = SquaredLoss(problem(mixed()))
    first, second = [], []
    model = estimate_by_loss(DOMAIN, loss, total=RECORDS, until=30.0, progress=first.append)
    assert first[-1].loss <= 30.0 < first[-2].loss
    estimate_by_loss(DOMAIN, loss, total=RECORDS, until=30.0, warm=model, progress=second.append)
    assert len(second) == 1


def test_algorithm_1_ends_by_itself_when_the_loss_stands_still():
    loss = SquaredLoss(problem([measured(("a",)), measured(("c",))]))
    oracle = marginal_oracle(junction_tree(DOMAIN, loss.cliques), loss.cliques, NUMPY)
    steps = list(descend_mirror(oracle, loss, np.zeros(5), total=RECORDS))
    assert 20 < len(steps) < 500


def test_algorithm_2_agrees_with_algorithm_1_and_its_potentials_are_recovered():
    loss = SquaredLoss(problem(mixed()))
    oracle = marginal_oracle(junction_tree(DOMAIN, loss.cliques), loss.cliques, NUMPY)
    zeros = np.zeros(sum(map(DOMAIN.cells, loss.cliques)))
    for found in accelerate_descent(oracle, loss, zeros, total=RECORDS, smoothness=loss.smoothness):
        if found.passes >= 2000:
            break
    best = min(s.loss for s, _ in zip(descend_mirror(oracle, loss, zeros, total=RECORDS), range(1000), strict=False))
    assert found.loss == pytest.approx(best, rel=0.05)
    model = recover_model(DOMAIN, loss, found, total=RECORDS)
    fitted = np.concatenate([model.marginal(clique).ravel() for clique in loss.cliques])
    np.testing.assert_allclose(fitted, found.marginals, atol=1.0)
