"""Scores agree with values worked out by hand, with other libraries, and tell good tables from bad ones."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon
from support.sample_tables import CENSUS_SIZES, SURVEY_SIZES
from support.tabulation import marginal_distances

from synth_core.cluster import connect
from synth_core.domain import Domain
from synth_core.evaluation import (
    CodedTable,
    PayGap,
    compare,
    compare_codes,
    declared_pay_gap,
    numeric_levels,
    true_errors,
)
from synth_core.evaluation.classification import (
    TRAINING_ROWS,
    closeness,
    propensity_mse,
    split_rows,
    target_error,
    target_errors,
)
from synth_core.evaluation.distances import alpha_way
from synth_core.evaluation.marginals import FEWEST_ROWS, correlation_difference, subgroup_errors, workload_error
from synth_core.evaluation.nist import classification_score, clustering_score, gini, regression_score
from synth_core.evaluation.support_vectors import Lessons
from synth_core.schema import Categorical, Integer, Schema

ABC = Domain.of({"a": 2, "b": 2, "c": 3})


def both(real, synthetic, domain):
    return CodedTable.of(real, domain), CodedTable.of(synthetic, domain)


def test_workload_error_of_unordered_columns_is_the_tvd():
    real = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 2], [1, 1, 2]])
    synthetic = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 2], [1, 1, 2]])
    assert workload_error(*both(real, synthetic, ABC), ordered=()) == pytest.approx(0.25)


def test_workload_error_of_an_ordered_column_by_hand():
    """Shares of c are (1/2, 0, 1/2) and (0, 1/2, 1/2): prefixes (1/2, 1/2, 1) and (0, 1/2, 1), error 1/2 of 2 * 2."""
    domain = Domain.of({"a": 1, "b": 1, "c": 3})
    real, synthetic = np.array([[0, 0, 0], [0, 0, 2]]), np.array([[0, 0, 1], [0, 0, 2]])
    assert workload_error(*both(real, synthetic, domain), ordered={"c"}) == pytest.approx(1 / 8)
    assert workload_error(*both(real, synthetic, domain), ordered=()) == pytest.approx(1 / 2)


def test_workload_needs_three_columns_of_reasonable_size():
    two = np.zeros((4, 2), dtype=int)
    assert workload_error(*both(two, two, Domain.of({"a": 2, "b": 2})), ordered=()) is None
    huge = Domain.of({"a": 1000, "b": 1000, "c": 1000})
    assert workload_error(*both(np.zeros((4, 3), int), np.zeros((4, 3), int), huge), ordered=()) is None


def test_clustering_score_is_a_million_less_the_tvd():
    real = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 2], [1, 1, 2]])
    assert clustering_score(*both(real, real, ABC)) == 1e6
    changed = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 2], [1, 1, 2]])
    assert clustering_score(*both(real, changed, ABC)) == pytest.approx(750_000)
    assert clustering_score(*both(real[:2], real[2:], ABC)) == 0


def test_classification_score_tells_near_from_far():
    rng = np.random.default_rng(1)
    real = rng.integers(4, size=(5000, 3))
    domain = Domain.of({"a": 4, "b": 4, "c": 4})
    levels = {"a": np.arange(4.0)}
    assert classification_score(*both(real, real, domain), levels=levels) == 1e6
    near = classification_score(*both(real, rng.integers(4, size=(5000, 3)), domain), levels=levels)
    far = classification_score(*both(real, np.minimum(real, 1), domain), levels=levels)
    assert 980_000 < near < 1e6
    assert far < near - 300_000
    nobody = np.zeros((0, 3), dtype=int)
    assert classification_score(*both(real, nobody, domain), levels=levels) < near - 300_000
    assert classification_score(*both(nobody, real, domain), levels=levels) is None
    only = Domain.of({"a": 1})
    nothing = classification_score(*both(np.zeros((8, 1), int), np.zeros((8, 1), int), only), levels={})
    assert nothing == 1e6


def test_classification_score_has_a_floor_at_zero():
    domain = Domain.of({"a": 2})
    zeros, ones = np.zeros((9, 1), dtype=int), np.ones((9, 1), dtype=int)
    rms_if_always_apart = math.log(1e6)
    assert rms_if_always_apart > -math.log(1e-3)
    assert classification_score(*both(zeros, ones, domain), levels={}) < 300_000


def test_noise_has_a_low_classification_score_on_a_wide_table():
    """With 98 columns nobody matches a conjunction of 32 that was not made for a row; noise then agreed perfectly."""
    rng = np.random.default_rng(3)
    domain = Domain.of({f"c{k}": 5 for k in range(98)})
    shared = rng.integers(5, size=(2000, 1))
    real, other = (
        np.where(rng.random((2000, 98)) < 0.9, rows, rng.integers(5, size=(2000, 98))) for rows in [shared] * 2
    )
    noise, nobody = rng.integers(5, size=(2000, 98)), np.zeros((0, 98), dtype=int)
    likeness, of_noise, of_nobody = (
        classification_score(*both(real, table, domain), levels={}) for table in (other, noise, nobody)
    )
    assert classification_score(*both(real, real, domain), levels={}) == 1e6
    assert of_nobody == of_noise < likeness - 100_000


@pytest.mark.parametrize(
    ("values", "weights"), [([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]), ([1.0, 2.0, 7.0, 0.5], [3.0, 1.0, 1.0, 2.0])]
)
def test_gini_is_the_mean_absolute_difference_over_twice_the_mean(values, weights):
    people = np.repeat(values, np.array(weights, dtype=int))
    expected = np.abs(people[:, None] - people[None, :]).mean() / (2 * people.mean())
    assert gini(np.array(values), np.array(weights)) == pytest.approx(expected, abs=1e-12)


def test_gini_without_income_is_zero():
    assert gini(np.zeros(3), np.ones(3)) == 0


PAY = Domain.of({"city": 3, "sex": 2, "income": 4})
ROLES = PayGap(area="city", group="sex", income="income")
INCOMES = {"income": np.array([0.0, 10.0, 20.0, np.nan])}


def pay_table(gaps: list[int]) -> np.ndarray:
    """In each city the women earn 10 and `gap` of ten men earn 20, the rest 10."""
    rows = []
    for city, gap in enumerate(gaps):
        rows += [[city, 0, 1]] * 10 + [[city, 1, 2]] * gap + [[city, 1, 1]] * (10 - gap) + [[city, 0, 3]]
    return np.array(rows)


def test_regression_score_by_hand():
    real, reversed_ = pay_table([2, 5, 8]), pay_table([8, 5, 2])
    assert regression_score(*both(real, real, PAY), levels=INCOMES, roles=ROLES) == 1e6
    shares = {2: 0.2, 8: 0.8}
    ginis = {g: s * (1 - s) * 10 / (10 + 10 * s) for g, s in shares.items()}
    difference = math.sqrt(2 * (ginis[2] - ginis[8]) ** 2 / 6)
    expected = 1e6 * ((1 - difference) + 0) / 2
    assert regression_score(*both(real, reversed_, PAY), levels=INCOMES, roles=ROLES) == pytest.approx(expected)


def test_lost_areas_lower_the_regression_score():
    """Forty-eight of fifty areas lost scored a million: the two that were left agreed."""
    domain = Domain.of({"city": 50, "sex": 2, "income": 4})
    real = pay_table([city % 11 for city in range(50)])
    kept = {count: real[real[:, 0] < count] for count in (2, 49, 50)}
    scores = {n: regression_score(*both(real, t, domain), levels=INCOMES, roles=ROLES) for n, t in kept.items()}
    assert scores[50] == 1e6
    assert scores[49] == pytest.approx(1e6 * ((1 - math.sqrt(1 / 50)) + (1 - 49 / math.sqrt(50 * 2499 / 3))) / 2)
    assert scores[2] == pytest.approx(1e6 * (1 - math.sqrt(48 / 50)) / 2)


def test_regression_score_needs_two_areas():
    one_city = pay_table([2])
    assert regression_score(*both(one_city, one_city, PAY), levels=INCOMES, roles=ROLES) is None


def test_correlation_difference_agrees_with_pandas():
    rng = np.random.default_rng(2)
    real = rng.integers(5, size=(200, 3))
    synthetic = np.column_stack([real[:, 0], real[:, 0], np.zeros(200, dtype=int)])
    expected = (pd.DataFrame(synthetic).corr() - pd.DataFrame(real).corr()).to_numpy()
    found = correlation_difference(*both(real, synthetic, Domain.of({"a": 5, "b": 5, "c": 5})))
    assert found[0, 1] == pytest.approx(expected[0, 1])
    assert found[0, 2] == pytest.approx(-pd.DataFrame(real).corr()[0][2])


def test_subgroups_by_hand():
    """Among a = 0 the tables agree; among a = 1 all real rows have b = 0 and all synthetic ones b = 1."""
    half = FEWEST_ROWS
    real = np.array([[0, 0]] * half + [[1, 0]] * half)
    synthetic = np.array([[0, 0]] * half + [[1, 1]] * half)
    groups = subgroup_errors(*both(real, synthetic, Domain.of({"a": 2, "b": 2})))
    assert [(g.attribute, g.code) for g in groups] == [("a", 1), ("b", 0), ("a", 0)]
    assert [g.error for g in groups] == pytest.approx([1, 0.5, 0])
    assert (groups[1].real, groups[1].synthetic) == (1.0, 0.5)
    small = subgroup_errors(*both(real[1:], synthetic, Domain.of({"a": 2, "b": 2})))
    assert ("a", 0) not in {(g.attribute, g.code) for g in small}
    assert subgroup_errors(*both(real[:, :1], synthetic[:, :1], Domain.of({"a": 2}))) == ()


def test_the_subgroups_floor_is_what_a_fresh_sample_has():
    rng = np.random.default_rng(3)
    domain = Domain.of({"a": 4, "b": 6, "c": 5})
    real = rng.integers((4, 6, 5), size=(40_000, 3))
    fresh = real[rng.integers(len(real), size=8000)]
    groups = subgroup_errors(*both(real, fresh, domain))
    assert np.mean([g.error for g in groups]) == pytest.approx(np.mean([g.floor for g in groups]), rel=0.1)


def test_propensity_tells_tables_apart_and_no_more():
    rng = np.random.default_rng(4)
    real = rng.integers(4, size=(4000, 3))
    alike, tied = rng.integers(4, size=(4000, 3)), np.repeat(rng.integers(4, size=(4000, 1)), 3, axis=1)
    assert propensity_mse(real, alike) < 0.01
    assert propensity_mse(real, tied) > 0.1
    assert propensity_mse(real, real + 4) == pytest.approx(0.25, abs=1e-6)
    assert propensity_mse(real[:1], alike[:1]) == 0


def test_a_copy_of_the_real_rows_is_suspicious_and_a_fresh_table_is_not():
    rng = np.random.default_rng(5)
    real, fresh = rng.integers(5, size=(2, 3000, 8)).astype(np.uint8)
    copied, drawn = closeness(real, real), closeness(real, fresh)
    assert copied.suspicious
    assert copied.same == pytest.approx(0.5, abs=0.1)  # half of the rows are kept apart as the yardstick
    assert not drawn.suspicious
    assert drawn.distance == pytest.approx(drawn.distance_by_nature, rel=0.1)


def test_distances_by_hand():
    near = closeness(np.array([[0, 0, 0]] * 4), np.array([[0, 1, 1]]))
    assert (near.same, near.distance, near.same_by_nature, near.distance_by_nature) == (0, 2, 1, 0)


def test_numeric_columns_have_levels():
    schema = Schema(
        columns=(
            Integer(name="age", bins=(0, 10, 30), nullable=True),
            Categorical(name="sex", values=("f", "m")),
        )
    )
    levels = numeric_levels(schema)
    assert list(levels) == ["age"]
    np.testing.assert_array_equal(levels["age"], [5.0, 20.0, np.nan])


def test_every_score_of_a_comparison():
    schema = Schema(
        columns=(
            Categorical(name="city", values=("x", "y")),
            Categorical(name="sex", values=("f", "m")),
            Integer(name="income", bins=(0, 10, 20, 30)),
        )
    )
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["x", "y"], 500),
            "sex": rng.choice(["f", "m"], 500),
            "income": rng.integers(30, size=500),
        }
    )
    roles = PayGap(area="city", group="sex", income="income")
    scores = compare(frame, frame, schema, targets=[], pay_gap=roles).scores
    assert scores["k-marginal score"] == 1000
    assert scores["workload error"] == 0
    assert scores["NIST clustering"] == scores["NIST classification"] == scores["NIST regression"] == 1e6
    assert "NIST regression" not in compare(frame, frame, schema, targets=[]).scores
    told = [c.model_copy(update={"role": r}) for c, r in zip(schema.columns, roles_of(schema), strict=True)]
    assert compare(frame, frame, Schema(columns=tuple(told)), targets=[]).scores == scores
    assert declared_pay_gap(Schema(columns=tuple(told[:2]))) is None


def roles_of(schema):
    return [{"city": "area", "sex": "group", "income": "income"}[column.name] for column in schema.columns]


def test_distances_agree_with_scipy_and_pandas_on_many_rows(samples):
    rows, domain = pd.read_csv(samples / "survey.csv"), Domain.of(SURVEY_SIZES)
    shuffled = rows.apply(lambda column: np.random.default_rng(7).permutation(column))
    for clique in [clique for alpha in (1, 3, 6) for clique in alpha_way(domain, alpha, limit=3)]:
        found = marginal_distances(rows.to_numpy(), shuffled.to_numpy(), domain, clique)
        counted = [frame.value_counts(list(clique), normalize=True) for frame in (rows, shuffled)]
        p, q = counted[0].align(counted[1], fill_value=0.0)
        assert found.tvd == pytest.approx(float((p - q).abs().sum()) / 2, abs=1e-12)
        assert found.l2 == pytest.approx(float(np.linalg.norm(p - q)), abs=1e-12)
        assert found.jensen_shannon == pytest.approx(float(jensenshannon(p, q, base=2)) ** 2, abs=1e-9)


def test_targets_are_spread_over_a_cluster_with_the_same_result():
    rng = np.random.default_rng(8)
    real, synthetic = rng.integers((2, 2, 3), size=(2, 600, 3))
    parts = split_rows(real, synthetic)
    with connect(None) as cluster:
        spread = target_errors(parts, ABC, targets=["a", "c"], cluster=cluster)
    lessons = {"synthetic": Lessons.of(parts.synthetic, ABC), "real": Lessons.of(parts.real, ABC)}
    assert spread == tuple(target_error(name, held_out=parts.held_out, **lessons) for name in ("a", "c"))


@pytest.mark.slow
def test_every_target_is_learnt_twice_from_a_bounded_number_of_rows(samples, monkeypatch):
    """Three minutes on two cores for fifteen targets is the promise; the rows of each fit are what keeps it."""
    rows = pd.read_csv(samples / "census.csv").to_numpy(dtype=np.uint8)
    learnt = []

    def note(lessons, _, unseen):
        learnt.append(int(lessons.times.sum()))
        return np.zeros(len(unseen))

    monkeypatch.setattr(Lessons, "predict", note)
    # Nothing here is about the other figures, which take nearly all of the time.
    monkeypatch.setattr(true_errors, "ALPHAS", ())
    monkeypatch.setattr(true_errors, "_scores", lambda *_, **__: {})
    evaluation = compare_codes(rows, rows[:25_000], Domain.of(CENSUS_SIZES))
    assert len(evaluation.targets) == 15
    assert learnt == [TRAINING_ROWS] * 30
