"""The noisy answers a release has been given, read back from its ledger: public, and free to use again."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique, Domain
from synth_core.evaluation.public import MergedMarginal
from synth_core.measurement import Measurement
from synth_core.privacy.accounts import Ledger, Record, State, Stratum
from synth_core.privacy.answer_form import Block, Groups, Kind
from synth_core.privacy.noise import GRID
from synth_core.release.division import Division

TABLES = (Kind.MARGINAL, Kind.MERGED)
"""Kinds of answers that a table of rows can be compared with."""

JUDGING = "evaluate"
"""The step that buys errors of a finished table: no table is made of its answers."""

UNKNOWN = "answers of an earlier version"
"""What answers are called whose records do not say what they are."""


@dataclass(slots=True)
class StoredAnswers:
    """The answers of a release with which its table can be compared, and how many cannot.

    `used` counts the answers that went into the tables, `unused` the others by their kind: a table or the answers of a
    strategy count as one, scores and choices as one each.
    """

    marginals: list[Measurement] = field(default_factory=list)
    merged: list[MergedMarginal] = field(default_factory=list)
    used: int = 0
    unused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One stored table; `groups` is empty where no codes were merged."""

    clique: Clique
    groups: Groups
    noisy: NDArray[np.float64]
    variance: float

    @property
    def question(self) -> tuple[Clique, Groups]:
        return self.clique, self.groups

    def fits(self, domain: Domain) -> bool:
        """Whether it is about the codes of this domain."""
        known = all(attribute in domain for attribute in self.clique)
        merged = self.groups or (None,) * self.noisy.ndim
        sizes = tuple(
            size if groups is None else len(groups)
            for size, groups in zip(self.noisy.shape, merged, strict=True)
        )
        return known and sizes == domain.shape(self.clique)


def stored_answers(
    ledger: Ledger,
    domain: Domain,
    *,
    dataset: str,
    release: str,
    snapshot: str,
    division: Division | None = None,
) -> StoredAnswers:
    """Every noisy table that the release was made of and that is about its rows, in the order of measuring.

    Args:
        ledger: where the answers are.
        domain: the codes of the release's table.
        dataset: the account that paid.
        release: the release that asked.
        snapshot: the rows the table was made from; answers about others, such as the grid of bins, are not used.
        division: the strata. Tables that all parts have measured are added up over the parts; those of some parts alone
            say nothing about the whole table and are not used.

    Returns:
        The tables, and how many answers were used and not used.
    """
    found = StoredAnswers()
    whole: list[_Table] = []
    parts: dict[Stratum, list[_Table]] = {}
    if division is not None:
        parts = {division.stratum(part): [] for part in division.parts}
    for record in ledger.records(dataset=dataset, release=release):
        if record.state is State.MEASURED and record.step != JUDGING:
            tables, others = _read(ledger, record)
            found.unused += others
            about = whole if record.stratum is None else parts.get(record.stratum)
            if about is None or record.snapshot != snapshot:
                found.unused += Counter(map(_kind, tables))
            else:
                about.extend(tables)
    for table in whole:
        _use([table], table, domain, found)
    _add_up(list(parts.values()), domain, found)
    return found


def _read(ledger: Ledger, record: Record) -> tuple[list[_Table], Counter[str]]:
    """The tables of one answer, and how much else it holds by kind."""
    if record.form is None:
        return [], Counter({UNKNOWN: 1})
    blocks = record.form.blocks
    others = [block for block in blocks if block.kind not in TABLES]
    counted = Counter[str]()
    for block in others:
        counted[block.kind.value] += 1 if block.kind is Kind.STRATEGY else block.size
    if len(others) == len(blocks):
        return [], counted
    answer = ledger.reserve(record.request).answer
    assert answer is not None  # noqa: S101 - the record says that it was measured
    stored = zip(blocks, record.form.split(answer), record.mechanism.variances(), strict=True)
    tables = [
        _Table(block.clique, _groups(block), numbers / GRID, float(variance))
        for block, numbers, variance in stored
        if block.kind in TABLES
    ]
    return tables, counted


def _groups(block: Block) -> Groups:
    return block.groups if block.kind is Kind.MERGED else ()


def _kind(table: _Table) -> str:
    return (Kind.MERGED if table.groups else Kind.MARGINAL).value


def _use(sources: list[_Table], table: _Table, domain: Domain, found: StoredAnswers) -> None:
    """Put the table, made of these answers, among the others, if it is about the codes of the domain."""
    if not table.fits(domain):
        found.unused += Counter(map(_kind, sources))
        return
    found.used += len(sources)
    measurement = Measurement(table.clique, table.noisy, math.sqrt(table.variance))
    if table.groups:
        found.merged.append(MergedMarginal(measurement, table.groups))
    else:
        found.marginals.append(measurement)


def _add_up(parts: list[list[_Table]], domain: Domain, found: StoredAnswers) -> None:
    """What all parts have measured: each part's answers to a question averaged by inverse variance, then summed."""
    questions = dict.fromkeys(table.question for part in parts for table in part)
    for question in questions:
        asked = [[table for table in part if table.question == question] for part in parts]
        sources = [table for same in asked for table in same]
        shapes = {table.noisy.shape for table in sources}
        if not all(asked) or len(shapes) > 1:
            found.unused += Counter(map(_kind, sources))
            continue
        averages = [_average(same) for same in asked]
        noisy = np.sum([average.noisy for average in averages], axis=0)
        variance = sum(average.variance for average in averages)
        _use(sources, _Table(*question, noisy, variance), domain, found)


def _average(same: list[_Table]) -> _Table:
    weights = np.array([1 / table.variance for table in same])
    mean = np.average([table.noisy for table in same], axis=0, weights=weights)
    return _Table(*same[0].question, mean, float(1 / weights.sum()))
