"""PrivBayes (Bao et al., 2021): the scores of the NIST challenge of 2018 on a table of the shape of Colorado's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from synth_core.domain import Domain
from synth_core.evaluation.nist import PayGap, classification_score, clustering_score, regression_score
from synth_core.evaluation.tables import CodedTable
from tests.benchmarks.papers.figures import Figure, Result, means, vary
from tests.benchmarks.papers.releases import (
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
ROLES = PayGap(area="city", group="sex", income="income")


@cache
def colorado() -> tuple[pd.DataFrame, dict[str, int]]:
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
    return pd.DataFrame(columns), sizes


def measure(cell: dict[str, Any]) -> dict[str, float]:
    """The three scores of one release."""
    rows, sizes = colorado()
    domain = Domain.of(sizes)
    made = release(rows, sizes, cell["scheme"], epsilon=cell["epsilon"], delta=DELTA)
    real, synthetic = CodedTable.of(rows.to_numpy(), domain), CodedTable.of(made, domain)
    levels = {name: np.arange(size, dtype=np.float64) for name, size in sizes.items() if name != "city" and size > 2}
    regression = regression_score(real, synthetic, levels=levels, roles=ROLES)
    classification = classification_score(real, synthetic, levels=levels)
    assert regression is not None
    assert classification is not None
    return dict(zip(SCORES, (clustering_score(real, synthetic), classification, regression), strict=True))


def show(results: Sequence[Result]) -> str:
    """A table for each score, and whether what the paper says of them holds."""
    parts = []
    for score in SCORES:
        parts += [f"{score.capitalize()} score:", by_scheme(results, score, SCHEMES, keys=("epsilon",))]
    found = {score: means(results, score, ("epsilon", "scheme")) for score in SCORES}
    rising = [
        found[score][EPSILONS[-1], variant][0] > found[score][EPSILONS[0], variant][0]
        for score in SCORES
        for variant in VARIANTS
        if {(EPSILONS[0], variant), (EPSILONS[-1], variant)} <= set(found[score])
    ]
    places = [key for key in found["regression"] if key[1] in VARIANTS]
    harder = sum(found["regression"][key][0] > found["classification"][key][0] for key in places)
    first, last = EPSILONS[0], EPSILONS[-1]
    parts.append(
        f"The paper: a larger epsilon gives better scores (here from {first:g} to {last:g} in {sum(rising)} of "
        f"{len(rising)} lines), and regression is easier than classification (here in {harder} of {len(places)}). A "
        "million is the best score; floors and normalisations are [ours](../evaluation.md#what-is-measured)."
    )
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
        "delta 1e-9.",
        cells=vary(data=["colorado"], epsilon=EPSILONS, scheme=SCHEMES),
        measure=measure,
        show=show,
        draw=draw_by_epsilon("colorado", "clustering", SCHEMES, "clustering score"),
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
