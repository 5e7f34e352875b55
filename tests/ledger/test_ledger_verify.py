"""Whatever is done to a ledger behind its back is found and named."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from support.ledgers import (
    CAP,
    DATASET,
    RUNNER,
    TENTH,
    account,
    answered,
    free_request,
    in_memory,
    opened,
    request,
    vector,
)

from synth_core.errors import LedgerError
from synth_core.ledger.chain import SINCE
from synth_core.ledger.head import head_text
from synth_core.ledger.rows import Row, canonical, facts_of, facts_without_request, hash_of, pack_answer
from synth_core.ledger.sql import SqlLedger
from synth_core.ledger.tables import ANSWERS, RECORDS
from synth_core.ledger.verbs import Page
from synth_core.ledger.verify import problems
from synth_core.privacy.accounts import Head, State

COLUMNS = tuple(column.name for column in RECORDS.columns)

FREE = {
    "sqlite": [
        "DROP TRIGGER ledger_records_no_update",
        "DROP TRIGGER ledger_records_no_delete",
        "DROP TRIGGER ledger_records_at_the_end",
        "DROP TRIGGER ledger_answers_no_update",
        "DROP TRIGGER ledger_answers_no_delete",
    ],
    "postgresql": [
        "ALTER TABLE ledger_records DISABLE TRIGGER USER",
        "ALTER TABLE ledger_answers DISABLE TRIGGER USER",
    ],
}
"""How an administrator with all rights gets rid of the triggers."""


def tamper(url: str, *statements: str | tuple[str, dict[str, Any]]) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (*FREE[engine.name], *statements):
            sql, values = statement if isinstance(statement, tuple) else (statement, {})
            connection.execute(text(sql), values)
    engine.dispose()


def rows_of(url: str) -> list[Row]:
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(select(RECORDS).order_by(RECORDS.c.id)).mappings()]
    engine.dispose()
    return rows


def insertion(row: Row) -> tuple[str, dict[str, Any]]:
    names = ", ".join(COLUMNS)
    return f"INSERT INTO ledger_records ({names}) VALUES ({', '.join(':' + name for name in COLUMNS)})", row


@pytest.fixture
def used(ledger: SqlLedger) -> SqlLedger:
    """Records: 1 account, 2-4 pairs, 5 note, 6-8 triples."""
    answered(ledger, "pairs", 1, 2)
    ledger.note(free_request())
    answered(ledger, "triples", 3, 4)
    assert ledger.verify() == []
    return ledger


EDITS = {
    "one word": "UPDATE ledger_records SET reason = 'x' WHERE id = 3",
    "a price": "UPDATE ledger_records SET mu2 = '0/1' WHERE id = 2",
    "a state": "UPDATE ledger_records SET state = 'refunded' WHERE id = 8",
    "a hash": f"UPDATE ledger_records SET hash = '{'a' * 64}' WHERE id = 8",
    "a link": f"UPDATE ledger_records SET previous_hash = '{'b' * 64}' WHERE id = 6",
    "a deletion": "DELETE FROM ledger_records WHERE id = 5",
    "several deletions": "DELETE FROM ledger_records WHERE id IN (4, 5)",
    "the last": "DELETE FROM ledger_records WHERE id = 8",
    "all": "DELETE FROM ledger_records",
    "an answer": "DELETE FROM ledger_answers",
    "a digest": f"UPDATE ledger_answers SET digest = '{'c' * 64}'",
}
FINDINGS = {
    "one word": "record 3 was changed after it was written",
    "a price": "record 2 was changed after it was written",
    "a state": "record 8 was changed after it was written",
    "a hash": "record 8 was changed after it was written",
    "a link": "record 6 does not follow record 5",
    "a deletion": "record 5 is missing",
    "several deletions": "records 4 to 5 are missing",
    "the last": "the ledger was rolled back: it ends at record 7, the kept head at 8",
    "all": "the ledger was rolled back: it ends at record 0, the kept head at 8",
    "an answer": "the answer of record 4 is missing",
    "a digest": "the answer of record 4 was changed",
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_found(used: SqlLedger, url: str, edit: str) -> None:
    head = used.head()
    tamper(url, EDITS[edit])
    assert FINDINGS[edit] in used.verify(head)


def test_every_single_edit_deletion_insertion_swap_and_rollback_is_found(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    ledger.hold(DATASET, "pilot", mu2=5 * TENTH, runner=RUNNER)
    answered(ledger)
    ledger.close(DATASET, "pilot", reason="published", runner=RUNNER)
    ledger.set_cap(DATASET, epsilon=3.0, actor="board", reason="decision 17")
    rows, known = rows_of(sqlite_url), {"the kept head": [ledger.head()]}
    answers = [{"key": request().key, **pack_answer(vector())}]
    assert problems(rows, answers, known) == []
    for at, row in enumerate(rows):
        for name in COLUMNS:
            edited = row | {name: 77 if isinstance(row[name], int) else row[name] + "x"}
            assert problems([*rows[:at], edited, *rows[at + 1 :]], answers, {}), (at, name)
        assert problems([*rows[:at], *rows[at + 1 :]], answers, known), at
        assert problems([*rows[: at + 1], *rows[at:]], answers, known), at
        assert problems(rows[:at], [], known), at
    for at in range(len(rows) - 1):
        assert problems([*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]], answers, {}), at


def test_swapped_records_are_found(used: SqlLedger, url: str) -> None:
    third, fourth = rows_of(url)[2:4]
    swapped = [insertion(fourth | {"id": 3}), insertion(third | {"id": 4})]
    tamper(url, "DELETE FROM ledger_records WHERE id IN (3, 4)", *swapped)
    assert "record 3 does not follow record 2" in used.verify()
    assert "record 3 was changed after it was written" in used.verify()


def test_an_inserted_record_is_found(used: SqlLedger, url: str) -> None:
    last = rows_of(url)[-1]
    forged = last | {"id": 9, "previous_hash": last["hash"], "hash": "d" * 64, "key": "", "state": "refunded"}
    tamper(url, insertion(forged))
    assert used.verify() == ["record 9 was changed after it was written"]


def test_a_changed_and_an_invented_answer_are_found(used: SqlLedger, url: str) -> None:
    engine = create_engine(url)
    tamper(url)
    key = request("pairs").key
    with engine.begin() as connection:
        vectors = pack_answer(vector(1, 3))["vector"]
        connection.execute(ANSWERS.update().where(ANSWERS.c.key == key).values(vector=vectors))
        connection.execute(ANSWERS.insert(), {"key": "e" * 64, **pack_answer(vector())})
    found = ["answer eeeeeeeeeeee was inserted without a record", "the answer of record 4 was changed"]
    assert sorted(used.verify()) == found
    with pytest.raises(LedgerError, match="a stored answer is not the one that was recorded"):
        used.reserve(request("pairs"))
    with engine.begin() as connection:
        connection.execute(ANSWERS.update().where(ANSWERS.c.key == key).values(vector=b"no zlib"))
    engine.dispose()
    assert sorted(used.verify()) == found
    with pytest.raises(LedgerError, match="a stored answer is not the one that was recorded"):
        used.reserve(request("pairs"))


def test_a_chain_rewritten_with_right_hashes_is_found_by_its_head(used: SqlLedger, url: str) -> None:
    head = used.head()
    rows = rows_of(url)
    rows[4]["reason"] = "forged"
    for before, row in pairwise(rows[3:]):
        row["previous_hash"] = before["hash"]
        row["hash"] = hash_of(row)
    tamper(url, "DELETE FROM ledger_records WHERE id > 4", *(insertion(row) for row in rows[4:]))
    assert SqlLedger(url, head_paths=()).verify(Head(records=4, hash=rows[3]["hash"])) == []
    assert used.verify(head) == ["the ledger was rewritten: record 8 is not the one of the kept head"]
    with pytest.raises(LedgerError, match=r"the ledger was rewritten: .*; restore the newest copy"):
        used.reserve(request("more"))


def test_a_head_file_that_cannot_be_written_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    ledger = SqlLedger(sqlite_url, head_paths=[tmp_path / "no folder" / "head"])
    with pytest.raises(LedgerError, match=r"head file .* cannot be written: "):
        ledger.declare(account(), actor="board")


def test_a_rollback_is_noticed_by_those_who_use_the_ledger(used: SqlLedger, url: str) -> None:
    tamper(url, "DELETE FROM ledger_answers", "DELETE FROM ledger_records WHERE id > 5")
    for _ in range(2):
        with pytest.raises(
            LedgerError,
            match=r"rolled back: it ends at record 5, .* at 8; restore the newest copy, then run:",
        ):
            used.balance(DATASET)


@pytest.mark.parametrize("content", [None, "{"])
def test_a_ledger_with_records_and_no_head_refuses_to_spend(
    sqlite_url: str, tmp_path: Path, content: str | None
) -> None:
    answered(opened(sqlite_url))
    head_file = tmp_path / "ledger.sqlite.head"
    head_file.unlink() if content is None else head_file.write_text(content)
    with pytest.raises(
        LedgerError, match=rf"if you know that no record is missing, run: synth ledger head > {head_file}"
    ):
        answered(SqlLedger(sqlite_url), "more")
    assert SqlLedger(sqlite_url).balance(DATASET).charged_mu2 == TENTH
    head_file.write_text(head_text(SqlLedger(sqlite_url).head()))
    answered(SqlLedger(sqlite_url), "more")
    assert SqlLedger(sqlite_url).verify() == []


def test_long_ledgers_are_read_in_portions(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("synth_core.ledger.chain.PORTION", 3)
    monkeypatch.setattr("synth_core.ledger.chain.SINCE", SINCE.limit(3))
    for number in range(3):
        answered(ledger, f"p{number}")
    assert ledger.verify() == []
    assert pickle.loads(pickle.dumps(ledger)).head() == ledger.head()
    ledger.export(tmp_path / "all.jsonl")
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 10


def test_a_restored_older_file_is_found_by_default(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    answered(opened(sqlite_url), "pairs")
    copy_of(file, tmp_path / "old.sqlite")
    answered(SqlLedger(sqlite_url), "triples")
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.move(tmp_path / "old.sqlite", file)
    restored = SqlLedger(sqlite_url)
    assert restored.verify() == ["the ledger was rolled back: it ends at record 4, the kept head at 7"]
    with pytest.raises(LedgerError, match="the ledger was rolled back"):
        restored.reserve(request("triples"))


def copy_of(file: Path, copy: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        connection.execute(text("VACUUM INTO :copy"), {"copy": str(copy)})
    engine.dispose()


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "is missing"), ("{", "cannot be read"), ("{}", "cannot be read")]
)
def test_a_lost_head_file_is_a_problem(sqlite_url: str, tmp_path: Path, content: str | None, problem: str) -> None:
    ledger = opened(sqlite_url)
    head_file = tmp_path / "ledger.sqlite.head"
    head_file.unlink()
    if content is not None:
        head_file.write_text(content)
    (found,) = ledger.verify()
    assert problem in found
    ledger.note(free_request())
    assert ledger.verify() == []


Forgery = Callable[[Page], None]


def forged(state: State, asked: Any = None, **changes: Any) -> Forgery:
    """A record that is linked and hashed rightly, but that the ledger itself would never have written."""
    facts = changes.pop("facts", None) or (facts_of(asked) if asked else facts_without_request(RUNNER, "pilot"))
    owner = changes.pop("account", account())
    return lambda page: page.append(state, owner, facts, **changes)


def misstated(**columns: str) -> Forgery:
    """A reservation with columns of its own, hashed rightly."""

    def forge(page: Page) -> None:
        def lie(row: Row) -> None:
            row.update(columns)
            row["hash"] = hash_of(row)
            insert(row)

        insert, page.insert = page.insert, lie  # type: ignore[method-assign]
        page.append(State.RESERVED, account(), facts_of(request("new")), attempt=1, mu2=TENTH)

    return forge


ANSWERED, OPEN = request("pairs"), request("open")
FORGERIES = {
    "cannot be read": misstated(mechanism="{}"),
    "names two data sets": misstated(dataset="other"),
    "states a cap that is not its account's": misstated(cap_mu2="9/1"),
    "declares an account again": forged(State.ACCOUNT),
    "belongs to no declared account": misstated(dataset="other", account=canonical(asdict(account(dataset="other")))),
    "changes its account": forged(State.RESERVED, request("new"), account=account(unit="x"), attempt=1, mu2=TENTH),
    "holds nothing": forged(State.HELD, mu2=Fraction(-1)),
    "closes a release that holds nothing": forged(State.CLOSED),
    "has a key that is not that of its question": forged(
        State.RESERVED, facts=facts_of(request("new")) | {"purpose": "other"}, attempt=1, mu2=TENTH
    ),
    "notes a spend, or the same step twice": forged(State.NOTED, request("new"), attempt=1),
    "states a price that is not that of its mechanism": forged(State.RESERVED, request("new"), attempt=1),
    "makes an attempt reserved that cannot be": forged(State.RESERVED, request("new"), attempt=2, mu2=TENTH),
    "makes an attempt refunded that cannot be": forged(State.REFUNDED, ANSWERED, attempt=1, mu2=TENTH),
    "makes an attempt measured that cannot be": forged(State.MEASURED, OPEN, attempt=1, mu2=TENTH),
    "spends or answers again what was answered before": forged(State.MEASURED, request("twice"), attempt=2, mu2=TENTH),
    "does not repeat what was reserved": forged(
        State.MEASURING, facts=facts_of(replace(OPEN, entropy="other")), attempt=1, mu2=TENTH
    ),
    "exceeds the cap": forged(State.RESERVED, request("new", mu2=CAP), attempt=1, mu2=CAP),
    "does not leave the balance it states": misstated(remaining_mu2="1/2"),
}


@pytest.mark.parametrize("finding", FORGERIES)
def test_a_record_that_could_not_have_happened_is_found(finding: str) -> None:
    ledger = in_memory()
    answered(ledger, "pairs")
    ledger.reserve(OPEN)
    late = ledger.reserve(request("twice"))
    ledger.begin(late)
    ledger.begin(ledger.reserve(request("twice")))
    ledger.store(late, vector())
    last = ledger.head().records
    ledger.chain.write("forge", FORGERIES[finding])
    assert f"record {last + 1} {finding}" in ledger.verify()


def test_balances_are_recomputed_from_mechanisms_not_from_stored_prices(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    answered(ledger)
    tamper(sqlite_url, "UPDATE ledger_records SET mu2 = '0/1', remaining_mu2 = cap_mu2")
    assert SqlLedger(sqlite_url).balance(DATASET).charged_mu2 == TENTH


def test_a_ledger_that_cannot_be_read_is_refused_with_the_record(sqlite_url: str) -> None:
    ledger = opened(sqlite_url)
    answered(ledger)
    tamper(sqlite_url, "UPDATE ledger_records SET mechanism = 'x' WHERE id = 2")
    with pytest.raises(LedgerError, match="ledger record 2 cannot be read; run: synth ledger verify"):
        SqlLedger(sqlite_url).balance(DATASET)
    with pytest.raises(LedgerError, match="ledger record 2 cannot be read; run: synth ledger verify"):
        ledger.records()
    assert "record 2 was changed after it was written" in ledger.verify()
