"""A release small enough for tests: three columns, a few hundred rows, written to a folder."""

from pathlib import Path

import numpy as np
import pandas as pd

from synth_core.ledger.sql import open_ledger
from synth_core.privacy.accounts import Account
from synth_core.steps import STEPS, prepare, run_step

SCHEMA = """
columns:
  - {name: sex, kind: categorical, values: [f, m]}
  - {name: age, kind: integer, bounds: [0, 99], bins: 5}
  - {name: job, kind: categorical, values: [farm, shop, office], nullable: true}
"""
CANARY = "zyzzyva"
"""A value that no schema names, so that nothing outside of the confidential rows may show it."""
CANARY_SCHEMA = SCHEMA.replace("office], nullable", "office], unseen: other, nullable")
"""The schema that takes it, as another job."""
ROWS = 617


def people(rows=ROWS, seed=5):
    """A table whose number of rows and last name would be remarked anywhere outside."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, rows)
    job = np.where(age < 20, None, rng.choice(["farm", "shop", "office"], rows, p=[0.2, 0.3, 0.5]))
    return pd.DataFrame({"sex": rng.choice(["f", "m"], rows), "age": age, "job": job})


def write_release(
    folder: Path, *, declared=SCHEMA, frame=None, cap=2.0, account="people", rows_per_unit=1, **changes
) -> dict:
    """Schema, data and the account of that name; returns the spec's values, in which a change may name another."""
    (folder / "schema.yaml").write_text(declared)
    (people() if frame is None else frame).to_csv(folder / "people.csv", index=False)
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    opened = Account(dataset=account, delta=1e-6, cap_epsilon=cap, rows_per_unit=rows_per_unit, largest_n=100_000)
    open_ledger(workspace, create=True).declare(opened, actor="test")
    return {
        "release": "r1",
        "dataset": account,
        "source": str(folder / "people.csv"),
        "schema": str(folder / "schema.yaml"),
        "epsilon": 1.0,
        "delta": 1e-6,
        "shards": 2,
        **changes,
    }


def run_all(spec, workspace, *, steps=STEPS):
    """Run steps of a release in this process; returns its address."""
    address = prepare(spec, workspace=workspace)
    for step in steps:
        run_step(step, address)
    return address
