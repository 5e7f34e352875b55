"""The internal report: true errors for the agency's own reviewers, on one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from synth_core.evaluation.result import Evaluation
from synth_core.report import exhibits, tables
from synth_core.report.guarantee import Guarantee, SpendLine
from synth_core.report.page import Tile, page, privacy_tile
from synth_core.schema import Schema

__all__ = ["Guarantee", "SpendLine", "internal_report"]

HEADLINE_ALPHAS = (2, 3, 5)
"""The marginals whose mean error is shown first."""


def internal_report(
    evaluation: Evaluation,
    *,
    schema: Schema,
    title: str,
    guarantee: Guarantee | None,
    spends: Sequence[SpendLine],
    real_one_way: Mapping[str, ArrayLike],
    synthetic_one_way: Mapping[str, ArrayLike],
    facts: Mapping[str, str] | None = None,
) -> str:
    """The report for the agency's own reviewers, with true errors; it belongs in the confidential zone.

    `real_one_way` and `synthetic_one_way` hold the counts of each column's codes; `facts` are shown under the
    title as they are (release, method, …). A table whose origin is not known has no guarantee to state, and the
    page leaves that section out. Equal arguments give equal bytes.
    """
    return page(
        "internal.html.j2",
        title=title,
        facts=dict(facts or {}),
        guarantee=guarantee,
        tiles=_tiles(evaluation, guarantee),
        budget=exhibits.budget_exhibit(spends, mu=guarantee.mu) if guarantee and spends else None,
        marginals=exhibits.marginals_exhibit(evaluation.marginals) if evaluation.marginals else None,
        pairs=exhibits.pairs_exhibit(evaluation.attributes, evaluation.pairs),
        predictions=exhibits.predictions_exhibit(evaluation.targets) if evaluation.targets else None,
        worst_cells=tables.worst_cells_table(schema, evaluation.worst_cells),
        worst_marginals=tables.worst_marginals_table(evaluation.marginals) if evaluation.marginals else None,
        subgroups=tables.subgroups_table(schema, evaluation.subgroups),
        scores=tables.scores_table(evaluation.scores, evaluation.correlations),
        closeness=tables.closeness_table(evaluation.closeness),
        suspicious=evaluation.closeness.suspicious,
        rules=tables.rules_table(evaluation.violations, rows=evaluation.synthetic_rows),
        columns=exhibits.column_exhibits(
            schema.columns, real_one_way, synthetic_one_way, reference_name="real", tvd=evaluation.one_way
        ),
        one_way=evaluation.one_way,
        rows={"real": evaluation.real_rows, "synthetic": evaluation.synthetic_rows},
    )


def _tiles(evaluation: Evaluation, guarantee: Guarantee | None) -> list[Tile]:
    tiles = [privacy_tile(guarantee)] if guarantee else []
    tiles += [
        Tile(
            name=f"Mean {errors.alpha}-way error",
            value=tables.percent(errors.tvd.mean),
            note=f"sampling alone {tables.percent(errors.floor)}, "
            f"independent columns {tables.percent(errors.independent)}",
        )
        for errors in evaluation.marginals
        if errors.alpha in HEADLINE_ALPHAS
    ]
    if evaluation.targets:
        extra = float(np.mean([target.synthetic - target.real for target in evaluation.targets]))
        tiles.append(
            Tile(
                name="Prediction error",
                value=f"{tables.points(extra)} points",
                note="against training on real rows",
            )
        )
    if evaluation.violations:
        broken, rules = sum(evaluation.violations.values()), len(evaluation.violations)
        note = f"of {rules} rules, in {evaluation.synthetic_rows:,} rows"
        tiles.append(Tile(name="Rule violations", value=f"{broken:,}", note=note))
    return tiles
