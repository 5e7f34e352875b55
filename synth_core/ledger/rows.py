"""How a record becomes a row whose hash covers every column, and a row a record.

All facts are kept as text exactly as they are hashed, so that an auditor can read and re-hash them with SQL and
sha256 alone. A record whose `form` is empty was written before there was that column, and its hash does not cover it.

Records that are shown have a snapshot's number within its release in place of its digest (`show_records`). The keyed
digest of a snapshot is the same for the same data, in every release of a workspace. Shown to others, it would reveal
for free whether two releases were made from the same confidential rows. A number that starts anew in each release
says only what the release itself shows: that it asked the same data again, or other data.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from synth_core.errors import LedgerError
from synth_core.privacy.accounts import Account, Answer, Record, Runner, SpendRequest, State, Stratum
from synth_core.privacy.answer_form import AnswerForm
from synth_core.privacy.budget import NONE, Mechanism

Row = dict[str, Any]
"""A record as it is stored and hashed: column name to integer or text."""

GENESIS = "0" * 64
"""What the first record names as the hash before it."""

FACTS = (
    "key",
    "snapshot",
    "stratum",
    "release",
    "step",
    "purpose",
    "mechanism",
    "asked",
    "form",
    "runner",
    "entropy",
)
"""The columns that say what was asked, for whom and by whom; every record of an attempt repeats them."""


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted names, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def hash_of(row: Row) -> str:
    """The hash that a row must carry: over every other column, the hash before it included."""
    left_out = {"hash"} if row["form"] else {"hash", "form"}
    body = {name: value for name, value in row.items() if name not in left_out}
    return hashlib.sha256(canonical(body).encode()).hexdigest()


def facts_of(request: SpendRequest) -> Row:
    """What a spend request says, as columns."""
    stratum = asdict(request.stratum) if request.stratum else None
    return {
        "key": request.key,
        "snapshot": request.snapshot,
        "stratum": canonical(stratum),
        "release": request.release,
        "step": request.step,
        "purpose": request.purpose,
        "mechanism": canonical(request.mechanism.to_json()),
        "asked": canonical([list(attributes) for attributes in request.asked]),
        "form": canonical(request.form.to_json() if request.form else None),
        "runner": canonical(asdict(request.runner)),
        "entropy": request.entropy,
    }


def facts_without_request(runner: Runner, release: str = "") -> Row:
    """The same columns for a record that asks nothing of the data: an account, a cap, a hold."""
    empty = dict.fromkeys(FACTS, "")
    return empty | {
        "stratum": canonical(None),
        "release": release,
        "mechanism": canonical(NONE.to_json()),
        "asked": canonical([]),
        "form": canonical(None),
        "runner": canonical(asdict(runner)),
    }


def record_of(row: Row) -> Record:
    """Read a stored row; one that was not written by this module is refused."""
    plain = {name: value for name, value in row.items() if name != "dataset"}
    try:
        read = {
            "state": State(row["state"]),
            "account": account_of(row["account"]),
            "stratum": stratum_of(row["stratum"]),
            "mechanism": mechanism_of(row["mechanism"]),
            "asked": tuple(tuple(attributes) for attributes in json.loads(row["asked"])),
            "form": form_of(row["form"]),
            "mu2": Fraction(row["mu2"]),
            "runner": Runner(**json.loads(row["runner"])),
            "cap_mu2": Fraction(row["cap_mu2"]),
            "remaining_mu2": Fraction(row["remaining_mu2"]),
            "at": datetime.fromisoformat(row["at"]),
        }
        return Record(**plain | read)
    except (ValueError, TypeError, ZeroDivisionError, LedgerError):
        raise LedgerError(f"ledger record {row['id']} cannot be read; run: synth ledger verify") from None


@lru_cache(maxsize=256)
def account_of(written: str) -> Account:
    """The account written in a row; one of an earlier program lacks what has a default."""
    facts = json.loads(written)
    return Account(**facts | {"shares_rows_with": tuple(facts.get("shares_rows_with", ()))})


@lru_cache(maxsize=1024)
def mechanism_of(written: str) -> Mechanism:
    """The mechanism written in a row."""
    return Mechanism.from_json(json.loads(written))


def stratum_of(written: str) -> Stratum | None:
    """The stratum written in a row, if it has one."""
    stratum = json.loads(written)
    return None if stratum is None else Stratum(**stratum)


@lru_cache(maxsize=64)
def form_of(written: str) -> AnswerForm | None:
    """The form written in a row, if it asks something and says what."""
    form = json.loads(written or "null")
    return None if form is None else AnswerForm.from_json(form)


def pack_answer(answer: Answer) -> Row:
    """An answer as columns: compressed little-endian 64-bit integers and the digest of the integers."""
    vector = np.asarray(answer)
    if vector.dtype != np.int64 or vector.ndim != 1:
        raise LedgerError("an answer is a vector of 64-bit integers; flatten it and stay on the grid")
    raw = vector.astype("<i8").tobytes()
    return {"digest": hashlib.sha256(raw).hexdigest(), "vector": zlib.compress(raw, 1)}


def unpack_answer(vector: bytes, digest: str) -> Answer:
    """The stored integers, read-only; refused unless they have the digest that the chain recorded."""
    try:
        raw = zlib.decompress(vector)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != digest:
        raise LedgerError("a stored answer is not the one that was recorded; run: synth ledger verify")
    answer = np.frombuffer(raw, dtype="<i8").astype(np.int64, copy=False)
    answer.setflags(write=False)
    return answer


class SnapshotNumbers:
    """Numbers of snapshots, in the order in which each release first names them; records come oldest first."""

    def __init__(self) -> None:
        self._known: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)

    def label(self, dataset: str, release: str, snapshot: str) -> str:
        """The snapshot's number as text; empty for a record that names none."""
        known = self._known[dataset, release]
        return known.setdefault(snapshot, str(len(known) + 1)) if snapshot else ""


def show_records(records: Sequence[Record]) -> list[Record]:
    """The records with numbers in place of digests.

    Args:
        records: All records of their releases, oldest first.

    Returns:
        Copies of them; their hashes are those of the ledger, and cover the digests.
    """
    numbers = SnapshotNumbers()
    return [
        replace(record, snapshot=numbers.label(record.dataset, record.release, record.snapshot)) for record in records
    ]


def show_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """The same for rows as they are stored."""
    numbers = SnapshotNumbers()
    for row in rows:
        yield row | {"snapshot": numbers.label(row["dataset"], row["release"], row["snapshot"])}
