"""Answers of earlier releases: which agree with new ones, how merged codes are joined, what a method makes of them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from synth_core.domain import Domain, Impossible
from synth_core.errors import SpecError
from synth_core.measurement import EarlierRelease, EarlierTable, Measurement
from synth_core.privacy.budget import mu2_of
from synth_core.synthesizers.base import Scores, Tools, ask_first, load_scores, run_phases, save_scores
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.reuse import agrees, join_groups, take_up
from tests.support.conversations import chain, people_curator, people_ledger

DOMAIN = Domain.of({"a": 4, "b": 3})
COUNTS = {"a": np.array([900.0, 60.0, 30.0, 10.0]), "b": np.array([500.0, 300.0, 200.0])}


def noisy_columns(rng, *, sigma, shift=0.0):
    """Noisy marginals of both columns; `shift` moves records from the first code of a to the second."""
    moved = COUNTS["a"] + np.array([-shift, shift, 0.0, 0.0])
    return [
        Measurement((name,), table + rng.normal(0, sigma, table.size), sigma)
        for name, table in (("a", moved), ("b", COUNTS["b"]))
    ]


def release_of(columns, *more, name="r1"):
    return EarlierRelease(name, tuple(EarlierTable(m, (None,) * len(m.clique)) for m in (*columns, *more)))


def verdicts(rng, *, draws, shift=0.0, stated=1.0):
    """How many of the draws agree; `stated` is the share of the noise that all answers own up to."""
    found = 0
    for _ in range(draws):
        before, now = noisy_columns(rng, sigma=9.0), noisy_columns(rng, sigma=5.0, shift=shift)
        before, now = ([replace(m, sigma=m.sigma * stated) for m in columns] for columns in (before, now))
        found += agrees(release_of(before), now)
    return found


def test_answers_about_the_same_rows_agree():
    assert verdicts(np.random.default_rng(1), draws=2000) == 2000


def test_noise_that_is_stated_too_small_is_noticed():
    """The test above can fail: with a third of both noises stated many draws disagree."""
    assert verdicts(np.random.default_rng(1), draws=200, stated=1 / 3) < 150


def test_answers_about_other_rows_disagree():
    """120 records moved are 8 standard deviations of both noises together in each of two codes."""
    assert verdicts(np.random.default_rng(2), draws=200, shift=120.0) == 0


def test_what_noise_hides_agrees():
    assert verdicts(np.random.default_rng(3), draws=200, shift=3.0) == 200


def test_a_release_without_columns_agrees():
    pair = Measurement(("a", "b"), np.ones((4, 3)), 1.0)
    assert agrees(release_of([], pair), noisy_columns(np.random.default_rng(0), sigma=1.0))


def table(clique, shape, *groups, sigma=2.0):
    return EarlierTable(Measurement(clique, np.arange(1.0, np.prod(shape) + 1).reshape(shape), sigma), groups)


@pytest.mark.parametrize(
    ("groups", "joined"),
    [
        ([(0, 0, 1, 2)], (0, 0, 1, 2)),
        ([(0, 0, 1, 2), (0, 1, 1, 2)], (0, 0, 0, 1)),
        ([(0, 0, 1, 1), (0, 1, 0, 2)], (0, 0, 0, 0)),
        ([(0, 1, 2, 1)], (0, 1, 2, 1)),
        ([(1, 0, 1, 2)], (0, 1, 0, 2)),
    ],
)
def test_groups_are_joined_as_finely_as_they_can_be(groups, joined):
    tables = [table(("a",), (max(own) + 1,), own) for own in groups]
    assert join_groups(DOMAIN, tables) == {"a": joined}


def test_known_tables_get_the_joined_groups():
    """A table of groups and one of all codes become tables of the same groups, with the same sums."""
    fine = table(("a", "b"), (4, 3), None, None)
    coarse = table(("a", "b"), (3, 3), (0, 1, 1, 2), None)
    scores = take_up(Scores(1000.0), [EarlierRelease("r1", (fine, coarse))], DOMAIN)
    assert scores.groups == (("a", (0, 1, 1, 2)),)
    first, second = scores.earlier
    np.testing.assert_array_equal(first.noisy, [[1, 2, 3], [11, 13, 15], [10, 11, 12]])
    np.testing.assert_array_equal(second.noisy, coarse.measurement.noisy)
    assert first.sigma == pytest.approx(2.0 * np.sqrt(12 / 9))
    assert second.sigma == 2.0


def test_a_column_that_a_rule_speaks_about_is_never_merged():
    ruled = replace(DOMAIN, impossible=(Impossible("never both", (("a", (0,)), ("b", (0,)))),))
    merged = table(("a", "b"), (3, 3), (0, 1, 1, 2), None)
    whole = table(("a", "b"), (4, 3), None, None)
    scores = take_up(Scores(1000.0), [EarlierRelease("r1", (merged, whole))], ruled)
    assert scores.groups == ()
    (kept,) = scores.earlier
    assert kept.noisy.shape == (4, 3)
    np.testing.assert_array_equal(kept.noisy.ravel()[:3], [0, 2, 3])


def test_scores_keep_what_is_known(tmp_path):
    known = take_up(Scores(9.0), [EarlierRelease("r1", (table(("a", "b"), (3, 3), (0, 1, 1, 2), None),))], DOMAIN)
    save_scores(replace(known, set_aside=("r0",)), tmp_path / "scores.json")
    read = load_scores(tmp_path / "scores.json")
    assert (read.groups, read.set_aside, read.tables) == (known.groups, ("r0",), (("a", "b"),))
    np.testing.assert_array_equal(read.earlier[0].noisy, known.earlier[0].noisy)


@pytest.mark.parametrize("method", ["absyn", "independent", "mst"])
def test_a_method_that_does_not_build_on_answers_refuses(method):
    with pytest.raises(SpecError, match="reuse: the method does not build on answers of earlier releases; use privmrf"):
        ask_first(synthesizer(method), None, None, [release_of([])])


@pytest.fixture(scope="module")
def copies():
    return chain((5, 4, 6, 3), 6000, copied=0.8)


def phases(copies, *, earlier=(), method=None, epsilon=0.5):
    """A conversation about the table; the mean distance of its pairs from the true ones, and its scores."""
    domain, codes = copies
    built = method or synthesizer("privmrf")
    curator = people_curator(codes, domain, people_ledger(epsilon))
    came = run_phases(built, built.plan(domain, mu2_of(epsilon, 1e-6)), lambda _: curator, Tools(), earlier=earlier)
    errors = []
    for k, first in enumerate(domain.attributes):
        for second in domain.attributes[k + 1 :]:
            real = np.zeros(domain.shape((first, second)))
            np.add.at(real, (codes[first], codes[second]), 1)
            errors.append(np.abs(came.model.marginal((first, second)) - real).sum() / 2 / real.sum())
    return float(np.mean(errors)), came.scores


def exact(copies, clique, *, sigma):
    """The true table, stated with a noise that it does not have."""
    domain, codes = copies
    real = np.zeros(domain.shape(clique))
    np.add.at(real, tuple(codes[name] for name in clique), 1)
    return Measurement(clique, real, sigma)


def test_a_method_makes_a_better_model_of_what_is_known(copies):
    """With all true pairs of small noise the error nearly goes; without them it is that of one release."""
    domain, _ = copies
    pairs = [exact(copies, (a, b), sigma=3.0) for a, b in zip(domain.attributes, domain.attributes[1:], strict=False)]
    columns = [exact(copies, (name,), sigma=3.0) for name in domain]
    alone, _ = phases(copies)
    known, scores = phases(copies, earlier=[release_of(columns, *pairs)])
    assert known < 0.5 * alone
    assert {m.clique for m in scores.earlier} == {m.clique for m in pairs}
    assert all(m.sigma < 3.0 for m in scores.measurements)


def test_what_disagrees_is_set_aside(copies):
    """Columns of other rows change nothing of the answers, and the release says whose they were."""
    wrong = [replace(m, noisy=np.roll(m.noisy, 1)) for m in (exact(copies, (name,), sigma=3.0) for name in copies[0])]
    _, scores = phases(copies, earlier=[release_of(wrong, name="other")])
    assert scores.set_aside == ("other",)
    assert (scores.earlier, scores.groups) == ((), ())


def test_protected_columns_keep_their_codes(copies):
    """A table that has merged codes of a protected column is left out; one that has not is taken up."""
    domain, _ = copies
    first, second, third, _ = domain.attributes
    merged = EarlierTable(Measurement((first, second), np.ones((4, 4)), 5.0), ((0, 1, 2, 3, 3), None))
    whole = EarlierTable(exact(copies, (second, third), sigma=3.0), (None, None))
    method = synthesizer("privmrf", protect=[(first, third)])
    _, scores = phases(copies, earlier=[EarlierRelease("r1", (merged, whole))], method=method)
    assert [m.clique for m in scores.earlier] == [(second, third)]
    assert scores.groups == ()
    assert (first, third) in scores.tables


def test_codes_that_were_measured_together_stay_together(copies):
    domain, _ = copies
    first, second, *_ = domain.attributes
    merged = EarlierTable(Measurement((first, second), np.full((4, 4), 375.0), 5.0), ((0, 1, 2, 3, 3), None))
    _, scores = phases(copies, earlier=[EarlierRelease("r1", (merged,))])
    assert scores.groups == ((first, (0, 1, 2, 3, 3)),)


def test_nothing_is_asked_again_for_what_is_known(copies):
    """The second conversation is charged what it plans, whatever it was told."""
    domain, codes = copies
    ledger, built = people_ledger(1.0), synthesizer("privmrf")
    curator = people_curator(codes, domain, ledger)
    plan = built.plan(domain, mu2_of(0.5, 1e-6))
    run_phases(
        built, plan, lambda _: curator, earlier=[release_of([exact(copies, (name,), sigma=3.0) for name in domain])]
    )
    charged = sum((r.mu2 for r in ledger.records() if r.state == "measured"), Fraction(0))
    assert 0.999 * plan.total_mu2 < charged <= plan.total_mu2
