"""The numbers in the plain words are the numbers of the accounting."""

import re
from pathlib import Path
from statistics import NormalDist

import pytest

from synth_core.privacy.budget import epsilon_of, mu2_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "guarantee.md"
BETS = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| 50 % \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("epsilon", "percent"), BETS)
def test_the_best_guess(epsilon, percent):
    mu = float(mu2_of(float(epsilon), 1e-6)) ** 0.5
    assert f"{100 * NormalDist().cdf(mu / 2):.1f}" == percent


def test_there_are_bets():
    assert len(BETS) == 6


def test_twelve_releases():
    assert "are together worth ε 3.18" in PAGE.read_text(encoding="utf-8")
    assert f"{epsilon_of(12 * mu2_of(0.8, 1e-5), 1e-5):.2f}" == "3.18"
