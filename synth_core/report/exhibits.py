"""Exhibits: each a picture, the words that explain it, and the table of the numbers behind it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from synth_core.arrays import Floats
from synth_core.domain import pick_varied
from synth_core.evaluation.classification import TargetError
from synth_core.evaluation.marginals import MarginalErrors
from synth_core.ledger.groups import plain_purpose, round_of
from synth_core.privacy.wording import loss_text
from synth_core.report import charts
from synth_core.report.page import MAX_LISTED, SpendLine, Table, percent, points
from synth_core.schema import Column

MAX_BARS = 20
"""Upper limit of the bars of a column: of more codes, neighbouring bins or the rarest values are drawn as one."""
MAX_HEATMAP_COLUMNS = 40
"""Upper limit of the columns of a heatmap: those with the largest values."""
MANY_COLUMNS = 16
"""Columns above which a heatmap has the whole width of the page."""
_ROUND = re.compile(r"\bround \d+:? ?| \d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A picture with its heading, a sentence for those who cannot see it, a colour key and its numbers.

    A wide one has the whole width of the page.
    """

    title: str
    svg: str
    alt: str
    note: str
    table: Table
    key: tuple[tuple[str, str], ...] = ()
    wide: bool = False


def column_exhibits(
    columns: Sequence[Column],
    reference: Mapping[str, ArrayLike],
    synthetic: Mapping[str, ArrayLike],
    *,
    reference_name: str,
    tvd: Mapping[str, float],
) -> tuple[Exhibit, ...]:
    """One exhibit for each column: the shares of its values in the reference and in the synthetic table.

    Args:
        columns: those to show, in their order.
        reference: for each column the shares of its codes among all records. In a public report they are noisy: each
            is right on average, also one below zero, which is written as it is and drawn as nothing.
        synthetic: the same of the synthetic table.
        reference_name: what the reference is called on the page.
        tvd: the distance of the two, by column.

    Returns:
        An exhibit for each column, whose table has every value.
    """
    exhibits = []
    for column in columns:
        left, right = (np.asarray(shares[column.name], dtype=np.float64) for shares in (reference, synthetic))
        bars = _bars(column, left + right)
        # Sums add shares below zero too, so that noise cancels in them.
        drawn = [[max(0.0, float(shares[codes].sum())) for _, codes in bars] for shares in (left, right)]
        rows = zip(column.captions, left, right, strict=True)
        exhibits.append(
            Exhibit(
                title=column.name,
                svg=charts.paired_bars([label for label, _ in bars], reference=drawn[0], synthetic=drawn[1]),
                alt=f"Bars of the shares of each value of {column.name}, {reference_name} beside synthetic; "
                f"total variation distance {percent(tvd[column.name])}.",
                note=column.description,
                table=Table(
                    head=("value", reference_name, "synthetic", "points"),
                    rows=tuple((label, percent(a), percent(b), points(b - a)) for label, a, b in rows),
                ),
                key=(("reference", reference_name), ("synthetic", "synthetic")),
            )
        )
    return tuple(exhibits)


def marginals_exhibit(marginals: Sequence[MarginalErrors]) -> Exhibit:
    """How the distances of many marginals spread, beside what sampling alone would give."""
    panels = [(columns_at_a_time(m.alpha), m.values, m.tvd.mean, m.floor) for m in marginals]
    means = "; ".join(f"{m.alpha}-way mean {percent(m.tvd.mean)}, worst {percent(m.tvd.worst)}" for m in marginals)
    measures: dict[str, Callable[[MarginalErrors], str]] = {
        "mean": lambda m: percent(m.tvd.mean),
        "95% interval of the mean": lambda m: f"{percent(m.tvd.low)} – {percent(m.tvd.high)}",
        "median": lambda m: percent(m.tvd.median),
        "nine in ten are below": lambda m: percent(m.tvd.upper_decile),
        "worst": lambda m: percent(m.tvd.worst),
        "sampling alone": lambda m: percent(m.floor),
        "columns made independent": lambda m: percent(m.independent),
        "mean L2 distance of shares": lambda m: f"{m.l2:.4f}",
        "mean Jensen–Shannon divergence, bits": lambda m: f"{m.jensen_shannon:.4f}",
        "marginals measured": lambda m: f"{len(m.values):,} of {m.population:,}",
    }
    return histograms_exhibit(
        "Distances of the marginals",
        panels,
        alt=f"Histograms of the total variation distance of every measured marginal: {means}.",
        note="Each marginal is one table of counts over some of the columns; distances are shares of the records.",
        floor="sampling alone",
        table=Table(
            head=("", *(f"{m.alpha}-way" for m in marginals)),
            rows=tuple((name, *map(shown, marginals)) for name, shown in measures.items()),
        ),
    )


def histograms_exhibit(
    title: str, panels: Sequence[charts.Panel], *, alt: str, note: str, floor: str, table: Table
) -> Exhibit:
    """Histograms of distances, with the key to their two marks: the mean, and what `floor` alone would give."""
    key = (("ink", "mean"), ("warning", floor))
    return Exhibit(title=title, svg=charts.histograms(panels), alt=alt, note=note, table=table, key=key)


def columns_at_a_time(number: int) -> str:
    """The heading of the marginals of that many columns."""
    return "single columns" if number == 1 else f"{number} columns at a time"


def pairs_exhibit(attributes: Sequence[str], pairs: Sequence[Sequence[float]]) -> Exhibit:
    """The distance of every pair of columns as a heatmap, the worst pairs in the table behind it."""
    svg, ranked = heatmap_of_pairs(attributes, pairs)
    worst = f" The worst pair is {ranked[0][1]} and {ranked[0][2]}, {percent(ranked[0][0])}." if ranked else ""
    few = len(attributes) <= MAX_HEATMAP_COLUMNS
    some = "" if few else f" The {MAX_HEATMAP_COLUMNS} columns with the largest distances."
    return Exhibit(
        title="Pairs of columns",
        svg=svg,
        alt=f"Heatmap of the total variation distance of every pair of columns.{worst}",
        note=f"Distance in % of the records; the diagonal is the column alone.{some}",
        table=Table(
            head=("worst pairs", "distance"),
            rows=tuple(
                (f"{first} × {second}", percent(value))
                for value, first, second in pick_varied(ranked, lambda pair: pair[1:], count=MAX_LISTED)
            ),
        ),
        wide=len(attributes) > MANY_COLUMNS,
    )


def heatmap_of_pairs(
    attributes: Sequence[str], pairs: Sequence[Sequence[float]], *, marked: Collection[frozenset[str]] = ()
) -> tuple[str, list[tuple[float, str, str]]]:
    """A value for each pair of columns: the picture of the columns with the largest, and all pairs, largest first.

    Pairs that are marked have a corner of their own.
    """
    matrix = np.asarray(pairs)
    shown = np.sort(np.argsort(-matrix.mean(axis=0), kind="stable")[:MAX_HEATMAP_COLUMNS])
    names = [attributes[place] for place in shown]
    corners = [(i, j) for i, j in combinations(range(len(names)), 2) if frozenset((names[i], names[j])) in marked]
    svg = charts.heatmap(names, matrix[np.ix_(shown, shown)].tolist(), marked=frozenset(corners))
    ranked = [(matrix[i, j], attributes[j], attributes[i]) for i in range(len(matrix)) for j in range(i)]
    return svg, sorted(ranked, key=lambda pair: -pair[0])


def predictions_exhibit(targets: Sequence[TargetError]) -> Exhibit:
    """Errors of classifiers trained on synthetic and on real rows, both tested on held-out real rows."""
    ordered = sorted(targets, key=lambda error: error.real - error.synthetic)
    extra = float(np.mean([error.synthetic - error.real for error in targets]))
    return Exhibit(
        title="Predicting each column from the others",
        svg=charts.dumbbells(
            [error.target for error in ordered],
            reference=[error.real for error in ordered],
            synthetic=[error.synthetic for error in ordered],
            baseline=[error.majority for error in ordered],
        ),
        alt="Share of wrong predictions for each column, by a classifier trained on real rows and by one "
        f"trained on synthetic rows; on average {points(extra)} percentage points between them.",
        note="Wrong predictions among held-out real rows; the widest gap is on top.",
        table=Table(
            head=("target", "trained on real", "trained on synthetic", "95 % margin", "points", "commonest value"),
            rows=tuple(
                (
                    e.target,
                    percent(e.real),
                    percent(e.synthetic),
                    f"± {percent(e.margin)}",
                    points(e.synthetic - e.real),
                    percent(e.majority),
                )
                for e in ordered
            ),
        ),
        key=(
            ("reference", "trained on real"),
            ("synthetic", "trained on synthetic"),
            ("warning", "commonest value"),
        ),
    )


def budget_exhibit(spends: Sequence[SpendLine], *, mu: float) -> Exhibit:
    """Where the privacy budget went: the share of mu² of every purpose, and what each round and purpose took.

    Questions that differ only in a round's or a choice's number have one bar together.
    """
    shares: dict[str, float] = {}
    for line in spends:
        purpose = _ROUND.sub("", plain_purpose(line.purpose))
        label = f"{line.step}: {purpose}" if purpose else line.step
        shares[label] = shares.get(label, 0.0) + (line.mu2 / mu**2 if mu else 0.0)
    by_round: dict[tuple[str, str], list[SpendLine]] = defaultdict(list)
    for line in spends:
        by_round[line.step, round_of(line.purpose)].append(line)
    spent = sum(shares.values())
    return Exhibit(
        title="Budget by step",
        svg=charts.share_bars(list(shares), list(shares.values())),
        alt=f"Bars of the share of the privacy budget each step used; together {percent(spent)}.",
        note=f"Share of the release's μ² = {loss_text(mu**2, 6)}; {percent(spent)} of it was used.",
        table=Table(
            head=("step", "purpose", "mechanism", "questions", "noise, records", "μ²", "state"),
            rows=tuple(_budget_row(step, purpose, lines) for (step, purpose), lines in by_round.items()),
        ),
    )


def _budget_row(step: str, purpose: str, lines: Sequence[SpendLine]) -> tuple[str, ...]:
    # The scale of a choice is no number of records.
    scales = [line.scale for line in lines if line.scale is not None and line.mechanism != "exponential"]
    least, most = (f"{value:.4g}" for value in (min(scales), max(scales))) if scales else ("–", "–")
    return (
        step,
        purpose,
        ", ".join(dict.fromkeys(line.mechanism.replace("_", " ") for line in lines)),
        f"{sum(line.queries for line in lines):,}",
        least if least == most else f"{least} to {most}",
        f"{sum(line.mu2 for line in lines):.3g}",
        ", ".join(dict.fromkeys(line.state for line in lines)),
    )


def _bars(column: Column, shares: Floats) -> list[tuple[str, list[int]]]:
    """What is drawn, each bar with its label and its codes.

    Of too many bins, neighbours share a bar; of too many values without an order, the rarest by `shares` do.
    """
    codes, captions = list(range(column.size)), column.captions
    if len(codes) <= MAX_BARS:
        return [(captions[code], [code]) for code in codes]
    if column.levels is None:
        order = np.argsort(-shares, kind="stable").tolist()
        rare = order[MAX_BARS - 1 :]
        common = [(captions[code], [code]) for code in sorted(order[: MAX_BARS - 1])]
        return [*common, (f"{len(rare)} rarer values", rare)]
    bins, beyond = codes[: column.declared], codes[column.declared :]
    width = math.ceil(len(bins) / (MAX_BARS - len(beyond)))
    runs = [bins[at : at + width] for at in range(0, len(bins), width)]
    bars = [(f"{captions[run[0]]} to {captions[run[-1]]}" if len(run) > 1 else captions[run[0]], run) for run in runs]
    return [*bars, *((captions[code], [code]) for code in beyond)]
