"""DualQuery: the picks follow the law that its likelihood assumes, and the model beats its own rows."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import erf
from support.tabulation import tabulate
from support.workload_error import relative_error

from synth_core.audit.adversary import Witness
from synth_core.domain import Domain, Impossible
from synth_core.errors import FeasibilityError, SpecError
from synth_core.models.losses import DualQueryLoss
from synth_core.models.mixture import load_model
from synth_core.privacy.budget import exponential_for, mu2_of
from synth_core.privacy.curator import Curator
from synth_core.privacy.entropy import SystemEntropy
from synth_core.privacy.queries import GRID, BoxCount
from synth_core.storage.counting import TableCounts
from synth_core.synthesizers.base import Tools
from synth_core.synthesizers.dualquery import MAX_PICKS, DualQuery, _Questions, _row
from synth_core.synthesizers.methods import synthesizer
from synth_core.synthesizers.workloads import Workload

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2})
WORKLOAD = Workload(marginals=(("a", "b"), ("b", "c")), prefixes=("b",))
PARTS = WORKLOAD.parts(DOMAIN)
QUESTIONS = _Questions(DOMAIN, PARTS)
TOTAL = 5000


def codes():
    rng = np.random.default_rng(8)
    a = rng.choice(3, TOTAL, p=[0.6, 0.3, 0.1])
    b = (a + (rng.random(TOTAL) < 0.2)) % 4
    return np.stack([a, b, b % 2], axis=1)


def shares(rows):
    """The workload's answers on some rows."""
    return np.mean([QUESTIONS.answered(row) for row in rows], axis=0)


def conversation(method, mu2):
    counts = TableCounts(dict(zip(DOMAIN.attributes, codes().T, strict=True)), DOMAIN)
    curator = Witness((counts, counts), 0, curator=Curator, entropy=SystemEntropy())
    plan = method.plan(DOMAIN, mu2)
    structure = method.select(curator, plan, method.score(curator, plan))
    transcript = method.converse(curator, plan, structure, Tools())
    return transcript, method.fit(curator, plan, structure, Tools())


def test_a_query_asks_for_its_excess():
    real, rows = shares(codes()), codes()[:50]
    asked = QUESTIONS.asked(shares(rows), total=TOTAL)
    assert len(asked) == 2 * len(QUESTIONS) == 2 * (12 + 8)
    values = [query.evaluate(tabulate(codes(), DOMAIN, query.clique)) / GRID for query in asked]
    excess = TOTAL * (shares(rows) - real)
    np.testing.assert_allclose(values, np.concatenate([excess, -excess]), atol=2 / GRID)


def test_positions_and_signs_agree():
    asked = QUESTIONS.asked(np.zeros(len(QUESTIONS)), total=TOTAL)
    np.testing.assert_array_equal(QUESTIONS.positions(asked), np.arange(len(asked)))
    for k, (clique, box, sign) in enumerate(QUESTIONS.signed(np.arange(len(asked)))):
        assert (clique, box) == (asked[k].clique, asked[k].box)
        assert sign == -asked[k].sign


def test_the_rate_grows_with_the_rounds_as_the_likelihood_assumes():
    method = DualQuery(workload=WORKLOAD, rounds=20, picks=10)
    plan = method.plan(DOMAIN, mu2_of(1.0, 1e-6))
    eta = method._eta(plan, TOTAL, method.picks)
    for done in range(1, 20):
        mechanism = exponential_for(method._share(plan, done), sensitivity=BoxCount.sensitivity, count=method.picks)
        rate = float(mechanism.scale / (2 * mechanism.sensitivity))
        assert rate == pytest.approx(done * eta / TOTAL, rel=1e-3)
    assert sum(method._share(plan, done) for done in range(1, 20)) == plan.mu2("picks")


def test_the_likelihood_is_that_of_the_curators_choice():
    """log Pr(pick) of round 2 by the loss equals that of the exponential mechanism over what is asked."""
    eta, first = 3.0, QUESTIONS.answered(codes()[0])
    asked = QUESTIONS.asked(first, total=TOTAL)
    values = np.array([query.evaluate(tabulate(codes(), DOMAIN, query.clique)) / GRID for query in asked])
    chances = np.exp(eta / TOTAL * values)
    chances /= chances.sum()
    marginals = np.concatenate([tabulate(codes(), DOMAIN, part.clique).ravel() for part in PARTS])
    for pick in (0, 7, 25):
        loss = DualQueryLoss(
            QUESTIONS.with_negations,
            sampled=np.array([[pick], [pick]]),
            records=np.hstack([np.array([first, first]), -np.array([first, first])]),
            eta=eta,
            total=TOTAL,
        )
        value, _ = loss(marginals.astype(float))
        assert value == pytest.approx(np.log(len(asked)) - np.log(chances[pick]), rel=1e-4)


def test_the_gradient_of_the_likelihood_is_right_with_negations():
    rng = np.random.default_rng(0)
    answers = rng.integers(2, size=(4, len(QUESTIONS))).astype(float)
    loss = DualQueryLoss(
        QUESTIONS.with_negations,
        sampled=rng.integers(2 * len(QUESTIONS), size=(4, 6)),
        records=np.hstack([answers, -answers]),
        eta=2.0,
        total=TOTAL,
    )
    at = rng.uniform(0, 500, size=12 + 8)
    _, gradient = loss(at)
    for k in range(len(at)):
        step = np.zeros(len(at))
        step[k] = 1e-2
        assert gradient[k] == pytest.approx((loss(at + step)[0] - loss(at - step)[0]) / 2e-2, abs=1e-7)


def test_rows_contradict_their_picks_about_as_well_as_the_best_row():
    rng = np.random.default_rng(1)
    slack = []
    for _ in range(20):
        asked = QUESTIONS.signed(rng.integers(2 * len(QUESTIONS), size=12))

        def counted(row, asked=asked):
            inside = QUESTIONS.answered(np.array(row))
            return sum(sign * inside[QUESTIONS._position[clique, box]] for clique, box, sign in asked)

        best = min(map(counted, itertools.product(*map(range, DOMAIN.sizes))))
        slack.append(counted(_row(DOMAIN, asked, rng, 4)) - best)
    assert min(slack) >= 0
    assert np.mean(slack) < 0.3


@pytest.mark.slow
def test_the_model_beats_the_rows_and_both_beat_a_guess():
    """On average over some conversations: the noise is the system's own, and one of them decides little."""
    method = DualQuery(workload=WORKLOAD, rounds=40, picks=20)
    real = {part.clique: tabulate(codes(), DOMAIN, part.clique) for part in PARTS}

    def error(estimated):
        return relative_error(PARTS, DOMAIN, real=real.get, estimated=estimated)

    def errors():
        transcript, model = conversation(method, mu2_of(2.0, 1e-6))
        scale = transcript.total / len(transcript.rows)
        rows = error(lambda clique: scale * tabulate(transcript.rows, DOMAIN, clique))
        return error(model.marginal), rows

    model, rows = np.mean([errors() for _ in range(6)], axis=0)
    guess = error(lambda clique: np.full(DOMAIN.shape(clique), TOTAL / DOMAIN.cells(clique)))
    assert model < 0.7 * rows
    assert rows < 0.5 * guess


def test_picks_grow_with_the_budget_until_they_are_no_sharper_than_wanted():
    """Log-odds of a pick are those of its budget, 4 atanh(erf(mu / sqrt 8)) / (2 * 1/2) a record, nearly 1.6 mu."""
    method = DualQuery(workload=WORKLOAD, rounds=3, picks=50, sharpness=0.5, number=0.0001)
    plan = method.plan(DOMAIN, Fraction(1, 4))  # the last of two rounds gets 4/5 of nearly all of it
    per_record = 4 * np.arctanh(erf(np.sqrt(0.25 * 0.9999 * 0.8 / 50) / np.sqrt(8)))
    assert method._log_odds(plan, 50) == pytest.approx(per_record, rel=1e-6)
    assert method._picks(plan, 10) == 50, "few records are told apart little"
    wanted = 50 * (per_record * 50 / 0.5) ** 2  # of 5,000 records, 1 % are 50
    assert method._picks(plan, TOTAL) == min(np.ceil(wanted), MAX_PICKS)
    some = 50 * (per_record * 8 / 0.5) ** 2
    assert 50 < some < MAX_PICKS
    assert method._picks(plan, 800) == np.ceil(some)
    assert method._log_odds(plan, method._picks(plan, 800)) * 8 == pytest.approx(0.5, rel=0.01)
    assert replace(method, picks=3000)._picks(plan, TOTAL) == 3000, "as declared"


def test_the_published_rows_are_the_release_of_a_preset_of_their_own(tmp_path):
    """They answer with their own shares, and need no model, so that any workload will do."""
    method = replace(synthesizer("dualquery", "rows"), workload=WORKLOAD, rounds=20, limit_cells=10)
    transcript, found = conversation(method, mu2_of(2.0, 1e-6))
    found.save(tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    assert len(transcript.rows) == len(model.rows) == 20
    assert model.cliques == (("a", "b"), ("b", "c"))
    shares_of_b = np.bincount(model.rows[:, 1], minlength=4) / 20
    np.testing.assert_allclose(model.marginal(("b",)), shares_of_b * model.total)
    drawn = model.sample(41, np.random.default_rng(0))
    copies = np.unique(drawn, axis=0, return_counts=True)[1].sum()
    assert copies == 41
    assert {tuple(row) for row in drawn.tolist()} == {tuple(row) for row in model.rows.tolist()}
    assert not np.array_equal(drawn, model.sample(41, np.random.default_rng(1))), "in random order"


def test_rows_that_could_break_rules_are_refused():
    ruled = Domain(DOMAIN.attributes, DOMAIN.sizes, (Impossible("a and b", (("a", (0,)), ("b", (0,)))),))
    with pytest.raises(SpecError, match=r"rules: .* use preset default"):
        synthesizer("dualquery", "rows").plan(ruled, Fraction(1))
    assert synthesizer("dualquery").plan(ruled, Fraction(1)).shares


def test_without_budget_the_picks_tell_nothing():
    method = DualQuery(workload=WORKLOAD, rounds=10, picks=20)
    transcript, _ = conversation(method, Fraction(1, 10**9))
    assert transcript.eta / transcript.total * TOTAL < 0.02, "the total itself is mere noise here"
    assert np.bincount(transcript.picks.ravel() // len(QUESTIONS)).min() > 60, "as many negations as not"


def test_refusals():
    with pytest.raises(SpecError, match="at least 2 rounds"):
        synthesizer("dualquery", options={"rounds": 1})
    with pytest.raises(SpecError, match="sharpness must be positive"):
        synthesizer("dualquery", options={"sharpness": 0})
    with pytest.raises(FeasibilityError, match="limit"):
        DualQuery(limit_cells=10).plan(DOMAIN, Fraction(1))
    assert synthesizer("dualquery", options={"workload": {"ways": 1}}).workload == Workload(ways=1)
