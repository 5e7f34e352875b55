"""Make a table with our own methods; run as a script with the address of an order."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from synth_core.api import synthesize
from synth_core.schema import Schema


def main(address: str) -> None:
    """Read the order, synthesize, write the codes."""
    order = json.loads(Path(address).read_text(encoding="utf-8"))
    sizes = order["sizes"]
    release = synthesize(
        pd.DataFrame(np.load(order["rows"]), columns=list(sizes)),
        Schema.from_sizes(sizes),
        method=order["method"],
        preset=order["preset"],
        epsilon=order["epsilon"],
        delta=order["delta"],
        seed=order["seed"],
    )
    np.save(order["out"], release.table.to_numpy(dtype=np.int32))


if __name__ == "__main__":
    main(sys.argv[1])
