"""The ledger's records as people read them: of each spend the latest, and a line for each round and purpose."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth_core.ledger.book import counted_records
from synth_core.privacy.accounts import Record

_ROUND = re.compile(r"round \d+(?=: )")
_FINGERPRINT = re.compile(r" \(strategy \w+\)")
_SHARD = re.compile(r"^shard \d+")


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records of a release that people read as one line: all of one round or one purpose of a step.

    `mu2` is what they add to the release's price; of strata the dearest counts, and the others add nothing.
    """

    release: str
    step: str
    purpose: str
    records: tuple[Record, ...]
    mu2: Fraction

    @property
    def states(self) -> tuple[str, ...]:
        """The states of its records, each once."""
        return tuple(dict.fromkeys(record.state.value for record in self.records))

    @property
    def attempts(self) -> int:
        """The largest number of an attempt."""
        return max(record.attempt for record in self.records)

    @property
    def questions(self) -> int:
        """How many questions were asked."""
        return sum(record.mechanism.count for record in self.records)

    @property
    def mechanisms(self) -> str:
        """How they were answered."""
        names = dict.fromkeys(record.mechanism.name for record in self.records if record.mechanism.count)
        return ", ".join(name.replace("_", " ") for name in names)


def latest_records(records: Sequence[Record]) -> list[Record]:
    """One record for each spend, the one that says where it stands, and all records that are no spends."""
    last = {(record.key, record.attempt): record.id for record in records if record.key}
    return [record for record in records if not record.key or last[record.key, record.attempt] == record.id]


def lone_record(record: Record) -> RecordGroup:
    """Returns a record that has a line of its own, with its own price."""
    return RecordGroup(record.release, record.step, record.purpose or record.reason, (record,), record.mu2)


def group_records(records: Sequence[Record]) -> list[RecordGroup]:
    """Put records together that belong to one round or one purpose of a step.

    Args:
        records: of one account, oldest first; of each spend its latest.

    Returns:
        The groups in the order of their first records. Records of the account itself stand alone.
    """
    by_release: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_release[record.release].append(record)
    counted = {record.id for own in by_release.values() for record in counted_records(own)}
    groups: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in records:
        alone = record.id if not record.step else None
        groups[record.release, record.step, alone, _line(record)].append(record)
    return [
        RecordGroup(
            own[0].release,
            own[0].step,
            _line(own[0]),
            tuple(own),
            sum((record.mu2 for record in own if record.id in counted), Fraction(0)),
        )
        for own in groups.values()
    ]


def round_of(purpose: str) -> str:
    """Returns the round that a purpose belongs to, such as "round 3", or the purpose itself without one."""
    found = _ROUND.match(purpose)
    return found[0] if found else plain_purpose(purpose)


def plain_purpose(purpose: str) -> str:
    """Returns a purpose as people read it, without the fingerprint that distinguishes its strategy from others."""
    return _FINGERPRINT.sub("", purpose)


def _line(record: Record) -> str:
    """What the line of a record is about; shards have one together."""
    return _SHARD.sub("shards", round_of(record.purpose)) or record.reason
