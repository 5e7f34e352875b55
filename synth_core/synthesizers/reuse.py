"""Noisy tables that earlier releases have paid for, as a method takes them up: free, as nothing is asked again.

Whether they are about the same rows is declared by people and never looked up: a digest of the rows would answer
whether two confidential files are equal, without any noise. What is looked at are the noisy answers themselves. Where
the columns of an earlier release and those just measured differ by more than both noises explain, it is set aside
(`agrees`); data that changed by less than that cannot be told apart, and serve as well.

Codes that were merged when an earlier table was measured stay together (`join_groups`): what was measured of a sum says
nothing of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from synth_core.domain import Domain
from synth_core.measurement import (
    CodeGroups,
    EarlierRelease,
    EarlierTable,
    Measurement,
    merge_codes,
    without_impossible,
)
from synth_core.synthesizers.base import Scores, pool_tables

FALSE_ALARM = 1e-6
"""Upper limit of the chance that a release about the same rows is set aside."""


def agrees(release: EarlierRelease, measured: Sequence[Measurement]) -> bool:
    """Whether the columns of an earlier release differ from those just measured by no more than their noise.

    The squared differences of a column's codes, in units of both noises, are chi-squared if the rows are the same. The
    least probable column decides, by its chance times the number of columns (Bonferroni).
    """
    from scipy.stats import chi2  # takes longer to import than it works

    now = {m.clique: m for m in measured}
    chances = []
    for known in pool_tables(release.columns, order=1):
        if known.clique in now:
            own = now[known.clique]
            variance = known.sigma**2 + own.sigma**2
            chances.append(float(chi2.sf(((known.noisy - own.noisy) ** 2).sum() / variance, known.noisy.size)))
    return not chances or min(chances) * len(chances) >= FALSE_ALARM


def take_up(scores: Scores, earlier: Iterable[EarlierRelease], domain: Domain) -> Scores:
    """The scores with the tables that are known already, beside the pooled columns.

    Args:
        scores: what was measured now, with the columns of the earlier releases pooled into its own.
        earlier: the releases that agree.
        domain: the attributes with all their codes. Those that a rule speaks about are never merged, and tables that
            have merged their codes are left out.

    Returns:
        The scores with the tables, and with the groups of codes that have to stay together for them.
    """
    ruled = {attribute for excluded in domain.impossible for attribute in excluded.attributes}
    tables = [
        table
        for release in earlier
        for table in release.keeping(ruled).tables
        if len(table.measurement.clique) > 1 or table.merged
    ]
    groups = join_groups(domain, tables)
    known = tuple(_in_groups(table, groups, domain) for table in tables)
    return replace(scores, earlier=known, groups=tuple(groups.items()))


def join_groups(domain: Domain, tables: Iterable[EarlierTable]) -> dict[str, CodeGroups]:
    """The finest groups of codes of which every group of every table is a part."""
    found: dict[str, list[int]] = {}
    for table in tables:
        for attribute, groups in zip(table.measurement.clique, table.groups, strict=True):
            if groups is not None:
                first = found.setdefault(attribute, list(range(domain.size(attribute))))
                _join(first, groups)
    return {name: _numbered([_root(first, code) for code in first]) for name, first in found.items()}


def _numbered(firsts: Sequence[int]) -> CodeGroups:
    """The groups as 0, 1, … in the order of their first codes."""
    return tuple(np.unique(firsts, return_inverse=True)[1].tolist())


def _join(first: list[int], groups: Sequence[int]) -> None:
    """Join codes that share a group; `first` leads from each code to a smaller one of its set, or to itself."""
    leader: dict[int, int] = {}
    for code, group in enumerate(groups):
        a, b = _root(first, leader.setdefault(group, code)), _root(first, code)
        first[max(a, b)] = min(a, b)


def _root(first: Sequence[int], code: int) -> int:
    while first[code] != code:
        code = first[code]
    return code


def _in_groups(table: EarlierTable, groups: Mapping[str, CodeGroups], domain: Domain) -> Measurement:
    """The table with codes merged until it has these groups; the variance of a sum is spread over all cells."""
    own = table.measurement
    further = [
        None if attribute not in groups else _further(groups[attribute], before)
        for attribute, before in zip(own.clique, table.groups, strict=True)
    ]
    noisy = merge_codes(own.noisy, further)
    found = Measurement(own.clique, noisy, own.sigma * math.sqrt(own.noisy.size / noisy.size))
    return found if groups.keys() & set(own.clique) else without_impossible(found, domain)


def _further(wanted: Sequence[int], before: Sequence[int] | None) -> CodeGroups:
    """The wanted group of each group that there is."""
    if before is None:
        return tuple(wanted)
    return tuple(wanted[list(before).index(group)] for group in range(max(before) + 1))
