"""The public report: what anybody may know about a release, on one self-contained page without dates.

It is made of noisy answers, the model, the synthetic table and manifests, never of real rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth_core.domain import Clique
from synth_core.evaluation.distances import Z95
from synth_core.evaluation.public import BoughtError, MeanError, MeasuredMarginal, PublicQuality
from synth_core.models.junction_tree import JunctionTree
from synth_core.privacy.wording import loss_text
from synth_core.release.certificate import account_sentence
from synth_core.report import charts, exhibits
from synth_core.report.exhibits import Exhibit, columns_at_a_time
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
from synth_core.schema import Schema


def public_report(
    manifest: dict[str, Any],
    quality: PublicQuality,
    *,
    schema: Schema,
    tree: JunctionTree,
    spends: Sequence[SpendLine],
    previous: dict[str, Any] | None,
) -> str:
    """The report for everybody, from the manifest, noisy answers and the synthetic table; equal arguments, equal bytes.

    `previous` is the manifest of the release before, if there was one.
    """
    stated = manifest["guarantee"]
    guarantee = Guarantee(
        **{key: stated[key] for key in ("unit", "neighbours", "epsilon", "delta", "mu")},
        spent=stated["epsilon_spent"],
    )
    return page(
        "public.html.j2",
        title=f"{manifest['dataset']}: synthetic extract {manifest['release']}",
        facts={"Method": f"{manifest['method']['name']}, preset {manifest['method']['preset']}"},
        guarantee=guarantee,
        account=account_sentence(stated["account"], symbol="ε"),
        tiles=_tiles(quality, guarantee, columns=len(schema.columns)),
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu),
        bought=bought_table(quality.bought),
        means=means_table(quality.means),
        answers=answers_exhibit(quality.measured) if quality.measured else None,
        compared=compared_answers(quality),
        tree=tree_exhibit(tree),
        ties=ties_exhibit(schema.domain.attributes, quality.ties, asked=[m.clique for m in quality.measured]),
        groups=groups_table(schema, quality),
        rules=rules_table(quality.violations, rows=quality.rows),
        columns=_columns(schema, quality),
        changes=changes_table(manifest, previous),
        release=manifest["release"],
    )


def _tiles(quality: PublicQuality, guarantee: Guarantee, *, columns: int) -> list[Tile]:
    tiles = [
        privacy_tile(guarantee),
        Tile(
            name="Synthetic records",
            value=f"{quality.rows:,}",
            note=f"of {columns} columns; none is a person",
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


def answers_exhibit(measured: Sequence[MeasuredMarginal]) -> Exhibit:
    """How far the synthetic table is from every noisy answer, beside how far noise alone would put it."""
    sizes = sorted({len(m.clique) for m in measured})
    groups = [(size, [m for m in measured if len(m.clique) == size]) for size in sizes]
    panels = [(columns_at_a_time(size), [m.distance for m in group], *mean_distances(group)) for size, group in groups]
    words = "; ".join(f"{size}-way {mean_distances(group)[0]:.4f}" for size, group in groups)
    ranked = sorted(measured, key=lambda m: m.noise - m.distance)[:MAX_LISTED]
    return Exhibit(
        title="Distance from the noisy answers",
        svg=charts.histograms(panels),
        alt=f"Histograms of the distance of the synthetic table from each noisy answer: {words} on average.",
        note="A table that follows its answers is about as far from them as the noise alone.",
        table=Table(
            head=("furthest beyond noise", "cells", "distance", "noise alone"),
            rows=tuple((" × ".join(m.clique), f"{m.cells:,}", f"{m.distance:.4f}", f"{m.noise:.4f}") for m in ranked),
        ),
        key=(("ink", "mean"), ("warning", "noise alone")),
    )


def compared_answers(quality: PublicQuality) -> str:
    """How many of the noisy answers are tables that the synthetic table is compared with, and what the others are."""
    others = ", ".join(f"{number:,} {kind}" for kind, number in sorted(quality.answers_unused.items()))
    rest = f" Not compared, because they are no tables of all records: {others}." if others else ""
    return f"Noisy answers that are compared with the published table: {quality.answers_used:,}.{rest}"


def means_table(means: Sequence[MeanError]) -> Table:
    """The means whose sums were bought, with their margins."""
    rows = tuple((one.column, f"{one.mean:,.6g}", f"±{one.margin:,.3g}") for one in means)
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


def ties_exhibit(attributes: Sequence[str], ties: Sequence[Sequence[float]], *, asked: Sequence[Clique]) -> Exhibit:
    """How strongly pairs of columns go together in the published table, and which were measured together."""
    svg, ranked = exhibits.heatmap_of_pairs(attributes, ties)
    strongest = f" The strongest is {ranked[0][1]} and {ranked[0][2]}." if ranked else ""
    return Exhibit(
        title="How strongly columns go together",
        svg=svg,
        alt=f"Heatmap of the distance of every pair of columns from independence.{strongest}",
        note="Distance from independence in the published table, times 100.",
        table=Table(
            head=("strongest pairs", "distance from independence", "measured together"),
            rows=tuple(
                (f"{a} × {b}", f"{value:.4f}", "yes" if any({a, b} <= set(c) for c in asked) else "no")
                for value, a, b in ranked[: 2 * MAX_LISTED]
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
                    percent(answer.shares[code]),
                    f"±{percent(margin / share)}",
                )
                lines.append((margin / share, row))
    lines.sort(key=lambda line: -line[0])
    return Table(
        head=("group", "published", "noisy answer", "noise within"),
        rows=tuple(row for _, row in lines[:MAX_LISTED]),
    )


def mean_distances(group: Sequence[MeasuredMarginal]) -> tuple[float, float]:
    """Mean distance from the noisy answers, and mean distance that noise alone would give."""
    return float(np.mean([m.distance for m in group])), float(np.mean([m.noise for m in group]))


def _given(clique: Clique, separator: Clique) -> str:
    new = ", ".join(name for name in clique if name not in separator)
    return f"{new} given {', '.join(separator)}" if separator else new


def changes_table(manifest: dict[str, Any], previous: dict[str, Any] | None) -> Table | None:
    """One row for each fact, the earlier release beside this one; None for the first release of a data set."""
    if previous is None:
        return None
    before, now = _facts(previous), _facts(manifest)
    return Table(
        head=("", previous["release"], manifest["release"]),
        rows=tuple((name, before.get(name, "–"), value) for name, value in now.items())
        + tuple(_changed_columns(previous, manifest)),
    )


def _facts(manifest: dict[str, Any]) -> dict[str, str]:
    guarantee, method = manifest["guarantee"], manifest["method"]
    quality = manifest.get("quality", {})
    facts = {
        "privacy loss ε": loss_text(guarantee["epsilon"]),
        "schema": manifest["schema_digest"][:12],
        "method": f"{method['name']}, preset {method['preset']}",
        "measured marginals": f"{quality.get('measured_marginals', 0):,}",
    }
    if "noisy_total" in quality:
        facts["records, noisy"] = f"{quality['noisy_total']:,.0f}"
    for error in quality.get("bought", []):
        facts[f"mean {error['alpha']}-way distance"] = percent(error["mean"])
    return facts


def _changed_columns(previous: dict[str, Any], manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    before, now = previous.get("domain", {}), manifest["domain"]
    added = [name for name in now if name not in before]
    removed = [name for name in before if name not in now]
    changed = [name for name in now if name in before and now[name] != before[name]]
    rows = [("columns added", "", ", ".join(added))] if added else []
    rows += [("columns removed", ", ".join(removed), "")] if removed else []
    rows += [("columns declared otherwise", "", ", ".join(changed))] if changed else []
    return rows
