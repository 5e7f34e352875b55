"""How a clique's axes are split for the kernels: the split with the least estimated time (see `plan`).

Axes and scopes are bit masks over the clique's own axes. Times are nanoseconds measured on one core; only their
ratios matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from synth_core.models.triangulation import bits, mask_cells

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


Time = Callable[[Group], float]


@functools.lru_cache(maxsize=4096)
def blocking(sizes: tuple[int, ...], scopes: tuple[int, ...]) -> Blocking:
    """Search greedily from the best single inner axis by adding axes to the inner and middle part."""
    whole = (1 << len(sizes)) - 1
    best = min(
        (_priced(sizes, scopes, whole, middle=0, inner=1 << k) for k in range(len(sizes))),
        key=lambda priced: priced[0],
        default=(0.0, Blocking(0, 0, 0, (*range(len(scopes)),), ())),
    )
    while True:
        options = [
            _priced(sizes, scopes, whole, middle=middle, inner=inner)
            for middle, inner in _neighbours(best[1])
            if mask_cells(middle | inner, sizes) <= LONGEST_ROW
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
    sizes: Sequence[int], scopes: Sequence[int], whole: int, *, middle: int, inner: int
) -> tuple[float, Blocking]:
    """The blocking for a split of the axes, and its estimated time."""
    outer = whole & ~middle & ~inner
    rows, lines, block = (mask_cells(mask, sizes) for mask in (outer, middle, inner))
    weights = tuple(k for k, scope in enumerate(scopes) if not scope & inner)
    by_line = OPERATION + LINE * lines + CELL * lines * block
    by_row = OPERATION + CELL * lines * block

    def time(group: Group) -> float:
        width = lines * block if group.wide else block
        moved = mask_cells(group.outer, sizes) * (LINE + MOVE * width) * len(group.members)
        return moved + 3 * rows * (by_row if group.wide else by_line)

    groups = _grouped([k for k in range(len(scopes)) if k not in weights], scopes, outer, middle, time)
    sweeps = 4 * rows * by_line + MOVE * rows * lines * len(weights)
    return sweeps + sum(map(time, groups)), Blocking(outer, middle, inner, weights, tuple(groups))


def _grouped(members: list[int], scopes: Sequence[int], outer: int, middle: int, time: Time) -> list[Group]:
    """Put each member, largest scope first, into the group where it adds the least time, or into its own."""
    groups: list[Group] = []
    for k in sorted(members, key=lambda k: (-(scopes[k] & outer).bit_count(), k)):
        alone = Group(scopes[k] & outer, bool(scopes[k] & middle), (k,))
        joined = [Group(g.outer | alone.outer, g.wide or alone.wide, (*g.members, k)) for g in groups]
        added = [time(new) - time(old) for new, old in zip(joined, groups, strict=True)]
        if added and min(added) < time(alone):
            at = added.index(min(added))
            groups[at] = joined[at]
        else:
            groups.append(alone)
    return groups
