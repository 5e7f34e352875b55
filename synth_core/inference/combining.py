"""Rules that combine an estimate of several synthetic tables into one with an honest standard error.

**What is drawn from what.** Noisy answers give the model M of the confidential table D. The extract is drawn from M.
Each replicate M_b is fitted to answers that M itself gives, with fresh noise of the same scale, and one replicate table
is drawn from it. With Q(.) for an analyst's estimate on a whole distribution, q_0 for what it is on the extract and q_b
on a replicate table,

    q_0 = Q(M) + s_0        Q(M) = Q(D) + e          Var(e)   = V   by noise
    q_b = Q(M_b) + s_b      Q(M_b) = Q(M) + e_b      Var(e_b) = V   the same noise, about M in the place of D
                                                     Var(s_b) = S   by the finite number of rows

so that E (q_b - q_0)^2 = V + 2 S while the error that is wanted has E (q_0 - Q(D))^2 = V + S. The mean of squares

    B = 1/m * sum_b (q_b - q_0)^2

is therefore an honest variance of q_0, too large by S alone, with about m degrees of freedom: T = B. What a fit
flattens e_b has on average too, so B holds the square of that bias, which a variance about the mean of the q_b would
leave out. Where the extract's own estimate is not at hand, the mean of the q_b takes its place: its error is
e + mean(e_b + s_b), of variance V + (V + S)/m, and their variance B' about their own mean has the expectation V + S:
T = (1 + 1/m) B', with m - 1 degrees of freedom (the bias then counts twice in the estimate, and is in no variance).

**Why not the usual rules.** Rows are dealt to follow their model closely (`models.sampling`): S is far below the
variance W that a regression states as if its rows were independent.

- Raghunathan, Reiter and Rubin (2003), T = (1 + 1/m) B' - W, which Räisä et al. (2023) use for tables that are drawn
  row by row from a posterior given noisy answers: B' holds W for the rows of each table, and it is taken out again.
  Here it would take out what is not there; T may even be negative.
- Rubin (1987), T = W + (1 + 1/m) B': his W is the error with which D itself stands for a population. That is right
  here where D is a sample and the estimate is about its population (`about="population"`): the replicates redraw the
  noise and not D, so no part of B holds it. About D itself it is far too wide.
- One table alone, T = W, has no part for the noise at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import stdtrit

from synth_core.arrays import Floats
from synth_core.errors import SpecError

About: TypeAlias = Literal["table", "population"]
"""What an estimate is about: the confidential table itself, or the population of which its records are a sample."""

LEVEL = 0.95
"""Share of the true values that an interval is to cover, unless it is asked for another: usual for regressions."""
LEAST_TABLES = 2
"""Replicate tables without which there is no spread."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Combined:
    """An estimate, or several, with the errors that noise, fit and rows give it.

    Attributes:
        estimate: the extract's estimate, or the mean of the replicate tables'.
        error: its standard error.
        freedom: degrees of freedom of the error.
        tables: how many replicate tables it was made of.
    """

    estimate: Floats
    error: Floats
    freedom: Floats
    tables: int

    def interval(self, level: float = LEVEL) -> tuple[Floats, Floats]:
        """Lower and upper ends.

        Args:
            level: share of the true values that are to lie between them.

        Returns:
            Two arrays.
        """
        width = stdtrit(self.freedom, (1 + level) / 2) * self.error
        return self.estimate - width, self.estimate + width


def combine(
    estimates: Sequence[Any] | Floats,
    variances: Sequence[Any] | Floats | None = None,
    *,
    published: Any = None,
    about: About = "table",
) -> Combined:
    """Combine what an analysis gives on each replicate table.

    Args:
        estimates: for each replicate table a number, or an array of them such as the coefficients of a regression.
        variances: for each the squares of the standard errors that the analysis states itself, as if the rows were a
            sample; needed about the population alone.
        published: the same numbers on the extract; without them the mean of the replicate tables' is the estimate.
        about: what the estimate is about; the population adds the error of the confidential rows as its sample.

    Returns:
        The estimate with its standard error.

    Raises:
        SpecError: there are fewer than two tables, numbers are missing or not finite, or do not fit each other.
    """
    found = _numbers(estimates, "estimates")
    tables = len(found)
    if tables < LEAST_TABLES:
        raise SpecError("combine: one replicate table shows no spread; give the estimates of two or more")
    if published is None:
        centre, between = found.mean(axis=0), (1 + 1 / tables) * found.var(axis=0, ddof=1)
        freedom = tables - 1.0
    else:
        centre = _numbers(published, "published")
        if centre.shape != found.shape[1:]:
            raise SpecError(
                "combine: published and estimates have different shapes; give the same numbers of each table"
            )
        between, freedom = np.mean((found - centre) ** 2, axis=0), float(tables)
    within = _within(variances, found) if about == "population" else np.zeros_like(between)
    total = between + within
    # Satterthwaite: the within part is known far better than the spread of a few tables.
    ratio = np.divide(total, between, out=np.ones_like(total), where=between > 0)
    return Combined(estimate=centre, error=np.sqrt(total), freedom=freedom * ratio**2, tables=tables)


def _within(variances: Sequence[Any] | Floats | None, estimates: Floats) -> Floats:
    """Mean of the variances that the analysis states."""
    if variances is None:
        raise SpecError("combine: about the population, the variances that the analysis states are needed; give them")
    found = _numbers(variances, "variances")
    if found.shape != estimates.shape:
        raise SpecError("combine: variances and estimates have different shapes; give one for each estimate")
    if (found < 0).any():
        raise SpecError("combine: a variance is below 0; give squares of standard errors")
    return np.asarray(found.mean(axis=0))


def _numbers(values: Any, name: str) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        raise SpecError(f"combine: {name} are no numbers, or not as many for each table; check them") from None
    if not np.isfinite(found).all():
        raise SpecError(f"combine: {name} have a number that is missing or not finite; leave that estimate out")
    return found
