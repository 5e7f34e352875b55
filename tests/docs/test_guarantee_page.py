"""The numbers in the plain words are the numbers of the accounting."""

import re
from pathlib import Path
from statistics import NormalDist

import pytest

from synth_core.privacy.budget import epsilon_of, mu2_of, round_up

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "guarantee.md"
BETS = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| 50 % \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("epsilon", "percent"), BETS)
def test_the_best_guess(epsilon, percent):
    mu = float(mu2_of(float(epsilon), 1e-6)) ** 0.5
    assert round_up(100 * NormalDist().cdf(mu / 2), 1) == float(percent)


def test_there_are_bets():
    assert len(BETS) == 6


def test_twelve_releases():
    assert "are together worth ε 3.183" in PAGE.read_text(encoding="utf-8")
    assert round_up(epsilon_of(12 * mu2_of(0.8, 1e-5), 1e-5), 3) == 3.183


@pytest.mark.parametrize(
    "assumption",
    [
        "Records are read one by one",
        "The unit, and its bound",
        "One account for the same rows",
        "One δ for life",
        "Refusals are few",
        "Randomness",
        "Operators are trusted",
    ],
)
def test_every_assumption_is_listed(assumption):
    rests_on = PAGE.read_text(encoding="utf-8").split("## What it rests on")[1].split("\n## ")[0]
    assert f"\n| {assumption} |" in rests_on


@pytest.mark.parametrize(
    "page", [PAGE, PAGE.parents[2] / "README.md", PAGE.parents[1] / "howto" / "read-a-certificate.md"]
)
def test_no_page_promises_a_cap_that_people_may_raise(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    for promise in (
        "stays under the account's cap",
        "stay below a limit",
        "When it is used up, no more is published",
    ):
        assert promise not in text
    assert "rais" in text
