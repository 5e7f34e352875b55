"""The public report: what anybody may know about a release, on one self-contained page without dates.

It is made of noisy answers, the model, the synthetic table and manifests, never of real rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from synth_core.domain import Clique, pick_varied
from synth_core.evaluation.distances import Z95
from synth_core.evaluation.public import BoughtError, MeanError, MeasuredMarginal, PublicQuality
from synth_core.models.junction_tree import JunctionTree
from synth_core.release.certificate import PURE, account_sentence
from synth_core.report import charts, exhibits
from synth_core.report.changes import Previous, changes_exhibit, changes_table
from synth_core.report.exhibits import Exhibit, columns_at_a_time, histograms_exhibit
from synth_core.report.page import (
    MAX_LISTED,
    Guarantee,
    SpendLine,
    Table,
    Tile,
    page,
    percent,
    privacy_tile,
    rules_table,
)
from synth_core.report.values import number
from synth_core.schema import Schema

if TYPE_CHECKING:  # which is made of parts of this page
    from synth_core.report.households import HouseholdSection


def public_report(
    manifest: dict[str, Any],
    quality: PublicQuality,
    *,
    schema: Schema,
    tree: JunctionTree,
    spends: Sequence[SpendLine],
    previous: Previous | None,
    households: HouseholdSection | None = None,
) -> str:
    """The report for everybody, from the manifest, noisy answers and the synthetic table; equal arguments, equal bytes.

    `previous` is what the release before has published, if there was one. Of two linked tables `schema` has the columns
    of one person and the household, and `households` is what there is to say of households.
    """
    stated = manifest["guarantee"]
    guarantee = Guarantee(
        **{key: stated[key] for key in ("unit", "neighbours", "epsilon", "delta", "mu")},
        spent=stated["epsilon_spent"],
        pure=stated.get(PURE),
    )
    asked = measured_pairs(quality)
    protected = [tuple(table) for table in manifest["method"].get("protected", ())]
    return page(
        "public.html.j2",
        title=f"{manifest['dataset']}: synthetic extract {manifest['release']}",
        facts={"Method": f"{manifest['method']['name']}, preset {manifest['method']['preset']}"},
        guarantee=guarantee,
        account=account_sentence(stated["account"], symbol="ε"),
        reused=" ".join(filter(None, (reuse_sentence(manifest), prior_sentence(manifest)))),
        headline=headline(schema, quality, asked=asked),
        tiles=_tiles(quality, guarantee, columns=len(schema.columns)),
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu),
        bought=bought_table(quality.bought),
        means=means_table(quality.means),
        answers=answers_exhibit(quality.measured) if quality.measured else None,
        compared=compared_answers(quality),
        tree=tree_exhibit(tree),
        ties=ties_exhibit(schema.domain.attributes, quality.ties, asked=asked),
        pairs=pairs_table(schema.domain.attributes, asked=asked, protected=protected),
        groups=groups_table(schema, quality),
        rules=rules_table(quality.violations, rows=quality.rows),
        columns=_columns(schema, quality),
        changes=changes_table(manifest, previous.manifest if previous else None),
        moved=changes_exhibit(schema, quality, previous) if previous else None,
        release=manifest["release"],
        tables=manifest.get("tables"),
        households=households,
    )


def reuse_sentence(manifest: dict[str, Any]) -> str:
    """Which answers of earlier releases went into the table, and where their price is stated; empty without any."""
    reused = manifest.get("reused", [])
    used = [f"{one['tables']:,} noisy tables of release {one['release']}" for one in reused if one["used"]]
    aside = [one["release"] for one in reused if not one["used"]]
    said = []
    if used:
        names = " and ".join(used)
        said.append(f"The model also knows {names}, paid for there and counted in all releases together.")
    if aside:
        said.append(f"The noisy answers of {' and '.join(aside)} disagree with those of now and were not used.")
    return " ".join(said)


def prior_sentence(manifest: dict[str, Any]) -> str:
    """Which public table went into the model, and who says that it is public; empty without any."""
    prior = manifest.get("public_information")
    if not prior:
        return ""
    files = " and ".join(f"{file['name']} (SHA-256 {file['sha256'][:12]}…)" for file in prior["files"])
    said = f"Public information used: {files}, {prior['rows']:,} records; public because: {prior['public_because']}."
    aside = "" if prior["used"] else " The noisy answers do not bear it out, so the model does not build on it."
    return said + aside


def measured_pairs(quality: PublicQuality) -> set[frozenset[str]]:
    """The pairs of columns that some noisy answer holds together; what is between others is the model's alone."""
    return {frozenset(pair) for m in quality.measured for pair in combinations(m.clique, 2)}


def headline(schema: Schema, quality: PublicQuality, *, asked: Collection[frozenset[str]]) -> str:
    """How good the table is, in a few sentences."""
    columns = len(schema.columns)
    said = [f"The table has {quality.rows:,} synthetic records of {columns} columns."]
    if quality.people:
        said = [f"The tables have {quality.rows:,} synthetic households with {quality.people:,} people."]
    pairs = [error for error in quality.bought if error.alpha == 2]
    if pairs:
        error = pairs[0]
        said.append(
            f"A table of counts over two of its columns is off by {percent(error.mean)} of the records on average "
            f"(± {error.margin * 100:.2f} points)."
        )
    elif quality.measured:
        distance, noise = mean_distances(quality.measured)
        close = "as closely as their noise allows" if distance <= CLOSE * noise else "less closely than it could"
        said.append(
            f"It follows the noisy answers that it was made from {close}: it is {percent(distance)} away from them on "
            f"average, and noise alone would put it {percent(noise)} away."
        )
    if total := math.comb(columns, 2):
        said.append(
            f"Of {total:,} pairs of columns {len(asked):,} were measured together; "
            f"what the table says about the other {total - len(asked):,} follows from the model."
        )
    if groups := groups_table(schema, quality).rows:
        name, published, _, margin = groups[0]
        said.append(f"The least certain group is {name}, {published} of the records: {margin} of that, give or take.")
    return " ".join(said)


def pairs_table(attributes: Sequence[str], *, asked: Collection[frozenset[str]], protected: Sequence[Clique]) -> Table:
    """For each column with which others it was measured, with which it was protected, and with which it was not."""

    def listed(names: list[str]) -> str:
        return ", ".join(names) or "–"

    kept = {frozenset(pair) for table in protected for pair in combinations(table, 2)}
    rows = []
    for name in attributes:
        others = [other for other in attributes if other != name]
        measured = [other for other in others if {name, other} in asked]
        always = [other for other in measured if {name, other} in kept]
        modelled = [other for other in others if {name, other} not in asked]
        rows.append((name, listed(always), listed([o for o in measured if o not in always]), listed(modelled)))
    return Table(
        head=("column", "protected with", "also measured with", "modelled only with"), rows=tuple(rows), words=4
    )


def _tiles(quality: PublicQuality, guarantee: Guarantee, *, columns: int) -> list[Tile]:
    tiles = [
        privacy_tile(guarantee),
        Tile(
            name="Synthetic households" if quality.people else "Synthetic records",
            value=f"{quality.rows:,}",
            note=f"with {quality.people:,} people" if quality.people else f"of {columns} columns; none is a person",
        ),
    ]
    tiles += [
        Tile(
            name=f"Mean {error.alpha}-way error",
            value=percent(error.mean),
            note=f"± {error.margin * 100:.2f} points, bought with its own noise",
        )
        for error in quality.bought
        if error.alpha > 1
    ]
    if quality.measured and not quality.bought:
        distance, noise = mean_distances(quality.measured)
        tiles.append(Tile(name="From the noisy answers", value=percent(distance), note=f"noise alone {percent(noise)}"))
    if quality.violations:
        broken = sum(quality.violations.values())
        tiles.append(
            Tile(
                name="Rule violations",
                value=f"{broken:,}",
                note=f"against {len(quality.violations)} declared rules",
            )
        )
    return tiles


def _columns(schema: Schema, quality: PublicQuality) -> tuple[Exhibit, ...]:
    """Each column's noisy answer beside the synthetic table, where the release has asked for it."""
    asked = [column for column in schema.columns if column.name in quality.columns]
    noisy = {column.name: np.asarray(quality.columns[column.name].shares) for column in asked}
    # Not divided by their sum, as the distances from all other noisy answers are not.
    distances = {name: float(np.abs(shares - quality.synthetic[name]).sum()) / 2 for name, shares in noisy.items()}
    return exhibits.column_exhibits(asked, noisy, quality.synthetic, reference_name="noisy answer", tvd=distances)


_MOST_CLIQUES = 60
_RAREST_GROUP = 0.001
CLOSE = 1.25
"""A table that is this many times as far from its answers as their noise still follows them closely."""


def answers_exhibit(measured: Sequence[MeasuredMarginal]) -> Exhibit:
    """How far the synthetic table is from every noisy answer, beside how far noise alone would put it."""
    sizes = sorted({len(m.clique) for m in measured})
    groups = [(size, [m for m in measured if len(m.clique) == size]) for size in sizes]
    panels = [(columns_at_a_time(size), [m.distance for m in group], *mean_distances(group)) for size, group in groups]
    words = "; ".join(f"{size}-way {percent(mean_distances(group)[0])}" for size, group in groups)
    furthest = sorted(measured, key=lambda m: m.noise - m.distance)
    ranked = pick_varied(furthest, lambda m: m.clique, count=MAX_LISTED)
    return histograms_exhibit(
        "Distance from the noisy answers",
        panels,
        alt=f"Histograms of the distance of the synthetic table from each noisy answer: {words} on average.",
        note="A table that follows its answers is about as far from them as the noise alone.",
        floor="noise alone",
        table=Table(
            head=("furthest beyond noise", "cells", "distance", "noise alone"),
            rows=tuple((" × ".join(m.clique), f"{m.cells:,}", percent(m.distance), percent(m.noise)) for m in ranked),
        ),
    )


def compared_answers(quality: PublicQuality) -> str:
    """How many of the noisy answers are tables that the synthetic table is compared with, and what the others are."""
    others = ", ".join(f"{number:,} {kind}" for kind, number in sorted(quality.answers_unused.items()))
    rest = f" Not compared, because they are no tables of all records: {others}." if others else ""
    return f"Noisy answers that are compared with the published table: {quality.answers_used:,}.{rest}"


def means_table(means: Sequence[MeanError]) -> Table:
    """The means whose sums were bought, with their margins."""
    rows = tuple((one.column, number(one.mean), f"±{number(one.margin)}") for one in means)
    return Table(head=("column", "mean", "95% within"), rows=rows)


def bought_table(bought: Sequence[BoughtError]) -> Table:
    """The errors that were bought: how far the table is from the real one, with the margin of the noise."""
    return Table(
        head=("columns at a time", "mean distance", "95% margin", "marginals"),
        rows=tuple(
            (str(e.alpha), percent(e.mean), f"±{e.margin * 100:.2f} points", f"{e.marginals:,}") for e in bought
        ),
    )


def tree_exhibit(tree: JunctionTree) -> Exhibit:
    """Which columns the model ties together directly."""
    shown = [place for place in range(len(tree.cliques)) if place < _MOST_CLIQUES]
    labels = [_given(tree.cliques[place], tree.separator(place)) for place in shown]
    some = "" if len(shown) == len(tree.cliques) else f" The first {len(shown)} of {len(tree.cliques)} groups."
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
    attributes: Sequence[str], ties: Sequence[Sequence[float]], *, asked: Collection[frozenset[str]]
) -> Exhibit:
    """How strongly pairs of columns go together in the published table, and which were measured together."""
    svg, ranked = exhibits.heatmap_of_pairs(attributes, ties, marked=asked)
    listed = pick_varied(ranked, lambda pair: pair[1:], count=2 * MAX_LISTED)
    strongest = f" The strongest is {ranked[0][1]} and {ranked[0][2]}." if ranked else ""
    return Exhibit(
        title="How strongly columns go together",
        svg=svg,
        alt=f"Heatmap of the distance of every pair of columns from independence.{strongest}",
        note="Distance from independence in the published table, in % of the records. Pairs without a dark corner were "
        "not measured together: what is shown of them follows from the model alone.",
        table=Table(
            head=("strongest pairs", "distance from independence", "measured together"),
            rows=tuple((f"{a} × {b}", percent(value), "yes" if {a, b} in asked else "no") for value, a, b in listed),
        ),
        key=(("ink", "measured together"),),
        wide=len(attributes) > exhibits.MANY_COLUMNS,
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
                    percent(answer.shares[code]),
                    f"±{percent(margin / share)}",
                )
                lines.append((margin / share, column.name, row))
    lines.sort(key=lambda line: -line[0])
    listed = pick_varied(lines, lambda line: (line[1],), count=MAX_LISTED)
    return Table(
        head=("group", "published", "noisy answer", "noise within"),
        rows=tuple(row for *_, row in listed),
    )


def mean_distances(group: Sequence[MeasuredMarginal]) -> tuple[float, float]:
    """Mean distance from the noisy answers, and mean distance that noise alone would give."""
    return float(np.mean([m.distance for m in group])), float(np.mean([m.noise for m in group]))


def _given(clique: Clique, separator: Clique) -> str:
    new = ", ".join(name for name in clique if name not in separator)
    return f"{new} given {', '.join(separator)}" if separator else new
