"""The public report: what anybody may know about a release, on one self-contained page without dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth_core.evaluation.distances import tvd
from synth_core.evaluation.public import PublicQuality
from synth_core.models.junction_tree import JunctionTree
from synth_core.release.certificate import account_sentence
from synth_core.report import exhibits, public_exhibits
from synth_core.report.changes import changes_table
from synth_core.report.exhibits import Exhibit
from synth_core.report.guarantee import Guarantee, SpendLine
from synth_core.report.page import Tile, page, privacy_tile
from synth_core.report.tables import percent, rules_table
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
        bought=public_exhibits.bought_table(quality.bought),
        answers=public_exhibits.answers_exhibit(quality.measured) if quality.measured else None,
        compared=public_exhibits.compared_answers(quality),
        tree=public_exhibits.tree_exhibit(tree),
        ties=public_exhibits.ties_exhibit(
            schema.domain.attributes, quality.ties, asked=[m.clique for m in quality.measured]
        ),
        groups=public_exhibits.groups_table(schema, quality),
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
        distance, noise = public_exhibits.mean_distances(quality.measured)
        tiles.append(
            Tile(name="From the noisy answers", value=percent(distance), note=f"noise alone {percent(noise)}")
        )
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
    noisy = {
        column.name: [max(0.0, share) for share in quality.columns[column.name].shares] for column in asked
    }
    distances = {
        name: tvd(np.asarray(shares), np.asarray(quality.synthetic[name])) if sum(shares) > 0 else 1.0
        for name, shares in noisy.items()
    }
    return exhibits.column_exhibits(
        asked, noisy, quality.synthetic, reference_name="noisy answer", tvd=distances
    )
