"""Exhibits of a public report: made of noisy answers, the model and the synthetic table, never of real rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth_core.domain import Clique
from synth_core.evaluation.public import Z95, BoughtError, MeasuredMarginal, PublicQuality
from synth_core.models.junction_tree import JunctionTree
from synth_core.report import charts
from synth_core.report.exhibits import MOST_HEATMAP_COLUMNS, Exhibit, columns_at_a_time
from synth_core.report.tables import MOST_LISTED, Table, percent
from synth_core.schema import Schema

_MOST_CLIQUES = 60
_RAREST_GROUP = 0.001


def answers_exhibit(measured: Sequence[MeasuredMarginal]) -> Exhibit:
    """How far the synthetic table is from every noisy answer, beside how far noise alone would put it."""
    sizes = sorted({len(m.clique) for m in measured})
    groups = [(size, [m for m in measured if len(m.clique) == size]) for size in sizes]
    panels = [
        (columns_at_a_time(size), [m.distance for m in group], *mean_distances(group))
        for size, group in groups
    ]
    words = "; ".join(f"{size}-way {mean_distances(group)[0]:.4f}" for size, group in groups)
    ranked = sorted(measured, key=lambda m: m.noise - m.distance)[:MOST_LISTED]
    return Exhibit(
        title="Distance from the noisy answers",
        svg=charts.histograms(panels),
        alt=f"Histograms of the distance of the synthetic table from each noisy answer: {words} on average.",
        note="A table that follows its answers is about as far from them as the noise alone.",
        table=Table(
            head=("furthest beyond noise", "cells", "distance", "noise alone"),
            rows=tuple(
                (" × ".join(m.clique), f"{m.cells:,}", f"{m.distance:.4f}", f"{m.noise:.4f}") for m in ranked
            ),
        ),
        key=(("ink", "mean"), ("warning", "noise alone")),
    )


def compared_answers(quality: PublicQuality) -> str:
    """How many of the noisy answers are tables that the synthetic table is compared with, and what the others are."""
    others = ", ".join(f"{number:,} {kind}" for kind, number in sorted(quality.answers_unused.items()))
    rest = f" Not compared, because they are no tables of all records: {others}." if others else ""
    return f"Noisy answers that are compared with the published table: {quality.answers_used:,}.{rest}"


def bought_table(bought: Sequence[BoughtError]) -> Table:
    """The errors that were bought: how far the table is from the real one, with the margin of the noise."""
    return Table(
        head=("columns at a time", "mean distance", "95% margin", "marginals"),
        rows=tuple(
            (str(e.alpha), percent(e.mean), f"±{e.margin * 100:.2f} points", f"{e.marginals:,}")
            for e in bought
        ),
    )


def tree_exhibit(tree: JunctionTree) -> Exhibit:
    """Which columns the model ties together directly."""
    shown = [place for place in range(len(tree.cliques)) if place < _MOST_CLIQUES]
    labels = [_given(tree.cliques[place], tree.separator(place)) for place in shown]
    some = (
        "" if len(shown) == len(tree.cliques) else f" The first {len(shown)} of {len(tree.cliques)} groups."
    )
    return Exhibit(
        title="What the model ties together",
        svg=charts.indented_tree(labels, [tree.parents[place] for place in shown]),
        alt=f"Tree of {len(tree.cliques)} groups of columns; every group depends on the others only through "
        "the columns it shares with the group above it.",
        note=f"Columns of one line are modelled together, given those of the line above they hang on.{some}",
        table=Table(
            head=("group", "columns", "shared with the group above", "cells"),
            rows=tuple(
                (
                    str(place + 1),
                    ", ".join(tree.cliques[place]),
                    ", ".join(tree.separator(place)) or "–",
                    f"{tree.domain.cells(tree.cliques[place]):,}",
                )
                for place in shown
            ),
        ),
    )


def ties_exhibit(
    attributes: Sequence[str], ties: Sequence[Sequence[float]], *, asked: Sequence[Clique]
) -> Exhibit:
    """How strongly pairs of columns go together in the published table, and which were measured together."""
    matrix = np.asarray(ties)
    shown = np.sort(np.argsort(-matrix.mean(axis=0), kind="stable")[:MOST_HEATMAP_COLUMNS])
    pairs = [(matrix[i, j], attributes[j], attributes[i]) for i in range(len(matrix)) for j in range(i)]
    ranked = sorted(pairs, key=lambda pair: -pair[0])[: 2 * MOST_LISTED]
    strongest = f" The strongest is {ranked[0][1]} and {ranked[0][2]}." if ranked else ""
    return Exhibit(
        title="How strongly columns go together",
        svg=charts.heatmap([attributes[place] for place in shown], matrix[np.ix_(shown, shown)].tolist()),
        alt=f"Heatmap of the distance of every pair of columns from independence.{strongest}",
        note="Distance from independence in the published table, times 100.",
        table=Table(
            head=("strongest pairs", "distance from independence", "measured together"),
            rows=tuple(
                (f"{a} × {b}", f"{value:.4f}", "yes" if any({a, b} <= set(c) for c in asked) else "no")
                for value, a, b in ranked
            ),
        ),
    )


def groups_table(schema: Schema, quality: PublicQuality) -> Table:
    """The groups whose published share is least certain, relative to their size."""
    lines = []
    for column in schema.columns:
        answer = quality.columns.get(column.name)
        if answer is None:
            continue
        margin = Z95 * answer.sigma
        for code, share in enumerate(quality.synthetic[column.name]):
            if share >= _RAREST_GROUP:
                name = f"{column.name} = {column.captions[code]}"
                row = (
                    name,
                    percent(share),
                    percent(max(answer.shares[code], 0.0)),
                    f"±{percent(margin / share)}",
                )
                lines.append((margin / share, row))
    lines.sort(key=lambda line: -line[0])
    return Table(
        head=("group", "published", "noisy answer", "noise within"),
        rows=tuple(row for _, row in lines[:MOST_LISTED]),
    )


def mean_distances(group: Sequence[MeasuredMarginal]) -> tuple[float, float]:
    """Mean distance from the noisy answers, and mean distance that noise alone would give."""
    return float(np.mean([m.distance for m in group])), float(np.mean([m.noise for m in group]))


def _given(clique: Clique, separator: Clique) -> str:
    new = ", ".join(name for name in clique if name not in separator)
    return f"{new} given {', '.join(separator)}" if separator else new
