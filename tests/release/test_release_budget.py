"""The parts of a release's budget make its whole budget, exactly, whatever its shares are."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth_core.privacy.budget import group_mu2, mu2_of
from synth_core.release.budget import divide_budget
from synth_core.release.spec import ReleaseSpec

PLAIN = {"release": "r", "dataset": "d", "source": "x.csv", "schema": "s.yaml", "epsilon": 1.0, "delta": 1e-6}

shares = st.decimals(min_value="0.01", max_value="0.2", places=3).map(float)


def spec(**changes):
    return ReleaseSpec.parse({**PLAIN, **changes})


@given(
    bins=shares, sums=shares, quality=shares, rows=shares, above=shares, within=st.booleans(), each=st.integers(1, 5)
)
def test_the_parts_are_the_whole(bins, sums, quality, rows, above, within, each):
    strata = {
        "by": "district",
        "share": rows,
        "upper_share": above,
        **({"within": "state"} if within else {}),
    }
    asked = spec(bins_share=bins, moments_share=sums, quality_share=quality, strata=strata)
    found = divide_budget(asked, rows_per_unit=each)
    assert found.moments == found.whole * Fraction(str(sums))
    assert found.whole == mu2_of(1.0, 1e-6) / group_mu2(Fraction(1), each)
    assert (found.level_above > 0) == within
    assert found.method > 0
    assert found.bins == found.whole * Fraction(str(bins)), "0.1 is a tenth, not the float next to it"


@pytest.mark.parametrize("changes", [{}, {"quality_share": 0.1}])
def test_without_strata_nothing_is_set_aside_for_them(changes):
    found = divide_budget(spec(**changes))
    assert found.stratum_rows == found.level_above == 0
    assert found.method + found.quality == found.whole
