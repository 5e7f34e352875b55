"""Two linked sources in partitions: what two frames in memory give, wherever, in whatever pieces they are read."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from support.linked_tables import SCHEMA, linked_frames, linked_schema

from synth_core.cluster import Cluster
from synth_core.errors import SourceError
from synth_core.models.tuples import Households, join_households
from synth_core.privacy.wall import open_private
from synth_core.storage.contribution import UNIT_COLUMNS
from synth_core.storage.household_partitions import (
    PartitionTuples,
    ingest_households,
    partitions_of,
    read_households,
    reading_schemas,
)
from synth_core.storage.households import TupleCounts, count_scale, encode_households
from synth_core.storage.ingest import read_codes

KEY = b"a key for the tests alone"


def odd_frames():
    """Households in any order, one of them twice, people without one, one without people, and one that is too large."""
    frames = linked_frames(300)
    household, person = frames["household"], frames["person"]
    twice = household[household.hid == 5].assign(tenure="owned")
    crowd = pd.DataFrame({"hid": 11, "relation": "child", "age": range(7)})
    household = pd.concat([household[household.hid != 7], twice])
    person = pd.concat([person[person.hid != 9], crowd])
    return {
        "household": household.sample(frac=1, random_state=1),
        "person": person.sample(frac=1, random_state=2),
    }


def written(frames, folder):
    """Half of each table as CSV, half as Parquet."""
    sources = {}
    for name, frame in frames.items():
        half = len(frame) // 2
        frame[:half].to_csv(folder / f"{name}.csv", index=False)
        frame[half:].to_parquet(folder / f"{name}.parquet", index=False)
        sources[name] = [str(folder / f"{name}.csv"), str(folder / f"{name}.parquet")]
    return sources


def ingested(sources, folder, *, schema=SCHEMA, rows=100, key=KEY, cluster=None):
    snapshot = ingest_households(
        sources, schema, folder / "encoded", key=key, rows_per_partition=rows, cluster=cluster or Cluster()
    )
    return snapshot, partitions_of(folder / "encoded", snapshot.partitions)


def same(left, right):
    assert np.array_equal(left.sizes, right.sizes)
    for one, other in ((left.attributes, right.attributes), (left.people, right.people)):
        assert one.keys() == other.keys()
        for name, codes in one.items():
            assert np.array_equal(codes, other[name]), name


@pytest.mark.parametrize("rows", [10_000, 100, 3])
def test_partitions_hold_the_households_of_the_frames(tmp_path, rows):
    frames = odd_frames()
    snapshot, partitions = ingested(written(frames, tmp_path), tmp_path, rows=rows)
    assert len(partitions) == math.ceil(len(frames["person"]) / rows)
    same(join_households([read_households(one, SCHEMA) for one in partitions]), encode_households(frames, SCHEMA, KEY))
    whole, _ = ingested(written(frames, tmp_path), tmp_path, rows=10_000)
    assert snapshot.digest == whole.digest, "however many partitions there are"


def test_nothing_but_codes_and_sizes_is_left(tmp_path):
    snapshot, partitions = ingested(written(odd_frames(), tmp_path), tmp_path)
    left = {str(path.relative_to(tmp_path / "encoded")) for path in (tmp_path / "encoded").rglob("*.*")}
    assert left == {f"{table}/{name}" for table in ("household", "person") for name in snapshot.partitions}
    for household, person in partitions:
        assert set(read_codes(household)) == {"household.tenure", "household.area", "size"}
        assert set(read_codes(person)) == {"person.relation", "person.age"}
        assert not {*UNIT_COLUMNS} & {*read_codes(household), *read_codes(person)}


@pytest.mark.parametrize("places", [1, 2])
def test_counts_of_partitions_are_those_of_the_whole(tmp_path, places):
    frames = odd_frames()
    _, partitions = ingested(written(frames, tmp_path), tmp_path)
    domain = SCHEMA.domain(places)
    cliques = [clique for k in (0, 1, 2) for clique in combinations(domain.attributes, k)]
    held = encode_households(frames, SCHEMA, KEY)
    expected = TupleCounts(held, domain, places=places, largest=SCHEMA.largest)
    found = PartitionTuples(partitions, SCHEMA, Cluster(), places=places)
    assert found.scale == expected.scale
    for left, right in zip(found.tables(cliques), expected.tables(cliques), strict=True):
        assert np.array_equal(open_private(left), open_private(right))


def test_one_more_household_changes_no_other(tmp_path):
    """Record-wise: what all others give is what they give without it."""
    frames = linked_frames(60)
    fewer = {name: frame[frame.hid != 17] for name, frame in frames.items()}
    sides = []
    for number, own in enumerate((frames, fewer)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, partitions = ingested(written(own, folder), folder, rows=20)
        sides.append(listed(join_households([read_households(one, SCHEMA) for one in partitions])))
    (gone,) = [one for one in sides[0] if sides[0].count(one) > sides[1].count(one)]
    sides[0].remove(gone)
    assert sides[0] == sides[1]


def listed(held: Households):
    starts = np.cumsum(held.sizes) - held.sizes
    return sorted(
        (
            *(int(codes[h]) for codes in held.attributes.values()),
            *sorted(zip(*(codes[s : s + n].tolist() for codes in held.people.values()), strict=True)),
        )
        for h, (s, n) in enumerate(zip(starts, held.sizes, strict=True))
    )


@pytest.mark.parametrize("places", [1, 2])
def test_a_household_of_eight_alike_moves_partitioned_counts_by_one(tmp_path, places):
    """Added as a whole, to partitions that are then others: no table moves by more than one household, and some do."""
    schema = linked_schema(largest=8, together=[])
    frames = linked_frames(40)
    eight = {
        "household": pd.DataFrame({"hid": [999], "tenure": ["owned"], "area": ["west"]}),
        "person": pd.DataFrame({"hid": [999] * 8, "relation": ["child"] * 8, "age": [33] * 8}),
    }
    more = {name: pd.concat([frame, eight[name]]) for name, frame in frames.items()}
    domain, scale = schema.domain(places), count_scale(places, 8)
    cliques = [clique for k in (0, 1, 2, 3) for clique in combinations(domain.attributes, k)]
    sides = []
    for number, own in enumerate((frames, more)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, partitions = ingested(written(own, folder), folder, schema=schema, rows=7 + number)
        tables = PartitionTuples(partitions, schema, Cluster(), places=places).tables(cliques)
        sides.append([open_private(table) for table in tables])
    moved = [after - before for before, after in zip(*sides, strict=True)]
    assert all((table >= 0).all() and table.sum() == scale for table in moved)
    assert all(int((table > 0).sum()) == 1 for table in moved), "people who are alike fall into one cell"


def test_people_may_repeat_the_columns_of_their_household(tmp_path):
    frames = linked_frames(200)
    joined = frames["person"].merge(frames["household"], on="hid")
    joined.to_csv(tmp_path / "joined.csv", index=False)
    two, _ = ingested(written(frames, tmp_path), tmp_path)
    one, partitions = ingested({"person": [str(tmp_path / "joined.csv")]}, tmp_path)
    assert len(join_households([read_households(p, SCHEMA) for p in partitions]).sizes) == 200
    assert one.digest == two.digest


def test_a_household_whose_people_disagree_is_left_out_alone(tmp_path):
    frames = linked_frames(50)
    joined = frames["person"].merge(frames["household"], on="hid")
    several = joined.hid.value_counts().loc[lambda n: n > 1].index[0]
    row = joined.index[joined.hid == several][0]
    joined.loc[row, "tenure"] = {"owned": "rented", "rented": "owned"}[joined.loc[row, "tenure"]]
    joined.to_csv(tmp_path / "joined.csv", index=False)
    _, partitions = ingested({"person": [str(tmp_path / "joined.csv")]}, tmp_path)
    fewer = {name: frame[frame.hid != several] for name, frame in frames.items()}
    expected = listed(encode_households(fewer, SCHEMA, KEY))
    assert listed(join_households([read_households(p, SCHEMA) for p in partitions])) == expected


def test_a_column_of_both_tables_needs_two_sources():
    columns = [{"name": "age", "kind": "integer", "bounds": [0, 9], "bins": 2}]
    schema = linked_schema(household={"columns": columns})
    with pytest.raises(SourceError, match="column 'age' is declared of households and of people"):
        reading_schemas(schema, ["person"])
    assert set(reading_schemas(schema, ["person", "household"])) == {"person", "household"}


def test_sources_of_which_nothing_can_be_joined_are_refused(tmp_path):
    frames = linked_frames(20)
    frames["person"]["hid"] += 1000
    with pytest.raises(SourceError, match="no household has both a row and people"):
        ingested(written(frames, tmp_path), tmp_path, rows=5)
    assert not (tmp_path / "encoded").exists()


@pytest.mark.parametrize("table", ["household", "person"])
def test_a_source_without_rows_is_refused(tmp_path, table):
    frames = linked_frames(5)
    frames[table] = frames[table][:0]
    with pytest.raises(SourceError, match="the source has no rows"):
        ingested(written(frames, tmp_path), tmp_path)
    assert not (tmp_path / "encoded").exists()
