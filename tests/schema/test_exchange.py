"""Numbers are exchanged inside bins until rules hold, and every bin's numbers stay what they were."""

import numpy as np
import pytest

from synth_core.schema import Schema
from synth_core.schema.codec import decode
from synth_core.schema.exchange import exchange_numbers

EDGES = [0, 1000, 5000, 20_000]
COLUMNS = [
    {"name": "income", "kind": "real", "bins": EDGES},
    {"name": "wages", "kind": "real", "bins": EDGES, "atoms": [0]},
]
ROWS = 6000


def schema_of(*rules):
    named = [{"name": rule, "compare": rule} for rule in rules]
    return Schema.model_validate({"columns": COLUMNS, "rules": named})


def some_codes():
    """A third of the rows without wages, a third with both in one bin, and a third in which the rule holds anyhow."""
    income = np.repeat([1, 2], ROWS // 2)
    wages = np.tile([0, 1, 2], ROWS // 3)
    wages[wages == 2] = income[wages == 2] + 1
    return np.column_stack([income, wages])


def test_means_are_those_of_numbers_that_no_rule_has_touched():
    """Numbers drawn again until they hold would put incomes up and wages down by over a tenth in these bins."""
    codes = some_codes()
    free, ruled = (decode(codes, schema_of(*rules), np.random.default_rng(3)) for rules in ((), ("wages <= income",)))
    assert (free.wages > free.income).mean() > 0.1
    assert not (ruled.wages > ruled.income).any()
    for name in ("income", "wages"):
        assert ruled[name].mean() == pytest.approx(free[name].mean(), rel=0.02)


def test_an_exchange_keeps_the_numbers_of_every_bin():
    rng = np.random.default_rng(5)
    codes = {"a": rng.integers(0, 3, 1000), "b": rng.integers(0, 3, 1000)}
    numbers = {name: held + rng.random(1000) for name, held in codes.items()}
    before = {name: held.copy() for name, held in numbers.items()}
    left = exchange_numbers(numbers, codes, rng, broken=lambda own, _: own["a"] - own["b"] > 0.8)
    wrong = numbers["a"] - numbers["b"] > 0.8
    assert sorted(left) == np.flatnonzero(wrong).tolist()
    hopeless = (codes["a"] == 2) & (codes["b"] == 0)  # more than 1 apart, whatever is exchanged
    assert wrong[hopeless].all()
    mended = (before["a"] - before["b"] > 0.8)[~hopeless].sum() - wrong[~hopeless].sum()
    assert mended > 0.8 * (before["a"] - before["b"] > 0.8)[~hopeless].sum()
    for name, own in codes.items():
        for code in range(3):
            assert sorted(numbers[name][own == code]) == sorted(before[name][own == code])


def test_what_holds_is_left_alone():
    rng = np.random.default_rng(5)
    numbers = {"a": np.arange(4.0), "b": np.arange(4.0) + 1}
    codes = {"a": np.zeros(4, dtype=np.int64), "b": np.zeros(4, dtype=np.int64)}
    state = rng.bit_generator.state
    assert not len(exchange_numbers(numbers, codes, rng, broken=lambda own, _: own["a"] > own["b"]))
    assert numbers["a"].tolist() == [0, 1, 2, 3]
    assert rng.bit_generator.state == state


def test_rows_that_no_exchange_can_mend_are_returned():
    numbers = {"a": np.array([3.0, 4.0]), "b": np.array([1.0, 2.0])}
    codes = {"a": np.zeros(2, dtype=np.int64), "b": np.zeros(2, dtype=np.int64)}
    left = exchange_numbers(numbers, codes, np.random.default_rng(1), broken=lambda own, _: own["a"] > own["b"])
    assert left.tolist() == [0, 1]
