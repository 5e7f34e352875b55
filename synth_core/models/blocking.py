"""How a clique's axes are split for the kernels: the split with the least estimated time (see `plan`).

Axes and scopes are bit masks over the clique's own axes. Times are nanoseconds measured on one core; only their
ratios matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from synth_core.models.triangulation import bits

OPERATION = 12.0
"""Starting one operation on a row."""
LINE = 4.0
"""Starting one line within it."""
CELL = 0.1
"""Multiplying or adding one cell."""
MOVE = 3.5
"""Copying one cell by an index, there and back."""
LONGEST_ROW = 2048
"""Cells of a row that still fit the first-level cache together with the lines they meet."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tables that are multiplied together before the sweep; `outer` are the outer axes they depend on."""

    outer: int
    wide: bool
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocking:
    """A split of the axes, the members that weight lines, and the groups of all others."""

    outer: int
    middle: int
    inner: int
    weights: tuple[int, ...]
    groups: tuple[Group, ...]


Time = Callable[[int, bool, int], float]
"""Of a group, from the outer axes it depends on, whether it is wide and how many members it has."""


class _Cells(dict[int, int]):
    """Cells of the table over a mask, each computed once: a search asks for few of them very often."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__({0: 1})
        self.sizes = sizes

    def __missing__(self, mask: int) -> int:
        lowest = mask & -mask
        self[mask] = self[mask ^ lowest] * self.sizes[lowest.bit_length() - 1]
        return self[mask]


@functools.lru_cache(maxsize=4096)
def blocking(sizes: tuple[int, ...], scopes: tuple[int, ...]) -> Blocking:
    """Search greedily from the best single inner axis by adding axes to the inner and middle part."""
    whole = (1 << len(sizes)) - 1
    cells = _Cells(sizes)
    best = min(
        (_priced(cells, scopes, whole, middle=0, inner=1 << k) for k in range(len(sizes))),
        key=lambda priced: priced[0],
        default=(0.0, Blocking(0, 0, 0, (*range(len(scopes)),), ())),
    )
    while True:
        options = [
            _priced(cells, scopes, whole, middle=middle, inner=inner)
            for middle, inner in _neighbours(best[1])
            if cells[middle | inner] <= LONGEST_ROW
        ]
        following = min(options, key=lambda priced: priced[0], default=best)
        if not following[0] < best[0]:
            return best[1]
        best = following


def _neighbours(split: Blocking) -> Iterator[tuple[int, int]]:
    for k in bits(split.outer):
        yield split.middle | 1 << k, split.inner
        yield split.middle, split.inner | 1 << k
    for k in bits(split.middle):
        yield split.middle & ~(1 << k), split.inner | 1 << k


def _priced(
    cells: _Cells, scopes: Sequence[int], whole: int, *, middle: int, inner: int
) -> tuple[float, Blocking]:
    """The blocking for a split of the axes, and its estimated time."""
    outer = whole & ~middle & ~inner
    rows, lines, block = (cells[mask] for mask in (outer, middle, inner))
    weights = tuple(k for k, scope in enumerate(scopes) if not scope & inner)
    by_line = OPERATION + LINE * lines + CELL * lines * block
    by_row = OPERATION + CELL * lines * block
    narrow, wide = LINE + MOVE * block, LINE + MOVE * lines * block

    def time(depends: int, is_wide: bool, members: int) -> float:
        if is_wide:
            return cells[depends] * wide * members + 3 * rows * by_row
        return cells[depends] * narrow * members + 3 * rows * by_line

    grouped = [k for k, scope in enumerate(scopes) if scope & inner]
    groups, spent = _grouped(grouped, scopes, outer, middle, time)
    sweeps = 4 * rows * by_line + MOVE * rows * lines * len(weights)
    return sweeps + spent, Blocking(outer, middle, inner, weights, groups)


def _grouped(
    members: list[int], scopes: Sequence[int], outer: int, middle: int, time: Time
) -> tuple[tuple[Group, ...], float]:
    """Put each member, largest scope first, into the group where it adds the least time, or into its own."""
    depends: list[int] = []
    wide: list[bool] = []
    inside: list[list[int]] = []
    times: list[float] = []
    for k in sorted(members, key=lambda k: (-(scopes[k] & outer).bit_count(), k)):
        own, own_wide = scopes[k] & outer, bool(scopes[k] & middle)
        alone = least = time(own, own_wide, 1)
        best = -1
        for at, before in enumerate(times):
            added = time(depends[at] | own, wide[at] or own_wide, len(inside[at]) + 1) - before
            if added < least:
                best, least = at, added
        if best < 0:
            depends.append(own)
            wide.append(own_wide)
            inside.append([k])
            times.append(alone)
        else:
            depends[best] |= own
            wide[best] |= own_wide
            inside[best].append(k)
            times[best] += least
    groups = tuple(map(Group, depends, wide, map(tuple, inside)))
    return groups, sum(times)
