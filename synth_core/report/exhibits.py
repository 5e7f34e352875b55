"""Exhibits: each a picture, the words that explain it, and the table of the numbers behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from synth_core.evaluation.classification import TargetError
from synth_core.evaluation.marginals import MarginalErrors
from synth_core.privacy.wording import loss_text
from synth_core.report import charts
from synth_core.report.page import MAX_LISTED, SpendLine, Table, percent, points
from synth_core.schema import Column

MAX_BARS = 20
"""Upper limit of the values drawn as bars; the rarest are drawn as one."""
MAX_HEATMAP_COLUMNS = 40
"""Upper limit of the columns of a heatmap: those with the largest values."""
_ROUND = re.compile(r"\bround \d+:? ?| \d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A picture with its heading, a sentence for those who cannot see it, a colour key and its numbers."""

    title: str
    svg: str
    alt: str
    note: str
    table: Table
    key: tuple[tuple[str, str], ...] = ()


def column_exhibits(
    columns: Sequence[Column],
    reference: Mapping[str, ArrayLike],
    synthetic: Mapping[str, ArrayLike],
    *,
    reference_name: str,
    tvd: Mapping[str, float],
) -> tuple[Exhibit, ...]:
    """One exhibit for each column: the shares of its values in the reference and in the synthetic table.

    The reference holds counts of the real rows in an internal report and noisy measurements in a public one;
    noisy counts below zero are shown as zero.
    """
    exhibits = []
    for column in columns:
        left, right = _shares(reference[column.name]), _shares(synthetic[column.name])
        labels, shown_left, shown_right = _most_common(column.captions, left, right)
        rows = zip(column.captions, left, right, strict=True)
        exhibits.append(
            Exhibit(
                title=column.name,
                svg=charts.paired_bars(labels, reference=shown_left, synthetic=shown_right),
                alt=f"Bars of the shares of each value of {column.name}, {reference_name} beside synthetic; "
                f"total variation distance {tvd[column.name]:.4f}.",
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
    means = "; ".join(f"{m.alpha}-way mean {m.tvd.mean:.4f}, worst {m.tvd.worst:.4f}" for m in marginals)
    measures: dict[str, Callable[[MarginalErrors], str]] = {
        "mean": lambda m: f"{m.tvd.mean:.4f}",
        "95% interval of the mean": lambda m: f"{m.tvd.low:.4f} – {m.tvd.high:.4f}",
        "median": lambda m: f"{m.tvd.median:.4f}",
        "nine in ten are below": lambda m: f"{m.tvd.upper_decile:.4f}",
        "worst": lambda m: f"{m.tvd.worst:.4f}",
        "sampling alone": lambda m: f"{m.floor:.4f}",
        "columns made independent": lambda m: f"{m.independent:.4f}",
        "mean L2 distance": lambda m: f"{m.l2:.4f}",
        "mean Jensen–Shannon, bits": lambda m: f"{m.jensen_shannon:.4f}",
        "marginals measured": lambda m: f"{len(m.values):,} of {m.population:,}",
    }
    return Exhibit(
        title="Distances of the marginals",
        svg=charts.histograms(panels),
        alt=f"Histograms of the total variation distance of every measured marginal: {means}.",
        note="Each marginal is one table of counts over some of the columns.",
        table=Table(
            head=("", *(f"{m.alpha}-way" for m in marginals)),
            rows=tuple((name, *map(shown, marginals)) for name, shown in measures.items()),
        ),
        key=(("ink", "mean"), ("warning", "sampling alone")),
    )


def columns_at_a_time(number: int) -> str:
    """The heading of the marginals of that many columns."""
    return "single columns" if number == 1 else f"{number} columns at a time"


def pairs_exhibit(attributes: Sequence[str], pairs: Sequence[Sequence[float]]) -> Exhibit:
    """The distance of every pair of columns as a heatmap, the worst pairs in the table behind it."""
    svg, ranked = heatmap_of_pairs(attributes, pairs)
    worst = f" The worst pair is {ranked[0][1]} and {ranked[0][2]}, {ranked[0][0]:.4f}." if ranked else ""
    few = len(attributes) <= MAX_HEATMAP_COLUMNS
    some = "" if few else f" The {MAX_HEATMAP_COLUMNS} columns with the largest distances."
    return Exhibit(
        title="Pairs of columns",
        svg=svg,
        alt=f"Heatmap of the total variation distance of every pair of columns.{worst}",
        note=f"Distance times 100; the diagonal is the column alone.{some}",
        table=Table(
            head=("worst pairs", "distance"),
            rows=tuple((f"{first} × {second}", f"{value:.4f}") for value, first, second in ranked[:MAX_LISTED]),
        ),
    )


def heatmap_of_pairs(
    attributes: Sequence[str], pairs: Sequence[Sequence[float]]
) -> tuple[str, list[tuple[float, str, str]]]:
    """A value for each pair of columns: the picture of the columns with the largest, and all pairs, largest first."""
    matrix = np.asarray(pairs)
    shown = np.sort(np.argsort(-matrix.mean(axis=0), kind="stable")[:MAX_HEATMAP_COLUMNS])
    svg = charts.heatmap([attributes[place] for place in shown], matrix[np.ix_(shown, shown)].tolist())
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
    """Where the privacy budget went: the share of mu² of every purpose, and every ledger line behind it.

    Questions that differ only in a round's or a choice's number have one bar together.
    """
    shares: dict[str, float] = {}
    for line in spends:
        purpose = _ROUND.sub("", line.purpose)
        label = f"{line.step}: {purpose}" if purpose else line.step
        shares[label] = shares.get(label, 0.0) + (line.mu2 / mu**2 if mu else 0.0)
    spent = sum(shares.values())
    return Exhibit(
        title="Budget by step",
        svg=charts.share_bars(list(shares), list(shares.values())),
        alt=f"Bars of the share of the privacy budget each step used; together {percent(spent)}.",
        note=f"Share of the release's μ² = {loss_text(mu**2, 6)}; {percent(spent)} of it was used.",
        table=Table(
            head=("step", "purpose", "mechanism", "queries", "noise scale", "μ²", "state"),
            rows=tuple(
                (
                    line.step,
                    line.purpose,
                    line.mechanism,
                    f"{line.queries:,}",
                    "–" if line.scale is None else f"{line.scale:.4g}",
                    f"{line.mu2:.3g}",
                    line.state,
                )
                for line in spends
            ),
        ),
    )


def _shares(counts: ArrayLike) -> list[float]:
    held = np.clip(np.asarray(counts, dtype=np.float64), 0, None)
    shares: list[float] = (held / max(held.sum(), 1e-300)).tolist()
    return shares


def _most_common(
    labels: Sequence[str], left: Sequence[float], right: Sequence[float]
) -> tuple[list[str], list[float], list[float]]:
    """The values to draw, in their declared order; the rarest are drawn as one when there are too many."""
    if len(labels) <= MAX_BARS:
        return list(labels), list(left), list(right)
    order = np.argsort(-(np.asarray(left) + np.asarray(right)), kind="stable")
    kept, rest = np.sort(order[: MAX_BARS - 1]), order[MAX_BARS - 1 :]
    return (
        [*(labels[i] for i in kept), f"{len(rest)} rarer values"],
        [*(left[i] for i in kept), sum(left[i] for i in rest)],
        [*(right[i] for i in kept), sum(right[i] for i in rest)],
    )
