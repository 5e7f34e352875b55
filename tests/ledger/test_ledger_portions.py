"""A long ledger is read and written a portion at a time, so that it need not fit in memory."""

import json

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from support.ledgers import DATASET, answered

from synth_core.ledger import chain
from synth_core.ledger.sql import SqlLedger

RECORDS = 16
"""One that declares the account, and three of each question."""


@pytest.fixture
def portions(monkeypatch):
    """The questions to the database that ask for a portion of the records."""
    asked = []

    def heard(connection, cursor, statement, parameters, context, executemany):
        if "FROM ledger_records" in statement and "ORDER BY ledger_records.id" in statement and "LIMIT" in statement:
            asked.append(statement)

    monkeypatch.setattr(chain, "PORTION", 4)
    event.listen(Engine, "before_cursor_execute", heard)
    yield asked
    event.remove(Engine, "before_cursor_execute", heard)


def test_records_are_read_in_portions(ledger, url, portions, tmp_path):
    """Before, whoever opened the ledger had all rows in memory at once: 1.3 GB of a million."""
    for number in range(5):
        answered(ledger, f"question {number}")
    head = ledger.head()
    assert head.records == RECORDS
    whole = RECORDS // 4 + 1
    for read in (
        lambda: SqlLedger(url).balance(DATASET),
        lambda: ledger.export(tmp_path / "all.jsonl"),
    ):
        portions.clear()
        read()
        assert len(portions) == whole
    assert [json.loads(line)["id"] for line in (tmp_path / "all.jsonl").open()] == list(range(1, RECORDS + 1))
    assert SqlLedger(url).balance(DATASET) == ledger.balance(DATASET)
    portions.clear()
    assert ledger.verify() == []
    assert len(portions) >= whole
