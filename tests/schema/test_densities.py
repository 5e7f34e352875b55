"""Where inside their bins numbers are drawn: masses kept, lines that meet, tails, atoms, round numbers, refusals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from synth_core.errors import SchemaError
from synth_core.schema import Schema
from synth_core.schema.codec import decode, encode, guess_densities
from synth_core.schema.densities import PARTS

INCOME = {"name": "income", "kind": "real", "bins": [0, 10, 20, 40, 60, 100, 5000]}
AGE = {"name": "age", "kind": "integer", "bins": [0, 18, 30, 65, 100]}


def schema_of(*columns):
    return Schema.model_validate({"columns": columns})


def heights(column, masses):
    """The density at the beginning and the end of each part of each bin, in records for each unit of the number."""
    found = column.densities(np.asarray(masses, dtype=float))
    parts = found.masses.shape[1]
    ends = np.arange(parts + 1) / parts
    rows = []
    for bin_, mass in enumerate(masses[: column.declared]):
        numbers = found.scales.numbers(ends, np.full(parts + 1, bin_))
        mean = mass * found.masses[bin_] / np.diff(numbers)
        rows.append((mean * (1 - found.slopes[bin_]), mean * (1 + found.slopes[bin_])))
    return rows


def draws(column, masses, *, bin_, rows=200_000, seed=0):
    """Numbers of one bin, drawn from the density that the masses give."""
    schema = schema_of(column)
    densities = guess_densities(schema, lambda _: np.asarray(masses, dtype=float))
    codes = np.full((rows, 1), bin_, dtype=np.uint8)
    return decode(codes, schema, np.random.default_rng(seed), densities)[column["name"]].to_numpy()


def test_a_density_has_no_jump_between_bins():
    masses = [50, 200, 300, 100, 40, 10]
    rows = heights(schema_of(INCOME).column("income"), masses)
    for (_, before), (after, _) in pairwise(rows[:-1]):
        assert before[-1] == pytest.approx(after[0], rel=1e-9)
    for begins, ends in rows[:-1]:
        assert ends[:-1] == pytest.approx(begins[1:], rel=1e-6)
        assert min(begins.min(), ends.min()) >= 0
    uniform = [mass / width for mass, width in zip(masses, (10, 10, 20, 20, 40), strict=False)]
    assert rows[0][1][-1] != pytest.approx(uniform[0], rel=0.2)


def test_masses_of_parts_add_up_to_their_bin():
    rng = np.random.default_rng(4)
    column = schema_of(INCOME).column("income")
    for _ in range(50):
        masses = rng.integers(0, 1000, 6) * rng.integers(0, 2, 6)
        found = column.densities(masses.astype(float))
        assert found.masses.sum(axis=1) == pytest.approx(1)
        assert found.masses.min() >= 0
        assert np.abs(found.slopes).max() <= 1


@pytest.mark.parametrize("index", [1.5, 2.0, 3.0])
def test_a_wide_last_bin_is_the_pareto_tail_of_the_published_counts(index):
    edges = np.array(INCOME["bins"], dtype=float)
    above = np.concatenate([[2.0, 1.5], (10 / edges[2:]) ** index])  # shares above each edge; Pareto from 20 on
    found = schema_of(INCOME).column("income").densities(-np.diff(above))
    low, high = 100.0, 5000.0
    norm = low**-index - high**-index
    mean = index / (index - 1) * (low ** (1 - index) - high ** (1 - index)) / norm
    assert found.mean_numbers()[-1] == pytest.approx(mean, rel=0.01)
    assert found.mean_numbers()[-1] != pytest.approx((low + high) / 2, rel=0.5)


def test_a_wide_last_bin_that_begins_at_or_below_zero_thins_out_exponentially():
    column = schema_of({**INCOME, "bins": [-30, -20, -10, 0, 5000]}).column("income")
    assert (column.last_tail, column.scales.logarithmic.any()) == ("exponential", False)
    rate = 0.05
    above = np.exp(-rate * np.array([0, 10, 20, 30, 5030]))
    mean = column.densities(-np.diff(above)).mean_numbers()[-1]
    # Nearly all of this tail lies in one of the 32 parts of so wide a bin.
    assert 1 / rate < mean < 5000 / PARTS / 2 + 1


def test_what_a_tail_is_can_be_declared():
    masses = np.array([10, 10, 10, 10, 10, 1.0])
    means = {
        tail: schema_of({**INCOME, "tail": tail}).column("income").densities(masses).mean_numbers()[-1]
        for tail in ("pareto", "exponential", "uniform")
    }
    assert means["uniform"] == pytest.approx(2550)
    assert 100 < means["pareto"] < 1000 < means["uniform"]
    assert 100 < means["exponential"] < 400


def test_a_wide_first_bin_thins_out_downwards():
    column = schema_of({**INCOME, "bins": [-5000, -10, 0, 10, 20]}).column("income")
    mean = column.densities(np.array([5.0, 20, 100, 100])).mean_numbers()[0]
    assert -400 < mean < -10


def test_numbers_follow_their_density():
    masses = [50, 200, 300, 100, 40, 10]
    found = schema_of(INCOME).column("income").densities(np.array(masses, dtype=float))
    for bin_ in (0, 2, 5):
        numbers = draws(INCOME, masses, bin_=bin_)
        low, high = INCOME["bins"][bin_ : bin_ + 2]
        assert low <= numbers.min() <= numbers.max() < high
        column = schema_of(INCOME).column("income")
        places = column.places(numbers, np.full(len(numbers), bin_))
        counts = np.bincount(places.astype(int) * PARTS // column.place_count, minlength=PARTS)
        expected = np.maximum(found.masses[bin_] * len(numbers), 1e-9)
        seen = expected > 5
        assert ((counts - expected)[seen] ** 2 / expected[seen]).sum() < 75  # 31 degrees of freedom: 1 in 10,000
        uniform = len(numbers) / PARTS
        assert ((counts - uniform) ** 2 / uniform).sum() > 75
        assert numbers.mean() == pytest.approx(found.mean_numbers()[bin_], rel=0.01)


def test_whole_numbers_stay_whole_and_in_their_bin():
    masses = [100, 50, 200, 20]
    for bin_ in range(4):
        numbers = draws(AGE, masses, bin_=bin_, rows=20_000)
        assert numbers.dtype == np.int64
        assert set(numbers) == set(range(*AGE["bins"][bin_ : bin_ + 2]))


def test_the_same_rows_are_drawn_whatever_the_densities():
    """A number takes one draw, so that the generator stands where it stood before when the next block is drawn."""
    schema = schema_of(AGE, INCOME, {"name": "one", "kind": "integer", "bins": [0, 1, 2]})
    codes = np.random.default_rng(0).integers(0, 2, (30_000, 3)).astype(np.uint8)
    after = []
    for densities in (None, guess_densities(schema, lambda clique: np.ones(schema.column(clique[0]).size))):
        rng = np.random.default_rng(7)
        decode(codes, schema, rng, densities)
        after.append(rng.random())
    before = np.random.default_rng(7)
    before.random(2 * len(codes))
    assert after == [before.random()] * 2


@pytest.mark.parametrize("kind", ["integer", "real"])
def test_an_atom_has_a_code_of_its_own(kind):
    column = {"name": "x", "kind": kind, "bins": [-10, 10, 20], "atoms": [0, 15]}
    schema = schema_of(column)
    assert schema.column("x").declared == 6
    cells = [-1, 0, 1, 10, 15, 16]
    codes = encode(decode_frame(cells), schema)["x"]
    assert codes.tolist() == [0, 1, 2, 3, 4, 5]
    assert schema.column("x").atom_bins.tolist() == [False, True, False, False, True, False]
    again = decode(codes[:, None], schema, np.random.default_rng(0))["x"]
    assert again[[1, 4]].tolist() == [0, 15]
    assert schema.column("x").captions[1] == "0"


def decode_frame(cells):
    import pandas as pd

    return pd.DataFrame({"x": cells})


@pytest.mark.parametrize("bins", [[-8, -5, 15], [-300, -20, -2, 5], [-5, 0, 3, 20], [-8, -5, 15, 1000]])
def test_a_tail_that_begins_where_an_atom_at_0_ends_is_none_of_orders_of_magnitude(bins):
    """The least number above 0 is no scale: a Pareto tail from there lies at 0, or cannot be computed at all."""
    column = {"name": "x", "kind": "real", "bins": bins, "atoms": [0]}
    own = schema_of(column).column("x")
    masses = np.ones(own.declared)
    numbers = draws(column, masses, bin_=own.declared - 1, rows=2000)
    low = own.edges[-2]
    assert low < numbers.min()
    assert numbers.max() <= bins[-1]
    assert np.median(numbers) > low + 0.005 * (bins[-1] - low)
    assert own.densities(masses).mean_numbers()[-1] == pytest.approx(numbers.mean(), rel=0.1)
    with pytest.raises(SchemaError, match="a pareto tail begins above 0"):
        schema_of({**column, "bins": [-8, -5, 15], "tail": "pareto"})


def test_an_atom_may_be_the_last_number_of_all_and_groups_keep_it():
    column = {"name": "x", "kind": "real", "bins": [0, 10, 20], "atoms": [20], "hierarchy": [0, 10, 20]}
    schema = schema_of(column)
    assert encode(decode_frame([19.5, 20.0]), schema)["x"].tolist() == [1, 2]
    assert schema.column("x").groups == (0, 1, 1)
    assert Schema.model_validate(schema._plain()) == schema


def test_an_atom_says_nothing_about_the_bins_beside_it():
    column = {"name": "x", "kind": "real", "bins": [0, 10, 20, 30], "atoms": [0]}
    few, many = (
        schema_of(column).column("x").densities(np.array([mass, 100.0, 80, 60])).means[1] for mass in (0.0, 1e6)
    )
    assert few == many
    whole = schema_of({"name": "x", "kind": "integer", "bins": [0, 1, 11, 21, 31]}).column("x")
    heaped = whole.densities(np.array([1e6, 100.0, 80, 60])).means[1]
    assert heaped == pytest.approx(few, abs=0.02)  # a single number that stands out is known by its height


def test_rules_may_name_an_atom_of_reals():
    rule = {"name": "r", "when": {"x": 0}, "never": {"sex": "F"}}
    sex = {"name": "sex", "kind": "categorical", "values": ["F", "M"]}
    column = {"name": "x", "kind": "real", "bins": [0, 10, 20]}
    with pytest.raises(SchemaError, match="single point; a real column takes ranges, or declares it in atoms"):
        Schema.model_validate({"columns": [sex, column], "rules": [rule]})
    schema = Schema.model_validate({"columns": [sex, {**column, "atoms": [0]}], "rules": [rule]})
    (excluded,) = schema.domain.impossible
    assert dict(excluded.codes) == {"x": (0,), "sex": (0,)}
    frame = decode(np.array([[0, 0], [0, 1], [1, 0]]), schema, np.random.default_rng(0))
    assert schema.violations(frame)["r"].tolist() == [True, False, False]


def test_a_declared_share_of_the_numbers_is_round():
    column = {**AGE, "heaping": {"every": 5, "share": 0.8}}
    numbers = draws(column, [100, 50, 200, 20], bin_=2, rows=50_000)
    assert 0.8 + 0.2 * 0.15 < (numbers % 5 == 0).mean() < 0.8 + 0.2 * 0.27
    assert (numbers.min(), numbers.max()) >= (30, 60)
    assert (draws(AGE, [100, 50, 200, 20], bin_=2, rows=50_000) % 5 == 0).mean() < 0.3
    assert (draws({**AGE, "heaping": 5}, [1, 1, 1, 1], bin_=1, rows=50_000) % 5 == 0).mean() == pytest.approx(
        0.6, abs=0.05
    )
    reals = draws({**INCOME, "heaping": {"every": 1000, "share": 1}}, [9, 9, 9, 9, 9, 9], bin_=5)
    assert set(reals) == {1000.0, 2000, 3000, 4000}
    assert not (draws({**INCOME, "heaping": 1000}, [9] * 6, bin_=1) % 1000 == 0).any()  # there is none in that bin


def test_columns_of_very_many_bins_stay_uniform_and_small():
    column = schema_of({"name": "x", "kind": "integer", "bounds": [0, 99_999], "bins": 50_000}).column("x")
    found = column.densities(np.random.default_rng(0).random(50_000))
    assert (found.masses.shape, column.place_count) == ((50_000, 1), 16)
    assert found.means == pytest.approx(0.5)


def test_a_place_says_what_the_number_was():
    schema = schema_of({**AGE, "unseen": "clip"}, {**INCOME, "unseen": "clip"})
    rng = np.random.default_rng(2)
    ages, incomes = rng.integers(0, 100, 500), rng.lognormal(3.5, 1.2, 500)
    for name, numbers, close in (("age", ages, 1e-9), ("income", incomes, 1e-2)):
        column = schema.column(name)
        codes = np.searchsorted(column.edges, numbers, side="right") - 1
        codes = codes.clip(0, column.declared - 1)
        places = column.places(numbers.astype(float), codes)
        assert column.place_numbers[codes, places] == pytest.approx(numbers.clip(0, 5000), abs=close, rel=2e-3)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({**AGE, "atoms": [100]}, "atoms: 100 lies outside the bins; add an edge beyond it"),
        ({**AGE, "atoms": [3, 3]}, "atoms: a number is listed twice; name each once"),
        ({**INCOME, "bins": [-5, 0, 9], "tail": "pareto"}, "tail: a pareto tail begins above 0"),
        ({**AGE, "heaping": 0}, "heaping: every: Input should be greater than 0"),
        ({**AGE, "heaping": {"every": 5, "share": 1.5}}, "heaping: share: Input should be less than or equal to 1"),
        ({**AGE, "tail": "normal"}, "tail: Input should be 'pareto', 'exponential' or 'uniform'"),
        (
            {"name": "x", "kind": "integer", "bounds": [0, 99], "bins": {"private_quantiles": 4}, "unseen": "clip"}
            | {"atoms": [0]},
            "atoms: they need edges that are known beforehand",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(column, problem):
    from synth_core.schema import DeclaredSchema

    with pytest.raises(SchemaError, match=problem):
        DeclaredSchema.model_validate({"columns": [column]})


def test_a_bin_that_makes_a_mean_uncertain_is_known_beforehand():
    wide = {"name": "x", "kind": "integer", "bins": [0, 1000, 5000, 10_000, 1_000_001]}
    caption, doubt = schema_of(wide).column("x").doubtful_bin
    assert caption == "10000–1000000"
    assert doubt == pytest.approx(0.01 * 990_001 / 2 / np.mean([500, 3000, 7500]))
    for declared in ({"tail": "pareto"}, {"moments": True}):
        assert schema_of({**wide, **declared}).column("x").doubtful_bin is None
    assert schema_of(AGE).column("age").doubtful_bin[1] < 0.05
