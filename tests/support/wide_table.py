"""A table of 24 columns as surveys have them: codes, amounts, flags that are rare, and 271 occupations."""

from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from support.small_release import write_release

OCCUPATIONS = 271


def wide_schema() -> dict:
    """The schema as a mapping: what a codebook says, with names as long as they are there."""
    columns = [
        {"name": "OCCP", "kind": "categorical", "values": [f"{code:04d}" for code in range(OCCUPATIONS)]},
        {"name": "AGEP", "kind": "integer", "bounds": [0, 99], "bins": 20},
        {"name": "PINCP_DECILE_OF_HOUSEHOLD", "kind": "integer", "bounds": [0, 9], "bins": 10},
        {"name": "SEX", "kind": "categorical", "values": {1: "Male", 2: "Female"}},
        {"name": "DVET", "kind": "categorical", "values": {0: "no", 1: "in one war", 2: "in two wars"}},
    ]
    flags = [{"name": f"FLAG_{k:02d}", "kind": "categorical", "values": [0, 1, 2]} for k in range(19)]
    return {"columns": [*columns, *flags]}


def wide_table(rows: int, seed: int = 4) -> pd.DataFrame:
    """Made-up rows of it."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, OCCUPATIONS + 1)
    job = rng.choice(OCCUPATIONS, rows, p=shares / shares.sum())
    age = rng.integers(0, 100, rows)
    sex = rng.integers(1, 3, rows)
    veteran = np.where(rng.random(rows) < 0.02 * (3 - sex), 1, 0)
    frame = pd.DataFrame(
        {
            "OCCP": [f"{code:04d}" for code in job],
            "AGEP": age,
            "PINCP_DECILE_OF_HOUSEHOLD": (job + age) % 10,
            "SEX": sex,
            "DVET": veteran,
        }
    )
    flags = {
        f"FLAG_{k:02d}": np.where(rng.random(rows) < 0.6, age * 3 // 100, rng.integers(0, 3, rows)) for k in range(19)
    }
    return frame.assign(**flags)


def write_wide_release(folder: Path, *, rows: int = 3000, **changes) -> dict:
    """Schema, data and account; returns the spec's values."""
    declared = yaml.safe_dump(wide_schema(), sort_keys=False)
    asked = {"release": "first", "epsilon": 4.0, "shards": 1, "evaluate": "quick"} | changes
    return write_release(folder, declared=declared, frame=wide_table(rows), cap=20.0, account="survey", **asked)
