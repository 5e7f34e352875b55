"""An evaluation tells good tables from bad ones, refuses what it cannot compare, and can be stored."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from support.sample_tables import CENSUS_SIZES

from synth_core.domain import Domain
from synth_core.errors import SchemaError, SourceError
from synth_core.evaluation import CodedTable, Evaluation, compare, compare_codes, rule_violations
from synth_core.evaluation.classification import MAX_CLASSES, split_rows, usual_targets
from synth_core.evaluation.marginals import marginal_errors
from synth_core.schema import Categorical, Integer, Rule, Schema

DOMAIN = Domain.of({"x": 4, "y": 4, "z": 3, "w": 2})


def chain(rows: int, seed: int) -> np.ndarray:
    """y follows x nine times in ten, z follows y, w is a coin: strong ties a good table must keep."""
    rng = np.random.default_rng(seed)
    x = rng.integers(4, size=rows)
    y = np.where(rng.random(rows) < 0.9, x, rng.integers(4, size=rows))
    z = np.where(rng.random(rows) < 0.8, y % 3, rng.integers(3, size=rows))
    return np.column_stack([x, y, z, rng.integers(2, size=rows)]).astype(np.uint8)


@pytest.fixture(scope="module")
def real() -> np.ndarray:
    return chain(6000, 1)


@pytest.fixture(scope="module")
def good(real) -> Evaluation:
    return compare_codes(real, chain(6000, 2), DOMAIN)


@pytest.fixture(scope="module")
def apart(real) -> Evaluation:
    return compare_codes(real, np.random.default_rng(3).permuted(real, axis=0), DOMAIN)


def test_a_fresh_sample_is_at_the_sampling_floor(good):
    for errors in good.marginals[1:]:
        assert errors.tvd.mean < 2 * errors.floor < errors.independent / 4


def test_independent_columns_are_at_their_yardstick(apart):
    one, two, three, _ = apart.marginals
    assert one.tvd.worst < 1e-12
    assert two.tvd.mean == pytest.approx(two.independent, rel=0.1)
    assert three.tvd.mean == pytest.approx(three.independent, rel=0.1)
    assert max(apart.one_way.values()) < 1e-12
    assert apart.pairs[0][1] == max(max(row) for row in apart.pairs) > 0.5


def test_training_on_a_good_table_is_nearly_as_good_as_on_real_rows(good):
    for error in good.targets:
        assert error.synthetic == pytest.approx(error.real, abs=0.03)
    x = good.targets[0]
    assert x.target == "x"
    assert x.real < 0.15  # nine in ten follow, one in four of the rest by chance
    assert x.majority > 0.7


def test_training_on_independent_columns_is_much_worse(apart):
    errors = {error.target: error for error in apart.targets}
    for tied in ("x", "y", "z"):
        assert errors[tied].synthetic > errors[tied].real + 0.3
    assert errors["w"].synthetic == pytest.approx(0.5, abs=0.06)


def test_the_held_out_rows_are_trained_on_by_nobody():
    real = np.arange(90).reshape(90, 1)
    parts = split_rows(real, np.arange(1000, 1200).reshape(200, 1))
    assert not set(parts.held_out[:, 0]) & set(parts.real[:, 0])
    assert len(parts.held_out) == 30
    assert len(parts.real) == len(parts.synthetic) == 60
    assert parts.synthetic.min() >= 1000


def test_the_same_tables_give_the_same_evaluation(real, good):
    assert compare_codes(real, chain(6000, 2), DOMAIN) == good


def test_stored_and_read_back(good):
    assert Evaluation.from_json(good.to_json()) == good
    assert good.marginal(3) == good.marginals[2]
    assert good.marginal(5) is None
    assert good.attributes == ("x", "y", "z", "w")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"marginals": 3}', '{"unknown": 1}'])
def test_a_damaged_store_is_refused(text):
    with pytest.raises(SourceError, match="run the evaluate step again"):
        Evaluation.from_json(text)


def test_progress_counts_every_part(real):
    seen = []
    compare_codes(real[:300], real[:300], DOMAIN, targets=["w", "x"], progress=lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == list(range(1, 10))
    assert {total for _, _, total in seen} == {9}


def test_targets_can_be_chosen_and_large_ones_are_left_out(real):
    evaluation = compare_codes(real[:300], real[:300], DOMAIN, targets=["z"])
    assert [error.target for error in evaluation.targets] == ["z"]
    assert usual_targets(Domain.of({"one": 1, "two": 2, "many": MAX_CLASSES + 1})) == ("two",)
    with pytest.raises(SchemaError, match="'nowhere'"):
        compare_codes(real, real, DOMAIN, targets=["nowhere"])


def test_few_columns_and_constant_targets_have_an_answer():
    one = np.zeros((5, 1), dtype=np.uint8)
    evaluation = compare_codes(one, one, Domain.of({"x": 2}))
    assert [errors.alpha for errors in evaluation.marginals] == [1]
    assert evaluation.targets == ()
    two = np.column_stack([np.zeros(9, dtype=int), np.arange(9) % 2])
    constant, coin = compare_codes(two, two, Domain.of({"x": 2, "y": 2})).targets
    assert (constant.synthetic, constant.real, constant.majority) == (0, 0, 0)
    assert coin.target == "y"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (np.zeros((9, 3), dtype=int), "one column for each"),
        (np.zeros(9, dtype=int), "one column for each"),
        (np.zeros((0, 4), dtype=int), "has no rows"),
        (np.full((9, 4), 2), "column 'w'.*outside the domain"),
        (np.full((9, 4), -1), "column 'x'.*outside the domain"),
    ],
)
def test_what_cannot_be_compared_is_refused(real, broken, words):
    with pytest.raises(SourceError, match=f"real table.*{words}|the real table, {words}"):
        compare_codes(broken, real, DOMAIN)
    with pytest.raises(SourceError, match=f"synthetic table.*{words}|the synthetic table, {words}"):
        compare_codes(real, broken, DOMAIN)


SCHEMA = Schema(
    columns=(
        Categorical(name="married", values=("yes", "no")),
        Integer(name="age", bins=(0, 16, 40, 100)),
        Categorical(name="role", values=("head", "child"), nullable=True),
    ),
    rules=(
        Rule(name="no married children", when={"age": {"max": 15}}, never={"married": "yes"}),
        Rule(name="heads are adults", when={"age": {"max": 15}}, never={"role": "head"}),
    ),
)
FRAME = pd.DataFrame(
    {
        "married": ["yes", "no", "yes", "no", "yes", "no"] * 20,
        "age": [3, 5, 30, 20, 70, 41] * 20,
        "role": [None, "head", "head", "child", "head", None] * 20,
    }
)


def test_frames_are_compared_in_the_schemas_own_values():
    adults = FRAME[FRAME["age"] >= 16]
    evaluation = compare(adults, FRAME, SCHEMA)
    assert evaluation.one_way["age"] == pytest.approx(1 / 3)
    assert evaluation.violations == {"no married children": 20, "heads are adults": 20}
    assert (evaluation.real_rows, evaluation.synthetic_rows) == (80, 120)


def test_violations_on_codes_agree_with_those_on_values():
    codes = np.array([[0, 0, 2], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
    assert rule_violations(CodedTable.of(codes, SCHEMA.domain), SCHEMA) == {
        "no married children": 1,
        "heads are adults": 1,
    }
    masks = SCHEMA.violations(FRAME)
    assert compare(FRAME, FRAME, SCHEMA, targets=[]).violations == {n: int(m.sum()) for n, m in masks.items()}


@pytest.mark.parametrize("which", ["real table", "synthetic table"])
def test_a_value_outside_the_schema_names_table_and_column_and_never_the_value(which):
    hostile = FRAME.assign(married=["perhaps", *FRAME["married"][1:]])
    tables = (hostile, FRAME) if which == "real table" else (FRAME, hostile)
    with pytest.raises(SourceError) as refusal:
        compare(*tables, SCHEMA)
    assert re.search(rf"{which}.*married", str(refusal.value))
    assert "perhaps" not in str(refusal.value)


def expected_distance(counts: np.ndarray) -> float:
    """Expected TVD of a bootstrap from a table with these counts: de Moivre's mean deviation of a binomial, summed."""
    rows = counts.sum()
    shares = counts / rows
    deviations = 2 * (counts + 1) * (1 - shares) * binom.pmf(counts + 1, rows, shares)
    return float(deviations.sum() / (2 * rows))


def test_a_bootstrap_is_as_far_away_as_counting_says_and_independence_as_a_shuffle(samples):
    frame, domain = pd.read_csv(samples / "census.csv"), Domain.of(CENSUS_SIZES)
    real, rng = frame.to_numpy(dtype=np.uint8), np.random.default_rng(5)
    fresh = real[rng.integers(len(real), size=len(real))]
    three = marginal_errors(CodedTable.of(real, domain), CodedTable.of(fresh, domain), alpha=3)
    some = range(0, len(three.cliques), 20)
    expected = [expected_distance(frame.value_counts(list(three.cliques[k])).to_numpy()) for k in some]
    assert np.mean([three.values[k] for k in some]) == pytest.approx(np.mean(expected), rel=0.02)
    assert three.floor == pytest.approx(three.tvd.mean, rel=0.1), "of some of the marginals"
    shuffled = marginal_errors(CodedTable.of(real, domain), CodedTable.of(rng.permuted(real, axis=0), domain), alpha=3)
    assert three.independent == pytest.approx(shuffled.tvd.mean, rel=0.1)
