"""The preset `paper` of PrivMRF beside values of the paper's equations and algorithms that were worked out by hand."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from support.conversations import conversation

from synth_core.domain import Domain
from synth_core.measurement import Measurement
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers.base import Scores, Structure, Tools
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.privmrf_paper import uniform, with_zeros
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


def test_an_empty_start_leaves_all_marginals_to_the_rounds():
    """Five columns: d + t = 9. The first candidates are compared with the uniform distribution."""
    domain = Domain.of(dict.fromkeys("abcde", 2))
    method = synthesizer("privmrf", "paper", {"empty_start": True})
    plan = method.plan(domain, mu2_of(0.8, 1e-5))
    assert dict(method.preview(domain, plan))["marginals measured"] == "up to 9, 9 of them chosen round by round"
    np.testing.assert_array_equal(uniform(ABC, total=80.0).marginal(("a", "c")), [[20, 20], [20, 20]])
    codes = np.random.default_rng(1).integers(2, size=2000)
    told = conversation(method, domain, {name: codes.astype(np.uint8) for name in domain}, epsilon=1.0)
    assert told.structure.initial == ()
    assert told.model.marginal(("a", "e")) / 2000 == pytest.approx(np.diag([0.5, 0.5]), abs=0.1)


def test_without_candidates_an_empty_start_measures_columns():
    domain = Domain.of({"only": 4})
    told = conversation(
        synthesizer("privmrf", "paper", {"empty_start": True}),
        domain,
        {"only": np.repeat(np.arange(4, dtype=np.uint8), 2)},
        epsilon=0.1,
    )
    assert told.structure.initial == (("only",),)


def refitted(domain, measurements, *, warm=None, **options):
    method = synthesizer("privmrf", "paper", options)
    structure = Structure(Scores(100.0), tuple(pairwise(domain)))
    return method._refitted(warm or uniform(domain, total=100.0), structure, measurements, Tools())


def test_plain_steps_follow_the_tables_to_the_end_and_ignore_their_noise():
    """Both columns are met exactly, whatever sigma; the engine's fit stops where noise is reached."""
    noisy = [Measurement(("a",), np.array([60.0, 40.0]), 9.0), Measurement(("b",), np.array([30.0, 70.0]), 9.0)]
    plain = refitted(ABC, noisy, plain_fit=True)
    np.testing.assert_allclose(plain.marginal(("a", "b")), [[18, 42], [12, 28]], atol=0.05)
    assert abs(refitted(ABC, noisy).marginal(("a",))[0] - 60) > 1


def test_parameters_of_a_new_marginal_begin_at_zero():
    before = refitted(ABC, [Measurement(("a",), np.array([60.0, 40.0]), 1.0)], plain_fit=True)
    grown = with_zeros(before, [("a",), ("a", "b")])
    np.testing.assert_array_equal(grown.potential(("a",)), before.potential(("a",)))
    np.testing.assert_array_equal(grown.potential(("a", "b")), np.zeros((2, 2)))
    np.testing.assert_allclose(grown.marginal(("a",)), before.marginal(("a",)))


def test_the_bound_on_cliques_bounds_each_of_them_and_not_their_sum():
    """Nine pairs of 4 cells: 36 cells in all, where tau_c is 4. It was refused once the budget had been spent."""
    chain = Domain.of({f"x{k}": 2 for k in range(10)})
    pairs = [Measurement(pair, np.full((2, 2), 25.0), 1.0) for pair in pairwise(chain)]
    for plain in (False, True):
        assert refitted(chain, pairs, tau_c=4.0, plain_fit=plain).tree.cells == 36


def test_independent_rows_stray_as_those_of_a_binomial():
    """Halves of 1,000 rows: a standard deviation of 15.8 in place of one row at most."""
    domain = Domain.of({"a": 2, "b": 2})
    codes = {name: np.tile(np.array([0, 1], dtype=np.uint8), 500) for name in domain}
    rng = np.random.default_rng(3)

    def deviation(**options):
        model = conversation(synthesizer("privmrf", "paper", options), domain, codes, epsilon=1.0).model
        return np.std([model.sample(1000, rng)[:, 0].sum() for _ in range(200)])

    assert 12 < deviation(independent_rows=True) < 20
    assert deviation() < 3
