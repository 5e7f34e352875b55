"""The key of a question contains all that determines it: another reference, weight, box, group or matrix asks anew."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from support.seeded_entropy import SeededEntropy

from synth_core.domain import Domain
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.curator import Curator, Spending
from synth_core.privacy.queries import BoxCount, Coarsened, Dependence, Misfit, Query, Total
from synth_core.privacy.strategies import Strategy
from synth_core.storage.counting import TableCounts

DOMAIN = Domain(("a", "b", "c"), (2, 3, 3))
MU2 = Fraction(1, 100)
GUESS = np.arange(6.0).reshape(2, 3)
MISFIT = Misfit(("a", "b"), GUESS)
BOX = BoxCount(("a", "b"), ((0, 1), (0, 2)))
GROUPS = (None, np.array([0, 0, 1]))
EYE = np.eye(3, dtype=np.int64)

# Each differs from the first of its kind in one thing alone.
DIFFERENT = [
    Total(),
    Dependence(("a", "b")),
    Dependence(("b", "c")),
    MISFIT,
    replace(MISFIT, clique=("a", "c")),
    replace(MISFIT, reference=GUESS + np.eye(2, 3)),
    replace(MISFIT, reference=GUESS[::-1]),
    replace(MISFIT, penalty=1.0),
    replace(MISFIT, weight=Fraction(1, 2)),
    BOX,
    replace(BOX, clique=("a", "c")),
    replace(BOX, box=((0, 1), (0, 1))),
    replace(BOX, sign=-1),
    replace(BOX, offset=0.5),
    Coarsened(Dependence(("a", "b")), GROUPS),
    Coarsened(Dependence(("a", "c")), GROUPS),
    Coarsened(Dependence(("a", "b")), (None, np.array([0, 1, 1]))),
    Coarsened(Dependence(("a", "b")), (np.array([0, 0]), None)),
    Coarsened(Misfit(("a", "b"), GUESS[:, :2]), GROUPS),
    Coarsened(Misfit(("a", "b"), GUESS[:, 1:]), GROUPS),
    Strategy(("b",), (EYE,)),
    Strategy(("c",), (EYE,)),
    Strategy(("b",), (EYE[::-1].copy(),)),
    Strategy(("b",), (2 * EYE,)),
    Strategy(("b",), (EYE[:2].copy(),)),
    Strategy(("b", "c"), (EYE, EYE[:2].copy())),
    Strategy(("b", "c"), (EYE[:2].copy(), EYE)),
]


def key_of(question) -> str:
    return fingerprint("score", [question.facts()])


def curator(ledger, snapshot="s") -> Curator:
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, size, 50) for name, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)}
    return Curator(
        counts=TableCounts(codes, DOMAIN),
        ledger=ledger,
        spending=Spending(dataset="d", snapshot=snapshot, release="r", step="fit"),
        entropy=SeededEntropy(len(ledger.records())),
    )


@pytest.fixture
def ledger() -> SqlLedger:
    opened = MemoryLedger()
    opened.declare(Account(dataset="d", delta=1e-6, cap_epsilon=5.0), actor="board")
    return opened


def charges(ledger) -> Fraction:
    return ledger.balance("d").charged_mu2


@pytest.mark.parametrize("pair", combinations(range(len(DIFFERENT)), 2))
def test_no_two_different_questions_share_a_fingerprint(pair) -> None:
    first, second = (DIFFERENT[at] for at in pair)
    assert key_of(first) != key_of(second)


def test_every_kind_of_question_and_every_field_of_it_is_covered() -> None:
    """A field that is added to a query must be added to its facts, and to the list above."""
    varied = {(type(one), field.name) for one in DIFFERENT for field in fields(one)}
    for kind in (*get_args(Query), Strategy):
        same = [one for one in DIFFERENT if type(one) is kind]
        for field in fields(kind):
            assert (kind, field.name) in varied
            values = {repr(getattr(one, field.name)) for one in same}
            assert len(values) > 1, f"{kind.__name__}.{field.name} is the same in all examples"


@pytest.mark.parametrize("question", DIFFERENT[:20])
def test_an_equal_question_has_the_same_fingerprint(question) -> None:
    copies = {
        field.name: value.copy() if isinstance(value := getattr(question, field.name), np.ndarray) else value
        for field in fields(question)
    }
    assert key_of(type(question)(**copies)) == key_of(question)


def test_references_that_are_rounded_to_the_same_numbers_ask_the_same() -> None:
    assert key_of(replace(MISFIT, reference=GUESS + 1e-9)) == key_of(MISFIT)
    assert key_of(replace(MISFIT, reference=np.asfortranarray(GUESS))) == key_of(MISFIT)
    assert key_of(replace(MISFIT, reference=GUESS.astype(">f8"))) == key_of(MISFIT)


def test_the_order_and_the_verb_belong_to_the_question() -> None:
    queries = [BOX.facts(), MISFIT.facts()]
    assert fingerprint("score", queries) != fingerprint("score", queries[::-1])
    assert fingerprint("score", queries) != fingerprint("choose", queries)


@pytest.mark.slow
def test_fingerprints_are_the_same_in_every_process() -> None:
    program = "import test_fingerprints as t; print(*map(t.key_of, t.DIFFERENT))"
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split() == [key_of(one) for one in DIFFERENT]


def test_a_fingerprint_does_not_change_with_the_program() -> None:
    """A stored answer is found by it for ever."""
    assert key_of(MISFIT) == "5e939f5a4066294b9d237b37b4175f80d334cd9225e10ec0113bf25762a9c922"


def test_score_with_another_reference_is_another_question(ledger) -> None:
    ask = curator(ledger).score
    first = ask([MISFIT], MU2, purpose="misfit")
    assert ask([MISFIT], MU2, purpose="misfit") == first
    assert charges(ledger) <= MU2
    other = ask([replace(MISFIT, reference=GUESS + 1)], MU2, purpose="misfit")
    assert other != first
    assert charges(ledger) > MU2


@pytest.mark.parametrize("changed", [{"penalty": 3.0}, {"weight": Fraction(1, 3)}, {"reference": GUESS + 1}], ids=str)
def test_choose_with_other_queries_is_another_question(ledger, changed) -> None:
    ask, candidates = curator(ledger).choose, [MISFIT, replace(MISFIT, reference=GUESS[::-1])]
    for _ in range(2):
        ask(candidates, MU2, purpose="best")
    assert len(answered(ledger)) == 1
    ask([candidates[0], replace(candidates[1], **changed)], MU2, purpose="best")
    ask(candidates[::-1], MU2, purpose="best")
    assert len(answered(ledger)) == 3


def test_boxes_and_groups_make_other_questions(ledger) -> None:
    ask = curator(ledger).score
    ask([BOX], MU2, purpose="x")
    ask([replace(BOX, box=((0, 1), (0, 1)))], MU2, purpose="x")
    assert len(answered(ledger)) == 2
    for groups in (GROUPS, (None, np.array([0, 1, 1]))):
        ask([Coarsened(Dependence(("a", "b")), groups)], MU2, purpose="y")
    assert len(answered(ledger)) == 4


def test_measure_depends_on_tables_and_weights_alone(ledger) -> None:
    ask = curator(ledger).measure
    first = ask([("a",), ("b",)], MU2, purpose="tables")
    assert all(
        np.array_equal(x.noisy, y.noisy)
        for x, y in zip(first, ask([("a",), ("b",)], MU2, purpose="tables"), strict=True)
    )
    assert len(answered(ledger)) == 1
    ask([("a",), ("b",)], MU2, purpose="tables", weights=[1.0, 2.0])
    ask([("b",), ("a",)], MU2, purpose="tables")
    assert len(answered(ledger)) == 3


def test_a_record_says_what_its_answer_is(ledger) -> None:
    ask = curator(ledger)
    merged = Strategy(("b", "c"), (np.array([[1, 1, 0], [0, 0, 1]]), EYE))
    ask.measure([("a", "b")], MU2, purpose="tables")
    ask.answer([merged, Strategy(("b",), (EYE,)), Strategy(("b",), (2 * EYE,))], MU2, purpose="answers")
    ask.score([MISFIT, MISFIT], MU2, purpose="scores")
    ask.choose([MISFIT, replace(MISFIT, penalty=1.0)], MU2, purpose="choices")
    blocks = [[(block.kind, block.clique, block.shape) for block in record.form.blocks] for record in answered(ledger)]
    assert blocks == [
        [(AnswerKind.MARGINAL, ("a", "b"), (2, 3))],
        [
            (AnswerKind.MERGED, ("b", "c"), (2, 3)),
            (AnswerKind.MARGINAL, ("b",), (3,)),
            (AnswerKind.STRATEGY, ("b",), (3,)),
        ],
        [(AnswerKind.SCORES, (), (2,))],
        [(AnswerKind.CHOICES, (), (1,))],
    ]
    assert answered(ledger)[1].form.blocks[0].groups == ((0, 0, 1), None)


@pytest.mark.parametrize(
    ("matrix", "groups"),
    [
        (EYE, (None,)),
        (EYE[::-1].copy(), ((2, 1, 0),)),
        (np.array([[1, 0, 1], [0, 1, 0]]), ((0, 1, 0),)),
        (2 * EYE, None),
        (-EYE, None),
        (np.array([[1, 1, 0], [0, 1, 1]]), None),
        (np.array([[1, 0, 0], [0, 1, 0]]), None),
        (np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]]), None),
        (np.array([[2, 1, 0], [-1, 0, 1], [0, 0, 0]]), None),
    ],
    ids=str,
)
def test_only_groups_that_count_every_record_once_are_merged_codes(matrix, groups) -> None:
    assert Strategy(("b",), (matrix.astype(np.int64),)).groups == groups


def test_a_form_is_read_as_it_was_written() -> None:
    groups = (0, 1, 1)
    form = AnswerForm(
        fingerprint="f",
        blocks=(
            Block(kind=AnswerKind.MERGED, clique=("a", "b"), shape=(2, 2), groups=(None, groups)),
            Block(kind=AnswerKind.MERGED, clique=("b",), shape=(2,), groups=(groups,)),
            Block(kind=AnswerKind.STRATEGY, clique=("b",), shape=(4,), strategy="digest"),
        ),
    )
    assert AnswerForm.from_json(form.to_json()) == form
    assert form.to_json()["groups"] == [[0, 1, 1]], "written once"


def answered(ledger) -> list:
    return [record for record in ledger.records() if record.state is State.MEASURED]
