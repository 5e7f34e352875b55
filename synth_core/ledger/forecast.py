"""When an account's cap will be reached if its releases go on as they did."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction

from synth_core.privacy.accounts import Balance, Record, State
from synth_core.privacy.composition import ZERO, Composition

RECENT = 6
"""The schedule is read from that many releases, so that an old habit does not count for ever."""

SHORTEST_INTERVAL = timedelta(days=1)  # releases of one afternoon are trials, not a schedule
LONGEST_FORECAST = timedelta(days=365 * 30)


def runway(records: Iterable[Record], balance: Balance) -> str | None:
    """The forecast in words; None without a schedule, or if the cap is not reached for a generation."""
    recent = _releases(records, balance.account.dataset)[-RECENT:]
    if len(recent) < 2:
        return None
    (first, _), (last, _) = recent[0], recent[-1]
    interval = (last - first) / (len(recent) - 1)
    if interval < SHORTEST_INTERVAL:
        return None
    cost = sum((mu2 for _, mu2 in recent), ZERO) / len(recent)
    affordable = math.floor(balance.remaining_mu2 / cost)
    if (affordable + 1) * interval > LONGEST_FORECAST:
        return None
    reached = last + (affordable + 1) * interval
    return f"at the present schedule the cap is reached in {reached.year}-Q{(reached.month + 2) // 3}"


def _releases(records: Iterable[Record], dataset: str) -> list[tuple[datetime, Fraction]]:
    """When each release of the data set began to spend, and what it was charged, in time order."""
    spent: defaultdict[str, Composition] = defaultdict(Composition)
    began: dict[str, datetime] = {}
    for record in records:
        if record.dataset != dataset:
            continue
        if record.state is State.RESERVED:
            spent[record.release].add(record.snapshot, record.stratum, record.mu2)
            began.setdefault(record.release, record.at)
        elif record.state is State.REFUNDED:
            spent[record.release].add(record.snapshot, record.stratum, -record.mu2)
    return sorted((began[name], release.mu2) for name, release in spent.items() if release.mu2)
