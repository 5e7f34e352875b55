"""An extract with numbers that do not apply to everybody, rules that say to whom, and a compared column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.csv as pa_csv
import pytest
from support.small_release import write_release

from synth_core import Schema
from synth_core.release.paths import ReleasePaths
from synth_core.schema.codec import encode
from synth_core.steps import STEPS, prepare, run_step

SCHEMA = """
columns:
  - {name: age, kind: integer, bins: [0, 8, 16, 40, 65, 100]}
  - {name: hours, kind: integer, bins: [0, 20, 35, 99], not_in_universe: N, nullable: true}
  - name: load
    kind: categorical
    values: [full, part, N]
    compare: {left: hours, is: ">=", right: 35, then: full, otherwise: part}
    nullable: true
rules:
  - {name: children do not work, when: {age: {max: 15}}, only: {hours: N, load: N}}
  - {name: all others are asked, when: {age: {min: 16}}, never: {hours: N}}
"""


def workers(rows=2000, seed=2):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, rows)
    hours = rng.choice(["10", "30", "40", None], rows, p=[0.2, 0.2, 0.5, 0.1]).astype(object)
    hours[age < 16] = "N"
    return pd.DataFrame({"age": age, "hours": hours})


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("universe")
    spec = write_release(folder, frame=workers(), method="mst", epsilon=2.0, csv=True)
    (folder / "schema.yaml").write_text(SCHEMA)
    address = prepare(spec, workspace=folder / "workspace")
    for step in STEPS[: STEPS.index("evaluate")]:
        run_step(step, address)
    return ReleasePaths.of_address(address)


def test_no_row_breaks_a_rule_about_the_universe(released):
    table = pd.read_parquet(released.shards(2, csv=False))
    child = table["age"] < 16
    assert 0.1 < child.mean() < 0.25
    assert ((table["hours"] == "N") == child).all()
    assert (table["load"][child] == "N").all()
    broken = Schema.load(released.schema).violations(table)
    assert {rule: int(rows.sum()) for rule, rows in broken.items()} == {
        "children do not work": 0,
        "all others are asked": 0,
    }


def test_missing_answers_are_something_else(released):
    table = pd.read_parquet(released.shards(2, csv=False))
    missing = table["hours"].isna()
    assert 0.04 < missing.mean() < 0.14
    assert (table["age"][missing] >= 16).all()


def test_each_folder_of_the_extract_has_one_format(released):
    """Readers take a folder for a table: once, CSV files lay beside the Parquet files and made them fail."""
    whole = pd.read_parquet(released.extract)
    assert len(whole) == sum(len(pd.read_parquet(shard)) for shard in released.shards(2, csv=False))
    assert {path.suffix for path in released.extract.iterdir()} == {".parquet"}
    assert {path.suffix for path in released.csv_extract.iterdir()} == {".csv"}


def test_the_csv_files_hold_the_same_rows(released):
    schema = Schema.load(released.schema)
    for number in (0, 1):
        shard = released.shard(number)
        text = pa_csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
        from_csv = encode(pa_csv.read_csv(released.csv_extract / f"{shard.stem}.csv", convert_options=text), schema)
        from_parquet = encode(pd.read_parquet(shard), schema)
        for name, codes in from_parquet.items():
            assert np.array_equal(from_csv[name], codes)
