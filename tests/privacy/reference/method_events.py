"""Record what each method really asks: the ledger's mechanisms of one run of every method and preset.

`python tests/privacy/reference/method_events.py` (in the project's environment) writes method_events.json beside this
file; `pld_reference.py` (in an environment of its own) then computes their epsilons independently.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from synth_core import Schema, synthesize
from synth_core.privacy.accounts import State
from synth_core.synthesizers.methods import METHODS

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5, "e": 3, "f": 2, "g": 6, "h": 2}
EPSILON, DELTA, ROWS = 0.8, 1e-5, 20_000


def table():
    """A chain of dependent columns."""
    rng = np.random.default_rng(4)
    columns = {"a": rng.integers(0, 3, ROWS)}
    for before, name in zip("abcdefg", "bcdefgh", strict=True):
        fresh = rng.random(ROWS) < 0.3
        columns[name] = np.where(fresh, rng.integers(0, 60, ROWS), columns[before]) % SIZES[name]
    return pd.DataFrame(columns)


def events(method, preset):
    """The mechanisms that were charged, in the ledger's notation."""
    release = synthesize(table(), Schema.from_sizes(SIZES), method=method, preset=preset, epsilon=EPSILON, delta=DELTA)
    return [record.mechanism.to_json() for record in release.records if record.state is State.MEASURED]


if __name__ == "__main__":
    recorded = {
        f"{name}/{preset}": events(name, preset) for name, method in METHODS.items() for preset in method.presets
    }
    text = json.dumps(recorded, indent=1) + "\n"
    Path(__file__).with_suffix(".json").write_text(text, encoding="utf-8")
