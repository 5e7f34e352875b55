"""Tables of strata and of the level above: they agree, stay non-negative, and the noise above is lower."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synth_core.measurement import Measurement
from synth_core.synthesizers import consistency
from synth_core.synthesizers.consistency import Upper, agree_with_upper, fit_margins, stratum_rows

UPPER_OF = (0, 0, 1, 0, 1)


def test_rows_without_a_level_above_are_the_nearest_without_negative_ones():
    counts = Measurement(("d",), np.array([10.0, -4.0, 30.0]), 3.0)
    rows = stratum_rows(counts, [], upper_of=None)
    assert rows.min() == 0
    assert rows.sum() == counts.noisy.sum()
    assert stratum_rows(Measurement(("d",), np.array([-1.0, -2.0]), 3.0), [], upper_of=None).tolist() == [
        0,
        0,
    ]


def test_rows_of_strata_add_up_to_what_all_answers_say_of_their_level():
    counts = Measurement(("d",), np.array([10.0, 20.0, 5.0, 30.0, 15.0]), 2.0)
    upper = Upper("age", np.array([[30.0, 36.0], [10.0, 8.0]]), 1.0)
    rows = stratum_rows(counts, [upper], upper_of=UPPER_OF)
    first = np.average([60.0, 66.0], weights=[1 / (3 * 4), 1 / 2])
    second = np.average([20.0, 18.0], weights=[1 / (2 * 4), 1 / 2])
    assert np.isclose(rows[[0, 1, 3]].sum(), first)
    assert np.isclose(rows[[2, 4]].sum(), second)
    assert np.isclose(rows[1] - rows[0], 10)


@settings(max_examples=40)
@example(6, 3, 221, 48.0)  # rows that only cells near 0 can fill: raking comes near them slowly
@example(6, 7, 234, 46.0)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1), st.floats(0.1, 50))
def test_tables_agree_with_rows_and_the_table_above_without_negative_counts(parts, cells, seed, noise):
    rng = np.random.default_rng(seed)
    tables = [
        Measurement(("age",), rng.normal(20, noise, cells), float(rng.uniform(0.5, 2) * noise)) for _ in range(parts)
    ]
    rows = rng.uniform(0, 100, parts) * (rng.random(parts) < 0.8)
    found = agree_with_upper(tables, rng.normal(20 * parts, noise, cells), sigma=noise, rows=rows)
    stacked = np.stack([m.noisy for m in found])
    assert stacked.min() >= 0
    np.testing.assert_allclose(stacked.sum(axis=1), rows, atol=1e-9 * max(1, rows.sum()))
    np.testing.assert_allclose(stacked.sum(), rows.sum())
    assert all(after.sigma <= before.sigma for before, after in zip(tables, found, strict=True))


def test_the_table_above_has_less_noise_than_the_sum_and_the_stated_one_below():
    """Means over many draws: the noise above falls from that of ten tables to about that of one."""
    rng = np.random.default_rng(3)
    truth = rng.uniform(200, 400, (10, 4))
    above, below, plain = [], [], []
    for _ in range(400):
        tables = [Measurement(("age",), row + rng.normal(0, 5, 4), 5.0) for row in truth]
        found = agree_with_upper(tables, truth.sum(axis=0) + rng.normal(0, 5, 4), sigma=5.0, rows=truth.sum(axis=1))
        stacked = np.stack([m.noisy for m in found])
        above.append(stacked.sum(axis=0) - truth.sum(axis=0))
        below.append((stacked - truth).ravel())
        plain.append(np.sum([m.noisy for m in tables], axis=0) - truth.sum(axis=0))
    assert np.std(plain) > 2.5 * np.std(above)
    assert np.std(above) < 5.0
    assert np.std(below) < found[0].sigma, "the rows, known exactly here, help too"
    assert np.std(below) > 0.7 * found[0].sigma


def test_margins_are_met_and_columns_kept_after_any_number_of_rounds(monkeypatch):
    """What raking leaves is moved between rows, however much it is."""
    rng = np.random.default_rng(5)
    table, rows, columns = rng.normal(5, 9, (5, 4)), rng.uniform(0, 50, 5), rng.uniform(0, 50, 4)
    columns *= rows.sum() / columns.sum()
    for rounds in (1, 2, 10):
        monkeypatch.setattr(consistency, "MAX_RAKING_ROUNDS", rounds)
        found = fit_margins(table, rows, columns)
        assert found.min() >= 0
        np.testing.assert_allclose(found.sum(axis=1), rows, atol=1e-9)
        np.testing.assert_allclose(found.sum(axis=0), columns, atol=1e-9)


def test_margins_are_met_from_any_start():
    table = fit_margins(np.array([[-3.0, 0.0], [5.0, 1.0]]), np.array([4.0, 6.0]), np.array([7.0, 3.0]))
    np.testing.assert_allclose(table.sum(axis=0), [7, 3])
    np.testing.assert_allclose(table.sum(axis=1), [4, 6], atol=1e-6)
    empty = fit_margins(np.ones((2, 2)), np.array([0.0, 6.0]), np.array([6.0, 0.0]))
    np.testing.assert_allclose(empty, [[0, 0], [6, 0]], atol=1e-6)
