"""Rules about numbers: what they mean, which bins they exclude, and rows in which they hold without exception."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from synth_core.errors import SchemaError
from synth_core.evaluation.true_errors import broken_comparisons
from synth_core.schema import DeclaredSchema, Schema
from synth_core.schema.codec import decode, encode, guess_densities
from synth_core.schema.value_rules import ValueRule

PEOPLE = {"name": "people", "kind": "integer", "bins": [1, 2, 3, 5, 9, 21]}
CHILDREN = {"name": "children", "kind": "integer", "bins": [0, 1, 3, 6, 21], "nullable": True}
AGE = {"name": "age", "kind": "integer", "bins": [0, 18, 40, 60, 100]}
PARTNER = {"name": "partner_age", "kind": "integer", "bins": [0, 18, 40, 60, 100], "not_in_universe": "none"}
WAGES, RENTS, TOTAL = (
    {"name": name, "kind": "real", "bins": [0, 100, 1000, 10_000], "nullable": True, "atoms": [0]}
    for name in ("wages", "rents", "total")
)
SEX = {"name": "sex", "kind": "categorical", "values": ["F", "M"]}


def schema_of(*columns, rules):
    named = [{"name": f"rule {number}", "compare": rule} for number, rule in enumerate(rules)]
    return Schema.model_validate({"columns": columns, "rules": named})


def possible_codes(schema, rows, seed=0):
    """Rows of codes that no rule excludes."""
    from synth_core.domain import breaking_rows

    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, size, 4 * rows) for size in schema.domain.sizes])
    return codes[~breaking_rows(codes, schema.domain)][:rows]


def decoded(schema, codes, seed=1):
    densities = guess_densities(schema, lambda clique: np.ones(schema.column(clique[0]).size))
    return decode(codes, schema, np.random.default_rng(seed), densities)


@pytest.mark.parametrize(
    ("text", "numbers", "broken"),
    [
        ("a < b", [(1, 2), (2, 2), (3, 2)], [False, True, True]),
        ("a <= b", [(1, 2), (2, 2), (3, 2)], [False, False, True]),
        ("a > b", [(1, 2), (2, 2), (3, 2)], [True, True, False]),
        ("a >= b", [(1, 2), (2, 2), (3, 2)], [True, False, False]),
        ("a == b", [(1, 2), (2, 2), (0.1 + 0.2, 0.3)], [True, False, False]),
        ("a - b < 60", [(70, 20), (80, 20), (81, 20)], [False, True, True]),
        ("2*a + 1 <= b", [(1, 3), (2, 4)], [False, True]),
        ("-a + 0.5 * b >= -1", [(1, 0), (2, 0)], [False, True]),
        ("`a` + b - 3 == 1 - a", [(1, 2), (2, 0), (1, 1)], [False, False, True]),
        ("a < b", [(np.nan, 2), (5, np.nan)], [False, False]),
    ],
)
def test_a_rule_means_what_it_says(text, numbers, broken):
    a, b = np.array(numbers, dtype=float).T
    assert ValueRule(name="r", compare=text).broken({"a": a, "b": b}).tolist() == broken


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a < b < c", "exactly one of"),
        ("a + b", "exactly one of"),
        ("a ? b", "cannot be read"),
        ("a * b < c", "a side is a sum of columns and numbers"),
        ("a + < b", "a side is a sum of columns|a side is empty"),
        ("a 2 < b", "a side is a sum of columns and numbers|two columns"),
        ("< b + c", "a side is empty"),
        ("a < 3", "two columns are needed; a rule about one names ranges"),
        ("a < a", "two columns are needed"),
    ],
)
def test_what_is_no_rule_is_refused(text, problem):
    with pytest.raises(SchemaError, match=problem):
        schema_of({**PEOPLE, "name": "a"}, {**PEOPLE, "name": "b"}, {**PEOPLE, "name": "c"}, rules=[text])


def test_a_rule_names_columns_of_numbers_whose_bins_are_known():
    with pytest.raises(SchemaError, match="rule 'rule 0': column 'kids' is not in the schema"):
        schema_of(PEOPLE, CHILDREN, rules=["kids < people"])
    with pytest.raises(SchemaError, match="rule 'rule 0': column 'sex' holds no numbers in bins"):
        schema_of(PEOPLE, SEX, rules=["sex < people"])
    bought = {"name": "b", "kind": "integer", "bounds": [0, 99], "bins": {"private_quantiles": 4}, "unseen": "clip"}
    with pytest.raises(SchemaError, match="rule 'rule 0': column 'b' has bins that are bought; list their edges"):
        DeclaredSchema.model_validate(
            {"columns": [PEOPLE, bought], "rules": [{"name": "rule 0", "compare": "b < people"}]}
        )
    wide = [{"name": name, "kind": "integer", "bounds": [0, 99], "bins": 100} for name in "abc"]
    with pytest.raises(SchemaError, match="join a, b, c into 1,000,000 combinations of bins"):
        schema_of(*wide, rules=["a + b <= c"]).domain  # noqa: B018


@pytest.mark.parametrize("rule", ["a < b", "a <= b", "a == b", "a + b <= 3", "2*a == b + 1"])
def test_bins_are_excluded_exactly_where_no_whole_numbers_hold(rule):
    """Against every pair of numbers of every pair of bins."""
    edges = [0, 1, 3, 6, 7]
    schema = schema_of(*({"name": name, "kind": "integer", "bins": edges} for name in "ab"), rules=[rule])
    form = ValueRule(name="r", compare=rule)
    from synth_core.domain import breaking_rows

    for i, j in itertools.product(range(4), repeat=2):
        pairs = np.array(list(itertools.product(range(*edges[i : i + 2]), range(*edges[j : j + 2]))), dtype=float).T
        some = not form.broken({"a": pairs[0], "b": pairs[1]}).all()
        assert breaking_rows(np.array([[i, j]]), schema.domain)[0] == (not some)


@pytest.mark.parametrize(
    ("rule", "possible"), [("a < b", "<="), ("a <= b", "<="), ("a == b", "=="), ("a >= b", ">="), ("a > b", ">=")]
)
@pytest.mark.parametrize("scale", [1, 1e-3, 1e6])
def test_bins_of_reals_are_excluded_where_only_their_open_edge_would_hold(rule, possible, scale):
    """A bin ends before its upper edge, so that no number of it is that of the next bin, however near."""
    edges = [scale * edge for edge in (0.0, 1, 3, 6, 7)]
    schema = schema_of(*({"name": name, "kind": "real", "bins": edges} for name in "ab"), rules=[rule])
    from synth_core.domain import breaking_rows

    for i, j in itertools.product(range(4), repeat=2):
        expected = {"<=": i <= j, "==": i == j, ">=": i >= j}[possible]
        assert breaking_rows(np.array([[i, j]]), schema.domain)[0] == (not expected), (i, j)


def test_the_last_bin_of_reals_holds_its_upper_edge_too():
    from synth_core.domain import breaking_rows

    low, high = (
        {"name": name, "kind": "real", "bins": bins} for name, bins in (("a", [0, 50, 100]), ("b", [100, 200]))
    )
    schema = schema_of(low, high, rules=["a >= b"])
    assert breaking_rows(np.array([[0, 0], [1, 0]]), schema.domain).tolist() == [True, False]
    frame = decoded(schema, np.array([[1, 0]] * 5))
    assert set(frame["a"]) == set(frame["b"]) == {100.0}
    assert encode(frame, schema)["a"].tolist() == [1] * 5
    atom = schema_of({**low, "atoms": [100]}, {**high, "bins": [100, 200]}, rules=["a >= b"])
    assert breaking_rows(np.array([[1, 0], [2, 0]]), atom.domain).tolist() == [True, False]


def test_a_sum_of_reals_excludes_totals_that_only_an_open_edge_would_reach():
    schema = schema_of(WAGES, RENTS, TOTAL, rules=["wages + rents == total"])
    from synth_core.domain import breaking_rows

    for wage in range(4):  # 0, and three bins; without rents the total is the wage
        totals = [total for total in range(4) if not breaking_rows(np.array([[wage, 0, total]]), schema.domain)[0]]
        assert totals == [wage]


def test_rules_speak_where_another_column_of_theirs_holds_no_number():
    """Or a row is drawn that nothing can settle, when all is paid."""
    from synth_core.domain import breaking_rows

    schema = schema_of(WAGES, RENTS, TOTAL, rules=["wages <= rents", "rents <= total"])
    missing = schema.column("total").size - 1
    rows = np.array([[2, 1, missing], [1, 2, missing], [missing, 2, 1], [2, missing, 1], [missing] * 3])
    assert breaking_rows(rows, schema.domain).tolist() == [True, False, True, False, False]


def test_rules_that_share_columns_exclude_what_none_excludes_alone():
    columns = [{"name": name, "kind": "integer", "bins": [0, 2, 4]} for name in "abc"]
    alone = schema_of(*columns, rules=["a < b"])
    chained = schema_of(*columns, rules=["a < b", "b < c"])
    from synth_core.domain import breaking_rows

    row = np.array([[0, 0, 0]])  # of three different numbers only two lie in one bin
    assert not breaking_rows(row, alone.domain)[0]
    assert breaking_rows(row, chained.domain)[0]
    assert not breaking_rows(np.array([[0, 0, 1]]), chained.domain)[0]


@pytest.mark.parametrize(
    ("columns", "rules"),
    [
        ((PEOPLE, CHILDREN, SEX), ["children < people"]),
        ((AGE, PARTNER), ["age - partner_age < 60", "partner_age - age < 60"]),
        ((WAGES, RENTS, TOTAL), ["wages + rents == total"]),
        ((PEOPLE, CHILDREN, AGE), ["children < people", "children + 18 <= age"]),
        ((WAGES, RENTS, TOTAL), ["wages <= rents", "rents <= total"]),
        ((WAGES, RENTS, TOTAL), ["wages + rents == total", "wages <= rents"]),
        ((WAGES, CHILDREN, TOTAL), ["wages + children == total"]),
        ((WAGES, RENTS, TOTAL), ["0.1 * wages + 0.2 * rents == 0.3 * total"]),
    ],
)
def test_every_decoded_row_keeps_every_rule_and_its_codes(columns, rules):
    schema = schema_of(*columns, rules=rules)
    codes = possible_codes(schema, 20_000)
    frame = decoded(schema, codes)
    assert set(broken_comparisons(frame, schema).values()) == {0}
    again = encode(frame, schema)
    assert all(np.array_equal(again[name], codes[:, k]) for k, name in enumerate(schema.domain))
    free = Schema.model_validate({"columns": columns})
    unruled = decode(codes, free, np.random.default_rng(1))
    assert max(own.mean() for own in schema.violations(unruled).values()) > 0.01, "the rules would not hold by chance"


def test_a_sum_leaves_numbers_where_their_densities_have_them():
    """A tail that a sum forces nothing upon keeps its mean, and no number is piled up at a bound or a middle."""
    schema = schema_of(WAGES, RENTS, TOTAL, rules=["wages + rents == total"])
    free = Schema.model_validate({"columns": [WAGES, RENTS, TOTAL]})
    rng = np.random.default_rng(4)
    wages = np.where(rng.random(40_000) < 0.3, 0.0, np.exp(rng.normal(5.5, 1, 40_000))).clip(0, 4000).round(2)
    paid = np.where(rng.random(40_000) < 0.8, 0.0, np.exp(rng.normal(4.5, 1, 40_000))).clip(0, 4000).round(2)
    real = pd.DataFrame({"wages": wages, "rents": paid, "total": wages + paid})
    codes = np.column_stack(list(encode(real, schema).values()))

    def counts(clique):
        return np.bincount(codes[:, schema.domain.position(clique[0])], minlength=schema.column(clique[0]).size)

    densities = guess_densities(schema, counts)
    ruled, unruled = (decode(codes, one, np.random.default_rng(1), densities) for one in (schema, free))
    alone = (codes[:, 0] == schema.column("wages").declared - 1) & (paid == 0)  # the total is the wage
    assert ruled.wages[alone].mean() == pytest.approx(unruled.wages[alone].mean(), rel=1e-9)
    for name in ("wages", "rents", "total"):
        assert ruled[name].mean() == pytest.approx(unruled[name].mean(), rel=0.05)
        assert ruled[name][ruled[name] > 0].value_counts().iloc[0] <= 3
    assert set(broken_comparisons(ruled, schema).values()) == {0}


@pytest.mark.slow
def test_a_million_rows_break_no_comparison_and_no_sum():
    schema = schema_of(PEOPLE, CHILDREN, WAGES, RENTS, TOTAL, rules=["children < people", "wages + rents == total"])
    codes = np.resize(possible_codes(schema, 100_000), (1_000_000, 5))
    assert set(broken_comparisons(decoded(schema, codes), schema).values()) == {0}


def test_not_more_than_holds_for_a_reader_who_compares_to_the_last_digit():
    wages, total = ({**one, "bins": [0, 100, 1000, 10_000, 1_000_000]} for one in (WAGES, TOTAL))
    schema = schema_of(wages, total, rules=["wages <= total"])
    codes = possible_codes(schema, 20_000)
    together = codes[codes[:, 0] == codes[:, 1]]  # of one bin: many rows are fitted
    frame = decoded(schema, np.resize(together, (40_000, 2)))
    assert (frame["wages"] > frame["total"]).sum() == 0


def test_the_next_rows_are_drawn_as_without_rules():
    """Numbers that are drawn again have a generator of their own."""
    schema, after = schema_of(PEOPLE, CHILDREN, rules=["children < people"]), []
    codes = possible_codes(schema, 2000)
    for one in (schema, Schema.model_validate({"columns": [PEOPLE, CHILDREN]})):
        rng = np.random.default_rng(3)
        decode(codes, one, rng)
        after.append(rng.random())
    assert after[0] == after[1]


def test_missing_numbers_and_what_does_not_apply_are_compared_with_nothing():
    schema = schema_of(AGE, PARTNER, rules=["age < partner_age"])
    codes = np.array([[3, schema.column("partner_age").outside_code]] * 50)
    frame = decoded(schema, codes)
    assert set(frame["partner_age"]) == {"none"}
    assert broken_comparisons(frame, schema) == {"rule 0": 0}


def test_a_schema_with_rules_about_numbers_is_stored_and_read(tmp_path):
    schema = schema_of(PEOPLE, CHILDREN, rules=["children < people"])
    schema.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == schema


def random_declaration(rng):
    """Two or three columns of numbers, some with an atom at 0, and one or two linear rules about them."""
    names, columns = "abc"[: rng.integers(2, 4)], []
    grid = np.concatenate([np.arange(-20, 21), [-300, 50, 100, 1000, 5000, 100_000]])
    for name in names:
        kind = ("integer", "real")[rng.integers(2)]
        edges = np.sort(rng.choice(grid, rng.integers(2, 7), replace=False)).tolist()
        zero = [0] if rng.random() < 0.3 and edges[0] <= 0 < edges[-1] else []
        column = {"name": name, "kind": kind, "bins": edges, "atoms": zero, "nullable": bool(rng.integers(2))}
        columns.append(column)

    def side():
        some = rng.choice(list(names), rng.integers(1, len(names) + 1), replace=False)
        return " + ".join(f"{rng.choice([1, 1, 1, 2, 3, 0.5, 0.1])} * {name}" for name in some)

    signs = ["<", "<=", "==", ">=", ">"]
    rules = [f"{side()} {rng.choice(signs)} {side()} + {rng.integers(0, 30)}" for _ in range(rng.integers(1, 3))]
    return columns, rules


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_whatever_bins_are_possible_rows_of_them_can_be_made():
    """Or a release fails when all is paid; about random columns and rules, most of which make no sense."""
    rng, tried = np.random.default_rng(22), 0
    while tried < 60:
        columns, rules = random_declaration(rng)
        try:
            schema = schema_of(*columns, rules=rules)
            codes = possible_codes(schema, 300)
        except SchemaError:
            continue
        if not len(codes):
            continue
        frame = decoded(schema, codes)
        assert set(broken_comparisons(frame, schema).values()) == {0}, (columns, rules)
        again = encode(frame, schema)
        assert all(np.array_equal(again[name], codes[:, k]) for k, name in enumerate(schema.domain)), (columns, rules)
        tried += 1
