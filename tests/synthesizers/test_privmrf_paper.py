"""The preset `paper` of PrivMRF beside values of the paper's equations and algorithms that were worked out by hand."""

from fractions import Fraction

import pytest

from synth_core.domain import Domain
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers.base import Scores
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.structure import Candidates

ABC = Domain.of({"a": 2, "b": 2, "c": 2})
EVERY = Candidates(ABC, (("a", "b", "c"),), 8)


def initial(ab, ac, bc, **options):
    scores = Scores(100.0, (("a", "b", ab), ("a", "c", ac), ("b", "c", bc)))
    return synthesizer("privmrf", "paper", options)._initial(EVERY, scores)


def test_equation_8_chooses_the_best_marginal_of_each_attribute():
    """With R/n of 0.6, 0.3 and 0.1 for ab, ac and bc.

    a: ab 0.6 / sqrt(2) = 0.424, ac 0.212, abc 0.9 / sqrt(3 + 2 * 0.1) = 0.503;
    b: ab 0.424, bc 0.071, abc 0.7 / sqrt(3 + 2 * 0.3) = 0.369;
    c: ac 0.212, bc 0.071, abc 0.4 / sqrt(3 + 2 * 0.6) = 0.195.
    """
    assert initial(60, 30, 10, distinct=True) == (("a", "b", "c"), ("a", "b"), ("a", "c"))
    assert initial(60, 30, 10) == (("a", "b", "c"),), "ab and ac lie inside abc"


def test_a_negative_score_is_no_dependence():
    """abc is (0.6 + 0) / sqrt(3) = 0.346 for a, below ab."""
    assert ("a", "b") in initial(60, -5, -5)


def test_algorithm_3_takes_a_marginal_out_once_it_is_chosen():
    """With 0.5 for every pair abc is the best of all three (1 / sqrt(3 + 1) = 0.5 against 0.354)."""
    found = initial(50, 50, 50, distinct=True)
    assert found[0] == ("a", "b", "c")
    assert len(set(found)) == 3
    assert all(attribute in clique for attribute, clique in zip("abc", found, strict=True))
    assert initial(50, 50, 50) == (("a", "b", "c"),)


def test_the_split_and_the_rounds_are_those_of_section_3_6():
    domain = Domain.of({f"x{k}": 3 for k in range(15)})
    method = synthesizer("privmrf", "paper")
    plan = method.plan(domain, mu2_of(0.8, 1e-5))
    shares = {"R-scores": (10, 100), "n": (1, 100), "choices": (10, 100), "marginals": (79, 100)}
    assert dict(plan.shares) == {name: Fraction(*share) for name, share in shares.items()}
    lines = dict(method.preview(domain, plan))
    assert lines["marginals measured"] == "up to 27, 12 of them chosen round by round"  # t = 0.8 d
    noise = {name: float(text.split()[1].replace(",", "")) for name, text in lines.items() if text.startswith("sigma")}
    g = 0.218686**2
    assert noise["noise on n"] == pytest.approx((1 / (0.01 * g)) ** 0.5, rel=1e-2)
    assert noise["noise on each R-score"] == pytest.approx((105 * 4 / (0.1 * g)) ** 0.5, rel=1e-2)
    assert noise["noise on each misfit"] == pytest.approx((12 * 400 / (0.1 * g)) ** 0.5, rel=1e-2)  # k = 400
    assert noise["noise on each marginal count"] == pytest.approx((27 / (0.79 * g)) ** 0.5, rel=1e-2)
