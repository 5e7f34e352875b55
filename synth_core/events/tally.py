"""What metrics count, kept up to date: only what is new is read, and nothing of it is kept.

An attempt that has been measured or refunded changes its state no more, so only those that may still are remembered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from synth_core.events.journal import Event, Kind
from synth_core.ledger.book import FINAL
from synth_core.ledger.sql import SqlLedger
from synth_core.privacy.accounts import Record, State

PORTION = 1000
"""Records read at a time."""


@dataclass(slots=True)
class LedgerTally:
    """Spends and other entries of a chain, by data set and by the state they are in.

    Attributes:
        entries: Their number, by data set and state.
        records: Number of the last record that was taken.
        hash: Its hash, by which a chain is recognised that is another one.
    """

    entries: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: int = 0
    hash: str = ""
    _open: dict[tuple[str, int], State] = field(default_factory=dict)

    def catch_up(self, ledger: SqlLedger) -> bool:
        """Take what was appended since; False if the chain is not the one of before."""
        while True:
            # The last record is read once more: where it is another one, so is the chain.
            found = ledger.records_from(max(1, self.records), most=PORTION)
            if self.records and (not found or found[0].hash != self.hash):
                return False
            new = found[1:] if self.records else found
            for record in new:
                self._take(record)
            if len(found) < PORTION:
                return True

    def _take(self, record: Record) -> None:
        if record.key:
            attempt = (record.key, record.attempt)
            before = self._open.pop(attempt, None)
            if before is not None:
                self.entries[record.dataset, before.value] -= 1
            if record.state not in FINAL and record.state is not State.NOTED:
                self._open[attempt] = record.state
        self.entries[record.dataset, record.state.value] += 1
        self.records, self.hash = record.id, record.hash


@dataclass(slots=True)
class EventTally:
    """Steps that finished, failed or were refused, and their seconds, by data set and step.

    Attributes:
        counts: Number of events, by kind, data set and step.
        seconds: Seconds of finished steps, by data set and step.
        taken: Events that were counted.
    """

    counts: dict[Kind, Counter[tuple[str, str]]] = field(default_factory=lambda: {kind: Counter() for kind in Kind})
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    taken: int = 0

    def catch_up(self, events: list[Event]) -> None:
        """Take the events that came since."""
        for event in events[self.taken :]:
            place = (event.dataset, event.step)
            self.counts[event.kind][place] += 1
            if event.kind is Kind.STEP:
                self.seconds[place] = self.seconds.get(place, 0.0) + (event.seconds or 0.0)
        self.taken = len(events)
