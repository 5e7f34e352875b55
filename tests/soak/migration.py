"""A ledger of the first version with 100,000 records is brought up to date: it verifies and goes on."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from sqlalchemy import create_engine, text
from support.earlier_ledger import DATASET, stored
from support.servers import create_database

from synth_core.ledger.book import cap_mu2
from synth_core.ledger.head import head_text
from synth_core.ledger.rows import account_of, canonical, hash_of
from synth_core.ledger.sql import SqlLedger
from synth_core.ledger.tables import SCHEMA_VERSION, bring_up_to_date
from synth_core.privacy.budget import fraction_text

pytestmark = pytest.mark.timeout(1500)

RECORDS = 100_000


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_long_ledger_of_the_first_version_is_brought_up_to_date(request, database, tmp_path, record_property):
    record_property("case", "a ledger of the first version with 100,000 records is brought up to date")
    if database == "postgres":
        url = create_database(request.getfixturevalue("postgres_server"))
    else:
        url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    first, answers = stored()["records"], stored()["answers"]
    rows = [*first, *changes_of_the_cap(first, RECORDS - len(first))]
    fill(url, rows, answers)
    ledger = SqlLedger(url, head_paths=(tmp_path / "head",))
    (tmp_path / "head").write_text(head_text(ledger.head()))
    with create_engine(url).connect() as connection:
        assert connection.execute(text("SELECT version_num FROM ledger_version")).scalar() == SCHEMA_VERSION
    assert ledger.head().records == RECORDS
    assert ledger.verify() == []
    before = ledger.balance(DATASET)
    ledger.set_cap(DATASET, epsilon=before.account.cap_epsilon + 1, actor="board", reason="it goes on")
    assert ledger.balance(DATASET).charged_mu2 == before.charged_mu2 > 0


def changes_of_the_cap(first, number):
    """As many records more, each of which raises the cap or takes it back, as the first version wrote them."""
    declared = first[0]
    committed = Fraction(first[-1]["cap_mu2"]) - Fraction(first[-1]["remaining_mu2"])
    facts = {name: declared[name] for name in declared if name not in ("id", "hash", "previous_hash")}
    now = json.loads(first[-1]["account"])
    variants = []
    for cap in (now["cap_epsilon"] + 1, now["cap_epsilon"] + 2):
        written = canonical(now | {"cap_epsilon": cap})
        left = cap_mu2(account_of(written))
        amounts = {"cap_mu2": fraction_text(left), "remaining_mu2": fraction_text(left - committed)}
        variants.append(facts | amounts | {"account": written, "state": "cap", "reason": "a decision"})
    rows, previous = [], first[-1]
    for _ in range(number):
        number = previous["id"] + 1
        row = variants[number % 2] | {"id": number, "previous_hash": previous["hash"], "hash": ""}
        row["hash"] = hash_of(row | {"form": ""})
        rows.append(row)
        previous = row
    return rows


def fill(url, records, answers):
    """The tables as the first version declared them, with these rows."""
    engine = create_engine(url)
    with engine.begin() as connection:
        bring_up_to_date(connection)
        connection.execute(text("ALTER TABLE ledger_records DROP COLUMN form"))
        connection.execute(text("UPDATE ledger_version SET version_num = '0001'"))
        for name, rows in (("ledger_records", records), ("ledger_answers", answers)):
            columns = list(rows[0])
            places = ", ".join(f":{column}" for column in columns)
            insertion = text(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})")
            connection.execute(insertion, [{column: row[column] for column in columns} for row in rows])
    engine.dispose()
