"""Households from a model of one person: who is drawn, what exchanges keep, and what they bring nearer."""

from __future__ import annotations

import numpy as np
import pytest
from support.linked_tables import SCHEMA, linked_frames, linked_schema

from synth_core.errors import FeasibilityError
from synth_core.measurement import Measurement
from synth_core.models.arrangement import (
    allowed_codes,
    arrange,
    count_broken_rules,
    draw_households,
    rank_attributes,
    settle,
)
from synth_core.models.maximum_entropy import estimate
from synth_core.models.tuples import count_tuples, shuffle
from synth_core.storage.households import encode_households

PAIRS = [("person.relation", "person.relation@2"), ("person.age", "person.age@2")]
SCALE = 2520


@pytest.fixture(scope="module")
def real():
    return encode_households(linked_frames(2000), SCHEMA, b"key")


@pytest.fixture(scope="module")
def model(real):
    """Of one person, without noise: all pairs of attributes."""
    domain = SCHEMA.domain(1)
    cliques = [(a, b) for i, a in enumerate(domain) for b in domain.attributes[i + 1 :]]
    cliques += [("size", "person.relation", "person.age")]
    tables = count_tuples(real, domain, cliques, places=1, scale=SCALE)
    known = [Measurement(c, t / SCALE, 1.0) for c, t in zip(cliques, tables, strict=True)]
    return estimate(domain, known, total=float(len(real.sizes)))


@pytest.fixture(scope="module")
def drawn(model):
    return draw_households(model, SCHEMA, 2000, np.random.default_rng(1))


@pytest.fixture(scope="module")
def arranged(real, model, drawn):
    tables = count_tuples(real, SCHEMA.domain(2), PAIRS, places=2, scale=SCALE)
    measured = [Measurement(c, t / SCALE, 2.0) for c, t in zip(PAIRS, tables, strict=True)]
    ranked = rank_attributes(model, SCHEMA)
    return arrange(drawn, SCHEMA, measured, np.random.default_rng(2), total=2000.0, ranked=ranked)


def far(left, right, cliques, places):
    tables = [count_tuples(h, SCHEMA.domain(places), cliques, places=places, scale=SCALE) for h in (left, right)]
    return [float(np.abs(a / a.sum() - b / b.sum()).sum() / 2) for a, b in zip(*tables, strict=True)]


def test_drawn_people_follow_their_household_and_size(real, drawn):
    assert far(real, drawn, [("size", "person.relation", "person.age"), ("household.tenure", "person.age")], 1) == (
        pytest.approx([0, 0], abs=0.06)
    )
    assert drawn.sizes.sum() == len(drawn.people["person.age"])
    assert min(far(real, drawn, PAIRS, 2)) > 0.15, "who lives with whom is not in a model of one person"


def test_exchanges_bring_pairs_near_and_change_nobody(real, drawn, arranged):
    assert far(real, arranged, PAIRS, 2) == pytest.approx([0, 0], abs=0.06)
    everybody = [sorted(zip(*h.people.values(), strict=True)) for h in (drawn, arranged)]
    assert everybody[0] == everybody[1]
    one = [("size", "person.relation", "person.age"), ("household.tenure", "person.age")]
    assert max(far(drawn, arranged, one[:1], 1)) < 1e-9, "exchanges are between households of one size"
    moved = max(far(drawn, arranged, one, 1))
    assert moved < 0.01, "only rules move people between households of other kinds"


def test_exchanges_mend_most_broken_households(drawn, arranged):
    def broken(held):
        return float((count_broken_rules(held, SCHEMA) > 0).mean())

    assert broken(drawn) > 0.3
    assert broken(arranged) < 0.1


def test_settled_households_keep_all_rules_and_their_sizes(drawn):
    settled = settle(drawn, SCHEMA, np.random.default_rng(0))
    assert not count_broken_rules(settled, SCHEMA).any()
    np.testing.assert_array_equal(settled.sizes, drawn.sizes)
    for name, codes in settled.attributes.items():
        np.testing.assert_array_equal(codes, drawn.attributes[name])


def test_a_size_of_which_every_household_is_broken_gives_way_to_the_nearest(drawn):
    lonely = linked_schema(together=[{"name": "few", "people": {"age": {"min": 0}}, "at_most": 2}])
    settled = settle(drawn, lonely, np.random.default_rng(0))
    np.testing.assert_array_equal(settled.sizes, np.minimum(drawn.sizes, 2))


def test_rules_that_no_household_keeps_are_refused(drawn):
    nobody = {"name": "nobody", "people": {"relation": ["reference", "partner", "child"]}, "exactly": 0}
    strict = linked_schema(together=[nobody])
    with pytest.raises(FeasibilityError, match="no household was found that keeps the rules 'nobody'"):
        settle(drawn, strict, np.random.default_rng(0))


def test_bins_go_together_if_some_of_their_numbers_do():
    """Bins of ten years and a gap of 12: 0-9 goes with 20-29 and with 12-19, of which 10-19 has some."""
    (rule,) = [rule for rule in SCHEMA.together if rule.name == "children are younger"]
    allowed = allowed_codes(SCHEMA, rule)
    assert allowed[0].tolist() == [False, *[True] * 8]
    assert allowed[3].tolist() == [*[False] * 4, *[True] * 5]


def test_shuffled_households_are_the_same(drawn):
    mixed = shuffle(drawn, np.random.default_rng(3))
    assert (mixed.sizes != drawn.sizes).any()
    assert far(drawn, mixed, PAIRS, 2) == pytest.approx([0, 0])


def test_equal_seeds_give_equal_households(model):
    one, two = (draw_households(model, SCHEMA, 300, np.random.default_rng(7)) for _ in range(2))
    for name, codes in one.people.items():
        np.testing.assert_array_equal(codes, two.people[name])
