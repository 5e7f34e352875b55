"""Compile every kernel once, at installation, so that no release waits for it: `python -m synth_core.warm`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from synth_core.api import synthesize
from synth_core.domain import Domain
from synth_core.models import warm as models
from synth_core.schema import Schema
from synth_core.storage.counting import count_codes

OWN_KERNELS = (("absyn", "default"), ("privbayes", "paper"))
"""Methods with kernels of their own; they are run on a few made-up rows."""


def warm_up() -> None:
    """Run each kernel on something tiny; the machine code stays on disk."""
    models.warm_up()
    for size in models.CODE_TYPES:
        domain = Domain.of({"a": size, "b": 2})
        none = {name: np.zeros(1, dtype=np.min_scalar_type(size - 1)) for name in domain}
        count_codes(none, domain, [("a", "b")])
    rng = np.random.default_rng(0)
    for size in (3, 300):  # codes of one byte and of two
        sizes = {"a": size, "b": 3, "c": 2}
        rows = pd.DataFrame({name: rng.integers(0, n, 200) for name, n in sizes.items()})
        for method, preset in OWN_KERNELS:
            synthesize(rows, Schema.from_sizes(sizes), method=method, preset=preset, epsilon=1.0, delta=1e-6)


if __name__ == "__main__":
    warm_up()
