"""A ledger of an earlier version: it opens, is sound, gives its answers again, and grows by the rules of this one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine, text
from support.earlier_ledger import DATASET, RELEASE, STRATA, ask_everything, ask_part, counts, spending, stored

from synth_core.ledger.head import head_text
from synth_core.ledger.rows import hash_of
from synth_core.ledger.sql import SqlLedger
from synth_core.ledger.tables import bring_up_to_date
from synth_core.privacy.accounts import Stratum
from synth_core.privacy.budget import gaussian_for
from synth_core.privacy.curator import Curator
from synth_core.privacy.queries import Misfit


class NoEntropy:
    """Answers that were stored need no noise."""

    name = "none (tests only)"

    def words(self, n: int) -> np.ndarray:
        raise AssertionError("noise was drawn for a question that has its answer")


@pytest.fixture
def earlier(url: str) -> SqlLedger:
    """The tables as the earlier version declared and filled them, opened by today's program."""
    engine, tables = create_engine(url), stored()
    with engine.begin() as connection:
        bring_up_to_date(connection)
        connection.execute(text("ALTER TABLE ledger_records DROP COLUMN form"))
        connection.execute(text("UPDATE ledger_version SET version_num = '0001'"))
        for name, rows in (("ledger_records", tables["records"]), ("ledger_answers", tables["answers"])):
            columns = list(rows[0])
            places = ", ".join(f":{column}" for column in columns)
            insertion = text(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})")
            for row in rows:
                connection.execute(insertion, row)
    engine.dispose()
    ledger = SqlLedger(url)
    for path in ledger.chain.head_paths:
        path.write_text(head_text(ledger.head()))
    return ledger


def curator(ledger: SqlLedger, stratum: Stratum | None = None) -> Curator:
    return Curator(counts=counts(), ledger=ledger, spending=spending(stratum), entropy=NoEntropy())


def test_a_ledger_of_an_earlier_version_opens_and_is_sound(earlier: SqlLedger) -> None:
    rows = stored()["records"]
    assert earlier.verify() == []
    assert (earlier.head().records, earlier.head().hash) == (len(rows), rows[-1]["hash"])
    assert earlier.balance(DATASET).charged_mu2 == Fraction(stored()["charged_mu2"])  # type: ignore[arg-type]
    assert all(record.form is None for record in earlier.records())


def test_an_earlier_release_gets_its_stored_answers_again_and_pays_nothing(earlier: SqlLedger) -> None:
    before, given = earlier.head(), stored()["given"]
    assert ask_everything(curator(earlier)) == given[0]
    for stratum, numbers in zip(STRATA, given[1:], strict=True):
        assert ask_part(curator(earlier, stratum)) == numbers
    assert earlier.head() == before


def test_new_records_follow_the_earlier_ones(earlier: SqlLedger, tmp_path: Path) -> None:
    mechanism = gaussian_for(Fraction(1, 1000), sensitivity=Fraction(1), count=1)
    under_way = spending().request("under way", mechanism, asked=(("sex",),))
    reservation = earlier.reserve(under_way)
    earlier.begin(reservation)  # an attempt that the earlier version had reserved goes on
    earlier.store(reservation, np.array([1, 2], dtype=np.int64))
    seeded = Curator(counts=counts(), ledger=earlier, spending=replace(spending(), release="autumn"))
    ask_everything(seeded)
    assert earlier.verify() == []
    later = earlier.records(release="autumn")
    assert all(record.form for record in later if record.key)
    assert len(later) > len(earlier.records(release=RELEASE)) / 2
    earlier.export(tmp_path / "all.jsonl")


def test_the_form_of_a_new_record_cannot_be_taken_away(earlier: SqlLedger) -> None:
    """An empty form stands for an earlier version; a record with a form is hashed with it."""
    Curator(counts=counts(), ledger=earlier, spending=replace(spending(), release="autumn")).score(
        [Misfit(("sex",), np.zeros(2))], Fraction(1, 1000), purpose="misfit"
    )
    with earlier.chain.unchecked() as connection:
        row = dict(connection.execute(text("SELECT * FROM ledger_records ORDER BY id DESC")).mappings().first())
    assert hash_of(row) == row["hash"]
    assert hash_of(row | {"form": ""}) != row["hash"]
