"""Strata in codes: what the declarations mean, which strata share a model, and what is refused."""

import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from synth_core import Schema
from synth_core.domain import Domain, Impossible
from synth_core.errors import SourceError, SpecError
from synth_core.release.spec import ReleaseSpec
from synth_core.release.strata import Division, Strata, divide_strata, lay_out_strata

DISTRICTS = ["a1", "a2", "a3", "b1", "b2"]
MEMBERS = {"A": ["a1", "a2", "a3"], "B": ["b1", "b2"]}
SPEC = {"release": "r", "dataset": "d", "source": "s", "schema": "x", "epsilon": 1, "delta": 1e-6}


def schema(**changes):
    district = {"name": "district", "kind": "categorical", "values": DISTRICTS, **changes}
    columns = [
        district,
        {"name": "state", "kind": "categorical", "values": ["B", "A"]},
        {"name": "age", "kind": "integer", "bounds": [0, 99], "bins": 4},
        {"name": "one", "kind": "categorical", "values": ["only"]},
    ]
    return Schema.model_validate({"columns": columns})


def layout(strata, **changes):
    return lay_out_strata(Strata.model_validate(strata), schema(**changes))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("region", {"by": "region"}),
        (" region ", {"by": "region"}),
        ("district within state", {"by": "district", "within": "state"}),
        ("where people live", {"by": "where people live"}),
        ({"by": "region", "pool_below": 10}, {"by": "region", "pool_below": 10}),
    ],
)
def test_the_spec_has_a_short_form_and_a_long_one(written, meant):
    spec = ReleaseSpec.parse({**SPEC, "strata": written})
    assert spec.strata == Strata(**meant)
    assert ReleaseSpec.parse(spec.dump()) == spec
    assert ReleaseSpec.parse(SPEC).strata is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (3, "name a column"),
        ({"by": "region", "below": 3}, r"unknown key 'strata.below' \(known keys: by, share"),
        ({"by": "region", "members": {"A": ["a1"]}}, "name it with `within`"),
        ({"by": "region", "share": 0}, "strata.share"),
        ({"pool_below": 3}, "key 'strata.by' is missing"),
    ],
)
def test_what_the_spec_refuses(written, message):
    with pytest.raises(SpecError, match=message):
        ReleaseSpec.parse({**SPEC, "strata": written})


@pytest.mark.parametrize(
    ("strata", "changes", "message"),
    [
        ("region", {}, "column 'region' is not in the schema"),
        ("age", {}, "'age' is not categorical"),
        ("one", {}, "only one code"),
        ({"by": "district", "pools": {"p": ["a1", "zz"]}}, {}, "pools: 'zz' is not among the values"),
        ({"by": "district", "pools": {"p": ["a1", "a2"], "q": ["a2", "a3"]}}, {}, "'a2' is named twice"),
        ({"by": "district", "pools": {"p": ["a1"]}}, {}, "pool 'p' needs two strata"),
        ("district within state", {}, "which district lies within which state is not declared"),
        ("district within state", {"hierarchy": MEMBERS, "nullable": True}, "lies within no state"),
        (
            "district within state",
            {"hierarchy": {"A": DISTRICTS[:3], "C": DISTRICTS[3:]}},
            "'C' is not among",
        ),
        ({"by": "district", "within": "state", "members": {"A": ["a1"]}}, {}, "'a2' lies within no state"),
        (
            {"by": "district", "within": "land", "members": {name: [name] for name in DISTRICTS}},
            {},
            "every land has one district only",
        ),
        (
            {"by": "district", "within": "state", "pools": {"p": ["a1", "b1"]}},
            {"hierarchy": MEMBERS},
            "pool 'p' joins strata of different state",
        ),
    ],
)
def test_strata_that_do_not_fit_the_schema_are_refused(strata, changes, message):
    with pytest.raises(SpecError, match=message) as refusal:
        layout(strata, **changes)
    assert "\n" not in str(refusal.value)


def test_strata_of_a_single_column_are_refused():
    alone = Schema.from_sizes({"region": 3})
    with pytest.raises(SpecError, match="no column besides"):
        lay_out_strata(Strata(by="region"), alone)


def test_every_public_code_is_a_stratum_also_other_and_missing():
    found = layout("district", nullable=True, unseen="other")
    assert found.names == (*DISTRICTS, "(other)", "(missing)")
    division = divide_strata(found, [0.0] * 7, pool_below=None)
    assert [part.codes for part in division.parts] == [(code,) for code in range(7)]


def test_a_level_that_is_a_column_is_put_back_by_its_own_codes():
    found = layout("district within state", hierarchy=MEMBERS)
    assert (found.level, found.upper_names, found.upper_of) == ("state", ("B", "A"), (1, 1, 1, 0, 0))
    division = divide_strata(found, [100.0] * 5, pool_below=None)
    whole = schema().domain
    assert division.domain(whole, division.parts[3]).attributes == ("age", "one")
    assert division.constants(division.parts[3]) == {"district": 3, "state": 0}
    named = layout({"by": "district", "within": "land", "members": MEMBERS})
    assert named.level is None
    assert named.attributes(whole) == ("state", "age", "one")


def test_small_strata_share_a_model_inside_their_level_and_pools_are_as_declared():
    found = layout({"by": "district", "within": "state", "pools": {"p": ["a3", "a1"]}}, hierarchy=MEMBERS)
    division = divide_strata(found, [1.0, 2.0, 3.0, 4.0, 5.0], pool_below=10)
    assert [(part.name, part.codes) for part in division.parts] == [
        ("p", (0, 2)),
        ("a2", (1,)),
        ("small strata of B", (3, 4)),
    ]
    pooled = division.parts[2]
    assert division.domain(schema().domain, pooled) == Domain(("district", "age", "one"), (2, 4, 1))
    assert division.constants(pooled) == {"state": 0}
    assert division.rows_of(pooled) == 9.0
    flat = divide_strata(layout("district"), [1.0, 200.0, 3.0, 400.0, 9.9], pool_below=10)
    assert [part.codes for part in flat.parts] == [(0, 2, 4), (1,), (3,)]


def test_rules_about_the_stratum_hold_inside_it():
    whole = Domain(
        ("region", "age"),
        (3, 4),
        (Impossible("no old ones in 0", (("region", (0,)), ("age", (3,)))),),
    )
    sizes = Schema.from_sizes({"region": 3, "age": 4})
    division = divide_strata(lay_out_strata(Strata(by="region"), sizes), [9, 9, 9], pool_below=1)
    inside = [division.domain(whole, part).impossible for part in division.parts]
    assert inside == [(Impossible("no old ones in 0", (("age", (3,)),)),), (), ()]
    together = divide_strata(division.layout, [0, 9, 0], pool_below=1)
    assert [part.codes for part in together.parts] == [(0, 2), (1,)]
    assert together.domain(whole, together.parts[0]).impossible == (
        Impossible("no old ones in 0", (("region", (0,)), ("age", (3,)))),
    )


@settings(max_examples=50)
@given(st.lists(st.floats(0, 100), min_size=5, max_size=5), st.none() | st.integers(1, 100))
def test_parts_hold_each_stratum_once_and_are_known_by_what_they_hold(rows, below):
    division = divide_strata(layout("district within state", hierarchy=MEMBERS), rows, pool_below=below)
    assert sorted(code for part in division.parts for code in part.codes) == list(range(5))
    assert [part.number for part in division.parts] == list(range(len(division.parts)))
    assert len({part.folder for part in division.parts}) == len(division.parts)
    assert math.isclose(sum(map(division.rows_of, division.parts)), sum(rows))
    apart = divide_strata(division.layout, rows, pool_below=None)
    assert (apart.partition == division.partition) == (apart.parts == division.parts)
    assert len({division.stratum(part) for part in division.parts}) == len(division.parts)


def test_a_division_is_read_as_it_was_written(tmp_path):
    division = divide_strata(layout("district within state", hierarchy=MEMBERS), [1, 2.5, 3, 40, 50], pool_below=10)
    division.save(tmp_path / "strata.json")
    assert Division.load(tmp_path / "strata.json") == division
    (tmp_path / "strata.json").write_text("{}")
    with pytest.raises(SourceError, match="run the step `score` first"):
        Division.load(tmp_path / "strata.json")


def test_the_page_shows_every_key():
    page = Path(__file__).resolve().parents[2] / "docs" / "strata.md"
    short, long = (
        yaml.safe_load(block)["strata"]
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
    assert Strata.model_validate(short) == Strata(by="region")
    assert set(long) == set(Strata.model_validate(long).model_dump())
