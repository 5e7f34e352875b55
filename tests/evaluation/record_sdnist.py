"""Asks SDNist for the k-marginal score of a few pairs of tables, and records it for the tests.

Run as `python tests/evaluation/record_sdnist.py PYTHON`, where PYTHON is an interpreter that has the package
`sdnist` (`pip install sdnist`, in an environment of its own: it asks for old versions of everything).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

RECORD = Path(__file__).with_name("sdnist_scores.json")
PEER = Path(__file__).resolve().parents[1] / "benchmarks" / "peers" / "k_marginal_sdnist.py"
SIZES = {"area": 5, "age": 7, "job": 12, "sex": 2}
AREA = "area"


def make_tables() -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Returns pairs of tables by name: what is alike, what moves between areas, what one table alone has."""
    return {
        "alike": (_table(900, seed=1), _table(900, seed=2)),
        "fewer rows": (_table(900, seed=1), _table(311, seed=3)),
        "areas exchanged": (_table(900, seed=1), _table(900, seed=2, turned=1)),
        "an area is missing": (_table(900, seed=1), _table(900, seed=2, areas=4)),
        "one pair": tuple(table[["area", "age", "sex"]] for table in (_table(400, seed=4), _table(400, seed=5))),
        "one column": tuple(table[["area", "job"]] for table in (_table(400, seed=4), _table(400, seed=5))),
        "the same table": (_table(900, seed=1), _table(900, seed=1)),
    }


def _table(rows: int, *, seed: int, turned: int = 0, areas: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area = rng.integers(0, areas, rows)
    age = (area + rng.integers(0, 4, rows)) % 7
    job = np.where(rng.random(rows) < 0.5, age, rng.integers(0, 12, rows))
    sex = (job % 2) ^ (rng.random(rows) < 0.3)
    return pd.DataFrame({"area": (area + turned) % 5, "age": age, "job": job, "sex": sex.astype(int)})


def ask_sdnist(python: str, tables: tuple[pd.DataFrame, pd.DataFrame], *, area: bool) -> dict[str, object]:
    """Returns SDNist's score of two tables, in each area or without."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("real.csv", "synthetic.csv")]
        for table, path in zip(tables, paths, strict=True):
            (table if area else table.drop(columns=AREA)).to_csv(path, index=False)
        command = [python, str(PEER), *map(str, paths), *([AREA] if area else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
        return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Ask for every pair of tables, with the area and without, and write the record."""
    found = {
        f"{name}{', by area' if area else ''}": ask_sdnist(sys.argv[1], tables, area=area)
        for name, tables in make_tables().items()
        for area in (False, True)
    }
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
