"""Asks SDNist for its k-marginal score of two CSV tables: `python k_marginal_sdnist.py REAL SYNTHETIC [AREA]`.

Run by an interpreter that has the package `sdnist`; prints one JSON object.
"""

import json
import sys
from importlib.metadata import version

import pandas as pd
import sdnist.report  # noqa: F401 - its metrics cannot be imported before it
from sdnist.metrics.kmarginal import KMarginal

real, synthetic = (pd.read_csv(path) for path in sys.argv[1:3])
area = sys.argv[3:4]
if area:  # SDNist leaves out the column of this name where it lists pairs, and groups by it
    real, synthetic = (table.rename(columns={area[0]: "PUMA"}) for table in (real, synthetic))
measured = KMarginal(real, synthetic, ["PUMA"] if area else None)
print(json.dumps({"score": float(measured.compute_score()), "sdnist": version("sdnist")}))
