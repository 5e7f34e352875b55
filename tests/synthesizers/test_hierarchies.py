"""Coarser versions of attributes: sizes, names, nesting, and sums over them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core.domain import Domain
from synth_core.errors import SchemaError, SpecError
from synth_core.schema import Schema
from synth_core.synthesizers.hierarchies import NO_HIERARCHIES, by_size, spread_from, sum_to, with_declared

DOMAIN = Domain.of({"age": 100, "sex": 2, "income": 1000})
HIERARCHIES = by_size(DOMAIN, group=8)


def test_versions_are_added_while_there_are_more_than_the_square():
    assert HIERARCHIES.versions("age") == ("age", "age/8")
    assert HIERARCHIES.versions("income") == ("income", "income/8", "income/64")
    assert HIERARCHIES.versions("sex") == ("sex",)
    enlarged = HIERARCHIES.domain(DOMAIN)
    assert enlarged.attributes == ("age", "age/8", "sex", "income", "income/8", "income/64")
    assert enlarged.sizes == (100, 13, 2, 1000, 125, 16)


def test_sixty_four_codes_are_few_enough():
    assert not by_size(Domain.of({"a": 64}), group=8).levels
    assert by_size(Domain.of({"a": 65}), group=8).levels


def test_groups_are_even_and_nested():
    assert np.bincount(HIERARCHIES.levels["age/8"].groups).tolist() == [8] * 12 + [4]
    fine, coarse = (HIERARCHIES.levels[f"income/{width}"].groups for width in (8, 64))
    assert (HIERARCHIES.regrouping("income/8", "income/64")[fine] == coarse).all()


def test_a_table_tells_about_coarser_versions_only():
    assert HIERARCHIES.extended(("income/8", "sex")) == {"income/8", "income/64", "sex"}
    assert HIERARCHIES.finest(frozenset({"income/64", "income/8", "sex"})) == {
        "income": "income/8",
        "sex": "sex",
    }
    assert NO_HIERARCHIES.extended(("a", "b")) == {"a", "b"}


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_sums_do_not_depend_on_the_way(seed):
    table = np.random.default_rng(seed).random((1000, 2))
    clique = ("income", "sex")
    at_once = sum_to(table, clique, {"income": "income/64"}, hierarchies=HIERARCHIES)
    halfway = sum_to(table, clique, {"income": "income/8", "sex": "sex"}, hierarchies=HIERARCHIES)
    stepwise = sum_to(halfway, ("income/8", "sex"), {"income": "income/64"}, hierarchies=HIERARCHIES)
    assert at_once == pytest.approx(stepwise)
    assert at_once.sum() == pytest.approx(table.sum())


def test_spread_reads_a_sum_backwards():
    coarse = np.arange(16.0)
    fine = spread_from(coarse, ("income", "sex"), {"income": "income/64"}, hierarchies=HIERARCHIES)
    assert fine.shape == (1000, 1)
    assert (fine[:, 0] == np.arange(1000) // 64).all()


def test_declared_groups_begin_where_they_are_said_to():
    found = with_declared(HIERARCHIES, DOMAIN, [("age", (0, 16, 65))])
    assert found.versions("age") == ("age", "age/declared")
    assert np.bincount(found.levels["age/declared"].groups).tolist() == [16, 49, 35]
    assert found.versions("income") == HIERARCHIES.versions("income")


@pytest.mark.parametrize("starts", [(), (1, 5), (0, 5, 5), (0, 7, 3), (0, 100)])
def test_wrong_groups_are_refused(starts):
    with pytest.raises(SpecError, match="levels of 'age' must be increasing codes from 0 on"):
        with_declared(HIERARCHIES, DOMAIN, [("age", starts)])


def test_groups_of_an_unknown_column_are_refused():
    with pytest.raises(SchemaError, match="'weight' is not in the schema"):
        with_declared(HIERARCHIES, DOMAIN, [("weight", (0, 3))])


def test_the_schemas_hierarchy_takes_the_place_of_even_groups_where_an_attribute_is_large():
    values = [f"v{k}" for k in range(90)]
    groups = {"odd": values[1::2], "even": values[0::2]}
    columns = [
        {"name": "place", "kind": "categorical", "values": values, "hierarchy": groups, "nullable": True},
        {"name": "small", "kind": "categorical", "values": ["x", "y"], "hierarchy": {"both": ["x", "y"]}},
        {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 100, "hierarchy": [0, 18, 65, 100]},
        {"name": "plain", "kind": "integer", "bounds": [0, 99], "bins": 100},
    ]
    domain = Schema.model_validate({"columns": columns}).domain
    found = with_declared(by_size(domain, group=8), domain, [])
    assert set(found.levels) == {"place/declared", "age/declared", "plain/8"}
    assert found.levels["place/declared"].groups.tolist() == [1, 0] * 45 + [2]
    assert np.bincount(found.levels["age/declared"].groups).tolist() == [18, 47, 35]
    assert domain.project(["age", "small"]).coarser == domain.coarser[1:]
    assert domain.given("age", 3).coarser == domain.coarser[:2]
    assert domain == Domain(domain.attributes, domain.sizes)
    nearer = with_declared(by_size(domain, group=8), domain, [("age", (0, 50))])
    assert np.bincount(nearer.levels["age/declared"].groups).tolist() == [50, 50]


@pytest.mark.parametrize("groups", [(0, 1), (0, 0, 2), (1, 1, 2), (0, 1, 2, 3)])
def test_a_hierarchy_that_does_not_group_the_codes_is_refused(groups):
    with pytest.raises(SchemaError, match="hierarchy of 'a' needs one group for each"):
        Domain(("a",), (3,), (), (("a", groups),))
