"""A ledger that an earlier program wrote is read, verified and gone on with as if it had been written today."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from support.ledgers import CAP, DATASET, RUNNER, TENTH, account, answered, request

from synth_core.errors import LedgerError, SharedRows
from synth_core.ledger.head import head_text
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import REFUSAL_LIMIT, Head, State
from synth_core.privacy.budget import mu2_of

WRITTEN = Path(__file__).with_name("ledgers")
HEADS = {"schema-0001": Head(records=27, hash="8be1c6c74b3a871ff39971e75c1f5245b2e66fbdb86e260d3c985dc37daad3cf")}
"""The last record of each stored ledger."""


@pytest.fixture(params=sorted(HEADS))
def before(request: pytest.FixtureRequest, tmp_path: Path) -> SqlLedger:
    """The stored ledger, opened by the program of today."""
    file = tmp_path / "ledger.sqlite"
    with sqlite3.connect(file) as database:
        database.executescript((WRITTEN / f"{request.param}.sql").read_text())
    (tmp_path / "ledger.sqlite.head").write_text(head_text(HEADS[request.param]))
    ledger = SqlLedger(f"sqlite:///{file}")
    assert ledger.head() == HEADS[request.param]
    return ledger


def shape(url: str) -> dict[str, object]:
    """Columns, indexes, constraints and triggers of a database of SQLite."""
    engine = create_engine(url)
    with engine.connect() as connection:
        seen = inspect(connection)
        facts: dict[str, object] = {
            table: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(table)],
                seen.get_unique_constraints(table),
                seen.get_pk_constraint(table)["constrained_columns"],
            )
            for table in seen.get_table_names()
        }
        others = text("SELECT name, sql FROM sqlite_master WHERE type <> 'table' ORDER BY name")
        facts["indexes and triggers"] = connection.execute(others).all()
        facts["version"] = connection.execute(text("SELECT * FROM ledger_version")).all()
    engine.dispose()
    return facts


def test_it_has_the_tables_of_a_new_one(before: SqlLedger, tmp_path: Path) -> None:
    new = f"sqlite:///{tmp_path / 'new.sqlite'}"
    SqlLedger(new)
    assert shape(f"sqlite:///{before.chain.url.database}") == shape(new)


def test_it_is_sound_and_its_balances_are_as_they_were(before: SqlLedger) -> None:
    assert before.verify() == []
    census, panel = before.balance(DATASET), before.balance("panel")
    assert (census.charged_mu2, census.held_mu2) == (4 * TENTH, TENTH)
    assert (census.cap_mu2, census.account.cap_epsilon) == (mu2_of(2.5, 1e-5), 2.5)
    assert (panel.charged_mu2, panel.held_mu2, panel.remaining_mu2) == (
        TENTH,
        Fraction(0),
        mu2_of(1.5, 1e-5) - TENTH,
    )


def test_it_is_gone_on_with(before: SqlLedger) -> None:
    kept = before.reserve(request()).answer
    assert kept is not None
    assert kept.tolist() == [1, 2, 3]
    answered(before, "new", 5)
    before.set_cap(DATASET, epsilon=3.0, actor="board", reason="decision 4")
    before.close(DATASET, "left open", reason="cancelled", runner=RUNNER)
    before.hold(DATASET, "next", mu2=CAP / 2, runner=RUNNER)
    assert before.balance(DATASET).charged_mu2 == 5 * TENTH
    assert [record.state for record in before.records()].count(State.CLOSED) == 2
    assert before.verify() == []


def test_two_accounts_that_measured_one_snapshot_go_on_when_they_are_composed(before: SqlLedger) -> None:
    """Earlier programs let both measure it; from now on the second one has to say that they share people."""
    assert before.reserve(request(dataset="panel")).answer is not None
    with pytest.raises(SharedRows, match="they belong to dataset 'census-2026'"):
        before.reserve(request("more", dataset="panel"))
    composed = account(dataset="panel", cap_epsilon=1.5, shares_rows_with=(DATASET,))
    with pytest.raises(LedgerError, match="synth cancel 'left open'"):
        before.declare(composed, actor="board")
    before.close(DATASET, "left open", reason="cancelled", runner=RUNNER)
    before.declare(composed, actor="board")
    before.reserve(request("more", dataset="panel", mu2=TENTH / 2))
    assert before.balance(DATASET).charged_mu2 == before.balance("panel").charged_mu2 == 11 * TENTH / 2
    assert before.balance(DATASET).account.refusal_limit == REFUSAL_LIMIT
    assert before.verify() == []
