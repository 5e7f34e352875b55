"""Finds what was done to a ledger behind its back: edits, deletions, insertions, reordering, rollbacks.

Three independent checks: the chain (every hash, recomputed), the head kept elsewhere, and the meaning (the fold
of `ledger_book` replayed record by record: could this have happened, and is the balance as written?).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from synth_core.errors import LedgerError
from synth_core.ledger.book import DECLARING, FINAL, FOLLOWS, Book, cap_mu2, spend_mu2
from synth_core.ledger.head import disagreements
from synth_core.ledger.rows import FACTS, GENESIS, Row, canonical, hash_of, record_of
from synth_core.privacy.accounts import Head, Record, State

AGREEMENT = Fraction(1, 10**9)
"""Some prices and all caps come from special functions, whose last digits differ among their versions."""


def problems(rows: Iterable[Row], answers: Iterable[Row], heads: Mapping[str, Sequence[Head]]) -> list[str]:
    """Everything that is wrong with the records, the stored answers or their agreement with known heads, in words.

    Args:
        rows: all records in their order.
        answers: all stored answers.
        heads: ends of the chain that are known elsewhere, by who knows them.

    Returns:
        The problems; none if the ledger is as it was written.
    """
    reading = _Reading()
    numbers = {head.records for known in heads.values() for head in known}
    at_head: dict[int, str] = {}
    for row in rows:
        reading.take(row)
        if row["id"] in numbers:
            at_head[row["id"]] = row["hash"]
    found = reading.found + disagreements(heads, last=reading.last, hashes=at_head)
    return found + _answer_problems(reading.measured, answers)


@dataclass(slots=True)
class _Reading:
    """The state of one pass over the records, in their order."""

    found: list[str] = field(default_factory=list)
    last: int = 0
    hash: str = GENESIS
    sound: bool = True
    book: Book = field(default_factory=Book)
    earlier: Book | None = None  # as versions without forms composed: parts in parallel whatever the snapshot
    reserved: dict[tuple[str, int], bytes] = field(default_factory=dict)  # of attempts that may get further records
    measured: dict[str, tuple[int, str]] = field(default_factory=dict)

    def take(self, row: Row) -> None:
        """Check one record against the chain and, as long as the chain holds, against the book."""
        number = row["id"]
        broken = self._breaks(row)
        if row["state"] == State.MEASURED.value:
            self.measured[row["key"]] = (number, row["answer_digest"])
        self.last, self.hash = number, row["hash"]
        if broken:
            self.found.extend(broken)
            self.sound = False
        elif self.sound and (objection := self._objection(row)):
            # Past the first impossible record the balances mean nothing; the chain is checked to its end.
            self.found.append(f"record {number} {objection}")
            self.sound = False

    def _breaks(self, row: Row) -> list[str]:
        number, expected = row["id"], self.last + 1
        found = []
        if number != expected:
            missing = f"record {expected} is" if number == expected + 1 else f"records {expected} to {number - 1} are"
            found.append(f"{missing} missing")
        elif row["previous_hash"] != self.hash:
            found.append(f"record {number} does not follow record {self.last}")
        if hash_of(row) != row["hash"]:
            found.append(f"record {number} was changed after it was written")
        return found

    def _objection(self, row: Row) -> str | None:
        """Why this record could not have been written after those before it; None if it could."""
        try:
            record = record_of(row)
        except LedgerError:
            return "cannot be read"
        facts = hashlib.sha256(canonical([row[name] for name in FACTS]).encode()).digest()
        objection = _of_account(self.book, record, row["dataset"]) or self._of_state(record, row, facts)
        if objection:
            return objection
        if record.state is State.RESERVED:
            self.reserved[record.key, record.attempt] = facts
        elif record.state in FINAL:
            self.reserved.pop((record.key, record.attempt), None)
        judged = self._folded(row)
        if judged is None:
            return "is of an earlier version than the ledger"
        remaining, cap = judged.remaining(record.dataset), cap_mu2(record.account)
        if remaining < -AGREEMENT * cap:
            return "exceeds the cap"
        if abs(remaining - record.remaining_mu2) > AGREEMENT * cap:
            return "does not leave the balance it states"
        return None

    def _folded(self, row: Row) -> Book | None:
        """The book by which this record's balance is judged, up to and with it; None if it has none."""
        self.book.apply(row)
        if row["id"] == 1 and not row["form"]:
            self.earlier = Book()
        if self.earlier is not None:
            self.earlier.apply(row | {"snapshot": ""})
        return self.book if row["form"] else self.earlier

    def _of_state(self, record: Record, row: Row, facts: bytes) -> str | None:
        book, state = self.book, record.state
        if state is State.HELD:
            return None if record.mu2 > 0 else "holds nothing"
        if state is State.CLOSED:
            held = book.release(record.dataset, record.release).hold
            return None if held else "closes a release that holds nothing"
        if state is State.BOUND:
            if book.owner(record.snapshot, record.dataset):
                return "binds a file of another account"
            known = (record.dataset, record.release, record.snapshot) in book.bound
            return "binds a file to its release again" if known else None
        if state in DECLARING or state is State.REFUSED:
            return None
        if record.key != record.request.key:
            return "has a key that is not that of its question"
        if state is State.NOTED:
            free = record.mechanism.name == "none" and record.key not in book.noted
            return None if free else "notes a spend, or the same step twice"
        if row["form"] and record.form is None:
            return "does not say what it asks"
        price = spend_mu2(row["mechanism"], record.account.rows_per_unit)
        if abs(record.mu2 - price) > AGREEMENT * price:
            return "states a price that is not that of its mechanism"
        return self._of_attempt(record, facts)

    def _of_attempt(self, record: Record, facts: bytes) -> str | None:
        book, key, state = self.book, record.key, record.state
        reserving = state is State.RESERVED
        before = book.state(key, record.attempt - 1 if reserving else record.attempt)
        if before not in FOLLOWS[state] or (reserving and record.attempt != book.latest.get(key, 0) + 1):
            return f"makes an attempt {state.value} that cannot be"
        if key in book.answered and state in (State.RESERVED, State.MEASURED):
            return "spends or answers again what was answered before"
        if reserving and book.release(record.dataset, record.release).ended_for(record.runner):
            return "reserves for a runner whose release had been ended"
        if not reserving and self.reserved[key, record.attempt] != facts:
            return "does not repeat what was reserved"
        return None


def _of_account(book: Book, record: Record, dataset: str) -> str | None:
    known = book.accounts.get(record.dataset)
    if dataset != record.dataset:
        return "names two data sets"
    if abs(record.cap_mu2 - cap_mu2(record.account)) > AGREEMENT * record.cap_mu2:
        return "states a cap that is not its account's"
    if not set(record.account.shares_rows_with) <= book.accounts.keys() - {dataset}:
        return "shares rows with an account that is not declared"
    if record.state is State.ACCOUNT:
        return "declares an account again" if known else None
    if known is None:
        return "belongs to no declared account"
    if not set(known.shares_rows_with) <= set(record.account.shares_rows_with):
        return "takes back that its account shares rows"
    changed = DECLARING.get(record.state)
    asked = replace(record.account, **{changed: getattr(known, changed)}) if changed else record.account
    return None if asked == known else "changes its account"


def _answer_problems(measured: Mapping[str, tuple[int, str]], answers: Iterable[Row]) -> list[str]:
    found, seen = [], set()
    for answer in answers:
        key = answer["key"]
        seen.add(key)
        number, digest = measured.get(key, (0, ""))
        if not number:
            found.append(f"answer {key[:12]} was inserted without a record")
        elif answer["digest"] != digest or _digest(answer["vector"]) != digest:
            found.append(f"the answer of record {number} was changed")
    return found + [
        f"the answer of record {number} is missing" for key, (number, _) in measured.items() if key not in seen
    ]


def _digest(vector: bytes) -> str:
    try:
        return hashlib.sha256(zlib.decompress(vector)).hexdigest()
    except zlib.error:
        return ""
