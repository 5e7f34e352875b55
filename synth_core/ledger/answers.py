"""Noisy tables that the ledger keeps, read back as what their records say they are; reading them is free."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.privacy.accounts import Ledger, Record
from synth_core.privacy.answer_form import AnswerKind, Groups
from synth_core.privacy.noise import GRID

TABLES = (AnswerKind.MARGINAL, AnswerKind.MERGED)
"""Kinds of answers that are counts of the cells of a table."""

UNKNOWN = "answers of an earlier version"
"""What answers are called whose records do not say what they are."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredTable:
    """One stored table; `groups` is empty where no codes were merged."""

    clique: Clique
    groups: Groups
    noisy: NDArray[np.float64]
    variance: float

    @property
    def question(self) -> tuple[Clique, Groups]:
        """What was asked: equal for tables whose cells mean the same."""
        return self.clique, self.groups

    @property
    def kind(self) -> str:
        """What the answer is called."""
        return (AnswerKind.MERGED if self.groups else AnswerKind.MARGINAL).value

    @property
    def codes_merged(self) -> Groups:
        """For each attribute the group of each code, None where they were not merged."""
        return self.groups or (None,) * self.noisy.ndim

    def fits(self, domain: Domain) -> bool:
        """Whether it is about the codes of this domain."""
        return _fits(self.clique, self.noisy.shape, self.codes_merged, domain)


def fitting_tables(record: Record, domain: Domain) -> int:
    """How many tables about the codes of a domain an answer holds, by what its record says."""
    blocks = record.form.blocks if record.form else ()
    tables = [block for block in blocks if block.kind in TABLES]
    return sum(_fits(b.clique, b.shape, b.groups or (None,) * len(b.shape), domain) for b in tables)


def read_tables(ledger: Ledger, record: Record) -> tuple[list[StoredTable], Counter[str]]:
    """The tables of one answer, and what else it holds.

    Args:
        ledger: keeps the answer.
        record: of a question that was measured.

    Returns:
        The tables in their order, and how many other answers there are by kind: those of a strategy count as one,
        scores and choices as one each.
    """
    if record.form is None:
        return [], Counter({UNKNOWN: 1})
    blocks = record.form.blocks
    others = [block for block in blocks if block.kind not in TABLES]
    counted = Counter[str]()
    for block in others:
        counted[block.kind.value] += 1 if block.kind is AnswerKind.STRATEGY else block.size
    if len(others) == len(blocks):
        return [], counted
    answer = ledger.reserve(record.request).answer
    assert answer is not None  # noqa: S101 - the record says that it was measured
    stored = zip(blocks, record.form.split(answer), record.mechanism.variances(), strict=True)
    tables = [
        StoredTable(
            block.clique, block.groups if block.kind is AnswerKind.MERGED else (), numbers / GRID, float(variance)
        )
        for block, numbers, variance in stored
        if block.kind in TABLES
    ]
    return tables, counted


def _fits(clique: Clique, shape: tuple[int, ...], merged: Groups, domain: Domain) -> bool:
    if not all(attribute in domain for attribute in clique):
        return False
    sizes = tuple(size if groups is None else len(groups) for size, groups in zip(shape, merged, strict=True))
    return sizes == domain.shape(clique)
