"""Records as they may be shown: a snapshot is numbered within its release, and its digest stays inside.

The keyed digest of a snapshot is the same for the same data, in every release of a workspace. Shown to anybody, it
would tell for free whether two releases were made from the same confidential rows. A number that starts anew in each
release says only what the release itself shows: that it asked the same data again, or other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from synth_core.ledger.rows import Row
from synth_core.privacy.accounts import Record


class SnapshotNumbers:
    """Numbers of snapshots, in the order in which each release first names them; records come oldest first."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[str]] = {}

    def label(self, dataset: str, release: str, snapshot: str) -> str:
        """The snapshot's number as text; empty for a record that names none."""
        if not snapshot:
            return ""
        known = self._known.setdefault((dataset, release), [])
        if snapshot not in known:
            known.append(snapshot)
        return str(known.index(snapshot) + 1)


def show_records(records: Sequence[Record]) -> list[Record]:
    """The records with numbers in place of digests.

    Args:
        records: All records of their releases, oldest first.

    Returns:
        Copies of them; their hashes are those of the ledger, and cover the digests.
    """
    numbers = SnapshotNumbers()
    return [
        replace(record, snapshot=numbers.label(record.dataset, record.release, record.snapshot))
        for record in records
    ]


def show_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """The same for rows as they are stored."""
    numbers = SnapshotNumbers()
    for row in rows:
        yield row | {"snapshot": numbers.label(row["dataset"], row["release"], row["snapshot"])}
