"""Two frames become households: what becomes of a household depends on its own rows alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.linked_tables import SCHEMA, linked_frames

from synth_core.errors import SourceError
from synth_core.privacy.wall import open_private
from synth_core.storage.households import TupleCounts, encode_households

KEY = b"a key for tests"


def listed(frames):
    """The encoded households as sorted tuples, whatever their order."""
    held = encode_households(frames, SCHEMA, KEY)
    starts = np.cumsum(held.sizes) - held.sizes
    return sorted(
        (
            *(int(codes[h]) for codes in held.attributes.values()),
            *sorted(zip(*(codes[s : s + n].tolist() for codes in held.people.values()), strict=True)),
        )
        for h, (s, n) in enumerate(zip(starts, held.sizes, strict=True))
    )


def without(frames, name):
    return {table: frame[frame.hid != name] for table, frame in frames.items()}


def test_households_are_joined_with_their_people():
    frames = {
        "household": pd.DataFrame({"hid": [5, 3], "tenure": ["owned", "rented"], "area": ["west", "north"]}),
        "person": pd.DataFrame({"hid": [3, 5, 3], "relation": ["child", "reference", "reference"], "age": [9, 70, 41]}),
    }
    assert listed(frames) == [(0, 2, (0, 7)), (1, 0, (0, 4), (2, 0))]


def test_the_order_of_rows_does_not_matter():
    frames = linked_frames(40)
    shuffled = {name: frame.sample(frac=1, random_state=4) for name, frame in frames.items()}
    assert listed(frames) == listed(shuffled)


@pytest.mark.parametrize("fault", ["twice", "no household", "no people", "too many", "one person"])
def test_what_becomes_of_a_household_depends_on_it_alone(fault):
    """With and without the household in question, all others are the same, and it is itself treated as declared."""
    frames = linked_frames(30)
    household, person = frames["household"], frames["person"]
    extra = pd.DataFrame({"hid": [3] * 5, "relation": "child", "age": [1, 2, 3, 4, 5]})
    if fault == "twice":
        household = pd.concat([household, household[household.hid == 3]])
    elif fault == "no household":
        household = household[household.hid != 3]
    elif fault == "no people":
        person = person[person.hid != 3]
    elif fault == "too many":
        person = pd.concat([person, extra])
    changed = {"household": household, "person": person}
    rest = listed(without(frames, 3))
    found = listed(changed)
    assert listed(without(changed, 3)) == rest
    own = list(found)
    for one in rest:
        own.remove(one)
    if fault in ("twice", "no household", "no people"):
        assert own == []
    else:
        assert len(own) == 1
        assert len(own[0]) - 2 <= SCHEMA.largest
    if fault == "too many":
        assert len(own[0]) - 2 == SCHEMA.largest


def test_which_people_stay_depends_on_the_key():
    person = pd.DataFrame({"hid": 1, "relation": "child", "age": range(0, 90, 10)})
    frames = {"household": pd.DataFrame({"hid": [1], "tenure": "owned", "area": "east"}), "person": person}
    kept = {tuple(encode_households(frames, SCHEMA, bytes([k])).people["person.age"]) for k in range(8)}
    assert len(kept) > 1


def test_a_row_without_a_name_is_refused():
    frames = linked_frames(5)
    frames["person"] = frames["person"].assign(hid=[None, *frames["person"].hid[1:]])
    with pytest.raises(SourceError, match=r"'person'.*is empty in some"):
        encode_households(frames, SCHEMA, KEY)
    with pytest.raises(SourceError, match="must be there exactly once"):
        encode_households(linked_frames(3) | {"household": pd.DataFrame({"tenure": ["owned"]})}, SCHEMA, KEY)


def test_counts_travel_wrapped_and_households_show_nothing():
    held = encode_households(linked_frames(50), SCHEMA, KEY)
    counts = TupleCounts(held, SCHEMA.domain(2), places=2, largest=SCHEMA.largest)
    (table,) = counts.tables([("person.age", "person.age@2")])
    assert repr(table) == "Private(…)"
    assert open_private(table).sum() == counts.scale * int((held.sizes >= 2).sum())
    assert "array" not in repr(held)
