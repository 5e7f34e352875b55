"""The page of records: the ledger's records filtered, with one line for each round or spend, and written as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import islice
from urllib.parse import urlencode

from synth_core.events.office import Office
from synth_core.files import escape_formula
from synth_core.ledger.chain import PORTION
from synth_core.ledger.groups import RecordGroup, group_records, latest_records, lone_record
from synth_core.privacy.accounts import Record
from synth_core.web.views import Digest, digest


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

    def is_of(self, place: tuple[str, str]) -> bool:
        """Whether records of this data set and release can be among those asked for."""
        return self.dataset in ("", place[0]) and self.release in ("", place[1])

    def among(self, records: Iterable[Record]) -> list[Record]:
        """The records asked for."""
        asked = {name: value for name, value in self.items() if value}
        return [record for record in records if all(_fact(record, name) == asked[name] for name in asked)]


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some lines of the records page, how many there are, and what can be asked for."""

    lines: list[RecordGroup]
    total: int
    choices: dict[str, list[str]]


def record_page(office: Office, asked: RecordFilter, *, each: bool, first: int, most: int) -> RecordPage:
    """Some of the lines that are asked for, newest first; one release's records are in memory at a time."""
    digests = office.by_release(digest)
    found = _found_lines(office, digests, asked, each=each)
    shown = list(islice(found, first, first + most))
    if any((asked.step, asked.state, asked.dag, asked.run, asked.task)):
        total = first + len(shown) + sum(1 for _ in found) if shown else 0
    else:
        total = sum(one.spends if each else one.lines for place, one in digests.items() if asked.is_of(place))
    named = {
        "dataset": {dataset for dataset, _ in digests},
        "release": {release for _, release in digests},
        "step": {step for one in digests.values() for step in one.steps},
        "state": {state for one in digests.values() for state in one.states},
    }
    return RecordPage(shown, total, {name: sorted(values - {""}) for name, values in named.items()})


def _found_lines(
    office: Office, digests: Mapping[tuple[str, str], Digest], asked: RecordFilter, *, each: bool
) -> Iterator[RecordGroup]:
    """Lines by their last records: those of a release wait for lines of others that are newer."""
    waiting: list[tuple[int, RecordGroup]] = []
    for place, one in sorted(digests.items(), key=lambda item: -item[1].last):
        if not asked.is_of(place):
            continue
        while waiting and -waiting[0][0] > one.last:
            yield heappop(waiting)[1]
        records = latest_records(office.ledger.records(dataset=place[0], release=place[1]))
        for line in record_lines(asked.among(records), each=each):
            heappush(waiting, (-line.records[-1].id, line))
    while waiting:
        yield heappop(waiting)[1]


def record_lines(records: Sequence[Record], *, each: bool) -> list[RecordGroup]:
    """The lines of the records page, newest first.

    Args:
        records: of any accounts, oldest first; of each spend its latest.
        each: whether each record has a line of its own.
    """
    if each:
        lines = list(map(lone_record, records))
    else:
        accounts: dict[str, list[Record]] = {}
        for record in records:
            accounts.setdefault(record.dataset, []).append(record)
        lines = [group for own in accounts.values() for group in group_records(own)]
    return sorted(lines, key=lambda line: -line.records[-1].id)


COLUMNS = (
    *("id", "time_utc", "dataset", "release", "step", "purpose", "state", "reason", "mechanism", "queries"),
    *("sensitivity", "scale", "mu2_exact", "mu2", "remaining_mu2", "attempt", "dag", "run", "task", "actor"),
    *("library", "hash"),
)
"""Head line of the ledger's records as CSV."""


def to_csv(records: Iterable[Record], *, head: bool = True) -> str:
    """The records as CSV, fit for a spreadsheet, with a head line unless they go on."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\r\n")
    if head:
        writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_harmless(value) for value in _row(record)])
    return target.getvalue()


def csv_portions(office: Office, asked: RecordFilter) -> Iterator[str]:
    """The same of all records that are asked for, oldest first, in portions; of each spend its latest."""
    yield to_csv([])
    records = office.ledger.standing_from(1, most=PORTION)
    while records:
        yield to_csv(asked.among(records), head=False)
        records = office.ledger.standing_from(records[-1].id + 1, most=PORTION)


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
    return escape_formula(value) if isinstance(value, str) else value


def _fact(record: Record, name: str) -> str:
    if name in ("dag", "run", "task"):
        return str(getattr(record.runner, name))
    return str(getattr(record, name))
