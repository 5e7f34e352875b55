"""A stratified release small enough for tests: districts of two states, one of them without a single record."""

import shutil

import numpy as np
import pandas as pd

from support import small_release
from synth_core.ledger.sql import open_ledger
from synth_core.steps import STEPS, prepare, run_step

DISTRICTS = ("a1", "a2", "a3", "a4", "b1", "b2", "b3")
STATES = {district: district[0].upper() for district in DISTRICTS}
SHARES = (0.3, 0.2, 0.1, 0.02, 0.25, 0.13, 0.0)
SCHEMA = """
columns:
  - {name: sex, kind: categorical, values: [f, m]}
  - name: district
    kind: categorical
    values: [a1, a2, a3, a4, b1, b2, b3]
    hierarchy: {A: [a1, a2, a3, a4], B: [b1, b2, b3]}
  - {name: state, kind: categorical, values: [A, B]}
  - {name: age, kind: integer, bounds: [0, 99], bins: 5}
"""


def people(rows=1200, seed=5):
    """Age depends on the district."""
    rng = np.random.default_rng(seed)
    district = rng.choice(len(DISTRICTS), rows, p=SHARES)
    age = np.clip(rng.normal(20 + 10 * district, 15, rows), 0, 99).astype(int)
    names = np.array(DISTRICTS)[district]
    states = [STATES[name] for name in names]
    return pd.DataFrame({"sex": rng.choice(["f", "m"], rows), "district": names, "state": states, "age": age})


def write_release(folder, *, frame=None, cap=4.0, rows_per_unit=1, **changes):
    """Schema, data and account; returns the spec's values."""
    frame = people() if frame is None else frame
    asked = {"method": "independent", "shards": 3, "strata": "district"} | changes
    return small_release.write_release(
        folder, declared=SCHEMA, frame=frame, cap=cap, rows_per_unit=rows_per_unit, **asked
    )


def ledger_of(folder):
    return open_ledger(folder / "workspace")


def run_steps(spec, folder, steps=STEPS, **how):
    address = prepare(spec, workspace=folder / "workspace")
    for step in steps:
        run_step(step, address, **how)
    return address


def with_the_same_answers(folder, other):
    """A new workspace with the ledger and the snapshot key of another: asking again replays its answers."""
    copy_answers(folder / "workspace", other / "workspace")
    return other


def copy_answers(workspace, other):
    """The ledger and the keys of a workspace, in another one."""
    shutil.copytree(workspace / "confidential" / ".keys", other / "confidential" / ".keys")
    for path in workspace.glob("ledger.sqlite*"):
        shutil.copy(path, other)
