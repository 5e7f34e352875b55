"""The ledger's verbs, one after the other, on both databases."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support.ledgers import CAP, DATASET, RUNNER, TENTH, account, answered, free_request, in_memory, request, vector

from synth_core.errors import BudgetRefused, LedgerError
from synth_core.ledger.head import head_text
from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.rows import hash_of
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.privacy.accounts import Ledger, Reservation, State, Stratum
from synth_core.privacy.budget import exponential_for, mu2_of


def states(ledger: SqlLedger) -> list[State]:
    return [record.state for record in ledger.records() if record.key]


def charged(ledger: SqlLedger) -> Fraction:
    return ledger.balance(DATASET).charged_mu2


def test_a_cycle_charges_once_and_keeps_the_answer(ledger: SqlLedger) -> None:
    reservation = ledger.reserve(request())
    assert reservation.state is State.RESERVED
    assert reservation.answer is None
    ledger.begin(reservation)
    assert ledger.store(reservation, vector(7, 8, -9)).tolist() == [7, 8, -9]
    assert states(ledger) == [State.RESERVED, State.MEASURING, State.MEASURED]
    assert charged(ledger) == TENTH
    again = ledger.reserve(request())
    assert again.state is State.MEASURED
    assert again.answer is not None
    assert again.answer.tolist() == [7, 8, -9]
    assert charged(ledger) == TENTH
    assert ledger.verify() == []


def test_a_record_says_all_that_an_auditor_asks(ledger: SqlLedger) -> None:
    asked = request(stratum=Stratum(partition="region", part="north"))
    ledger.begin(ledger.reserve(asked))
    record = ledger.records(dataset=DATASET, release="pilot")[-1]
    assert record.state is State.MEASURING
    assert (record.account, record.dataset) == (account(), DATASET)
    assert (record.key, record.attempt, record.snapshot) == (asked.key, 1, "hmac:1")
    assert (record.release, record.step, record.purpose) == ("pilot", "fit", "pairs")
    assert (record.mechanism, record.asked) == (asked.mechanism, asked.asked)
    assert (record.stratum, record.runner, record.entropy) == (asked.stratum, RUNNER, "test")
    assert (record.mu2, record.cap_mu2, record.remaining_mu2) == (TENTH, CAP, 9 * TENTH)
    assert record.library.startswith("synth-core ")
    assert record.at.tzinfo is not None


def test_records_are_those_of_the_data_set_and_release_asked_for(ledger: SqlLedger) -> None:
    ledger.declare(account(dataset="other"), actor="board")
    answered(ledger, release="second")
    assert {record.dataset for record in ledger.records(dataset="other")} == {"other"}
    assert {record.release for record in ledger.records(release="second")} == {"second"}
    assert ledger.records(dataset="unheard of") == []
    assert [a.dataset for a in ledger.accounts()] == [DATASET, "other"]


def test_a_reservation_that_was_not_used_is_gone_on_with(ledger: SqlLedger) -> None:
    first = ledger.reserve(request())
    assert ledger.reserve(request(runner=replace(RUNNER, attempt=2))) == first
    assert charged(ledger) == TENTH


def test_measuring_without_an_answer_is_forfeited_and_stays_charged(ledger: SqlLedger) -> None:
    ledger.begin(ledger.reserve(request()))
    second = ledger.reserve(request())
    assert (second.attempt, second.state) == (2, State.RESERVED)
    assert states(ledger) == [State.RESERVED, State.MEASURING, State.FORFEITED, State.RESERVED]
    assert charged(ledger) == 2 * TENTH
    ledger.begin(second)
    ledger.store(second, vector())
    assert charged(ledger) == 2 * TENTH
    assert ledger.verify() == []


def test_a_forfeit_needs_room_for_the_new_attempt(ledger: SqlLedger) -> None:
    ledger.begin(ledger.reserve(request(mu2=CAP * 6 / 10)))
    with pytest.raises(BudgetRefused, match="step 'fit' needs"):
        ledger.reserve(request(mu2=CAP * 6 / 10))
    assert states(ledger) == [State.RESERVED, State.MEASURING]


def test_the_first_answer_is_kept_also_from_a_runner_that_was_given_up(ledger: SqlLedger) -> None:
    slow = ledger.reserve(request())
    ledger.begin(slow)
    quick = ledger.reserve(request())
    ledger.begin(quick)
    assert ledger.store(slow, vector(1)).tolist() == [1]
    assert ledger.store(quick, vector(2)).tolist() == [1]
    assert charged(ledger) == 2 * TENTH
    assert ledger.verify() == []


def test_only_one_runner_measures_under_a_reservation(ledger: SqlLedger) -> None:
    reservation = ledger.reserve(request())
    ledger.begin(reservation)
    with pytest.raises(LedgerError, match="is already measuring and cannot become measuring; run the step again"):
        ledger.begin(reservation)


def test_an_answer_needs_a_measurement_that_began(ledger: SqlLedger) -> None:
    reservation = ledger.reserve(request())
    with pytest.raises(LedgerError, match="is already reserved and cannot become measured"):
        ledger.store(reservation, vector())
    unknown = Reservation(key="f" * 64, attempt=1, state=State.RESERVED)
    with pytest.raises(LedgerError, match="does not exist and cannot become measuring"):
        ledger.begin(unknown)


@pytest.mark.parametrize("answer", [np.array([1.5]), np.array([1], dtype=np.int32), np.zeros((2, 2), dtype=np.int64)])
def test_an_answer_is_a_vector_of_integers(answer: np.ndarray) -> None:
    ledger = in_memory()
    reservation = ledger.reserve(request())
    ledger.begin(reservation)
    with pytest.raises(LedgerError, match="an answer is a vector of 64-bit integers"):
        ledger.store(reservation, answer)


def test_extreme_and_empty_answers_come_back_as_they_were(ledger: SqlLedger) -> None:
    extremes = [-(2**63), 2**63 - 1, 0]
    assert answered(ledger, "extreme", *extremes).tolist() == extremes
    reservation = ledger.reserve(request("empty"))
    ledger.begin(reservation)
    ledger.store(reservation, np.array([], dtype=np.int64))
    kept = ledger.reserve(request("empty")).answer
    assert kept is not None
    assert kept.shape == (0,)
    with pytest.raises(ValueError, match="read-only"):
        answered(ledger, "other", 1)[0] = 2


def test_what_was_never_used_is_refunded(ledger: SqlLedger) -> None:
    reservation = ledger.reserve(request())
    ledger.refund(reservation, reason="cancelled")
    ledger.refund(reservation, reason="cancelled")
    assert charged(ledger) == 0
    assert states(ledger) == [State.RESERVED, State.REFUNDED]
    with pytest.raises(LedgerError, match="is already refunded and cannot become measuring"):
        ledger.begin(reservation)
    assert ledger.reserve(request()).attempt == 2
    assert ledger.verify() == []


def test_what_was_used_is_never_refunded(ledger: SqlLedger) -> None:
    reservation = ledger.reserve(request())
    ledger.begin(reservation)
    with pytest.raises(LedgerError, match="is already measuring and cannot become refunded"):
        ledger.refund(reservation, reason="cancelled")


def test_free_steps_are_noted_once(ledger: SqlLedger) -> None:
    ledger.note(free_request())
    ledger.note(free_request())
    assert states(ledger) == [State.NOTED]
    assert charged(ledger) == 0
    with pytest.raises(LedgerError, match="step 'fit' spends on 'pairs'; reserve it, do not note it"):
        ledger.note(request())
    with pytest.raises(LedgerError, match="step 'fit' spends nothing on 'model chosen'; note it instead"):
        ledger.reserve(free_request())


def test_the_cap_is_the_cap(ledger: SqlLedger) -> None:
    for number in range(10):
        ledger.reserve(request(f"p{number}"))
    with pytest.raises(BudgetRefused) as refusal:
        ledger.reserve(request("one too many"))
    assert str(refusal.value) == (
        "dataset 'census-2026' has epsilon 0.00 of 2.00 left (delta 1e-05) and step 'fit' needs 0.57; "
        "lower epsilon, or raise the cap with: synth ledger cap census-2026 --epsilon 2.11 --reason TEXT"
    )
    ledger.set_cap(DATASET, epsilon=2.11, actor="board", reason="decision 14")
    ledger.reserve(request("one too many"))
    assert ledger.balance(DATASET).account.cap_epsilon == 2.11
    assert ledger.verify() == []


def test_a_person_with_several_rows_pays_for_all_of_them(ledger: SqlLedger) -> None:
    ledger.declare(account(dataset="diary", rows_per_unit=3), actor="board")
    ledger.reserve(request(dataset="diary", mu2=TENTH))
    assert ledger.balance("diary").charged_mu2 == 9 * TENTH
    assert ledger.records(dataset="diary")[-1].mu2 == 9 * TENTH


def test_parts_of_a_partition_compose_in_parallel(ledger: SqlLedger) -> None:
    def ask(part: str, tenths: int, purpose: str = "pairs") -> None:
        ledger.reserve(request(purpose, mu2=tenths * TENTH, stratum=Stratum(partition="region", part=part)))

    ask("north", 4)
    ask("south", 3)
    assert charged(ledger) == 4 * TENTH
    ask("south", 3, "more")
    assert charged(ledger) == 6 * TENTH
    ledger.reserve(request(mu2=4 * TENTH))
    assert charged(ledger) == CAP
    ask("north", 2, "up to the largest")
    with pytest.raises(BudgetRefused):
        ask("north", 1, "beyond")
    ledger.refund(Reservation(key=request(mu2=4 * TENTH).key, attempt=1, state=State.RESERVED), reason="not needed")
    other = Stratum(partition="decade", part="2010s")
    ledger.reserve(request(mu2=4 * TENTH, stratum=other))
    assert charged(ledger) == CAP
    assert ledger.verify() == []


def test_a_hold_keeps_room_for_its_release(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "pilot", mu2=7 * TENTH, runner=RUNNER)
    ledger.hold(DATASET, "pilot", mu2=7 * TENTH, runner=RUNNER)
    ledger.hold(DATASET, "pilot", mu2=TENTH, runner=RUNNER)
    assert [record.state for record in ledger.records()].count(State.HELD) == 1
    assert ledger.balance(DATASET).held_mu2 == 7 * TENTH
    with pytest.raises(BudgetRefused, match="this release needs"):
        ledger.hold(DATASET, "second", mu2=4 * TENTH, runner=RUNNER)
    with pytest.raises(BudgetRefused, match="step 'fit' needs"):
        ledger.reserve(request(release="second", mu2=4 * TENTH))
    answered(ledger, mu2=6 * TENTH)
    balance = ledger.balance(DATASET)
    assert (balance.charged_mu2, balance.held_mu2, balance.remaining_mu2) == (6 * TENTH, TENTH, 3 * TENTH)
    with pytest.raises(BudgetRefused, match="has spent what it set aside"):
        answered(ledger, "beyond the hold", mu2=2 * TENTH)
    answered(ledger, "all of the hold", mu2=TENTH)
    assert ledger.balance(DATASET).remaining_mu2 == 3 * TENTH
    assert ledger.verify() == []


def test_closing_a_release_frees_what_it_did_not_reserve(ledger: SqlLedger) -> None:
    ledger.hold(DATASET, "pilot", mu2=7 * TENTH, runner=RUNNER)
    answered(ledger, mu2=2 * TENTH)
    ledger.close(DATASET, "pilot", reason="published", runner=RUNNER)
    ledger.close(DATASET, "pilot", reason="published", runner=RUNNER)
    assert [record.state for record in ledger.records()].count(State.CLOSED) == 1
    balance = ledger.balance(DATASET)
    assert (balance.charged_mu2, balance.held_mu2) == (2 * TENTH, 0)
    ledger.hold(DATASET, "pilot", mu2=CAP, runner=RUNNER)
    assert ledger.balance(DATASET).remaining_mu2 == 0


def test_a_refused_hold_says_what_is_left_and_what_helps(ledger: SqlLedger) -> None:
    answered(ledger, release="first", mu2=8 * TENTH)
    with pytest.raises(BudgetRefused) as refusal:
        ledger.hold(DATASET, "second", mu2=mu2_of(1.0, 1e-5), runner=RUNNER)
    assert str(refusal.value) == (
        "dataset 'census-2026' has epsilon 0.82 of 2.00 left (delta 1e-05) and this release needs 1.00; "
        "lower epsilon, or raise the cap with: synth ledger cap census-2026 --epsilon 2.10 --reason TEXT"
    )
    ledger.set_cap(DATASET, epsilon=2.10, actor="board", reason="decision 15")
    ledger.hold(DATASET, "second", mu2=mu2_of(1.0, 1e-5), runner=RUNNER)


def test_an_unknown_data_set_is_told_the_command(ledger: SqlLedger) -> None:
    remedy = "dataset 'unknown' has no account; declare it with: synth ledger account unknown --unit person"
    for ask in (
        lambda: ledger.balance("unknown"),
        lambda: ledger.reserve(request(dataset="unknown")),
        lambda: ledger.note(free_request(dataset="unknown")),
        lambda: ledger.hold("unknown", "pilot", mu2=TENTH, runner=RUNNER),
        lambda: ledger.close("unknown", "pilot", reason="", runner=RUNNER),
        lambda: ledger.set_cap("unknown", epsilon=1.0, actor="", reason="because"),
    ):
        with pytest.raises(LedgerError, match=remedy):
            ask()


def test_a_command_can_be_pasted_whatever_the_name(ledger: SqlLedger) -> None:
    with pytest.raises(LedgerError, match="synth ledger account 'two words' --unit person"):
        ledger.balance("two words")


def test_a_declaration_is_for_life(ledger: SqlLedger) -> None:
    ledger.declare(account(), actor="someone else")
    assert len(ledger.records()) == 1
    with pytest.raises(LedgerError, match=r"already declared with delta 1e-05, unit person|unit person, delta 1e-05"):
        ledger.declare(account(delta=1e-6, unit="household"), actor="board")
    with pytest.raises(LedgerError, match=r"change it with: synth ledger cap census-2026 --epsilon 3 --reason TEXT"):
        ledger.declare(account(cap_epsilon=3.0), actor="board")
    ledger.set_cap(DATASET, epsilon=3.0, actor="board", reason="decision 16")
    ledger.declare(account(cap_epsilon=3.0), actor="board")
    ledger.declare(account(), actor="board")
    assert len(ledger.records()) == 2


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"dataset": " "}, "dataset . .: use 1 to 100 of a-z"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"cap_epsilon": float("inf")}, "the cap on epsilon must be positive and finite"),
        ({"cap_epsilon": -1.0}, "the cap on epsilon must be positive and finite"),
        ({"rows_per_unit": 0}, "rows per unit must be at least 1"),
        ({"largest_n": 0}, "bound on the number of records must be at least 1"),
        (
            {"largest_n": 10_001},
            "delta 1e-05 is too large for up to 10001 records; use at most 9.99e-06, or give a reason",
        ),
    ],
)
def test_an_unsound_declaration_is_refused(changes: dict[str, object], refusal: str) -> None:
    with pytest.raises(LedgerError, match=refusal):
        MemoryLedger().declare(account(**changes), actor="board")


@pytest.mark.parametrize("n", [1, 3, 7, 49, 10_000, 90_000_001])
def test_delta_may_be_a_tenth_of_one_over_n(n: int) -> None:
    ledger = MemoryLedger()
    ledger.declare(account(delta=1 / (10 * n), largest_n=n), actor="board")
    assert ledger.balance(DATASET).account.delta == 1 / (10 * n)


def test_a_cap_needs_a_reason_and_covers_what_is_committed(ledger: SqlLedger) -> None:
    ledger.reserve(request(mu2=5 * TENTH))
    ledger.hold(DATASET, "second", mu2=TENTH, runner=RUNNER)
    with pytest.raises(LedgerError, match="a change of the cap needs a reason"):
        ledger.set_cap(DATASET, epsilon=1.9, actor="board", reason=" ")
    with pytest.raises(LedgerError, match=r"has committed epsilon 1\.51 already; the cap cannot be lower"):
        ledger.set_cap(DATASET, epsilon=1.0, actor="board", reason="tighten")
    ledger.set_cap(DATASET, epsilon=1.51, actor="board", reason="tighten")
    assert ledger.records()[-1].reason == "tighten"


def test_parts_of_two_snapshots_are_charged_one_after_the_other(ledger: SqlLedger) -> None:
    """Somebody in the north of one snapshot may be in the south of the next, and then has answers about both."""
    north, south = (Stratum(partition="region", part=part) for part in ("north", "south"))
    ledger.hold(DATASET, "pilot", mu2=4 * TENTH, runner=RUNNER)
    ledger.reserve(request(mu2=4 * TENTH, snapshot="monday", stratum=north))
    ledger.reserve(request(mu2=4 * TENTH, snapshot="monday", stratum=south))
    assert charged(ledger) == 4 * TENTH
    with pytest.raises(BudgetRefused, match="has spent what it set aside"):
        ledger.reserve(request(mu2=4 * TENTH, snapshot="friday", stratum=south))
    ledger.hold(DATASET, "pilot", mu2=8 * TENTH, runner=RUNNER)
    ledger.reserve(request(mu2=4 * TENTH, snapshot="friday", stratum=south))
    assert charged(ledger) == 8 * TENTH
    assert ledger.verify() == []


def test_prices_come_from_the_mechanism(ledger: SqlLedger) -> None:
    mechanism = exponential_for(TENTH, sensitivity=Fraction(1), count=5)
    ledger.reserve(request("choice", mechanism=mechanism))
    assert charged(ledger) == mechanism.mu2()
    assert ledger.verify() == []


def test_the_head_is_kept_beside_the_file_and_wherever_asked(sqlite_url: str, tmp_path: Path) -> None:
    ledger = SqlLedger(sqlite_url)
    ledger.declare(account(), actor="board")
    head = json.loads((tmp_path / "ledger.sqlite.head").read_text())
    assert (head["records"], head["hash"]) == (1, ledger.head().hash)
    elsewhere = tmp_path / "safe.json"
    elsewhere.write_text(head_text(ledger.head()))
    SqlLedger(sqlite_url, head_paths=[elsewhere]).note(free_request())
    assert json.loads(elsewhere.read_text())["records"] == 2


@pytest.mark.postgres
def test_a_head_may_be_kept_for_postgresql(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTH_LEDGER_HEAD", str(tmp_path / "head.json"))
    MemoryLedger().declare(account(), actor="board")
    assert not (tmp_path / "head.json").exists()
    SqlLedger(postgres_url).declare(account(), actor="board")
    assert json.loads((tmp_path / "head.json").read_text())["records"] == 1


def test_the_verbs_look_as_the_protocol_says() -> None:
    for name in ("balance", "close", "refuse", "reserve", "begin", "store", "records"):
        assert inspect.signature(getattr(SqlLedger, name)) == inspect.signature(getattr(Ledger, name)), name
    for name in ("declare", "hold", "refund", "note", "set_cap", "bind", "set_refusal_limit"):
        assert "page" not in inspect.signature(getattr(SqlLedger, name)).parameters, name


def test_the_export_has_every_column_of_every_record(ledger: SqlLedger, tmp_path: Path) -> None:
    answered(ledger)
    ledger.export(tmp_path / "records.jsonl", internal=True)
    rows = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert all(hash_of(row) == row["hash"] for row in rows)
    assert rows[-1]["hash"] == ledger.head().hash


def test_two_users_of_one_database_see_each_other(ledger: SqlLedger, url: str) -> None:
    other = SqlLedger(url)
    answered(ledger)
    assert other.reserve(request()).answer is not None
    answered(other, "singles")
    assert ledger.balance(DATASET).charged_mu2 == 2 * TENTH
    assert ledger.head() == other.head()


def test_the_ledger_is_where_it_is_asked_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ledger_url(tmp_path, None) == f"sqlite:///{tmp_path}/ledger.sqlite"
    monkeypatch.setenv("SYNTH_LEDGER_URL", "postgresql+psycopg2://db/ledger")
    assert ledger_url(tmp_path, None) == "postgresql+psycopg2://db/ledger"
    assert ledger_url(tmp_path, "sqlite:///asked") == "sqlite:///asked"
