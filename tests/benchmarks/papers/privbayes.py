"""PrivBayes (Bao et al., 2021): the scores of the NIST challenge of 2018 on a table of the shape of Colorado's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synth_core.domain import Domain
from synth_core.evaluation.nist import PayGap, classification_score, clustering_score, regression_score
from synth_core.evaluation.tables import CodedTable
from tests.benchmarks.papers.figures import Figure, Result, means, vary
from tests.benchmarks.papers.releases import (
    DATA,
    by_scheme,
    draw_by_epsilon,
    marginal_errors,
    release,
    rising_steps,
    said_of_rises,
)

ROWS, COLUMNS, CITIES, INCOMES = 66_200, 98, 50, 40
"""A tenth of the records of the paper's table, all of its columns."""
DELTA = 1e-9
EPSILONS = (0.5, 1.0, 2.0, 4.0)
VARIANTS = {
    "privbayes:paper{generation=with replacement}": "with replacement",
    "privbayes:paper{generation=without replacement}": "without replacement",
    "privbayes:paper{consistency=false}": "inconsistent tables",
}
"""The three variants of the paper."""
SCHEMES = (*VARIANTS, "privbayes")
SCORES = ("clustering", "classification", "regression")
MARGINALS = ("privbayes:paper", "privbayes:paper{consistency=false}", "privbayes:pgm", "privbayes")
MARGINAL_EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
PACK = DATA / "colorado"
"""Folder with `colorado.csv` and `colorado-specs.json` of the challenge's pack (Match 3), which is not at hand."""
MADE_UP, OF_PACK = "colorado", "colorado 1940"
MANY = 100
"""Codes of a column; where it has more values, neighbours are put together."""


class Census(NamedTuple):
    """A table of codes, the columns of the regression score, and the columns whose codes are ordered."""

    rows: pd.DataFrame
    sizes: dict[str, int]
    roles: PayGap
    ordered: frozenset[str]


def read_pack(folder: Path) -> Census:
    """Read the challenge's table: its values become codes in their order, at most `MANY` of them.

    The numbers of values are those of the pack's specs; a column with more than `MANY` is taken as ordered.
    """
    specs = json.loads((folder / "colorado-specs.json").read_text(encoding="utf-8"))
    table = pd.read_csv(folder / "colorado.csv", dtype="int64")[list(specs)]
    rows, sizes = {}, {}
    for name, spec in specs.items():
        values, codes = np.unique(table[name], return_inverse=True)
        if len(values) != spec["count"]:
            raise ValueError(
                f"{name} has {len(values)} values and should have {spec['count']}: take the pack's own file"
            )
        sizes[name] = min(len(values), MANY)
        rows[name] = codes * sizes[name] // len(values)
    ordered = frozenset(name for name, spec in specs.items() if spec["count"] > MANY)
    return Census(pd.DataFrame(rows), sizes, PayGap(area="CITY", group="SEX", income="INCWAGE"), ordered)


def census(data: str) -> Census:
    """The table of a cell."""
    return read_pack(PACK) if data == OF_PACK else colorado()


@cache
def colorado() -> Census:
    """A made-up table: cities of different size, income that depends on city, sex and what all columns share."""
    rng = np.random.default_rng(2018)
    city = np.minimum(rng.exponential(CITIES / 4, ROWS).astype(np.int64), CITIES - 1)
    sex = rng.integers(2, size=ROWS)
    shared = rng.random(ROWS)
    gap = rng.normal(0.0, 0.08, CITIES)
    level = 0.2 + 0.5 * shared + gap[city] * (sex - 0.5) + 0.15 * rng.random(ROWS)
    columns = {"city": city, "sex": sex, "income": np.clip(level * INCOMES, 0, INCOMES - 1).astype(np.int64)}
    sizes = {"city": CITIES, "sex": 2, "income": INCOMES}
    before = shared
    for number in range(COLUMNS - len(columns)):
        name, size = f"x{number}", int(rng.choice([2, 3, 5, 8, 12, 20]))
        before = 0.3 * shared + 0.4 * before + 0.3 * rng.random(ROWS) ** 2
        columns[name] = np.minimum(before**2 * size * 1.2, size - 1).astype(np.int64)
        sizes[name] = size
    ordered = frozenset(name for name, size in sizes.items() if name != "city" and size > 2)
    return Census(pd.DataFrame(columns), sizes, PayGap(area="city", group="sex", income="income"), ordered)


def measure(cell: dict[str, Any]) -> dict[str, float]:
    """The three scores of one release."""
    rows, sizes, roles, ordered = census(cell["data"])
    domain = Domain.of(sizes)
    made = release(rows, sizes, cell["scheme"], epsilon=cell["epsilon"], delta=DELTA)
    real, synthetic = CodedTable.of(rows.to_numpy(), domain), CodedTable.of(made, domain)
    levels = {name: np.arange(sizes[name], dtype=np.float64) for name in sizes if name in {*ordered, roles.income}}
    regression = regression_score(real, synthetic, levels=levels, roles=roles)
    classification = classification_score(real, synthetic, levels=levels)
    assert regression is not None
    assert classification is not None
    return dict(zip(SCORES, (clustering_score(real, synthetic), classification, regression), strict=True))


def show(results: Sequence[Result]) -> str:
    """A table for each score, and whether what the paper says of them holds."""
    parts = []
    for score in SCORES:
        parts += [f"{score.capitalize()} score:", by_scheme(results, score, SCHEMES, digits=0)]
    found = {score: means(results, score, ("data", "epsilon", "scheme")) for score in SCORES}
    first, last = EPSILONS[0], EPSILONS[-1]
    rising = [
        own[data, last, variant][0] > own[data, first, variant][0]
        for own in found.values()
        for data in (MADE_UP, OF_PACK)
        for variant in VARIANTS
        if all((data, epsilon, variant) in own for epsilon in (first, last))
    ]
    places = [key for key in found["regression"] if key[-1] in VARIANTS]
    harder = sum(found["regression"][key][0] > found["classification"][key][0] for key in places)
    parts.append(
        f"The paper: a larger epsilon gives better scores (here from {first:g} to {last:g} in {sum(rising)} of "
        f"{len(rising)} lines), and regression is easier than classification (here in {harder} of {len(places)}). A "
        "million is the best score; floors and normalisations are [ours](../evaluation.md#what-is-measured)."
    )
    default = [r for r in results if r.cell["scheme"] == SCHEMES[-1] and r.cell["epsilon"] == last]
    if spread := sorted(r.values[SCORES[0]] for r in default):
        shown = ", ".join(f"{score:,.0f}" for score in spread)
        parts.append(f"Single runs of `{SCHEMES[-1]}` at {last:g} had {SCORES[0]} scores of {shown}.")
    return "\n\n".join(parts)


def show_marginals(results: Sequence[Result]) -> str:
    """Errors of 3-way marginals, and where they rise with epsilon."""
    why = (
        "The paper's tables grow with the budget, up to n / (4 sigma) cells, so that the noise in them stays; "
        "`default` lets them [grow more slowly](../privbayes.md#tables-and-the-budget)."
    )
    rises = said_of_rises(rising_steps(results, "tvd3", MARGINALS))
    return "\n\n".join([by_scheme(results, "tvd3", MARGINALS), f"{rises} {why}"])


TITLE = "PrivBayes: figures of the paper"
FIGURES = [
    Figure(
        name="2",
        title="Figure 2: the challenge's scores",
        setting=f"{ROWS:,} made-up records of {COLUMNS} columns with {CITIES} cities, in place of Colorado's 662,000; "
        "delta 1e-9. Whoever puts `colorado.csv` and `colorado-specs.json` of the challenge's pack into a folder "
        "`colorado` beside the other tables has the figure of these too.",
        cells=vary(data=[MADE_UP, *([OF_PACK] if PACK.exists() else [])], epsilon=EPSILONS, scheme=SCHEMES),
        measure=measure,
        show=show,
        draw=draw_by_epsilon(MADE_UP, "clustering", SCHEMES, "clustering score", scale="linear"),
    ),
    Figure(
        name="marginals",
        title="Marginals by epsilon",
        setting="Mean TVD of 3-way marginals, delta 1e-5; not a figure of the paper.",
        cells=vary(data=("br2000", "nltcs", "adult", "acs"), epsilon=MARGINAL_EPSILONS, scheme=MARGINALS),
        measure=partial(marginal_errors, delta=1e-5, alphas=(3,)),
        show=show_marginals,
        draw=draw_by_epsilon("br2000", "tvd3", MARGINALS, "mean TVD of 3-way marginals"),
    ),
]
