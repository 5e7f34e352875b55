"""Scores of the NIST challenges: the three of 2018 (PrivBayes, Section 4), and two that SDNist reports show.

All of the 2018 scores run from 0 to a million; a million means no difference. They follow the paper's text and were
not compared with the challenge's own program. The paper leaves open how the two parts of the regression score are
brought to that range, and what an area counts that the synthetic table lost; it is said where it is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synth_core.domain import Clique, Codes, Domain
from synth_core.evaluation.cells import distances
from synth_core.evaluation.distances import alpha_way
from synth_core.evaluation.tables import CodedTable, Conjunctions
from synth_core.privacy.queries import Counts

MILLION = 1e6
"""The best score of 2018."""
REPEATS = {"clustering": 100, "classification": 300}
"""Random marginals and conjunctions that the scores of 2018 are means of."""
_RAREST = 1e-6
"""A frequency of zero has no logarithm: floor of a synthetic one, or half a real record where that is less."""

Levels = Mapping[str, NDArray[np.float64]]
"""The number each code of an ordered column stands for (NaN where it stands for none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayGap:
    """The columns the regression score needs: areas, a column of two groups, and an ordered income."""

    area: str
    group: str
    income: str


def clustering_score(real: CodedTable, synthetic: CodedTable) -> float:
    """A million times one minus the mean TVD of 100 random three-way marginals (fewer where there are fewer)."""
    domain, rows = real.domain, (real.rows, synthetic.rows)
    cliques = alpha_way(domain, min(3, len(domain)), limit=REPEATS["clustering"], seed=2018)
    pairs = zip(real.cells(cliques), synthetic.cells(cliques), strict=True)
    return MILLION * (1 - float(np.mean([distances(*pair, rows=rows).tvd for pair in pairs])))


def classification_score(real: CodedTable, synthetic: CodedTable, *, levels: Levels) -> float | None:
    """How well the shares of 300 random conjunctions agree, on the scale of logarithms.

    A conjunction takes a third of the columns and a random real row, and in each column a random set of codes with the
    row's code among them or, where the column is ordered, a random range around it. So some real row matches, however
    many columns there are, and only the synthetic share q needs a floor. The score is a million times
    1 + RMS(ln p - ln q) / ln(1/1000), cut at zero; None for a real table without rows.
    """
    if not real.rows:
        return None
    asked = _conjunctions(real.sample, real.domain, levels)
    shares = real.matching(asked) / real.rows
    found = np.maximum(min(_RAREST, 0.5 / real.rows), synthetic.matching(asked) / max(1, synthetic.rows))
    rms = float(np.sqrt(np.mean(np.log(shares / found) ** 2)))
    return MILLION * max(0.0, 1 + rms / math.log(1e-3))


def regression_score(real: CodedTable, synthetic: CodedTable, *, levels: Levels, roles: PayGap) -> float | None:
    """Half for the Gini coefficients of income in each area and group, half for the areas' pay-gap ranks.

    The first half is one minus the RMS difference of the Gini coefficients. The second is one minus the RMS
    difference of the ranks, relative to that of reversed ranks, sqrt((m^2 - 1) / 3) for m areas, cut at zero.
    The m areas are those with income in both groups of the real table; None where fewer than two. One that the
    synthetic table lost counts the largest differences, 1 and m - 1; the others are ranked among themselves.
    """
    asked = (roles.area, roles.group, roles.income)
    tables = (table.table(asked) for table in (real, synthetic))
    ginis, gaps = zip(*(_by_area(table, levels[roles.income]) for table in tables), strict=True)
    known = np.isfinite(gaps[0])
    areas = int(known.sum())
    if areas < 2:
        return None
    kept = known & np.isfinite(gaps[1])
    squares = np.where(kept[:, None], (ginis[0] - ginis[1]) ** 2, 1.0)[known]
    gini = 1 - float(np.sqrt(squares.mean()))
    ranks = [pd.Series(gap[kept]).rank().to_numpy() for gap in gaps]
    lost = (areas - int(kept.sum())) * (areas - 1) ** 2
    worst = math.sqrt((areas**2 - 1) / 3)
    rank = 1 - math.sqrt((float(((ranks[0] - ranks[1]) ** 2).sum()) + lost) / areas) / worst
    return MILLION * (max(0.0, gini) + max(0.0, rank)) / 2


def k_marginal_score(real: CodedTable, synthetic: CodedTable, *, area: str | None) -> float | None:
    """SDNist's score: 1,000 times one minus the mean TVD of the tables of all pairs of columns.

    With an area each pair's table has that column too; SDNist does so with its column PUMA. What else it does by name,
    leaving out a column INDP, is not done here. A single column is compared alone; None where there is none.
    """
    others = [name for name in real.domain if name != area]
    pairs: list[Clique] = [*combinations(others, 2)] or [(name,) for name in others]
    if not pairs:
        return None
    grouped = [real.domain.clique(pair if area is None else (area, *pair)) for pair in pairs]
    rows = (real.rows, synthetic.rows)
    tables = zip(real.cells(grouped), synthetic.cells(grouped), strict=True)
    return 1000 * (1 - float(np.mean([distances(*pair, rows=rows).tvd for pair in tables])))


def gini(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Gini coefficient of weighted non-negative values: mean absolute difference over twice the mean."""
    order = np.argsort(values, kind="stable")
    held, total = weights[order], values[order] * weights[order]
    if total.sum() <= 0:
        return 0.0
    below = np.concatenate([[0.0], np.cumsum(total)]) / total.sum()
    return float(1 - ((below[1:] + below[:-1]) * held / held.sum()).sum())


def _by_area(counts: Counts, incomes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each area the Gini coefficients of the two groups, and the gap between their mean incomes."""
    known = np.flatnonzero(np.isfinite(incomes))
    table = counts[:, :2, known].astype(np.float64)
    people = table.sum(axis=2)
    with np.errstate(invalid="ignore"):
        means = (table * incomes[known]).sum(axis=2) / people
    ginis = np.array([[gini(incomes[known], group) if group.sum() else 0.0 for group in area] for area in table])
    return ginis, means[:, 0] - means[:, 1]


def _conjunctions(rows: Codes, domain: Domain, levels: Levels) -> Conjunctions:
    """Random questions, each of which the row that it was made for answers with yes."""
    rng = np.random.default_rng(2018)
    questions, columns = REPEATS["classification"], max(1, len(domain) // 3)
    places = np.empty((questions, columns), dtype=np.int64)
    codes = np.zeros((questions, columns, max(domain.sizes)), dtype=np.bool_)
    for question, row in enumerate(rows[rng.integers(len(rows), size=questions)]):
        places[question] = rng.choice(len(domain), size=columns, replace=False)
        for k, place in enumerate(places[question]):
            size, ordered = domain.sizes[place], domain.attributes[place] in levels
            codes[question, k, :size] = _codes_asked(int(row[place]), size, rng, ordered=ordered)
    return Conjunctions(places, codes)


def _codes_asked(code: int, size: int, rng: np.random.Generator, *, ordered: bool) -> NDArray[np.bool_]:
    """A random set of codes, or a random range, with the code among them."""
    asked = np.zeros(size, dtype=np.bool_)
    if ordered:
        asked[rng.integers(code + 1) : rng.integers(code, size) + 1] = True
    else:
        asked[rng.permutation(size)[: rng.integers(size)]] = True
        asked[code] = True
    return asked
