"""What noise will leave of a schema: expected counts beside their noise, before anything is read.

All numbers are public: the schema, the price, and a number of records that somebody has declared or that an earlier
release has published with noise. A count that is smaller than the noise that 95 of 100 draws stay within cannot be
told from none; where that holds of the average value of a column, its table is mostly noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth_core.domain import Domain
from synth_core.evaluation.distances import Z95
from synth_core.privacy.accounts import Account
from synth_core.privacy.budget import BudgetPlan, epsilon_of, mu2_of
from synth_core.privacy.wording import loss_text
from synth_core.release.manifest import previous_manifest
from synth_core.release.paths import ReleasePaths
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.schema.columns.numbers import NumberBase
from synth_core.synthesizers.base import CountNoise, Synthesizer
from synth_core.synthesizers.structure import BY_SIZE, MEAN_ABSOLUTE, all_pairs

LISTED_COLUMNS = 40
"""Upper limit of the columns that are listed: those with the fewest records for each value."""
LISTED_PAIRS = 5
"""Upper limit of the pairs that are listed: those with the most cells."""
LISTED_WARNINGS = 8
"""Upper limit of the columns that are warned of, each with its remedy."""

MOST_DEPENDENCE = 0.5
"""Share of the records that even strong dependence does not move; two columns of equal halves, one a copy, move it."""

Line = tuple[str, str]


class Records(NamedTuple):
    """A public number of records, and where it comes from."""

    number: float
    origin: str


def known_records(spec: ReleaseSpec, account: Account | None, paths: ReleasePaths) -> Records | None:
    """The best public number of records there is; None without any. Rows are never counted for it.

    Args:
        spec: the release, which may declare a number of rows.
        account: the account that pays, if it can be read; it may declare an upper bound.
        paths: where earlier releases are published.

    Returns:
        What the newest release of the data set has published, else the declared rows, else the upper bound.
    """
    before = previous_manifest(paths.public.parent, dataset=spec.dataset, release=spec.release)
    published = (before or {}).get("quality", {}).get("noisy_total")
    if before and isinstance(published, int | float) and published >= 1:
        return Records(float(published), f"as release {before['release']} has published, with noise")
    if isinstance(spec.rows, int):
        return Records(float(spec.rows), "as `rows` declares")
    if account and account.largest_n:
        return Records(float(account.largest_n), "the account's upper bound: there may be fewer")
    return None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected counts of columns and pairs beside their noise, and a remedy for each table in which noise wins."""

    counts: list[Line]
    warnings: list[Line]


def _in_short(number: float) -> str:
    """A number of records as people say it: whole, unless there are few."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


@dataclass(frozen=True, slots=True)
class _Cell:
    """An average cell of a table: its records, and the noise on it that 95 of 100 draws stay within."""

    names: tuple[str, ...]
    cells: int
    records: float
    noise: float

    @property
    def loses(self) -> bool:
        return self.records < self.noise

    @property
    def line(self) -> Line:
        verdict = ": noise wins" if self.loses else ""
        what = "values" if len(self.names) == 1 else "cells"
        text = f"{self.cells:,} {what}, {_in_short(self.records)} records each, noise ±{_in_short(self.noise)}{verdict}"
        return " × ".join(self.names), text


def _column_line(schema: Schema, cell: _Cell, records: float) -> Line:
    """The line of a column, with how far the noise of its counts may move its mean if it holds numbers."""
    name, text = cell.line
    column = schema.column(name)
    if not isinstance(column, NumberBase) or column.private_bins or column.moments:
        return name, text
    middles = column.mean_numbers(column.densities())
    off = cell.noise * math.sqrt(((middles - middles.mean()) ** 2).sum()) / records
    return name, f"{text}, its mean ±{_in_short(off)}"


def foresee(
    spec: ReleaseSpec,
    schema: Schema,
    domain: Domain,
    *,
    method: Synthesizer,
    plan: BudgetPlan,
    records: Records | None,
) -> Outlook:
    """Judge a schema by public numbers alone.

    Args:
        spec: the release.
        schema: what the columns may hold.
        domain: the attributes of one model; with strata, of one stratum.
        method: says how much noise its counts will have; one that cannot say is not judged.
        plan: its budget.
        records: a public number of records.

    Returns:
        Lines for people.
    """
    if records is None:
        said = "unknown: say --records, or declare --largest-n of the account, to see what noise leaves of each column"
        return Outlook([("records", said)], [])
    noise = method.count_noise(domain, plan) if isinstance(method, CountNoise) else {}
    if not noise:
        return Outlook([("noise", f"method {spec.method} does not say how much its counts will have")], [])
    strata = schema.domain.size(spec.strata.by) if spec.strata else 1
    share = f", a stratum's share of them 1/{strata}" if spec.strata else ""
    lines = [("records", f"{records.number:,.0f}, {records.origin}{share}")]
    found = [
        _Cell(names, domain.cells(names), records.number / strata / domain.cells(names), Z95 * sigma)
        for names, sigma in noise.items()
    ]
    columns = sorted((one for one in found if len(one.names) == 1), key=lambda one: one.records)
    larger = sorted((one for one in found if len(one.names) > 1), key=lambda one: -one.cells)
    protected = {domain.clique(table) for table in spec.protect}
    named = [one for one in larger if one.names in protected]
    largest = [one for one in larger if one not in named][:LISTED_PAIRS]
    lines += [_column_line(schema, one, records.number / strata) for one in columns[:LISTED_COLUMNS]]
    lines += [one.line for one in [*named, *largest]]
    if any(", its mean ±" in text for _, text in lines):
        lines.append(("means", "may be off by that for the noise of counts; less with protect or with moments: true"))
    if len(columns) > LISTED_COLUMNS:
        lines.append((f"{len(columns) - LISTED_COLUMNS} other columns", "more records for each value"))
    warnings = _warnings(spec, schema, [*columns, *named, *_worst_pairs(schema, columns, largest)])
    if larger:
        least = least_visible(domain, plan.total_mu2, records.number / strata)
        share = f"{100 * min(least, 1.0):.2g}"
        seen = f"noise hides what moves less than {share} % of the records between the cells of a pair"
        lines.append(("dependence", seen))
        if least > MOST_DEPENDENCE:
            times = Fraction(math.ceil(100 * (least / MOST_DEPENDENCE) ** 2), 100)
            epsilon = epsilon_of(mu2_of(spec.epsilon, spec.delta) * times, spec.delta)
            text = "the budget is too small for any: columns will be as good as independent; "
            warnings.insert(0, ("dependence", f"{text}epsilon {loss_text(epsilon, 2)} would show the strongest"))
    return Outlook(lines, warnings)


def least_visible(domain: Domain, mu2: Fraction, records: float) -> float:
    """The share of records that dependence must move between cells to stand out of the noise.

    That is the noise that a tree's worth of pairs, one fewer than there are columns and the smallest of all, leave on
    average if they are measured with the whole budget and share it as is best: no method sees less on the whole.

    Args:
        domain: the attributes of one model, two or more.
        mu2: all that the method may spend.
        records: a public number of records.

    Returns:
        Mean total variation; above 1 it hides everything.
    """
    costs = sorted(float(domain.cells(pair)) ** BY_SIZE for pair in all_pairs(domain))[: len(domain) - 1]
    noise: float = MEAN_ABSOLUTE * math.fsum(costs) ** 1.5 / math.sqrt(mu2)
    return noise / len(costs) / 2 / records


def _worst_pairs(schema: Schema, columns: Sequence[_Cell], largest: Sequence[_Cell]) -> list[_Cell]:
    """The largest pair of each wide column that is not warned of for itself: what helps one of its pairs helps all."""
    losing = {name for one in columns if one.loses for name in one.names}
    worst: dict[str, _Cell] = {}
    for one in largest:
        if not losing & set(one.names):
            worst.setdefault(_widest(schema, one), one)
    return list(worst.values())


def _widest(schema: Schema, cell: _Cell) -> str:
    return max(cell.names, key=lambda name: schema.column(name).size)


def _warnings(spec: ReleaseSpec, schema: Schema, judged: Sequence[_Cell]) -> list[Line]:
    """A remedy for each of these tables in which noise wins."""
    losing = [one for one in judged if one.loses]
    lines = []
    for one in losing[:LISTED_WARNINGS]:
        times = Fraction(math.ceil(100 * (one.noise / one.records) ** 2), 100)
        epsilon = epsilon_of(mu2_of(spec.epsilon, spec.delta) * times, spec.delta)
        column = schema.column(_widest(schema, one))
        fewer = "declare fewer bins" if column.levels is not None else "merge values, with `recode` or in the source"
        if column.groups is not None:
            fewer = "declare the groups of its hierarchy as values"
        if len(one.names) > 1:
            fewer = f"{column.name}: {fewer}"
        lines.append((" × ".join(one.names), f"{fewer}, or spend more: epsilon {loss_text(epsilon, 2)} would do"))
    if len(losing) > LISTED_WARNINGS:
        lines.append((f"{len(losing) - LISTED_WARNINGS} more", "the same remedies; see the list above"))
    return lines
