"""No paper's own figure: whether the error of each method falls with epsilon on each table, for those no page shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import pandas as pd

from tests.benchmarks.papers.figures import ROOT, Figure, Result, vary
from tests.benchmarks.papers.releases import by_scheme, draw_by_epsilon, marginal_errors, rising_steps, said_of_rises

SCHEMES = ("hdmm", "swift", "aim", "mst", "mwem", "privmn", "absyn", "independent")
UTILITY = ROOT / "tests" / "benchmarks" / "utility.csv"
TABLES = ("nltcs", "acs", "adult", "br2000")
EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
WHY = (
    "What is left at the largest epsilons is not noise but what a method never asks: `independent` asks about columns "
    "alone, `mst` about as many pairs as there are columns less one, and `mwem` a fixed number of marginals. There an "
    "error may stay where it is, and a run may end a little above the one before. HDMM asks about all pairs, for which "
    "adult and br2000 have too many cells: it refuses there."
)


OLDER = ("hdmm", "swift", "aim", "mst", "mwem", "privmn", "independent")
"""Methods that ask today what they asked when the table of all methods was made: its runs count here too."""
COLUMNS = ("contestant", "epsilon", "dataset", "value")
"""Columns of that table's runs."""
SETTING = """Mean TVD of 3-way marginals, delta 1e-5. Runs of 16 November 2026 (the [table of all
methods](../../tests/benchmarks/utility.md)) are counted in, but for `absyn`, which has changed since.
[PrivMRF](privmrf.md#figures-4-and-6-marginals-and-running-time), [PrivBayes](privbayes.md#marginals-by-epsilon) and
[DualQuery](pgm.md#dualquery-by-epsilon) are on pages of their own; DualQuery takes minutes on the other tables. A dash
has not been run, or was refused."""


@cache
def earlier() -> tuple[Result, ...]:
    """Runs of the table of all methods."""
    runs = pd.read_csv(UTILITY)
    known = runs.contestant.isin(OLDER) & runs.epsilon.isin(EPSILONS) & runs.value.notna()
    found = runs[known & (runs.metric == "tvd3")]
    return tuple(
        Result("methods", {"scheme": scheme, "epsilon": epsilon, "data": data}, -1, {"tvd3": value})
        for scheme, epsilon, data, value in zip(*(found[name] for name in COLUMNS), strict=True)
    )


def show(results: Sequence[Result]) -> str:
    """Errors of 3-way marginals, and where they rise."""
    known = [*results, *earlier()]
    return f"{by_scheme(known, 'tvd3', SCHEMES)}\n\n{said_of_rises(rising_steps(known, 'tvd3', SCHEMES))} {WHY}"


def draw(axes: Any, results: Sequence[Result]) -> None:
    """Errors on nltcs against epsilon."""
    draw_by_epsilon("nltcs", "tvd3", SCHEMES, "mean TVD of 3-way marginals")(axes, [*results, *earlier()])


TITLE = "Error by epsilon"
FIGURES = [
    Figure(
        name="methods",
        title="Methods that the papers' pages do not show by epsilon",
        setting=SETTING,
        cells=[
            cell
            for cell in vary(scheme=SCHEMES, epsilon=EPSILONS, data=TABLES)
            if cell["scheme"] != "hdmm" or cell["data"] in ("nltcs", "acs")
        ],
        measure=partial(marginal_errors, delta=1e-5, alphas=(3,)),
        show=show,
        draw=draw,
    )
]
