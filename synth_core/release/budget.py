"""How a release's budget is divided among what it buys, before anything is asked.

It is a function of spec and account and is stored nowhere: bought bins and strata change the domain, and a file could
go stale. `synth plan` prints it, `prepare` checks it, and every step takes its part from it.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from fractions import Fraction

from synth_core.errors import SpecError
from synth_core.privacy.budget import MAX_VARIANCE, exact_share, group_mu2, mu2_of
from synth_core.release.spec import ReleaseSpec

MANY_ANSWERS = 1_000_000
"""Answers among which a part of the budget may be divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBudget:
    """The parts of a release's budget, in mu^2 that questions about single records may cost; their sum is all of it.

    Attributes:
        bins: for the edges of bins that are measured privately, in `ingest`.
        moments: for sums of numbers inside bins, in `fit`.
        quality: for true errors in the public report, in `evaluate`.
        stratum_rows: for the number of rows of each stratum.
        level_above: for the tables of the level above the strata.
        pairs: for pairs of people of a household, where two linked tables are released, in `fit`.
        method: for the method's own questions. With strata, every part may spend it: a record lies in one part, so
            adding or removing it changes the answers of that part's questions and of those about all records, and of
            no others. The price is theirs, whichever part it is, hence at most the largest.
    """

    bins: Fraction
    moments: Fraction
    quality: Fraction
    stratum_rows: Fraction
    level_above: Fraction
    pairs: Fraction
    method: Fraction

    @property
    def whole(self) -> Fraction:
        """The sum of all parts."""
        return sum(astuple(self), Fraction(0))


def divide_budget(spec: ReleaseSpec, *, rows_per_unit: int = 1, has_pairs: bool = False) -> ReleaseBudget:
    """Divide the budget of a release.

    Args:
        spec: what the release asks for; its shares are exact decimal fractions.
        rows_per_unit: how many rows one unit of the account may have. Questions about single records get less, so that
            a unit with that many is protected as promised.
        has_pairs: whether there are households with several people to ask about.

    Returns:
        The parts. The method gets what the others leave.

    Raises:
        SpecError: A part is so small that noise would exceed every count.
    """
    whole = mu2_of(spec.epsilon, spec.delta) / group_mu2(Fraction(1), rows_per_unit)
    bins, quality = whole * exact_share(spec.bins_share), whole * exact_share(spec.quality_share)
    moments = whole * exact_share(spec.moments_share)
    pairs = whole * exact_share(spec.pairs_share) if has_pairs else Fraction(0)
    left = whole - bins - moments - quality - pairs
    strata = spec.strata
    rows = left * exact_share(strata.share) if strata else Fraction(0)
    above = left * exact_share(strata.upper_share) if strata and strata.within else Fraction(0)
    parts = {"bins": bins, "moments": moments, "quality": quality, "stratum_rows": rows, "level_above": above}
    budget = ReleaseBudget(**parts, pairs=pairs, method=left - rows - above)
    for name, part in asdict(budget).items():
        if 0 < part < MANY_ANSWERS / MAX_VARIANCE:
            raise SpecError(f"the part for {name} is too small: noise would exceed every count; raise it, or epsilon")
    return budget
