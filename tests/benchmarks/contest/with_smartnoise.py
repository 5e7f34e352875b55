"""Make a table with SmartNoise; run as a script, in an environment that has it, with the address of an order."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def main(address: str) -> None:
    """Read the order, fit and sample on categorical columns, write the codes.

    SmartNoise reads the values of a categorical column from the data; that part of its domain is not paid for.
    """
    from snsynth import Synthesizer

    order = json.loads(Path(address).read_text(encoding="utf-8"))
    columns = list(order["sizes"])
    frame = pd.DataFrame(np.load(order["rows"]), columns=columns)
    synthesizer = Synthesizer.create(order["method"], epsilon=order["epsilon"], delta=order["delta"])
    synthesizer.fit(frame, categorical_columns=columns)
    table = pd.DataFrame(synthesizer.sample(len(frame)), columns=columns)
    np.save(order["out"], table.to_numpy(dtype=np.int32))


if __name__ == "__main__":
    main(sys.argv[1])
