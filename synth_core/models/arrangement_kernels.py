"""Compiled kernels that exchange people between households, and count the rules that their people break.

Example: in a household of three people i, j and k a pair weighs 1/6. If j leaves for m, the cells of (i, j), (j, i),
(k, j) and (j, k) of each table of pairs lose 1/6, and those of (i, m), (m, i), (k, m) and (m, k) gain as much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth_core.arrays import Floats, Index
from synth_core.compiled import compiled, part_of_kernel
from synth_core.models.sampling_kernels import _uniform

RULE_WEIGHT = 1e7
"""What a broken rule adds to the distance: more than any exchange can gain."""


class Homes(NamedTuple):
    """Households one after the other, each with its people in a row.

    Attributes:
        starts: the first place of each household.
        sizes: how many places it has.
        owner: the household of each place.
    """

    starts: Index
    sizes: Index
    owner: Index


class CodeRules(NamedTuple):
    """The rules across people, in codes.

    Attributes:
        met: for each rule about numbers of people, whether each person meets its conditions.
        limits: its least and largest number, and whether the number must be even.
        lower: for each rule about gaps, whether each person is one of the lower people.
        upper: whether each is one of the upper people.
        level: the code of each person in the rule's column.
        allowed: which codes of a lower and an upper person go together.
    """

    met: NDArray[np.bool_]
    limits: Index
    lower: NDArray[np.bool_]
    upper: NDArray[np.bool_]
    level: Index
    allowed: NDArray[np.bool_]


class PairTables(NamedTuple):
    """Tables side by side: people i and j of household h are in cell own[h, t] + first[i, t] + second[j, t] of table t.

    Attributes:
        own: what the household adds to the cell.
        first: what the first person adds.
        second: what the second one adds.
        pairs: whether the table is about pairs of people, or about single ones.
        led: whether pairs are those of a reference person, the first, and of another who is none.
        leads: whether each person is a reference person.
    """

    own: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    pairs: NDArray[np.bool_]
    led: NDArray[np.bool_]
    leads: NDArray[np.bool_]


@compiled
def exchange_people(
    member: Index,
    ends: Index,
    homes: Homes,
    tables: PairTables,
    distance: Floats,
    weights: Floats,
    rules: CodeRules,
    mending: bool,
    tries: int,
    seed: int,
) -> None:
    """Try exchanges of two people of one kind of households; those that do not raise the distance are made.

    Where it is `mending`, only those are made by which fewer rules are broken. `member` is the person in each place,
    `distance` what a cell has more than it should.
    """
    counter, step = np.uint64(seed), np.uint64(0x9E3779B97F4A7C15)
    starts, sizes, owner = homes
    ruled = rules.limits.shape[0] + rules.allowed.shape[0] > 0
    broken, here, there = np.zeros(sizes.size, np.int64), 0, 0
    if ruled:
        for k in range(sizes.size):
            broken[k] = _broken_rules(starts[k], sizes[k], member, rules)
    most = 8 * tables.pairs.size * max(1, sizes.max() - 1)
    cells, parts = np.empty(most, np.int64), np.empty(most, np.float64)
    for _ in range(tries):
        counter += step
        p = int(_uniform(counter) * member.size)
        h = owner[p]
        if sizes[h] == 1 or (mending and broken[h] == 0):
            continue
        kind = np.searchsorted(ends, p, side="right")
        begin = ends[kind - 1] if kind else 0
        counter += step
        q = begin + int(_uniform(counter) * (ends[kind] - begin))
        g = owner[q]
        if g == h:
            continue
        a, b = member[p], member[q]
        change = 0.0
        member[p], member[q] = b, a
        if ruled:
            here = _broken_rules(starts[h], sizes[h], member, rules)
            there = _broken_rules(starts[g], sizes[g], member, rules)
            change = RULE_WEIGHT * (here + there - broken[h] - broken[g])
            if change > 0 or (mending and change == 0):
                member[p], member[q] = a, b
                continue
        touched = _list_touched(h, g, p, q, member, homes, tables, cells, parts)
        for n in range(touched):
            cell, part = cells[n], parts[n]
            change += weights[cell] * part * (2 * distance[cell] + part)
            distance[cell] += part
        if change > 0:  # never of an exchange by which fewer rules are broken
            for n in range(touched):
                distance[cells[n]] -= parts[n]
            member[p], member[q] = a, b
        elif ruled:
            broken[h], broken[g] = here, there


@part_of_kernel
def _list_touched(
    h: int,
    g: int,
    p: int,
    q: int,
    member: Index,
    homes: Homes,
    tables: PairTables,
    cells: Index,
    parts: Floats,
) -> int:
    """List the cells that change by the exchange just made, and what each gets; return how many there are."""
    own, first, second, pairs, led, leads = tables
    touched = 0
    for t in range(pairs.size):
        alike = first[member[p], t] == first[member[q], t] and second[member[p], t] == second[member[q], t]
        if alike and (not led[t] or leads[member[p]] == leads[member[q]]):
            continue
        for side in range(2):
            household, place, old, new = (h, p, member[q], member[p]) if side == 0 else (g, q, member[p], member[q])
            row, size = own[household, t], homes.sizes[household]
            if not pairs[t]:
                cells[touched], parts[touched] = row + first[old, t], -1.0 / size
                cells[touched + 1], parts[touched + 1] = row + first[new, t], 1.0 / size
                touched += 2
                continue
            part = 1.0 / (size - 1) if led[t] else 1.0 / (size * (size - 1))
            for k in range(homes.starts[household], homes.starts[household] + size):
                if k == place:
                    continue
                other = leads[member[k]]
                before, after = row + first[member[k], t], row + second[member[k], t]
                for person, sign in ((old, -part), (new, part)):
                    if not led[t] or (leads[person] and not other):
                        cells[touched], parts[touched] = after + first[person, t], sign
                        touched += 1
                    if not led[t] or (other and not leads[person]):
                        cells[touched], parts[touched] = before + second[person, t], sign
                        touched += 1
    return touched


@part_of_kernel
def _broken_rules(start: int, size: int, member: Index, rules: CodeRules) -> int:
    """By how much the people of one household break the rules: people too many or too few, and pairs too near."""
    met, limits, lower, upper, level, allowed = rules
    broken = 0
    for r in range(limits.shape[0]):
        number = 0
        for k in range(start, start + size):
            number += met[r, member[k]]
        broken += max(0, limits[r, 0] - number) + max(0, number - limits[r, 1])
        if limits[r, 2]:
            broken += number % 2
    for r in range(allowed.shape[0]):
        for i in range(start, start + size):
            if lower[r, member[i]]:
                for j in range(start, start + size):
                    if i != j and upper[r, member[j]]:
                        broken += not allowed[r, level[r, member[i]], level[r, member[j]]]
    return broken


@compiled
def broken_households(homes: Homes, member: Index, rules: CodeRules) -> Index:
    """By how much each household breaks the rules."""
    broken = np.zeros(homes.sizes.size, np.int64)
    for h in range(homes.sizes.size):
        broken[h] = _broken_rules(homes.starts[h], homes.sizes[h], member, rules)
    return broken
