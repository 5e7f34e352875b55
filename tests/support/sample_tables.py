"""Two made-up tables that are as hard as the reference tables of the literature, drawn anew from a fixed seed.

`survey` looks like NLTCS: 16 yes/no answers that one severity drives, most people with none of them. `census` looks
like Adult: 15 columns of 2 to 41 values, skewed, each depending on another one and on the kind of person.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SURVEY_SIZES = {f"a{number}": 2 for number in range(16)}
"""Number of values of each column of `survey`."""

SURVEY_ROWS = 21_574
"""Rows of `survey`."""

CENSUS_SIZES = {f"a{number}": size for number, size in enumerate((16, 7, 16, 16, 16, 7, 14, 6, 5, 2, 8, 15, 16, 41, 2))}
"""Number of values of each column of `census`."""

CENSUS_ROWS = 45_222
"""Rows of `census`."""

KINDS = 6
"""Kinds of people in `census`; a column's distribution is another one for each of them."""


def survey() -> pd.DataFrame:
    """Returns the rows of `survey`."""
    rng = np.random.default_rng(16)
    severity = rng.normal(size=SURVEY_ROWS)
    hardness = rng.uniform(-0.5, 1.5, len(SURVEY_SIZES))
    chance = 1 / (1 + np.exp(-2.5 * (severity[:, None] - hardness)))
    answers = rng.random(chance.shape) < chance
    return pd.DataFrame(answers.astype(np.uint8), columns=list(SURVEY_SIZES))


def census() -> pd.DataFrame:
    """Returns the rows of `census`."""
    rng = np.random.default_rng(15)
    kind = rng.choice(KINDS, size=CENSUS_ROWS)
    columns: dict[str, NDArray[np.int64]] = {}
    for number, (name, size) in enumerate(CENSUS_SIZES.items()):
        before = columns[f"a{rng.integers(number)}"] if number else kind
        group = kind * (before.max() + 1) + before
        overall = rng.dirichlet(np.full(size, 0.4))
        shares = rng.dirichlet(overall * 6 + 0.02, size=group.max() + 1)
        draws = (rng.random(CENSUS_ROWS)[:, None] > shares.cumsum(axis=1)[group]).sum(axis=1)
        columns[name] = np.minimum(draws, size - 1)
    return pd.DataFrame(columns).astype(np.uint8)


def write_samples(folder: Path) -> None:
    """Writes both tables with their domains as the reference tables are written: NAME.csv, NAME-domain.json."""
    for name, frame, sizes in (("survey", survey(), SURVEY_SIZES), ("census", census(), CENSUS_SIZES)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        (folder / f"{name}-domain.json").write_text(json.dumps(sizes), encoding="utf-8")
