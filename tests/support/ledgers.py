"""Small accounts, requests and answers for the tests of the ledger."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from synth_core.ledger.memory import MemoryLedger
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Account, Answer, Runner, SpendRequest
from synth_core.privacy.answer_form import AnswerForm, AnswerKind, Block, fingerprint
from synth_core.privacy.budget import NONE, gaussian_for, mu2_of

DATASET = "census-2026"
CAP = mu2_of(2.0, 1e-5)
TENTH = CAP / 10
FORM = AnswerForm(fingerprint=fingerprint("test", ["a question"]), blocks=(Block(kind=AnswerKind.SCORES, shape=(3,)),))
RUNNER = Runner(dag="monthly", run="r1", task="fit", actor="someone")


def account(**changes: Any) -> Account:
    return Account(**({"dataset": DATASET, "delta": 1e-5, "cap_epsilon": 2.0} | changes))


def request(purpose: str = "pairs", *, mu2: Fraction = TENTH, **changes: Any) -> SpendRequest:
    return SpendRequest(
        **(
            {
                "dataset": DATASET,
                "snapshot": "hmac:1",
                "release": "pilot",
                "step": "fit",
                "purpose": purpose,
                "mechanism": gaussian_for(mu2, sensitivity=Fraction(1), count=2),
                "asked": (("age", "sex"), ("age", "income")),
                "form": FORM,
                "entropy": "test",
                "runner": RUNNER,
            }
            | changes
        )
    )


def free_request(purpose: str = "model chosen", **changes: Any) -> SpendRequest:
    return request(purpose, mechanism=NONE, asked=(), form=None, **changes)


def vector(*numbers: int) -> Answer:
    return np.array(numbers or (3, -1, 4), dtype=np.int64)


def opened(url: str, **options: Any) -> SqlLedger:
    """A ledger with the usual account."""
    ledger = SqlLedger(url, **options)
    ledger.declare(account(), actor="board")
    return ledger


def in_memory() -> MemoryLedger:
    """The same without a database."""
    ledger = MemoryLedger()
    ledger.declare(account(), actor="board")
    return ledger


def with_tables(url: str) -> str:
    """The address; a SQLite file is there then, as a copy: making its tables takes longer than most tests."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).write_bytes(_empty_ledger())
    return url


@cache
def _empty_ledger() -> bytes:
    """A SQLite file with the ledger's tables and no record."""
    with tempfile.TemporaryDirectory() as folder:
        made, copy = Path(folder) / "ledger.sqlite", Path(folder) / "copy.sqlite"
        SqlLedger(f"sqlite:///{made}")
        with closing(sqlite3.connect(made)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))  # with what is still in its log
        return copy.read_bytes()


def answered(ledger: SqlLedger, purpose: str = "pairs", *numbers: int, **changes: Any) -> Answer:
    """One whole cycle: reserve, begin, store."""
    reservation = ledger.reserve(request(purpose, **changes))
    ledger.begin(reservation)
    return ledger.store(reservation, vector(*numbers))
