"""A release whose schema compares numbers: nothing it publishes breaks the rule, and a planted fault is counted."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.small_release import run_all, write_release

from synth_core.errors import SynthError
from synth_core.release.paths import ReleasePaths
from synth_core.schema import Schema
from synth_core.steps import prepare
from synth_core.steps.evaluate import count_broken

SCHEMA = {
    "columns": [
        {"name": "people", "kind": "integer", "bins": [1, 2, 3, 6, 11]},
        {"name": "children", "kind": "integer", "bins": [0, 1, 3, 11]},
    ],
    "rules": [{"name": "somebody is grown up", "compare": "children < people"}],
}


def write(folder, *, rules=SCHEMA["rules"]):
    rng = np.random.default_rng(2)
    people = rng.integers(1, 11, 500)
    frame = pd.DataFrame({"people": people, "children": (people * rng.random(500)).astype(int)})
    spec = write_release(folder, frame=frame, method="independent", shards=1)
    (folder / "schema.yaml").write_text(yaml.safe_dump({**SCHEMA, "rules": rules}))
    return spec


def test_no_published_row_breaks_a_comparison(tmp_path):
    spec = write(tmp_path)
    paths = ReleasePaths.of_address(run_all(spec, tmp_path / "workspace"))
    published = pq.read_table(paths.extract).to_pandas()
    assert (published["children"] < published["people"]).all()
    assert json.loads(paths.quality.read_text())["violations"] == {"somebody is grown up": 0}


def test_rows_are_counted_as_they_were_written(tmp_path):
    schema = Schema.model_validate(SCHEMA)
    pq.write_table(pa.table({"people": [3, 3, 2], "children": [2, 3, 5]}), tmp_path / "part.parquet")
    rules = tuple(schema.value_groups[0].rules)
    assert count_broken(tmp_path / "part.parquet", schema=schema, rules=rules) == [2]


def test_comparisons_that_leave_nothing_are_refused_before_anything_is_spent(tmp_path):
    rules = [{"name": "more children", "compare": "children > people + 20"}]
    spec = write(tmp_path, rules=rules)
    with pytest.raises(SynthError, match="'more children' leave no possible record"):
        prepare(spec, workspace=tmp_path / "workspace")
