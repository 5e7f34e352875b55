import itertools

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from synth_core.arrays import generic
from synth_core.domain import Domain
from synth_core.errors import FeasibilityError, SchemaError
from synth_core.measurement import Measurement
from synth_core.models import maximum_entropy
from synth_core.models.losses import Problem, merge_measurements
from synth_core.models.maximum_entropy import estimate

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2, "d": 5})
CLIQUES = [("a", "b"), ("b", "c"), ("c", "d"), ("a",)]
RECORDS = 20_000.0


def truth(seed=0):
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.5, size=DOMAIN.sizes)
    return table / table.sum() * RECORDS


def measured(table, sigma=20.0, cliques=CLIQUES, seed=1):
    rng = np.random.default_rng(seed)
    found = []
    for clique in cliques:
        exact = table.sum(axis=tuple(k for k, a in enumerate(DOMAIN) if a not in clique))
        found.append(Measurement(clique, exact + rng.normal(size=exact.shape) * sigma, sigma))
    return found


def loss(model, measurements):
    tables = model.marginals([m.clique for m in measurements])
    return sum((((t - m.noisy) / m.sigma) ** 2).sum() / 2 for t, m in zip(tables, measurements, strict=True))


def cells(measurements):
    return sum(m.noisy.size for m in measurements)


def test_a_fit_reaches_the_loss_expected_from_noise_alone():
    measurements = measured(truth())
    seen = []
    model = estimate(DOMAIN, measurements, total=RECORDS, progress=seen.append)
    assert loss(model, measurements) <= cells(measurements) / 2
    assert seen[-1].loss == pytest.approx(loss(model, measurements))
    assert seen[-1].target == cells(measurements) / 2
    assert seen[0].loss > 10 * seen[-1].loss
    assert seen[-1].passes < 60


CONTRADICTING = [
    Measurement(("a", "b"), np.array([[300.0, -40.0, 200.0], [10.0, 350.0, -60.0]]), 30.0),
    Measurement(("a",), np.array([600.0, 400.0]), 10.0),
    Measurement(("b",), np.array([100.0, 700.0, 300.0]), 15.0),
]


def answers_of(joint):
    return np.concatenate([joint.ravel(), joint.sum(axis=1), joint.sum(axis=0)])


def least_loss_minus_entropy(weight):
    """The joint table of 1,000 records that minimises loss minus weight times entropy, and its loss.

    Newton's method with a last equation that keeps the total: the problem is convex in the cells, so that the result
    is exact to rounding, whatever the processor.
    """
    rows = np.stack([answers_of(cell.reshape(2, 3)) for cell in np.eye(6)], axis=1)
    sigmas = np.concatenate([np.full(m.noisy.size, m.sigma) for m in CONTRADICTING])
    matrix = rows / sigmas[:, None]
    wanted = np.concatenate([m.noisy.ravel() for m in CONTRADICTING]) / sigmas

    def objective(cells):
        residual = matrix @ cells - wanted
        return residual @ residual / 2 + weight * (cells * np.log(cells / 1000.0)).sum()

    cells = np.full(6, 1000.0 / 6)
    for _ in range(200):
        gradient = matrix.T @ (matrix @ cells - wanted) + weight * (np.log(cells / 1000.0) + 1)
        system = np.block([[matrix.T @ matrix + np.diag(weight / cells), np.ones((6, 1))], [np.ones((1, 6)), 0.0]])
        step = np.linalg.solve(system, np.append(-gradient, 0.0))[:6]
        length = min(1.0, *(-0.9 * cells[step < 0] / step[step < 0]))
        while length > 1e-12 and objective(cells + length * step) > objective(cells):
            length /= 2
        cells = cells + length * step
    residual = matrix @ cells - wanted
    return cells, residual @ residual / 2


def weight_of_falls(falls, gain):
    """The weight that a fit settles on, 0.64 at first, from what each halving lowered the loss by."""
    number = next(k for k, fall in enumerate(falls) if fall < gain)
    past = (falls[number - 1] - gain) / (falls[number - 1] - falls[number]) if number else 1.0
    return 0.64 / 2 ** (number + 0.5 + past)


@pytest.fixture
def settling(monkeypatch):
    """Fits that end where loss and entropy balance to the last digits."""
    monkeypatch.setattr(maximum_entropy, "NEARLY_BALANCED", 1e-5)
    monkeypatch.setattr(maximum_entropy, "BALANCED", 1e-5)
    monkeypatch.setattr(maximum_entropy, "HEAVIEST", 0.64)


def fitted_cells(gain):
    domain = Domain.of({"a": 2, "b": 3})
    return estimate(domain, CONTRADICTING, total=1000.0, gain=gain).marginal(("a", "b")).ravel()


@pytest.mark.slow
@pytest.mark.parametrize("gain", [2.0, 0.3, 0.15, 0.08, 0.02])
def test_loss_and_entropy_are_balanced_whatever_the_tables_say(settling, gain):
    """Tables that contradict each other and are negative in places; the oracle minimises over all joint tables."""
    losses = [least_loss_minus_entropy(0.64 / 2**k)[1] for k in range(7)]
    falls = [1 - after / before for before, after in itertools.pairwise(losses)]
    assert falls == sorted(falls, reverse=True)  # so that a gain picks a weight
    weight = 0.64 if gain > 1 else weight_of_falls(falls, gain)
    best = least_loss_minus_entropy(weight)[0]
    np.testing.assert_allclose(fitted_cells(gain), best, atol=0.01)
    other = least_loss_minus_entropy(weight * 1.1)[0]
    assert np.abs(other - best).max() > 0.1, "another weight would not be told apart"


def test_a_fit_with_a_given_weight_of_the_entropy_ends_at_that_weight(settling):
    """It comes there over heavier ones, none of which it may keep."""
    domain = Domain.of({"a": 2, "b": 3})
    model = estimate(domain, CONTRADICTING, total=1000.0, ridge=0.02)
    best, heavier = (least_loss_minus_entropy(weight)[0] for weight in (0.02, 0.06))
    np.testing.assert_allclose(model.marginal(("a", "b")).ravel(), best, atol=0.01)
    assert np.abs(heavier - best).max() > 0.1, "a weight on the way would not be told apart"


def test_a_fit_whose_passes_are_dear_is_nearly_balanced_all_the_same(monkeypatch):
    """Before, it ended after fewer passes, now and then several times as far from its tables as noise puts it."""
    seen = []
    balance = maximum_entropy._Search.balance

    def watched(search, *, within):
        balance(search, within=within)
        seen.append(search.problem.imbalance(search.best.gradient) <= maximum_entropy.NEARLY_BALANCED)

    monkeypatch.setattr(maximum_entropy._Search, "balance", watched)
    monkeypatch.setattr(maximum_entropy, "POLISH", (1, 500))
    monkeypatch.setattr(maximum_entropy, "POLISH_CELLS", 1.0)
    monkeypatch.setattr(maximum_entropy, "NEARLY_BALANCED", 1e-3)
    monkeypatch.setattr(maximum_entropy, "BALANCED", 1e-4)
    rng = np.random.default_rng(4)
    pairs = [("a", "b"), ("b", "c"), ("c", "d")]
    domain = Domain.of({"a": 6, "b": 6, "c": 6, "d": 6})
    tables = [Measurement(pair, rng.gamma(0.1, 300, (6, 6)) + rng.normal(0, 3, (6, 6)), 3.0) for pair in pairs]
    estimate(domain, tables, total=1000.0, gain=0.125)
    assert seen[-1]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_gain_on_the_edge_of_a_halving_gives_the_same_model_on_both_sides(settling, number):
    """Rounding decides on which side a fall lies, so what follows from it may not jump."""
    losses = [least_loss_minus_entropy(0.64 / 2**k)[1] for k in range(number + 2)]
    fall = 1 - losses[-1] / losses[-2]
    above, below = fitted_cells(fall * (1 + 1e-5)), fitted_cells(fall * (1 - 1e-5))
    np.testing.assert_allclose(above, below, atol=0.01)


def test_a_fit_that_explains_everything_ends():
    """A loss of exactly 0 cannot fall: halving the entropy's weight for ever would be the fault."""
    reports = itertools.count()

    def heard(_):
        assert next(reports) < 100, "the fit goes round and round"

    uniform = [Measurement(("a",), np.full(3, 100.0), 1.0)]
    model = estimate(Domain.of({"a": 3}), uniform, total=300.0, gain=0.125, progress=heard)
    np.testing.assert_allclose(model.marginal(("a",)), 100.0)


def test_the_balance_does_not_depend_on_the_start():
    measurements = measured(truth())
    cold = estimate(DOMAIN, measurements, total=RECORDS, gain=0.125)
    other = estimate(DOMAIN, measured(truth(7), seed=8), total=RECORDS)
    warm = estimate(DOMAIN, measurements, total=RECORDS, gain=0.125, warm=other)
    for m in measurements:
        np.testing.assert_allclose(cold.marginal(m.clique), warm.marginal(m.clique), atol=12.0)


def test_exact_answers_are_reproduced():
    table = truth()
    exact = measured(table, sigma=0.1)
    model = estimate(DOMAIN, exact, total=RECORDS, until=0.5, max_passes=500)
    for m in exact:
        np.testing.assert_allclose(model.marginal(m.clique), m.noisy, atol=1.0)


def test_of_all_explanations_the_one_of_greatest_entropy_is_found():
    """Two 1-way tables are explained by their product; no other table with these margins has greater entropy."""
    table = truth()
    model = estimate(DOMAIN, measured(table, sigma=1.0, cliques=[("a",), ("d",)]), total=RECORDS)
    both = model.marginal(("a", "d"))
    product = np.outer(both.sum(axis=1), both.sum(axis=0)) / RECORDS
    np.testing.assert_allclose(both, product, rtol=1e-6)


def test_the_loss_is_weighted_by_the_noise_of_each_measurement():
    """Two contradicting tables of one clique: the fit follows the precise one; equal weights would meet halfway."""
    precise = Measurement(("a",), np.array([100.0, 200.0, 700.0]), 1.0)
    vague = Measurement(("a", "c"), np.array([[350.0, 350.0], [100.0, 100.0], [50.0, 50.0]]), 100.0)
    found = estimate(DOMAIN, [precise, vague], total=1000.0).marginal(("a",))
    np.testing.assert_allclose(found, precise.noisy, atol=5.0)
    equal = Measurement(("a", "c"), vague.noisy.copy(), 1.0)
    halfway = estimate(DOMAIN, [precise, equal], total=1000.0).marginal(("a",))
    assert np.abs(halfway - precise.noisy).max() > 50


def test_repeated_measurements_are_merged_by_inverse_variance():
    first = Measurement(("a",), np.array([10.0, 0.0, 0.0]), 1.0)
    second = Measurement(("a",), np.array([0.0, 10.0, 0.0]), 2.0)
    (merged,) = merge_measurements(DOMAIN, [first, second])
    np.testing.assert_allclose(merged.noisy, [8.0, 2.0, 0.0])
    assert merged.sigma == pytest.approx(0.8**0.5)


def test_a_clique_in_another_order_is_the_same_clique():
    noisy = np.arange(12.0).reshape(3, 4)
    flipped = Measurement(("b", "a"), noisy.T.copy(), 1.0)
    (merged,) = merge_measurements(DOMAIN, [flipped])
    assert merged.clique == ("a", "b")
    np.testing.assert_array_equal(merged.noisy, noisy)


def test_the_total_is_estimated_where_it_is_not_given():
    model = estimate(DOMAIN, measured(truth()))
    assert model.total == pytest.approx(RECORDS, abs=300)
    assert model.total != RECORDS


@given(st.permutations(range(4)))
@settings(max_examples=8, deadline=None)
def test_a_fit_does_not_depend_on_the_order_of_attributes(order):
    measurements = measured(truth())
    model = estimate(DOMAIN, measurements, total=RECORDS, until=0.9)
    turned = Domain.of({DOMAIN.attributes[k]: DOMAIN.sizes[k] for k in order})
    other = estimate(turned, measurements, total=RECORDS, until=0.9)
    np.testing.assert_allclose(other.marginal(("a", "d")), model.marginal(("a", "d")), rtol=1e-4, atol=0.1)


def test_the_dual_solves_the_problem_of_greatest_entropy(monkeypatch):
    """Run to convergence, it ends at the entropy a general solver finds under the same bound on the loss."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    rng = np.random.default_rng(5)
    table = rng.gamma(1.0, size=(2, 2, 2))
    table *= 1000 / table.sum()
    measurements = [
        Measurement(("a", "b"), table.sum(axis=2) + rng.normal(size=(2, 2)) * 10, 10.0),
        Measurement(("b", "c"), table.sum(axis=0) + rng.normal(size=(2, 2)) * 10, 10.0),
    ]
    fitted = Problem.fitted
    monkeypatch.setattr(Problem, "fitted", lambda *given: (fitted(*given)[0], False))
    monkeypatch.setattr(maximum_entropy, "CONVERGED", 1e-7)
    model = estimate(domain, measurements, total=1000.0)
    bound = maximum_entropy.SLACK * 4
    assert loss(model, measurements) == pytest.approx(bound, rel=1e-3)

    def misfit(p):
        marginals = [1000 * p.reshape(2, 2, 2).sum(axis=axis) for axis in (2, 0)]
        return sum((((t - m.noisy) / 10.0) ** 2).sum() / 2 for t, m in zip(marginals, measurements, strict=True))

    solved = minimize(
        lambda p: (p * np.log(p)).sum(),
        np.full(8, 1 / 8),
        bounds=[(1e-9, 1)] * 8,
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1},
            {"type": "ineq", "fun": lambda p: bound - misfit(p)},
        ],
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert solved.success
    assert model.entropy == pytest.approx(-solved.fun, abs=1e-4)


def test_a_warm_start_saves_passes_and_fits_the_new_table():
    table = truth()
    first = measured(table)
    grown = [*first, *measured(table, cliques=[("a", "d")], seed=7)]
    model = estimate(DOMAIN, first, total=RECORDS)
    warm, cold = [], []
    found = estimate(DOMAIN, grown, total=RECORDS, warm=model, progress=warm.append)
    estimate(DOMAIN, grown, total=RECORDS, progress=cold.append)
    assert warm[0].loss < cold[0].loss / 3
    assert loss(found, grown) <= cells(grown) / 2
    assert loss(found, grown[-1:]) < 5 * grown[-1].noisy.size


def test_a_warm_start_does_not_leave_a_small_new_table_out():
    """The old tables alone satisfy the total loss; the new one is far off and must be fitted."""
    big = measured(truth(), cliques=[("a", "b"), ("b", "d")])
    model = estimate(DOMAIN, big, total=RECORDS, until=0.3)
    new = Measurement(("c",), np.array([0.5 + 0.0024, 0.5 - 0.0024]) * RECORDS, 10.0)
    found = estimate(DOMAIN, [*big, new], total=RECORDS, warm=model, until=1.5)
    assert loss(found, [new]) < 10 * 1.5 + 3


def test_contradicting_and_negative_tables_end_in_a_finite_model():
    one = Measurement(("a",), np.array([-500.0, 300.0, 700.0]), 1.0)
    other = Measurement(("a", "c"), np.full((3, 2), 150.0), 1.0)
    seen = []
    model = estimate(DOMAIN, [one, other], total=1000.0, progress=seen.append)
    assert np.isfinite(model.potentials).all()
    assert seen[-1].loss > seen[-1].target
    assert seen[-1].passes < 1000


@pytest.mark.parametrize("max_passes", [11, 40, 3000])
def test_a_loss_out_of_reach_ends_at_the_least_loss_seen(max_passes):
    """Many small tables with tiny noise contradict each other; the dual's last point may be a very bad model."""
    table = truth() / 20
    contradicting = [
        Measurement(m.clique, np.round(m.noisy / 20), 0.05)
        for m in measured(table, cliques=[("a", "b"), ("b", "d"), ("a", "d"), ("a",), ("b",), ("d",)])
    ]
    seen = []
    model = estimate(DOMAIN, contradicting, total=50.0, until=0.01, max_passes=max_passes, progress=seen.append)
    assert seen[-1].loss > seen[-1].target
    assert loss(model, contradicting) == pytest.approx(min(point.loss for point in seen), rel=1e-6)


def test_passes_are_capped():
    seen = []
    estimate(DOMAIN, measured(truth()), total=RECORDS, until=1e-6, max_passes=7, progress=seen.append)
    assert seen[-1].passes <= 7


def test_the_generic_path_finds_the_same_model():
    measurements = measured(truth())
    compiled = estimate(DOMAIN, measurements, total=RECORDS)
    strict = estimate(DOMAIN, measurements, total=RECORDS, arrays=generic(array_api_strict))
    np.testing.assert_allclose(strict.marginal(("a", "d")), compiled.marginal(("a", "d")), rtol=1e-5)


def test_nothing_measured_is_refused():
    with pytest.raises(ValueError, match="without measurements"):
        estimate(DOMAIN, [])


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(SchemaError, match="a, b does not have the shape"):
        estimate(DOMAIN, [Measurement(("a", "b"), np.zeros((4, 3)), 1.0)])


def test_a_model_over_the_limit_is_refused():
    with pytest.raises(FeasibilityError, match="over the limit"):
        estimate(DOMAIN, measured(truth()), limit_cells=10)


def two_loops(pairs, gradient, inverse):
    """The recursion of Nocedal (1980), pair by pair."""
    q, factors = gradient, []
    for step, change in reversed(pairs):
        factors.append(step @ q / (step @ change))
        q = q - factors[-1] * change
    step, change = pairs[-1]
    q = (step @ change) / (change @ (inverse * change)) * inverse * q
    for (step, change), factor in zip(pairs, reversed(factors), strict=True):
        q = q + (factor - change @ q / (step @ change)) * step
    return -q


@pytest.mark.parametrize("xp", [np, array_api_strict])
def test_the_direction_is_that_of_the_two_loops(monkeypatch, xp):
    monkeypatch.setattr(maximum_entropy, "MEMORY", 6)
    monkeypatch.setattr(maximum_entropy, "BLOCK", 32)
    rng = np.random.default_rng(0)
    curvature, inverse, gradient = 0.5 + rng.random((3, 100))
    pairs = maximum_entropy._Pairs(xp.asarray(gradient))
    known = []
    for _ in range(15):
        step = rng.normal(size=100)
        known.append((step, curvature * step))
        pairs.append(*map(xp.asarray, known[-1]))
        found = np.asarray(pairs.direction(xp.asarray(gradient), xp.asarray(inverse)))
        # Rounding to single precision is multiplied by the condition of the products' triangle, below 1e3 here.
        np.testing.assert_allclose(found, two_loops(known[-6:], gradient, inverse), rtol=1e-4, atol=1e-5)
    pairs.weigh_entropy(0.25)
    known = [(step, change - 0.25 * step) for step, change in known]
    found = np.asarray(pairs.direction(xp.asarray(gradient), xp.asarray(inverse)))
    np.testing.assert_allclose(found, two_loops(known[-6:], gradient, inverse), rtol=1e-4, atol=1e-5)
    assert len(pairs) == 6
    pairs.clear()
    np.testing.assert_array_equal(
        np.asarray(pairs.direction(xp.asarray(gradient), xp.asarray(inverse))), -0.25 * inverse * gradient
    )
