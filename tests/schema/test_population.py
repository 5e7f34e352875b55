"""The fictional population: it keeps its rules, depends strongly, and is what the schema declares."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from synth_core.errors import SpecError
from synth_core.example.population import generate, population_schema, write_example
from synth_core.schema import Schema
from synth_core.schema.codec import encode

ROWS = 20_000


@pytest.fixture(scope="module")
def people():
    return generate(ROWS, 3)


@pytest.fixture(scope="module")
def codes(people):
    return encode(people, population_schema())


def dependence(codes, a, b):
    """Total variation distance between the joint table and the product of its margins."""
    table = pd.crosstab(codes[a], codes[b], normalize=True).to_numpy()
    return 0.5 * np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum()


def test_the_table_is_as_declared(people, codes):
    schema = population_schema()
    assert list(people.columns) == list(schema.domain)
    assert len(people) == ROWS
    assert all(2 <= size <= 20 for size in schema.domain.sizes)


def test_every_code_occurs(codes):
    for column in population_schema().columns:
        assert np.unique(codes[column.name]).size == column.size, column.name


def test_every_rule_holds_exactly(people):
    broken = population_schema().violations(people)
    assert broken
    assert not any(rows.any() for rows in broken.values())


def test_every_rule_says_something(people):
    """With each column shuffled on its own, every rule is broken somewhere."""
    rng = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: people[name].array[rng.permutation(ROWS)] for name in people})
    assert all(rows.any() for rows in population_schema().violations(shuffled).values())


@pytest.mark.parametrize(
    ("a", "b", "least"),
    [
        ("region", "district", 0.7),
        ("age", "role", 0.3),
        ("age", "marital", 0.25),
        ("age", "education", 0.2),
        ("age", "activity", 0.4),
        ("age", "tenure", 0.2),
        ("education", "occupation", 0.2),
        ("occupation", "industry", 0.5),
        ("occupation", "income", 0.5),
        ("hours", "income", 0.5),
        ("household_size", "role", 0.2),
        ("sex", "occupation", 0.07),
    ],
)
def test_dependence_is_real(codes, a, b, least):
    assert dependence(codes, a, b) > least
    rng = np.random.default_rng(0)
    assert dependence({a: codes[a], b: rng.permutation(codes[b])}, a, b) < 0.05


def test_many_pairs_are_far_from_independence(codes):
    pairs = [dependence(codes, a, b) for a, b in combinations(codes, 2)]
    assert np.mean(np.array(pairs) > 0.1) > 0.4


def test_people_out_of_work_have_no_job(people):
    working = people["activity"].isin(["employed", "self_employed"])
    for name in ("occupation", "industry", "hours", "income"):
        assert (people[name].notna() == working).all()


def test_a_seed_gives_one_population():
    assert generate(500, 1).equals(generate(500, 1))
    assert not generate(500, 1).equals(generate(500, 2))
    assert len(generate(1, 0)) == 1


def test_no_rows_are_refused():
    with pytest.raises(SpecError, match="at least 1"):
        generate(0, 1)


def test_the_example_is_written_and_fits_its_schema(tmp_path):
    write_example(tmp_path, rows=300, seed=4)
    schema = Schema.load(tmp_path / "schema.yaml")
    assert schema == population_schema()
    written = encode(pd.read_csv(tmp_path / "data" / "people.csv", keep_default_na=False, na_values=[""]), schema)
    made = encode(generate(300, 4), schema)
    assert all(np.array_equal(written[name], made[name]) for name in schema.domain)
