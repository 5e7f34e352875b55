"""The ledger's records as people ask for them: filtered, one line for each spend, as a table or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from urllib.parse import urlencode

from synth_core.privacy.accounts import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which records to show; an empty text asks for all."""

    dataset: str = ""
    release: str = ""
    step: str = ""
    state: str = ""
    dag: str = ""
    run: str = ""
    task: str = ""

    @property
    def query(self) -> str:
        """The filter as the query of an address."""
        return urlencode({name: value for name, value in self.items() if value})

    def items(self) -> list[tuple[str, str]]:
        """Every criterion with what it asks for."""
        return [(item.name, getattr(self, item.name)) for item in fields(self)]

    def among(self, records: Iterable[Record]) -> list[Record]:
        """The records asked for."""
        asked = {name: value for name, value in self.items() if value}
        return [record for record in records if all(_fact(record, name) == asked[name] for name in asked)]


def standing(records: Sequence[Record]) -> list[Record]:
    """One record for each spend, the one that says where it stands, and all records that are no spends."""
    last = {(record.key, record.attempt): record.id for record in records if record.key}
    return [record for record in records if not record.key or last[record.key, record.attempt] == record.id]


COLUMNS = (
    *("id", "time_utc", "dataset", "release", "step", "purpose", "state", "reason", "mechanism", "queries"),
    *("sensitivity", "scale", "mu2_exact", "mu2", "remaining_mu2", "attempt", "dag", "run", "task", "actor"),
    *("library", "hash"),
)


def to_csv(records: Iterable[Record]) -> str:
    """The records as CSV with a head line, fit for a spreadsheet."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_harmless(value) for value in _row(record)])
    return target.getvalue()


def _row(record: Record) -> list[object]:
    asked, runner = record.mechanism, record.runner
    return [
        *(record.id, record.at.isoformat(), record.dataset, record.release, record.step, record.purpose),
        *(record.state.value, record.reason, asked.name, asked.count, asked.sensitivity, asked.scale),
        *(record.mu2, float(record.mu2), float(record.remaining_mu2), record.attempt),
        *(runner.dag, runner.run, runner.task, runner.actor, record.library, record.hash),
    ]


def _harmless(value: object) -> object:
    """Text that a spreadsheet would run as a formula is quoted; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") and value else value


def _fact(record: Record, name: str) -> str:
    if name in ("dag", "run", "task"):
        return str(getattr(record.runner, name))
    return str(getattr(record, name))
