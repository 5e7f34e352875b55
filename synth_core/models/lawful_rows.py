"""Rows that keep the rules, drawn from tables that do not hold them: for networks that are no junction tree.

A junction tree holds the rules' tables and needs nothing of this. Here the attributes of a turn are drawn without the
codes that would complete an excluded combination with what is drawn already; a row that was led into a dead end,
where no code is left, is drawn again from the beginning. So attributes drawn early follow the tables as they are, and
later ones follow them given that the rules hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Domain, Impossible
from synth_core.errors import FeasibilityError
from synth_core.exclusions import breaking_rows
from synth_core.models.calibration import Table
from synth_core.models.sampling import Codes, Step, code_type, draw_step, steps

MOST_DRAWN = 1000
"""Rows drawn for each one wanted before a model is refused in which hardly any record is possible,"""
LEAST_DRAWN = 100_000
"""but at least so many."""


def sample_lawful(
    domain: Domain,
    tables: Sequence[Table],
    rows: int,
    *,
    rules: Sequence[Impossible],
    rng: np.random.Generator,
    independent: bool = False,
) -> Codes:
    """Rows of codes in the domain's order; only those that ended in a dead end may break a rule."""
    columns = np.zeros((len(domain), rows), dtype=code_type(domain))
    drawn: set[str] = set()
    for step in steps(domain, tables) if rows else ():
        fresh = [domain.attributes[place] for place in step.fresh]
        drawn.update(fresh)
        ending = [
            rule for rule in rules if set(rule.attributes) <= drawn and set(rule.attributes) & set(fresh)
        ]
        kinds, which = _met(columns, domain, ending, fresh)
        for number, kind in enumerate(kinds):
            own = np.flatnonzero(which == number)
            part = np.ascontiguousarray(columns[:, own])
            excluded = _excluded(step, fresh, [rule for rule, met in zip(ending, kind, strict=True) if met])
            draw_step(part, replace(step, table=step.table * ~excluded), rng=rng, independent=independent)
            columns[:, own] = part
    return columns.T


def redrawn(
    draw: Callable[[int, np.random.Generator], Codes], rows: int, *, domain: Domain, rng: np.random.Generator
) -> Codes:
    """Rows of a sampler, those that break a rule of the domain drawn again: its distribution given the rules."""
    kept = draw(rows, rng)
    if not domain.impossible:
        return kept
    drawn, kept = rows, kept[~breaking_rows(kept, domain)]
    while len(kept) < rows:
        if drawn >= max(MOST_DRAWN * rows, LEAST_DRAWN):
            names = ", ".join(dict.fromkeys(excluded.rule for excluded in domain.impossible))
            raise FeasibilityError(
                f"hardly any record of this model obeys the rules ({names}); use a method that holds them, "
                "such as privmrf"
            )
        wanted = (rows - len(kept)) * drawn // max(len(kept), 1) + 1
        fresh = draw(min(wanted, max(rows, LEAST_DRAWN)), rng)
        drawn += len(fresh)
        kept = np.concatenate([kept, fresh[~breaking_rows(fresh, domain)]])
    return np.asfortranarray(kept[:rows])


def _met(
    columns: Codes, domain: Domain, rules: Sequence[Impossible], fresh: Sequence[str]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which rules the rows meet in all attributes but the fresh ones: the kinds of rows there are, and each row's."""
    met = np.ones((columns.shape[1], len(rules)), dtype=np.bool_)
    for number, rule in enumerate(rules):
        for attribute, codes in rule.codes:
            if attribute not in fresh:
                met[:, number] &= np.isin(columns[domain.position(attribute)], codes)
    which = np.zeros(len(met), dtype=np.int64)
    for number in range(len(rules)):
        which = 2 * which + met[:, number]
        if number % 32 == 31:  # before the numbers grow too large
            which = np.unique(which, return_inverse=True)[1]
    _, first, which = np.unique(which, return_index=True, return_inverse=True)
    return met[first], which


def _excluded(step: Step, fresh: Sequence[str], rules: Sequence[Impossible]) -> NDArray[Any]:
    """The cells of the turn's table that complete one of the rules."""
    cells = np.zeros(tuple(step.sizes), dtype=np.bool_)
    for rule in rules:
        codes = dict(rule.codes)
        cells[np.ix_(*(codes.get(a, range(size)) for a, size in zip(fresh, step.sizes, strict=True)))] = True
    return cells.ravel()
