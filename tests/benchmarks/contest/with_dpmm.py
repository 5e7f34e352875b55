"""Make a table with dpmm; run as a script, in an environment that has it, with the address of an order."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def main(address: str) -> None:
    """Read the order, let the model fit and generate without its binning (the rows are codes), write the codes."""
    from dpmm import pipelines

    order = json.loads(Path(address).read_text(encoding="utf-8"))
    kinds = {
        "mst": pipelines.MSTPipeline,
        "aim": pipelines.AIMPipeline,
        "privbayes": pipelines.PrivBayesPipeline,
    }
    frame = pd.DataFrame(np.load(order["rows"]), columns=list(order["sizes"]))
    pipeline = kinds[order["method"]](epsilon=order["epsilon"], delta=order["delta"], disable_processing=True, n_jobs=1)
    pipeline.fit(frame, domain=order["sizes"], random_state=order["seed"])
    table = pipeline.generate(n_records=len(frame), random_state=order["seed"])
    np.save(order["out"], table[list(order["sizes"])].to_numpy(dtype=np.int32))


if __name__ == "__main__":
    main(sys.argv[1])
