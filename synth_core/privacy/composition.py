"""How spends add up: the one rule for the ledger, its forecast, manifests and certificates.

Spends add up, with one exception. The parts of a partition share no unit, so adding or removing a unit changes the
answers about one of them only, and of all parts the dearest counts. This holds inside one snapshot of the data. In
another snapshot the same unit may lie in another part, and then it has answers about both parts to its name: spends
on different snapshots always add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from synth_core.privacy.accounts import Stratum
from synth_core.privacy.budget import parallel_mu2

Spend = tuple[str, Stratum | None, Fraction]
"""Snapshot, stratum (None for a question about all records) and mu^2 of one charge."""

ZERO = Fraction(0)


@dataclass(slots=True)
class Composition:
    """A running sum of spends; a refund is added with a negative price."""

    whole: Fraction = ZERO
    parts: defaultdict[tuple[str, str], dict[str, Fraction]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    @property
    def mu2(self) -> Fraction:
        """The price of everything that was added."""
        return self.whole + sum((parallel_mu2(parts) for parts in self.parts.values()), ZERO)

    def mu2_with(self, snapshot: str, stratum: Stratum | None, mu2: Fraction) -> Fraction:
        """The price after one more spend."""
        if stratum is None:
            return self.mu2 + mu2
        parts = self.parts.get((snapshot, stratum.partition), {})
        grown = parts.get(stratum.part, ZERO) + mu2
        return self.mu2 + max(ZERO, grown - parallel_mu2(parts))

    def add(self, snapshot: str, stratum: Stratum | None, mu2: Fraction) -> None:
        """Take one spend into account."""
        if stratum is None:
            self.whole += mu2
        else:
            parts = self.parts[snapshot, stratum.partition]
            parts[stratum.part] = parts.get(stratum.part, ZERO) + mu2


def which_count(spends: Sequence[Spend]) -> list[bool]:
    """Which of the spends make up the price of all of them.

    Args:
        spends: charges of one release.

    Returns:
        For each spend whether its price is part of the sum: those about all records, and those of the dearest part of
        each partition of each snapshot (the first by name among equals). Their sum is `Composition.mu2`.
    """
    composition = Composition()
    for spend in spends:
        composition.add(*spend)
    dearest = {place: _dearest(parts) for place, parts in composition.parts.items()}
    return [
        stratum is None or dearest[snapshot, stratum.partition] == stratum.part
        for snapshot, stratum, _ in spends
    ]


def snapshot_numbers(snapshots: Iterable[str]) -> list[int]:
    """The snapshots as 1, 2, … in the order of their first appearance, which say no more than which are the same."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(snapshot, len(numbers) + 1) for snapshot in snapshots]


def _dearest(parts: dict[str, Fraction]) -> str:
    return min(parts, key=lambda part: (-parts[part], part))
