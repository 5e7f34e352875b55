"""Where in its bin a number lies is kept beside its code: record by record, through coarser bins, and in no digest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from synth_core.cluster import Cluster
from synth_core.schema import Schema
from synth_core.schema.columns.inside import place_name
from synth_core.storage.contribution import ContributionBound, bounded_frame
from synth_core.storage.ingest import coarsen_partitions, ingest_partitions, keeps_places, read_codes

KEY = bytes(range(32))
FINE = {"name": "x", "kind": "real", "bins": [0, 10, 20, 30, 40], "unseen": "clip"}
COARSE = {**FINE, "bins": [10, 30, 40]}
SEX = {"name": "sex", "kind": "categorical", "values": ["F", "M"]}


def schema_of(*columns, **more):
    return Schema.model_validate({"columns": columns, **more})


def ingested(folder, frame, schema, **more):
    frame.to_csv(folder / "source.csv", index=False)
    snapshot = ingest_partitions([folder / "source.csv"], schema, folder / "encoded", key=KEY, **more)
    return snapshot, [folder / "encoded" / name for name in snapshot.partitions]


def people(rows=500):
    rng = np.random.default_rng(3)
    return pd.DataFrame({"x": rng.uniform(-5, 45, rows).round(4), "sex": rng.choice(["F", "M"], rows)})


def numbers_of(paths, column):
    codes = [read_codes(path) for path in paths]
    own, places = (np.concatenate([part[name] for part in codes]) for name in (column.name, place_name(column.name)))
    return column.place_numbers[own, places]


def test_code_and_place_give_the_number_back(tmp_path):
    frame, schema = people(), schema_of(FINE, SEX)
    _, paths = ingested(tmp_path, frame, schema, rows_per_partition=120)
    assert len(paths) > 1
    assert keeps_places(paths[0], [schema.column("x")])
    assert set(read_codes(paths[0])) == {"x", "sex", place_name("x")}
    assert numbers_of(paths, schema.column("x")) == pytest.approx(frame["x"].clip(0, 40), abs=10 / 4096)


def test_places_follow_numbers_into_coarser_bins(tmp_path):
    frame, fine, coarse = people(), schema_of(FINE, SEX), schema_of(COARSE, SEX)
    _, paths = ingested(tmp_path, frame, fine)
    groups = {"x": np.array([0, 0, 0, 1], dtype=np.uint8)}
    target = tmp_path / "coarse"
    pair = [(fine.column("x"), coarse.column("x"))]
    coarsen_partitions(paths, target, groups=groups, columns=pair, cluster=Cluster())
    found = numbers_of([target / path.name for path in paths], coarse.column("x"))
    assert found == pytest.approx(frame["x"].clip(10, 40), abs=20 / 4096)


def test_only_sums_that_are_asked_for_make_it_another_table(tmp_path):
    """Without them the codes are the table, as before places were kept; with them a moved number is another table."""
    frame = people()
    moved = frame.assign(x=np.where((frame["x"] > 0) & (frame["x"] < 9), frame["x"] + 0.5, frame["x"]))
    for summed in (False, True):
        digests = []
        for number, table in enumerate((frame, moved)):
            folder = tmp_path / f"{summed}-{number}"
            folder.mkdir()
            schema = schema_of({**FINE, "moments": summed}, SEX)
            digests.append(ingested(folder, table, schema)[0].digest)
        assert (digests[0] == digests[1]) is not summed


def test_which_of_two_rows_of_one_code_is_kept_depends_on_no_order():
    schema = schema_of(FINE, SEX, unit_column="person")
    bound = ContributionBound("person", 1, KEY)
    frame = pd.DataFrame({"person": ["a", "a", "b"], "x": [11.0, 19.0, 5.0], "sex": ["F", "F", "M"]})
    from synth_core.schema.codec import encode_numbers

    kept = []
    for table in (frame, frame.iloc[::-1]):
        codes = bounded_frame(table, encode_numbers(table, schema), bound, source="a frame")
        kept.append(sorted(codes[place_name("x")].tolist()))
    assert kept[0] == kept[1]
    assert len(kept[0]) == 2


def test_partitions_of_earlier_versions_hold_no_places(tmp_path):
    from synth_core.storage.ingest import write_codes

    write_codes({"x": np.zeros(3, dtype=np.uint8)}, tmp_path / "part.parquet")
    assert not keeps_places(tmp_path / "part.parquet", [schema_of(FINE).column("x")])
