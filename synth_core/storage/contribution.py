"""Bound how many rows one unit (a person, a household) contributes, so that its privacy can be promised.

Which rows of a unit are kept is decided by a keyed hash of the rows themselves, unit by unit. So the choice does not
depend on the order of the file, nor on any other unit: adding or removing a unit adds or removes at most `most` rows
and changes no others. Units are told apart by a keyed 128-bit hash of their names; that two of n units share one has a
probability below n^2 / 2^129, under 10^-20 for a billion units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from synth_core.errors import SourceError

UNIT_COLUMNS = ("unit hash, high half", "unit hash, low half")
"""Columns of a partition under construction; they are gone when it is finished."""


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """At most `most` rows of each unit, named in `column` of the source, are kept.

    It does not show its key, because what is shown may end in a log.
    """

    column: str
    most: int
    key: bytes = field(repr=False)


def unit_hashes(batch: pa.Table, bound: ContributionBound, *, source: str) -> dict[str, NDArray[np.uint64]]:
    """Keyed hashes of the units' names, in two halves."""
    names = batch.column(bound.column)
    if names.null_count:
        raise SourceError(
            f"{source}: column {bound.column!r} names the unit of each row and is empty in some; fill it"
        )
    key = hashlib.blake2b(bound.key, person=b"unit").digest()
    texts = names.cast(pa.string()).to_pylist()
    digests = b"".join(hashlib.blake2b(text.encode(), key=key, digest_size=16).digest() for text in texts)
    halves = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    return {name: np.ascontiguousarray(halves[:, i]) for i, name in enumerate(UNIT_COLUMNS)}


def kept_rows(parts: Iterable[dict[str, NDArray[Any]]], bound: ContributionBound) -> list[NDArray[np.bool_]]:
    """For each part of a table with unit hashes, which of its rows are kept; one part is looked at a time."""
    hashes = [(*(part[name] for name in UNIT_COLUMNS), _row_hashes(part, bound.key)) for part in parts]
    high, low, rank = (np.concatenate(column) for column in zip(*hashes, strict=True))
    order = np.lexsort((rank, low, high))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    at = np.arange(len(order))
    within_unit = at - np.maximum.accumulate(np.where(first, at, 0))
    kept = np.empty(len(order), dtype=np.bool_)
    kept[order] = within_unit < bound.most
    ends = np.cumsum([len(halves[0]) for halves in hashes])
    return np.split(kept, ends[:-1])


def _row_hashes(part: dict[str, NDArray[Any]], key: bytes) -> NDArray[np.uint64]:
    """Keyed hashes of the rows' codes: equal rows have equal hashes, and it does not matter which of them is kept."""
    rows = np.column_stack([codes for name, codes in part.items() if name not in UNIT_COLUMNS]).astype("<u4")
    width, data = rows.shape[1] * 4, rows.tobytes()
    key = hashlib.blake2b(key, person=b"row").digest()
    digests = b"".join(
        hashlib.blake2b(data[start : start + width], key=key, digest_size=8).digest()
        for start in range(0, len(data), width)
    )
    return np.frombuffer(digests, dtype="<u8")
